//! Guarded writes: what one changes, and how it may fail.

use crate::types::{Expectation, Failure, Mutation, Put, Revision, WriteOutcome};

/// Several changes, and what must hold for them. See [`Fence::write`](crate::Fence::write).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a write is made by Fence::write"]
pub struct Write {
    pub(crate) expect: Vec<Expectation>,
    pub(crate) mutations: Vec<Mutation>,
}

impl Write {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the key's last change was made at this revision; [`Revision::default`], which is
    /// 0: only if there is no such key.
    pub fn expect(mut self, key: impl Into<Vec<u8>>, modified: Revision) -> Self {
        self.expect.push(Expectation { key: key.into(), modified: modified.into() });
        self
    }

    /// Sets a key, under no lease.
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.mutations.push(Mutation::Put(Put { key: key.into(), value: value.into() }));
        self
    }

    /// Deletes a key, if it is there.
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.mutations.push(Mutation::Delete(key.into()));
        self
    }
}

/// Why a guarded write failed, or may have failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The term is over: nothing was changed.
    #[error("stale: the term is over")]
    Stale,
    /// A key was not as expected: nothing was changed.
    #[error("conflict: a key has been changed since the revision expected")]
    Conflict,
    /// No answer: the write may have happened, and may still happen as long as the term's
    /// key exists. Write that key again only with an expectation.
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
pub(crate) fn written(outcome: WriteOutcome) -> Result<Revision, WriteError> {
    match outcome {
        WriteOutcome::Applied(revision) => Ok(revision.into()),
        WriteOutcome::Stale => Err(WriteError::Stale),
        WriteOutcome::Conflict => Err(WriteError::Conflict),
        WriteOutcome::Unknown => Err(WriteError::Unknown),
        WriteOutcome::Failed(failure) => Err(WriteError::Failed(failure)),
    }
}
