//! What the driver, the holder and the thread of the deadlines share of one term.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tracing::error;

use crate::clock::nanoseconds;
use crate::deadlines::Deadlines;
use crate::types::{self, Mark, Reason};

/// One term, from its election to its end, which is final.
pub(crate) struct Term {
    election: Box<str>,
    id: types::Term,
    key: Vec<u8>,
    lease: i64,
    /// As extended; never taken back.
    deadline: AtomicU64,
    /// The deadline while the term stands; 0 from the moment when somebody saw or said
    /// that it does not.
    limit: AtomicU64,
    standing: watch::Sender<Standing>,
    endings: Mutex<Vec<Ending>>,
    /// Someone holds a [`Leadership`](crate::Leadership) of it, or nobody ever will.
    taken: AtomicBool,
    yielded: AtomicBool,
    /// Its work is to stop, whatever renewals come.
    asked_to_stop: AtomicBool,
    deadlines: Arc<Deadlines>,
}

/// What is to be called at the end.
pub(crate) type Ending = Box<dyn FnOnce(Reason) + Send>;

/// How a term stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Firm,
    Endangered,
    Over(Reason),
}

impl Term {
    pub(crate) fn new(
        election: &str,
        leadership: types::Leadership,
        deadlines: Arc<Deadlines>,
    ) -> Self {
        Self {
            election: election.into(),
            id: leadership.term,
            key: leadership.key,
            lease: leadership.lease,
            deadline: AtomicU64::new(leadership.valid_until),
            limit: AtomicU64::new(leadership.valid_until),
            standing: watch::Sender::new(Standing::Firm),
            endings: Mutex::default(),
            taken: AtomicBool::new(false),
            yielded: AtomicBool::new(false),
            asked_to_stop: AtomicBool::new(false),
            deadlines,
        }
    }

    pub(crate) fn election(&self) -> &str {
        &self.election
    }

    pub(crate) fn id(&self) -> types::Term {
        self.id
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    pub(crate) fn deadline(&self) -> Mark {
        self.deadline.load(Ordering::Acquire)
    }

    /// The deadline while the term stands, 0 after it.
    pub(crate) fn limit(&self) -> Mark {
        self.limit.load(Ordering::Acquire)
    }

    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_nanos(self.limit().saturating_sub(self.now()))
    }

    /// False is final: an extension that comes after it is too late.
    pub(crate) fn is_valid(&self) -> bool {
        let mut limit = self.limit();
        while limit <= self.now() {
            match self.limit.compare_exchange(limit, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return false,
                Err(extended) => limit = extended,
            }
        }
        true
    }

