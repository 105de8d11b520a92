//! A set of watches, where one task or thread serves all sets.

use std::collections::BTreeSet;
use std::task::{Context, Poll};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Watches;
use super::following::WatchRequest;
use crate::types::{Change, RequestId, Watch, Watched};

/// A set of watches, by its number, which makes its requests in some way.
pub(crate) struct WatchSet<R: Fn(WatchRequest)> {
    set: u64,
    request: R,
    open: BTreeSet<RequestId>,
    tell: UnboundedSender<Watched>,
    seen: UnboundedReceiver<Watched>,
}

impl<R: Fn(WatchRequest)> WatchSet<R> {
    pub(crate) fn new(set: u64, request: R) -> Self {
        let (tell, seen) = unbounded_channel();
        Self { set, request, open: BTreeSet::new(), tell, seen }
    }
}

impl<R: Fn(WatchRequest) + Send> Watches for WatchSet<R> {
    fn open(&mut self, watch: Watch) {
        self.open.insert(watch.id);
        let tell = self.tell.clone();
        (self.request)(WatchRequest::Open { set: self.set, watch, tell });
    }

    fn close(&mut self, id: RequestId) {
        if self.open.remove(&id) {
            (self.request)(WatchRequest::Close { set: self.set, id });
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        // There is always a sender: our own.
        while let Poll::Ready(Some(watched)) = self.seen.poll_recv(context) {
            // The watch may have been closed since.
            if self.open.contains(&watched.id) {
                if matches!(watched.change, Change::Ended(_)) {
                    self.open.remove(&watched.id);
                }
                return Poll::Ready(watched);
            }
        }
        Poll::Pending
    }
}

impl<R: Fn(WatchRequest)> Drop for WatchSet<R> {
    fn drop(&mut self) {
        (self.request)(WatchRequest::Leave { set: self.set });
    }
}
