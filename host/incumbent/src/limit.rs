//! How much a session leads.

/// With more at once, the handovers of 10,000 elections are sooner over, and each takes longer.
const AT_ONCE: u32 = 32;

/// How much a session leads where others are in line too: for
/// [`Session::limit`](crate::Session::limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub(crate) at_most: u32,
    pub(crate) is_fair: bool,
    pub(crate) at_once: u32,
}

impl Limit {
    /// Its fair part: where four sessions are in line for all elections, a quarter of them. The
    /// session counts the candidates in line, up to 64 in each election. Each term beyond its part
    /// goes to the next candidate in line, which hands it on if its session has enough as well.
    pub fn fair() -> Self {
        Self { at_most: u32::MAX, is_fair: true, at_once: AT_ONCE }
    }

    /// So many terms. 0 counts as 1, and a session with several leases leads at least one term on each:
    /// [`drain`](crate::Session::drain) one that should lead nothing.
    pub fn at_most(terms: u32) -> Self {
        Self { at_most: terms.max(1), is_fair: false, at_once: AT_ONCE }
    }

    /// So many terms, and no more than the fair part.
    pub fn or_at_most(self, terms: u32) -> Self {
        Self { at_most: terms.max(1), ..self }
    }

    /// How many terms are being handed over at a time: 32 unless set. More are moved sooner, and are
    /// without a leader for longer.
    pub fn at_once(self, at_once: u32) -> Self {
        Self { at_once, ..self }
    }
}
