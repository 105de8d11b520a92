//! A set of watches, where one task or thread serves all sets.

use std::task::{Context, Poll};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Watches;
use super::following::WatchRequest;
use super::open_watches::OpenWatches;
use crate::types::{RequestId, Watch, Watched};

/// A set of watches. `request` hands its requests to the task or thread.
pub(crate) struct WatchSet<R: Fn(WatchRequest)> {
    set: u64,
    request: R,
    open: OpenWatches,
    tell: UnboundedSender<Watched>,
}

impl<R: Fn(WatchRequest)> WatchSet<R> {
    /// By its number, which no other set of this store has.
    pub(crate) fn new(set: u64, request: R) -> Self {
        let (tell, seen) = unbounded_channel();
        Self { set, request, open: OpenWatches::new(seen), tell }
    }
}

impl<R: Fn(WatchRequest) + Send> Watches for WatchSet<R> {
    fn open(&mut self, watch: Watch) {
        self.open.open(watch.id);
        let tell = self.tell.clone();
        (self.request)(WatchRequest::Open { set: self.set, watch, tell });
    }

    fn close(&mut self, id: RequestId) {
        if self.open.close(id) {
            (self.request)(WatchRequest::Close { set: self.set, id });
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        self.open.poll_next(context)
    }
}

impl<R: Fn(WatchRequest)> Drop for WatchSet<R> {
    fn drop(&mut self) {
        (self.request)(WatchRequest::Leave { set: self.set });
    }
}
