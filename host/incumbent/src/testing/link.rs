//! The way of one process to the store.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::clock::{Clock, ManualClock, nanoseconds};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Watches};
use crate::types::{Answer, Failure, Mark, Operation, RequestId, Watch, Watched};

/// The way, and what is in it.
#[derive(Debug)]
pub(super) struct Link {
    store: MemoryStore,
    clock: ManualClock,
    is_cut: watch::Sender<bool>,
    writes: Mutex<Writes>,
}

#[derive(Debug, Default)]
struct Writes {
    lose_next_answer: bool,
    delay: bool,
    delayed: Vec<(Operation, oneshot::Sender<Answer>)>,
}

impl Link {
    pub(super) fn new(store: MemoryStore, clock: ManualClock) -> Self {
        Self { store, clock, is_cut: watch::Sender::new(false), writes: Mutex::default() }
    }

    pub(super) fn cut(&self, cut: bool) {
        self.is_cut.send_replace(cut);
    }

    pub(super) fn lose_next_answer(&self) {
        self.writes.lock().lose_next_answer = true;
    }

    pub(super) fn delay_writes(&self) {
        self.writes.lock().delay = true;
    }

    pub(super) fn deliver_writes(&self) {
        let delayed = {
            let mut writes = self.writes.lock();
            writes.delay = false;
            mem::take(&mut writes.delayed)
        };
        for (write, asked) in delayed {
            // The caller may have given up.
            let _ = asked.send(self.store.perform(&write));
        }
    }

    async fn call(&self, operation: Operation, sent: Mark, within: Duration) -> Answer {
        // The answer to a renewal counts whenever it comes.
        let renews = matches!(operation, Operation::KeepAlive(_));
        let until = if renews { Mark::MAX } else { sent.saturating_add(nanoseconds(within)) };
        if *self.is_cut.borrow() {
            let nothing = self.healed().map(|()| Err(Failure::Unavailable));
            return self.at_most(until, nothing).await;
        }
        if !matches!(operation, Operation::Guarded(_)) {
            return self.store.perform(&operation);
        }
        let answer = self.write(operation);
        self.at_most(until, answer.map(|answer| answer.unwrap_or(Err(Failure::Unavailable)))).await
    }

    /// Answered at once, unless it is delayed.
    fn write(&self, operation: Operation) -> oneshot::Receiver<Answer> {
        let (asked, answer) = oneshot::channel();
        let mut writes = self.writes.lock();
        if writes.delay {
            writes.delayed.push((operation, asked));
        } else {
            let made = self.store.perform(&operation);
            // Lost, it is dropped.
            if !mem::take(&mut writes.lose_next_answer) {
                let _ = asked.send(made);
            }
        }
        answer
    }

    async fn at_most(&self, until: Mark, answer: impl Future<Output = Answer>) -> Answer {
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.clock.sleep_until(until) => Err(Failure::Timeout),
        }
    }

    fn healed(&self) -> BoxFuture<'static, ()> {
        let mut is_cut = self.is_cut.subscribe();
        // A way that is gone is not cut either.
        async move { is_cut.wait_for(|is_cut| !is_cut).await.map_or((), |_| ()) }.boxed()
    }
}

/// The store, as it is at the end of the way.
#[derive(Clone, Debug)]
pub(super) struct Linked(pub(super) Arc<Link>);

impl Store for Linked {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let link = Arc::clone(&self.0);
        async move {
            let sent = link.clock.now();
            link.call(operation, sent, within).await
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        let watches = self.0.store.watches();
        Box::new(LinkedWatches { link: Arc::clone(&self.0), watches, healed: None })
    }
}

struct LinkedWatches {
    link: Arc<Link>,
    watches: Box<dyn Watches>,
    /// Until the way is mended.
    healed: Option<BoxFuture<'static, ()>>,
}

impl Watches for LinkedWatches {
    fn open(&mut self, watch: Watch) {
        self.watches.open(watch);
    }

    fn close(&mut self, id: RequestId) {
        self.watches.close(id);
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        if self.healed.is_some() || *self.link.is_cut.borrow() {
            let healed = self.healed.get_or_insert_with(|| self.link.healed());
            if healed.poll_unpin(context).is_pending() {
                return Poll::Pending;
            }
            self.healed = None;
        }
        self.watches.poll_next(context)
    }
}
