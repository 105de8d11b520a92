//! What a session tells its users: who takes part, what the store has, what happens.

use crate::term::Term;
use crate::types::{Entry, Epoch, Failure, LeaseId, Mark, Reason, Revision};

/// A candidate of an election, as others see it in the store: the leader, or another one in
/// line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Participant {
    /// The candidate's key.
    pub key: Vec<u8>,
    /// What it proclaims; its identity unless it says otherwise.
    pub value: Vec<u8>,
    /// The key's create revision: the fencing token of its leadership, once it leads.
    pub epoch: Epoch,
    /// The lease that the key is attached to; 0 for none.
    pub lease: LeaseId,
}

impl From<Entry> for Participant {
    fn from(entry: Entry) -> Self {
        let (epoch, lease) = (entry.created.into(), entry.lease.into());
        Self { key: entry.key, value: entry.value, epoch, lease }
    }
}

/// A key as the store has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that created the key.
    pub created: Revision,
    /// The revision of its last change: what a [`Write`](crate::Write) expects that builds on
    /// the value.
    pub modified: Revision,
    /// The lease that it is attached to; 0 for none.
    pub lease: LeaseId,
}

impl From<Entry> for KeyValue {
    fn from(entry: Entry) -> Self {
        let Entry { key, value, lease, created, modified } = entry;
        let (created, modified) = (created.into(), modified.into());
        Self { key, value, created, modified, lease: lease.into() }
    }
}

/// A term that stands, and how far it has been extended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TermInfo {
    /// The fencing token of the term.
    pub epoch: Epoch,
    /// The leader key.
    pub key: Vec<u8>,
    /// The lease that the key is attached to.
    pub lease: LeaseId,
    /// The work must have stopped by then, unless extended: a mark of the session's clock.
    pub valid_until: Mark,
}

impl TermInfo {
    pub(crate) fn new(term: &Term, valid_until: Mark) -> Self {
        Self { epoch: term.epoch(), key: term.key.clone(), lease: term.lease(), valid_until }
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
        epoch: Epoch,
    },
    /// Leads from now on.
    Elected(TermInfo),
    /// Leads on, to a later `valid_until`.
    Extended(TermInfo),
    /// Renewals fail, and less than half of the time is left.
    Endangered(TermInfo),
    /// An operator wants another candidate to lead: the term ends once its work has stopped.
    HandOver {
        /// The term's.
        epoch: Epoch,
    },
    /// Leads no more.
    Demoted {
        /// The term's.
        epoch: Epoch,
        /// Why it ended.
        reason: Reason,
    },
    /// The leader, as a candidate sees it in a race that somebody else leads.
    Leader(Option<Participant>),
    /// Something a person should know, while the candidate carries on.
    Trouble(Failure),
    /// The candidacy is over for good: as asked, or for this reason. The last
    /// event.
    Withdrawn(Option<Failure>),
}
