//! Which watches of a set are open, and what they see.

use std::collections::BTreeSet;
use std::task::{Context, Poll};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::types::{Change, RequestId, Watched};

/// The watches of a set that are open. Who serves them tells what they see.
pub(crate) struct OpenWatches {
    ids: BTreeSet<RequestId>,
    seen: UnboundedReceiver<Watched>,
}

impl OpenWatches {
    pub(crate) fn new(seen: UnboundedReceiver<Watched>) -> Self {
        Self { ids: BTreeSet::new(), seen }
    }

    pub(crate) fn open(&mut self, id: RequestId) {
        self.ids.insert(id);
    }

    /// Whether it was open.
    pub(crate) fn close(&mut self, id: RequestId) -> bool {
        self.ids.remove(&id)
    }

    /// The next change that an open watch saw. Pending also when nobody is left to tell one.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        while let Poll::Ready(Some(watched)) = self.seen.poll_recv(context) {
            // The watch may have been closed since.
            if self.ids.contains(&watched.id) {
                if matches!(watched.change, Change::Ended(_)) {
                    self.ids.remove(&watched.id);
                }
                return Poll::Ready(watched);
            }
        }
        Poll::Pending
    }
}
