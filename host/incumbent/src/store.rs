//! What an election needs of a place that holds leases and keys.
//!
//! A store knows nothing of elections. It does what it is told, one operation at
//! a time, and reports what came of it; whom that makes leader is the elector's
//! business. Connections, their health and the repair of streams are the
//! store's.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::admin;
use crate::types::{Entry, Failure, Operation, RequestId, Response, Watch, Watched};

mod connect;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod url;

pub use self::connect::connect;

/// A place that holds leases and keys: etcd, or something that means the same.
///
/// What every store promises; `incumbent-conformance` checks it,
/// but for restarts and suspended time:
///
/// - **Revisions.** Each transaction that changes something gets a revision, greater
///   than all before. What changes nothing has none. A key's `created` is the revision
///   that made it: made again, it has a greater one. They never go back, not over a
///   restart either: they are the epochs.
/// - **One order.** Transactions happen one after the other, each whole or not at all.
///   What was acknowledged to anyone shows in every [`Operation::Read`] that is sent
///   later, and is not lost.
/// - **Leases.** A lease is granted for no less than was asked. It lives for at least the
///   time that the store said it grants, from the moment on that the grant or the renewal
///   was *sent*. Then it ends, soon, and all keys that are attached to it are deleted, at
///   once and in one revision, though nobody asks for anything. Whatever was over is not
///   renewed. Suspended time counts. The id of one that is gone is free.
/// - **A key has one lease or none**: that of the last put. It has a name, of a byte at
///   least: what is asked of one without is [`Failure::Invalid`].
/// - **Guards** are looked at in the transaction that they guard. A write that changes a
///   key twice, but for deletions, is [`Failure::Invalid`].
/// - **Once.** Reads and renewals aside, what may have happened is not tried again by the
///   store itself. Whoever got no answer asks again, and is told what is true: that the
///   lease exists, that the key is taken, by the caller's own lease, or that there is a
///   conflict.
/// - **Watches** tell each change once, those of one revision before those of the next,
///   and all of them from the beginning on; or that they have ended. One that begins at a
///   revision of the past tells what has happened since, or
///   [`Compacted`](Failure::Compacted) with the oldest revision that is still known; one
///   that begins in the future tells nothing before.
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
/// let claim = Claim { key: b"office".into(), value: b"me".into(), lease: 7 };
/// let answer = store.call(Operation::Claim(claim), within).await?;
/// assert!(matches!(answer, Response::Claimed(claimed) if claimed.entry.lease == 7));
/// # Ok(())
/// # }
/// ```
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Starts one operation: one request, or one transaction, whole or not at
    /// all. The request is sent in the order of the first polls.
    ///
    /// The answer may take until `within` is over; then the future ends by
    /// itself with [`Failure::Timeout`], but for a [`Operation::KeepAlive`],
    /// whose late answer still counts: it ends when the answer comes or can no
    /// longer come. Dropping the future gives up the answer, not what was asked
    /// for: that may have happened, or happen yet.
    fn call(
        &self,
        operation: Operation,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response, Failure>>;

    /// Reads one key as whoever answers has it, without asking the others: it may be
    /// old. Unless a store knows a quicker way, the same as [`admin::get`].
    fn peek(
        &self,
        key: Vec<u8>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Option<Entry>, Failure>> {
        let answer = self.call(admin::reading(key), within);
        async move { admin::found(answer.await?) }.boxed()
    }

    /// A new set of watches, with a stream of its own for all of them. None of
    /// it outlives the set, and their ids are the set's own.
    fn watches(&self) -> Box<dyn Watches>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn call(
        &self,
        operation: Operation,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response, Failure>> {
        (**self).call(operation, within)
    }

    fn peek(
        &self,
        key: Vec<u8>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Option<Entry>, Failure>> {
        (**self).peek(key, within)
    }

    fn watches(&self) -> Box<dyn Watches> {
        (**self).watches()
    }
}

/// Any number of watches, and one sequence of what they see.
pub trait Watches: fmt::Debug + Send {
    /// Opens a watch. What becomes of it is told by [`poll_next`](Self::poll_next),
    /// under the watch's id.
    fn open(&mut self, watch: Watch);

    /// Closes a watch: nothing more of it is told. An id that is not known is
    /// ignored.
    fn close(&mut self, id: RequestId);

    /// The next thing that any of the watches saw. Never at an end: a set
    /// without watches is pending.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched>;
}

/// The first key after all those that begin with `prefix`, if there is one.
#[cfg(any(feature = "etcd", feature = "sqlite"))]
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end: Vec<u8> = prefix.iter().take(last + 1).copied().collect();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end)
}

#[cfg(all(test, any(feature = "etcd", feature = "sqlite")))]
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
