//! What a session tells its users.

use crate::types::{Entry, Failure, Mark, Reason};

/// The leader of an election, or a candidate in line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Leader {
    /// The candidate's key.
    pub key: Vec<u8>,
    /// What it proclaims; its identity unless it says otherwise.
    pub value: Vec<u8>,
    /// The key's create revision: the fencing token of its leadership.
    pub epoch: i64,
    /// The lease that the key is attached to; 0 for none.
    pub lease: i64,
}

impl From<Entry> for Leader {
    fn from(entry: Entry) -> Self {
        Self { key: entry.key, value: entry.value, epoch: entry.created, lease: entry.lease }
    }
}

/// What happens to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// In line.
    Joined {
        /// The candidate's key.
        key: Vec<u8>,
        /// The epoch, if this key comes to lead; 0 in a race that somebody else
        /// leads.
        epoch: i64,
    },
    /// Leads from now on.
    Elected {
        /// The term's.
        epoch: i64,
        /// The leader key.
        key: Vec<u8>,
        /// The lease that the key is attached to.
        lease: i64,
        /// The work must have stopped by then, unless extended.
        valid_until: Mark,
    },
    /// Leads on, to a later `valid_until`.
    Extended {
        /// The term's.
        epoch: i64,
        /// The leader key.
        key: Vec<u8>,
        /// The lease that the key is attached to.
        lease: i64,
        /// The work must have stopped by then, unless extended.
        valid_until: Mark,
    },
    /// Renewals fail, and less than half of the time is left.
    Endangered {
        /// The term's.
        epoch: i64,
        /// The leader key.
        key: Vec<u8>,
        /// The lease that the key is attached to.
        lease: i64,
        /// The work must have stopped by then, unless extended.
        valid_until: Mark,
    },
    /// Leads no more.
    Demoted {
        /// The term's.
        epoch: i64,
        /// Why it ended.
        reason: Reason,
    },
    /// The leader, as a candidate sees it in a race that somebody else leads.
    Leader(Option<Leader>),
    /// Something a person should know, while the candidate carries on.
    Trouble(Failure),
    /// The candidacy is over for good: as asked, or for this reason. The last
    /// event.
    Withdrawn(Option<Failure>),
}
