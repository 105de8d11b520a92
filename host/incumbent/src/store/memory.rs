//! The store in memory, for one process: tests of applications elect on it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

#[doc(hidden)]
pub use self::contents::{Contents, Rules};
#[cfg(any(feature = "etcd", feature = "postgres", feature = "sqlite"))]
pub(super) use self::contents::{Together, keys_of};
use self::watches::{MemoryWatches, Seen};
use super::{Store, Watches};
use crate::clock::{BootClock, Clock};
use crate::types::{self, Answer, LeaseId, Mark, Operation, Revision};

mod contents;
#[cfg(test)]
mod tests;
mod watches;

/// As on the store in a file.
const RULES: Rules = Rules { shortest: 1_000_000_000, unit: 1 };

/// How many past changes are kept, at least, for watches that begin in the past.
const HISTORY: usize = 10_000;

/// Leases and keys in the memory of this process. A cheap clone: all clones are the
/// same store, which ends with the last one.
///
/// It grants the requested lease time, but no less than a second, and counts it by its
/// clock. It answers at once, on the caller's thread.
///
/// ```
/// use incumbent::{MemoryStore, Options, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), incumbent::Error> {
/// let store = MemoryStore::default();
/// let one = Session::open(store.clone(), Options::default()).await?;
/// let leadership = one.election("my-service").campaign().await?;
/// assert!(leadership.is_valid());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    contents: Contents,
    /// The sets of watches, by their numbers.
    watching: BTreeMap<u64, Seen>,
    last_set: u64,
}

impl Default for MemoryStore {
    /// By the machine's clock.
    fn default() -> Self {
        Self::new(Arc::new(BootClock))
    }
}

impl MemoryStore {
    /// An empty store, whose leases live by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let contents = Contents::new(RULES);
        let state = Mutex::new(State { contents, watching: BTreeMap::new(), last_set: 0 });
        Self { shared: Arc::new(Shared { clock, state }) }
    }

    /// Sets a key to a value under no lease, as an operator would, also a key of a candidate.
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        // Space is never short here.
        let _ = self.shared.act(|contents, _| contents.put(key.into(), value.into(), 0));
    }

    /// Deletes a key, as an operator would, if it exists.
    pub fn delete(&self, key: impl AsRef<[u8]>) {
        self.shared.act(|contents, _| contents.delete(key.as_ref()));
    }

    /// Ends a lease, as an operator would, and deletes its keys. False if there is none.
    pub fn revoke(&self, lease: LeaseId) -> bool {
        self.shared.act(|contents, _| contents.end_lease(lease.into()))
    }

    /// Forgets the history before a revision. False if that is forgotten already, or the
    /// revision does not exist yet.
    pub fn compact(&self, revision: Revision) -> bool {
        self.shared.act(|contents, _| contents.compact(revision.into()))
    }

    /// The revision of the last change.
    pub fn revision(&self) -> Revision {
        self.shared.act(|contents, _| contents.revision()).into()
    }

    /// Does an operation, now.
    pub(crate) fn perform(&self, operation: &Operation) -> Answer {
        self.shared.act(|contents, now| contents.perform(now, operation))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("MemoryStore")
            .field("revision", &state.contents.revision())
            .field("watching", &state.watching.len())
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn call(&self, operation: Operation, _within: Duration) -> BoxFuture<'static, Answer> {
        let store = self.clone();
        async move { store.perform(&operation) }.boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(MemoryWatches::new(Arc::clone(&self.shared)))
    }
}

impl Shared {
    /// Acts on the contents as they are now, without the leases that are over, and tells the
    /// watches.
    fn act<T>(&self, act: impl FnOnce(&mut Contents, Mark) -> T) -> T {
        let mut state = self.state.lock();
        let State { contents, watching, .. } = &mut *state;
        let now = self.clock.now();
        let first_end = contents.next_end();
        contents.tick(now);
        let acted = act(contents, now);
        watching.values_mut().for_each(|seen| seen.take(contents));
        contents.forget(HISTORY);
        let next_end = contents.next_end();
        if next_end.is_some_and(|end| first_end.is_none_or(|first| end < first)) {
            // A set has to be awake when that lease runs out.
            watching.values_mut().for_each(Seen::wake);
        }
        acted
    }

    /// Ends the leases that are over, and tells the watches. When the next lease runs out.
    pub(crate) fn sweep(&self) -> Option<Mark> {
        self.act(|contents, _| contents.next_end())
    }
}

/// Here, not in `contents`: the simulation, which includes that file, keeps all history.
impl Contents {
    /// Drops the oldest changes where there are twice as many as are to be kept.
    fn forget(&mut self, keep: usize) {
        if self.log.len() < 2 * keep {
            return;
        }
        let Some(&(oldest, _)) = self.log.get(self.log.len() - keep) else {
            return;
        };
        // What one revision changed stays together.
        let gone = self.log.partition_point(|(at, _)| *at < oldest);
        self.log.drain(..gone);
        self.dropped += gone;
        self.compacted = self.compacted.max(oldest);
    }
}
