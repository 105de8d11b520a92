//! The work of the demonstration: a number in the store, which leaders count up.

use std::sync::Arc;
use std::time::Duration;

use incumbent::types::{Guard, Guarded, Mutation, Operation, Put, Response};
use incumbent::{Failure, Fence, Revision, Store, Write, WriteError, admin};

use crate::end::shortened;
use crate::report::Outcome;

/// How long the store may take for an answer.
pub const ANSWER: Duration = Duration::from_secs(5);

/// The counter of an election, and the way to it. A cheap clone.
#[derive(Clone, Debug)]
pub struct Counter {
    store: Arc<dyn Store>,
    key: String,
}

/// What the counter was when it was read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub value: u64,
    /// The revision of its last change; 0 if there was none.
    modified: Revision,
}

impl Counter {
    pub fn new(store: Arc<dyn Store>, election: &str) -> Self {
        Self { store, key: format!("{election}-counter") }
    }

    pub async fn read(&self) -> Result<Reading, Failure> {
        let found = admin::get(&*self.store, self.key.as_str(), ANSWER).await?;
        let Some(entry) = found else {
            return Ok(Reading { value: 0, modified: Revision::default() });
        };
        let value = str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
        let value = value.ok_or_else(|| Failure::Other("the counter is no number".into()))?;
        Ok(Reading { value, modified: entry.modified })
    }

    /// Writes the next number, unless the counter has changed since: the way for a leader.
    pub async fn count_up(&self, fence: &Fence, from: Reading) -> Outcome {
        let key = self.key.as_str();
        let next = (from.value + 1).to_string();
        match fence.write(Write::new().expect(key, from.modified).put(key, next)).await {
            Ok(revision) => Outcome::Accepted { revision: revision.into() },
            Err(WriteError::Stale) => Outcome::Refused,
            Err(error) => unclear(error),
        }
    }

    /// Writes in the name of a term without asking the clock whether it still stands, like a
    /// write that was on its way when its sender was paused. Only the store can refuse it.
    pub async fn write_late(&self, guard: Guard, value: u64) -> Outcome {
        let put = Put { key: self.key.clone().into(), value: value.to_string().into() };
        let mutations = vec![Mutation::Put(put)];
        let write = Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations });
        match self.store.call(write, ANSWER).await {
            Ok(Response::Applied(revision)) => Outcome::Accepted { revision },
            Ok(Response::Stale) => Outcome::Refused,
            Ok(other) => unclear(format!("an answer to another question, {other:?}")),
            Err(failure) => unclear(failure),
        }
    }

    /// Ends the lease of a candidate that was killed.
    pub async fn revoke(&self, lease: i64) -> Result<Response, Failure> {
        self.store.call(Operation::Revoke(lease), ANSWER).await
    }

    /// Whether the store answers within this time: no transaction is holding it up.
    pub async fn is_free(&self, within: Duration) -> bool {
        // No lease has this number.
        self.store.call(Operation::Revoke(i64::MAX), within).await.is_ok()
    }

    pub async fn delete(&self, fence: &Fence) -> Result<Revision, WriteError> {
        fence.delete(self.key.as_str()).await
    }
}

fn unclear(why: impl ToString) -> Outcome {
    Outcome::Unclear { why: shortened(why) }
}
