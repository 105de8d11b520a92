//! The contract between elections and a store of leases and keys.
//!
//! A store knows nothing of elections. It does one operation at a time, and reports the
//! outcome; the elector decides who leads. The store keeps its connections and streams in
//! repair.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::types::{Answer, Entry, Operation, RequestId, Watch, Watched};

#[cfg(any(feature = "etcd", feature = "postgres"))]
pub(crate) mod connect_error;
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub(crate) mod credentials;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod following;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod job;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod limits;
pub(crate) mod memory;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "sqlite"))]
pub(crate) mod open_watches;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod read;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "sqlite"))]
pub(crate) mod sharing;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod time;
pub(crate) mod url;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod watch_set;

/// A place that holds leases and keys: etcd, or a store that behaves as etcd does.
///
/// Every store makes these promises. `incumbent-conformance` checks them, except across
/// restarts and in suspended time:
///
/// - **Revisions.** Each transaction that changes something gets a revision, greater than all
///   before; one that changes nothing gets none. A key's `created` is the revision that made
///   it: a key that is made again has a greater one. Revisions never go back, not even over a
///   restart: they are the epochs.
/// - **Together.** Operations that are under way at once may be done in one transaction, and then
///   share its revision. No two of them claim keys of one queue, whose order is that of their
///   revisions, and none changes what another one changes or compares.
/// - **One order.** Transactions happen one after the other, each whole or not at all. An
///   acknowledged change shows in every [`Operation::Read`] that is sent later, and is not
///   lost.
/// - **Leases.** A lease is granted for no less than the requested time. It lives for at least
///   the granted time, from the moment on that the grant or the renewal was *sent*. Then it
///   ends, soon, and all keys that are attached to it are deleted, at once and in one revision,
///   without any request. A lease that is over is not renewed. Suspended time counts. The id of
///   a lease that is gone is free.
/// - **A key has one lease or none**: that of the last put. Keys have at least one byte; an
///   operation on an empty key fails with [`Failure::Invalid`].
/// - **Guards** are compared in the transaction that they guard. A write that changes a key
///   twice fails with [`Failure::Invalid`], unless both changes are deletions.
/// - **Once.** Apart from reads and renewals, the store itself does not repeat an operation that
///   may have happened. A caller without an answer asks again, and learns what is true: that
///   the lease exists, that the key is taken, by the caller's own lease, or that there is a
///   conflict.
/// - **Watches** tell each change once, those of one revision before those of the next, and all
///   of them from the start on; or that they have ended. A watch that begins at a past revision
///   tells the changes since, or [`Failure::Compacted`] with the oldest revision that is still
///   known; one that begins in the future tells nothing before.
///
/// ```
/// use incumbent::types::{Claim, Grant, Operation, Response};
/// use incumbent::{MemoryStore, Store};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), incumbent::Failure> {
/// let store = MemoryStore::default();
/// let within = Duration::from_secs(5);
/// let ttl = 10_000_000_000; // in nanoseconds
/// store.call(Operation::Grant(Grant { lease: 7, ttl }), within).await?;
/// let claim = Claim { key: b"my-service".into(), value: b"me".into(), lease: 7 };
/// let answer = store.call(Operation::Claim(claim), within).await?;
/// assert!(matches!(answer, Response::Claimed(claimed) if claimed.entry.lease == 7));
/// # Ok(())
/// # }
/// ```
///
/// [`Failure::Compacted`]: crate::Failure::Compacted
/// [`Failure::Invalid`]: crate::Failure::Invalid
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Starts one operation: one request, or one transaction, whole or not at
    /// all. Operations that change the same keys are sent in the order of the first polls.
    ///
    /// Without an answer, the future ends with [`Failure::Timeout`] when `within` is over. Only
    /// that of a [`Operation::KeepAlive`] ends when the answer comes or can no longer come,
    /// because a late answer still counts. Dropping the future gives up the answer, not the
    /// operation: it may have happened, or may still happen.
    ///
    /// [`Failure::Timeout`]: crate::Failure::Timeout
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer>;

    /// Reads one key from one member, without the others' agreement: the entry may be old. By
    /// default the same as [`admin::get`](crate::admin::get); a store may have a quicker way.
    fn peek(&self, key: Vec<u8>, within: Duration) -> BoxFuture<'static, Answer<Option<Entry>>> {
        let answer = self.call(read::one_key(key), within);
        async move { read::found(answer.await?) }.boxed()
    }

    /// What is left of a lease. None if it is gone, or, by default, if the store cannot tell.
    fn lease_left(
        &self,
        _lease: i64,
        _within: Duration,
    ) -> BoxFuture<'static, Answer<Option<LeaseLeft>>> {
        async { Ok(None) }.boxed()
    }

    /// The statement that calls the fence in SQL for a term that this lease holds, with two parameters:
    /// the election's name and the epoch. None for a store that is no database into which its users
    /// write by themselves.
    fn fence_statement(&self, _lease: i64) -> Option<String> {
        None
    }

    /// A new set of watches. The set has a stream and ids of its own, and nothing of it
    /// outlives it.
    fn watches(&self) -> Box<dyn Watches>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        (**self).call(operation, within)
    }

    fn peek(&self, key: Vec<u8>, within: Duration) -> BoxFuture<'static, Answer<Option<Entry>>> {
        (**self).peek(key, within)
    }

    fn lease_left(
        &self,
        lease: i64,
        within: Duration,
    ) -> BoxFuture<'static, Answer<Option<LeaseLeft>>> {
        (**self).lease_left(lease, within)
    }

    fn fence_statement(&self, lease: i64) -> Option<String> {
        (**self).fence_statement(lease)
    }

    fn watches(&self) -> Box<dyn Watches> {
        (**self).watches()
    }
}

/// What is left of a lease, as the store tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLeft {
    /// What is left, perhaps rounded down to a second.
    pub left: Duration,
    /// For how long it was granted.
    pub granted: Duration,
}

/// Any number of watches, and one sequence of the changes that they see.
pub trait Watches: Send {
    /// Opens a watch. [`poll_next`](Self::poll_next) tells its start, its changes and its end,
    /// under its id.
    fn open(&mut self, watch: Watch);

    /// Closes a watch: nothing more of it is told. An unknown id is ignored.
    fn close(&mut self, id: RequestId);

    /// The next change that any of the watches saw. It never ends: a set without watches is
    /// pending.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched>;
}

/// The first key after all keys that begin with `prefix`, if there is one.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "sqlite"))]
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end: Vec<u8> = prefix.iter().take(last + 1).copied().collect();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end)
}

#[cfg(all(test, any(feature = "etcd", feature = "postgres", feature = "sqlite")))]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(end_of_prefix(b"a/"), Some(b"a0".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"\xff\xff"), None);
        assert_eq!(end_of_prefix(b""), None);
    }
}
