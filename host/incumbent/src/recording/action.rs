//! What a host does beside an elector, as a recording tells it.

use crate::types::ElectionId;

/// What a host did beside an elector.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostAction {
    /// It read the wall clock: the time as RFC 3339.
    Clock(String),
    /// It found the elector broken, for this reason, and replaces it.
    Broke(String),
    /// The work of this term has stopped. Its elector broke, and is not told.
    Yielded(NamedTerm),
    /// It has the store revoke the lease of this id, which an elector that broke has left.
    GaveBack(i64),
    /// The thread that keeps deadlines ended a term, before the elector did.
    Expired(NamedTerm),
    /// So many of the lines that follow are missing, because they could not be written in time.
    Gap(u64),
    /// The elections that the elector had when this segment began.
    Elections(Vec<KnownElection>),
    /// The session has ended, and nothing follows.
    Closed,
}

/// A term, by its election's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTerm {
    /// The election's name.
    pub name: String,
    /// The term's epoch.
    pub epoch: i64,
}

/// An election, as an elector knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownElection {
    /// Its id.
    pub election: ElectionId,
    /// Its name.
    pub name: String,
    /// The candidate's key; empty if it has none.
    pub key: Vec<u8>,
}
