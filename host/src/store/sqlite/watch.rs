//! The sets of watches, and what they and their thread have between them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::Watches;
use super::Shared;
use super::watcher::Watcher;
use crate::types::{Change, Failure, RequestId, Watch, Watched};

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
}

impl Watches for SqliteWatches {
    fn open(&mut self, watch: Watch) {
        self.open.insert(watch.id);
        let wish = Wish::Open { set: self.set, watch, tell: self.tell.clone() };
        self.shared.hub.wish(wish, &self.shared);
    }

    fn close(&mut self, id: RequestId) {
        if self.open.remove(&id) {
            self.shared.hub.wish(Wish::Close { set: self.set, id }, &self.shared);
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        // There is always a sender: our own.
        while let Poll::Ready(Some(watched)) = self.seen.poll_recv(context) {
            // What was seen of a watch before it was closed is of no interest.
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

impl fmt::Debug for SqliteWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteWatches").field(&self.open).finish()
    }
}

/// What a set asks of the thread.
#[derive(Debug)]
pub(super) enum Wish {
    Open { set: u64, watch: Watch, tell: UnboundedSender<Watched> },
    Close { set: u64, id: RequestId },
    Leave { set: u64 },
}

/// Where the thread is called.
#[derive(Debug, Default)]
pub(super) struct Hub {
    calls: Mutex<Calls>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    wishes: Vec<Wish>,
    /// Something was committed.
    rung: bool,
    /// The sets that there are, and the last one's number.
    sets: usize,
    last_set: u64,
    /// The thread is there.
    served: bool,
}

impl Hub {
    /// Something was committed, here or elsewhere.
    pub(super) fn ring(&self) {
        let mut calls = self.calls();
        calls.rung = true;
        self.called.notify_all();
    }

    /// Waits until there is something to do, and no longer than this. None when there is
    /// no set left: the thread has to end then.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Option<Vec<Wish>> {
        let quiet = |calls: &mut Calls| {
            calls.wishes.is_empty() && calls.sets > 0 && (!calls.rung || at_most.is_none())
        };
        let calls = self.calls();
        let mut calls = match at_most {
            Some(at_most) => {
                let waited = self.called.wait_timeout_while(calls, at_most, quiet);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            // Without a watch a commit is of no interest.
            None => {
                let waited = self.called.wait_while(calls, quiet);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        calls.rung = false;
        calls.served = calls.sets > 0;
        let wishes = std::mem::take(&mut calls.wishes);
        calls.served.then_some(wishes)
    }

    fn enter(&self) -> u64 {
        let mut calls = self.calls();
        calls.sets += 1;
        calls.last_set += 1;
        calls.last_set
    }

    fn leave(&self, set: u64) {
        let mut calls = self.calls();
        calls.sets -= 1;
        if calls.served {
            calls.wishes.push(Wish::Leave { set });
            self.called.notify_all();
        }
    }

    /// Asks the thread, and starts it if it is not there.
    fn wish(self: &Arc<Self>, wish: Wish, shared: &Shared) {
        let mut calls = self.calls();
        if !calls.served {
            let watcher = Watcher::new(shared);
            let serve = move || watcher.run();
            match thread::Builder::new().name("incumbent-watch".into()).spawn(serve) {
                Ok(_) => calls.served = true,
                Err(error) => return wish.refuse(&format!("no thread for a watch: {error}")),
            }
        }
        calls.wishes.push(wish);
        self.called.notify_all();
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wish {
    fn refuse(self, reason: &str) {
        match self {
            Self::Open { watch, tell, .. } => {
                let change = Change::Ended(Failure::Other(reason.into()));
                // The set may be gone.
                let _ = tell.send(Watched { id: watch.id, change });
            }
            Self::Close { .. } | Self::Leave { .. } => {}
        }
    }
}
