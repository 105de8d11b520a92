//! The data that crosses the boundary between elector, driver and store: what
//! `wit/types.wit` declares. Epochs, revisions and lease ids are plain numbers in it.

use std::error;
use std::fmt;

pub(crate) mod numbers;

// Those that users hold as well are public at the root.
pub use crate::bindings::exports::incumbent::election::types::{
    Call, Candidacy, Change, Claim, Claimed, Command, Config, ConfigError, Deletion, Demotion,
    ElectionId, Entry, Event, Expectation, Extension, Grant, Guard, Guarded, GuardedWrite, Joined,
    Leadership, Limit, Listing, Mutation, Notice, Observation, Operation, Order, Proclamation, Put,
    Reply, RequestId, Response, Selection, Sighting, Snapshot, Step, Term, Ticket, Trouble, Watch,
    Watched, Withdrawal, WriteOutcome, Written,
};
pub(crate) use crate::bindings::exports::incumbent::election::types::{
    Contest, Duration, Failure, Mark, Reason,
};
pub(crate) use numbers::{Epoch, LeaseId, Revision};

/// What a store answers, or why it does not.
pub type Answer<T = Response> = Result<T, Failure>;

impl Operation {
    /// Its name, for logs and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Grant(_) => "grant",
            Self::KeepAlive(_) => "keep-alive",
            Self::Revoke(_) => "revoke",
            Self::Claim(_) => "claim",
            Self::Read(_) => "read",
            Self::Guarded(_) => "guarded",
        }
    }
}

impl Response {
    /// Its name, for logs and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Exists => "exists",
            Self::Renewed(_) => "renewed",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Claimed(_) => "claimed",
            Self::Taken(_) => "taken",
            Self::Snapshot(_) => "snapshot",
            Self::Applied(_) => "applied",
            Self::Stale => "stale",
            Self::Conflict => "conflict",
        }
    }
}

impl Selection {
    /// One key.
    pub fn of_key(key: impl Into<Vec<u8>>) -> Self {
        Self {
            key: key.into(),
            prefix: false,
            from: None,
            created_before: None,
            order: Order::OldestFirst,
            limit: 0,
            keys_only: false,
        }
    }

    /// All keys that begin with a prefix, the oldest first.
    pub fn of_prefix(prefix: impl Into<Vec<u8>>) -> Self {
        Self { prefix: true, ..Self::of_key(prefix) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the store did not answer in time"),
            Self::Unavailable => f.write_str("the store is not reached, or says to try again"),
            Self::Compacted(oldest) => {
                write!(f, "the store has nothing from before revision {oldest}")
            }
            Self::Denied(text) => write!(f, "the store denies it: {text}"),
            Self::Invalid(text) => write!(f, "not possible: {text}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl error::Error for Failure {}

impl Reason {
    /// Its name, for logs and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Resigned => "resigned",
            Self::Expired => "expired",
            Self::LeaseLost => "lease-lost",
            Self::Deposed => "deposed",
            Self::Fenced => "fenced",
            Self::Other(_) => "other",
        }
    }
}

impl Failure {
    /// Its name, for logs and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Compacted(_) => "compacted",
            Self::Denied(_) => "denied",
            Self::Invalid(_) => "invalid",
            Self::Other(_) => "other",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resigned => "resigned",
            Self::Expired => "the deadline came before a renewal",
            Self::LeaseLost => "the lease is gone",
            Self::Deposed => "someone deleted or took the leader's key",
            Self::Fenced => "a guarded write was refused",
            Self::Other(text) => text,
        })
    }
}
