//! What an election needs of a place that holds leases and keys.
//!
//! A store knows nothing of elections. It does what it is told, one operation at
//! a time, and reports what came of it; whom that makes leader is the elector's
//! business. Connections, their health and the repair of streams are the
//! store's.

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::types::{Failure, Operation, RequestId, Response, Watch, Watched};

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "etcd")]
pub mod url;

/// A place that holds leases and keys: etcd, or something that means the same.
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

    /// A new set of watches, with a stream of its own for all of them. None of
    /// it outlives the set.
    fn watches(&self) -> Box<dyn Watches>;
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
