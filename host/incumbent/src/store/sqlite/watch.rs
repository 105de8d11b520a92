//! The sets of watches, and what they and their thread have between them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::Watches;
use super::Shared;
use super::waker::Waker;
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
#[derive(Debug)]
pub(super) struct Hub {
    calls: Mutex<Calls>,
    waker: Waker,
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
    /// Fails where this process may open no more files.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { calls: Mutex::default(), waker: Waker::new()? })
    }

    /// Something was committed by this process.
    pub(super) fn ring(&self) {
        self.calls().rung = true;
        self.waker.wake();
    }

    /// Listens to the bell, by which other processes tell that they have committed.
    pub(super) fn listen(&self, bell: &Path) -> io::Result<()> {
        self.waker.listen(bell)
    }

    /// Waits until there is something to do, and no longer than this. None when there is
    /// no set left: the thread has to end then.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Option<Vec<Wish>> {
        let until = at_most.map(|at_most| Instant::now() + at_most);
        // Without a watch a commit is of no interest.
        let watches = at_most.is_some();
        loop {
            {
                let mut calls = self.calls();
                let is_over = until.is_some_and(|until| until <= Instant::now());
                let is_rung = calls.rung && watches;
                if is_over || is_rung || calls.sets == 0 || !calls.wishes.is_empty() {
                    calls.rung = false;
                    calls.served = calls.sets > 0;
                    let wishes = std::mem::take(&mut calls.wishes);
                    return calls.served.then_some(wishes);
                }
            }
            if self.waker.wait(until, watches) {
                self.calls().rung = true;
            }
        }
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
            self.waker.wake();
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
        self.waker.wake();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_waits_while_there_is_a_set_and_ends_with_the_last() {
        let hub = Hub::new().unwrap();
        let set = hub.enter();
        let begun = Instant::now();
        let at_most = Duration::from_millis(50);
        assert!(hub.wait(Some(at_most)).is_some_and(|wishes| wishes.is_empty()));
        assert!(begun.elapsed() >= at_most);
        hub.ring();
        assert!(hub.wait(Some(Duration::from_secs(60))).is_some());
        assert!(begun.elapsed() < Duration::from_secs(30));
        hub.leave(set);
        assert!(hub.wait(None).is_none());
    }

    #[test]
    fn a_watch_that_no_thread_can_serve_ends() {
        let (tell, mut told) = unbounded_channel();
        let watch = Watch { id: 7, key: b"key".to_vec(), prefix: false, since: None };
        Wish::Open { set: 1, watch, tell }.refuse("why");
        let change = Change::Ended(Failure::Other("why".into()));
        assert_eq!(told.try_recv(), Ok(Watched { id: 7, change }));
    }
}
