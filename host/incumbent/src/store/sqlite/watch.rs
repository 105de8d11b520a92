//! The sets of watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Shared;
use super::watcher::Watcher;
use crate::store::Watches;
use crate::store::following::WatchRequest;
use crate::types::{Change, RequestId, Watch, Watched};

/// A set of watches. One thread of the store's serves all sets.
pub(super) struct SqliteWatches {
    shared: Arc<Shared>,
    set: u64,
    open: BTreeSet<RequestId>,
    tell: UnboundedSender<Watched>,
    seen: UnboundedReceiver<Watched>,
}

impl SqliteWatches {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let set = shared.hub.enter();
        let (tell, seen) = unbounded_channel();
        Self { shared, set, open: BTreeSet::new(), tell, seen }
    }

    fn request(&self, request: WatchRequest) {
        self.shared.hub.request(request, || {
            let watcher = Watcher::new(&self.shared);
            let serve = move || watcher.run();
            thread::Builder::new().name("incumbent-watch".into()).spawn(serve).map(drop)
        });
    }
}

impl Watches for SqliteWatches {
    fn open(&mut self, watch: Watch) {
        self.open.insert(watch.id);
        let tell = self.tell.clone();
        self.request(WatchRequest::Open { set: self.set, watch, tell });
    }

    fn close(&mut self, id: RequestId) {
        if self.open.remove(&id) {
            self.request(WatchRequest::Close { set: self.set, id });
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

impl Drop for SqliteWatches {
    fn drop(&mut self) {
        self.shared.hub.leave(self.set);
    }
}
