//! Leading nothing, and standing in no line: what an operator wants of an instance that is about to
//! go. Each of its terms ends once somebody else is in line, and only so many at a time.

use crate::types::ElectionId;

/// Whether the session is drained, and how far that is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Drain {
    /// How many terms it hands over at a time; none while it takes part as usual.
    pub at_once: Option<u32>,
    /// Terms that are handed over, until their keys are gone.
    pub under_way: u32,
    /// A read of who else is in line is under way.
    pub asks: bool,
    /// The first election whose term has not been looked at in this round; none until the next one.
    pub next: Option<ElectionId>,
}

impl Drain {
    pub fn is_on(&self) -> bool {
        self.at_once.is_some()
    }

    /// How many more terms may be handed over now.
    pub fn free(&self) -> u32 {
        match self.at_once {
            Some(at_once) if !self.asks => at_once.saturating_sub(self.under_way),
            Some(_) | None => 0,
        }
    }
}
