//! What can go wrong, as the users of the library see it.

use std::error;
use std::fmt;

use crate::component::ComponentError;
#[cfg(feature = "etcd")]
use crate::store::etcd::ConnectError;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::SqliteError;
use crate::types::{Failure, Reason, WriteOutcome};

/// Why something did not come about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be: one sentence, which says what to mend.
    #[error("{0}")]
    Configuration(String),
    /// There is no connection to the store.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The store's file cannot serve.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
    /// The elector could not be started.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// The candidacy or observation is over for good, and this is why.
    #[error("withdrawn: {0}")]
    Withdrawn(#[source] Failure),
    /// The term was over before its resignation.
    #[error("the leadership was over already: {0}")]
    Lost(Reason),
    /// A candidate's value was not changed.
    #[error("the new value was not proclaimed: {0}")]
    Proclaim(#[source] WriteError),
    /// The candidate has left, or the session is closed.
    #[error("the candidate has left, or its session is closed")]
    Closed,
}

/// Why a guarded write was not made, or perhaps not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The term is over: nothing was changed.
    #[error("stale: the term is over")]
    Stale,
    /// A key was not as expected: nothing was changed.
    #[error("conflict: a key has been changed since the revision expected")]
    Conflict,
    /// No answer: it may have happened, and may happen yet as long as the term's
    /// key is there. Write that key again only with an expectation.
    #[error("unknown: there was no answer, it may have happened or happen yet")]
    Unknown,
    /// Refused: nothing was changed.
    #[error("refused: {0}")]
    Failed(#[source] Failure),
    /// The session is closed: nothing was changed.
    #[error("the session is closed")]
    Closed,
}

/// The revision of a write, or why there is none.
pub(crate) fn written(outcome: WriteOutcome) -> Result<i64, WriteError> {
    match outcome {
        WriteOutcome::Applied(revision) => Ok(revision),
        WriteOutcome::Stale => Err(WriteError::Stale),
        WriteOutcome::Conflict => Err(WriteError::Conflict),
        WriteOutcome::Unknown => Err(WriteError::Unknown),
        WriteOutcome::Failed(failure) => Err(WriteError::Failed(failure)),
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
