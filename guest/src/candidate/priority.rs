//! A candidate's priority.
//!
//! The line is kept in the order of priorities while somebody leads, so that a handover needs no
//! look at them: a candidate with a priority writes a wish for itself, and those in front of it
//! with a lower one get back in line. Its wish stays until the candidacy or the lease ends. With the priority
//! of all others, zero, a candidate wishes only that a leader below zero hands over.
//!
//! So a candidate below zero is not told to make room. It lets others lead by getting back in line when it
//! comes first, once in each time of its lease.

use crate::session::Validity;
use crate::types::{Duration, Epoch, Mark, Revision};
use crate::wish::Wish;

/// A candidate's priority, and its wish in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    pub level: i64,
    /// For how long a leader with a lower priority may lead while this candidate waits behind it.
    /// None once this candidate has led: it takes the lead once.
    pub preempts_after: Option<Duration>,
    /// Until when it leads when it is first in line, though it is below zero; and keeps the lead then.
    pub leads_until: Mark,
    /// The create revision of its wish, under the present lease; 0 if there is none.
    pub created: Revision,
    /// The revision of the wish's last change; none while that is not known.
    pub modified: Option<Revision>,
    /// What it wishes: after which term the key of which revision leads, and whether now.
    pub wanted: (Epoch, Revision, bool),
    /// The wish in the store may be another one.
    pub is_stale: bool,
    /// A write has no answer yet.
    pub is_writing: bool,
    /// The last write was refused.
    pub is_refused: bool,
}

impl Priority {
    pub fn new(level: i32, preempts_after: Option<Duration>) -> Priority {
        Priority {
            level: level.into(),
            preempts_after,
            leads_until: 0,
            created: 0,
            modified: None,
            wanted: (0, 0, false),
            is_stale: false,
            is_writing: false,
            is_refused: false,
        }
    }

    /// The wish went with the lease.
    pub fn lease_lost(&mut self) {
        (self.created, self.modified) = (0, None);
        (self.is_stale, self.is_writing) = (false, false);
    }

    /// Whether a candidate that is first in line should let others lead. Then it leads the next time.
    pub fn gives_way(&mut self, now: Mark, validity: Validity) -> bool {
        let gives_way = self.level < 0 && self.leads_until <= now;
        if gives_way {
            self.leads_until = validity.until;
        }
        gives_way
    }

    /// Whether this candidate, whose key was created then, should make room.
    pub fn makes_room(&self, wish: &Wish<'_>, created: Revision) -> bool {
        wish.moves(created, self.level)
    }

    /// Whether this candidate, which leads, should hand over.
    pub fn hands_over(&self, wish: &Wish<'_>) -> bool {
        wish.outranks(self.level)
    }
}