    /// Its end has been told.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Over(_))
    }

    /// True for the first who asks: that one says `yielded`.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn mark_yielded(&self) {
        self.yielded.store(true, Ordering::Release);
    }

    pub(crate) fn is_yielded(&self) -> bool {
        self.yielded.load(Ordering::Acquire)
    }

    // What becomes of it. The driver extends and endangers; the driver and the thread of
    // the deadlines end, and the first one is right.

    /// False if it comes too late.
    #[must_use]
    pub(crate) fn extend(&self, valid_until: Mark) -> bool {
        let later = |limit: Mark| (self.now() < limit).then_some(limit.max(valid_until));
        let extended = self.limit.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        if extended.is_err() {
            return false;
        }
        self.deadline.fetch_max(valid_until, Ordering::AcqRel);
        self.change(|standing| match standing {
            Standing::Endangered if !self.asked_to_stop.load(Ordering::Acquire) => {
                Some(Standing::Firm)
            }
            Standing::Firm | Standing::Endangered | Standing::Over(_) => None,
        });
        true
    }

    pub(crate) fn endanger(&self) {
        self.change(|standing| (*standing == Standing::Firm).then_some(Standing::Endangered));
    }

    /// Endangers it for good.
    pub(crate) fn ask_to_stop(&self) {
        self.asked_to_stop.store(true, Ordering::Release);
        self.endanger();
    }

    /// Ends it, unless it is over, and returns the reason of its end.
    pub(crate) fn end(self: &Arc<Self>, reason: Reason) -> Reason {
        let reason = self.conclude(reason);
        self.deadlines.look(self);
        reason
    }

    /// The same, without what is to be called.
    pub(crate) fn conclude(&self, mut reason: Reason) -> Reason {
        self.standing.send_if_modified(|standing| {
            if let Standing::Over(earlier) = standing {
                reason.clone_from(earlier);
                return false;
            }
            self.limit.store(0, Ordering::Release);
            *standing = Standing::Over(reason.clone());
            true
        });
        reason
    }

    fn change(&self, to: impl FnOnce(&Standing) -> Option<Standing>) {
        self.standing.send_if_modified(|standing| match to(standing) {
            Some(other) => {
                *standing = other;
                true
            }
            None => false,
        });
    }

    // Those who wait for the end.

    pub(crate) async fn lost(&self) -> Reason {
        let mut standing = self.standing.subscribe();
        loop {
            if let Standing::Over(reason) = &*standing.borrow_and_update() {
                return reason.clone();
            }
            // The sender is in this very term.
            let _ = standing.changed().await;
        }
    }

    pub(crate) async fn endangered(&self) {
        let mut standing = self.standing.subscribe();
        // As above.
        let _ = standing.wait_for(|standing| *standing != Standing::Firm).await;
    }

    /// How it stands at this moment, by the clock.
    #[cfg(feature = "plugin")]
    pub(crate) fn standing(self: &Arc<Self>) -> Standing {
        if self.is_valid() {
            self.standing.borrow().clone()
        } else {
            Standing::Over(self.end(Reason::Expired))
        }
    }

    /// Waits until it stands otherwise, or is over.
    #[cfg(feature = "plugin")]
    pub(crate) async fn changed(self: &Arc<Self>, last: &Standing) -> Standing {
        let mut news = self.standing.subscribe();
        loop {
            news.mark_unchanged();
            let standing = self.standing();
            if standing != *last || matches!(standing, Standing::Over(_)) {
                return standing;
            }
            tokio::select! {
                // As above.
                _ = news.changed() => {}
                () = self.deadlines.clock().sleep_until(self.deadline()) => {}
            }
        }
    }

    /// What comes of a future before the deadline; none if nothing does.
    #[cfg(feature = "plugin")]
    pub(crate) async fn in_time<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                biased;
                outcome = &mut future => return Some(outcome),
                () = self.deadlines.clock().sleep_until(self.deadline()) => {}
            }
            if self.deadline() <= self.now() {
                return None;
            }
        }
    }

    /// Waits until no more than `early` is left, or the term is over.
    pub(crate) async fn runs_out(&self, early: Duration) {
        loop {
            let end = self.deadline().saturating_sub(nanoseconds(early));
            if end <= self.now() {
                return;
            }
            tokio::select! {
                _ = self.lost() => return,
                () = self.deadlines.clock().sleep_until(end) => {}
            }
        }
    }

    pub(crate) fn on_end(self: &Arc<Self>, ending: Ending) {
        self.endings().push(ending);
        if self.is_over() {
            self.deadlines.look(self);
        }
    }

    /// Calls what is to be called; nothing before the end.
    pub(crate) fn call_endings(&self) {
        let Standing::Over(reason) = self.standing.borrow().clone() else {
            return;
        };
        for ending in mem::take(&mut *self.endings()) {
            let reason = reason.clone();
            if catch_unwind(AssertUnwindSafe(|| ending(reason))).is_err() {
                error!(epoch = self.id.epoch, "what was called at the end of a term panicked");
            }
        }
    }

    fn endings(&self) -> MutexGuard<'_, Vec<Ending>> {
        self.endings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Mark {
        self.deadlines.clock().now()
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("id", &self.id)
            .field("deadline", &self.deadline)
            .field("standing", &*self.standing.borrow())
            .finish_non_exhaustive()
    }
}
