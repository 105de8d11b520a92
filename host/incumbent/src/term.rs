//! What the driver, the holder and the thread of the deadlines share of one term, and of
//! the lease that it stands on.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tracing::error;

use crate::clock::{Clock, nanoseconds};
use crate::deadlines::Deadlines;
use crate::types::{self, LeaseId, Mark, Reason};

/// How long the terms on one lease stand. They share it, so that a renewal moves one
/// deadline, however many terms there are.
pub(crate) struct Validity {
    /// Its place among the session's.
    serial: u64,
    lease: LeaseId,
    /// The deadline, as extended; with [`PASSED`] from the moment on when somebody saw that
    /// it has passed. Nothing revives it then: later terms on the lease get another one.
    limit: AtomicU64,
    /// For those who want to hear of extensions.
    extended: watch::Sender<()>,
    clock: Arc<dyn Clock>,
}

/// No mark is as late as this, after 292 years.
const PASSED: u64 = 1 << 63;

impl Validity {
    pub(crate) fn new(
        serial: u64,
        lease: LeaseId,
        valid_until: Mark,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limit = AtomicU64::new(valid_until.min(PASSED - 1));
        Self { serial, lease, limit, extended: watch::Sender::default(), clock }
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// As extended; never taken back.
    pub(crate) fn deadline(&self) -> Mark {
        self.limit.load(Ordering::Acquire) & !PASSED
    }

    /// False is final.
    fn is_valid(&self) -> bool {
        self.is_valid_at(self.clock.now())
    }

    /// The same, for one who has just looked at the clock.
    pub(crate) fn is_valid_at(&self, now: Mark) -> bool {
        let mut limit = self.limit.load(Ordering::Acquire);
        loop {
            if limit & PASSED != 0 {
                return false;
            }
            if now < limit {
                return true;
            }
            let passed = limit | PASSED;
            match self.limit.compare_exchange(limit, passed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return false,
                Err(extended) => limit = extended,
            }
        }
    }

    /// False if it comes too late.
    #[must_use]
    pub(crate) fn extend(&self, valid_until: Mark) -> bool {
        let valid_until = valid_until.min(PASSED - 1);
        loop {
            if !self.is_valid() {
                return false;
            }
            let limit = self.limit.load(Ordering::Acquire);
            if limit & PASSED == 0 && valid_until <= limit {
                return true;
            }
            let moved = self.limit.compare_exchange(
                limit & !PASSED,
                valid_until,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if moved.is_ok() {
                self.extended.send_replace(());
                return true;
            }
        }
    }
}

/// One term, from its election to its end, which is final.
pub(crate) struct Term {
    election: Box<str>,
    id: types::Term,
    key: Vec<u8>,
    validity: Arc<Validity>,
    /// The deadline that it had at its end; 0 before.
    end: AtomicU64,
    /// What it was told. An extension takes a danger away without telling.
    standing: watch::Sender<Standing>,
    /// The deadline for which it was told of a danger.
    endangered: AtomicU64,
    endings: Mutex<Vec<Ending>>,
    /// Someone holds a [`Leadership`](crate::Leadership) of it, or nobody ever will.
    taken: AtomicBool,
    yielded: watch::Sender<bool>,
    /// Its work is to stop, whatever renewals come.
    asked_to_stop: AtomicBool,
    deadlines: Arc<Deadlines>,
}

/// What is to be called at the end.
pub(crate) type Ending = Box<dyn FnOnce(Reason) + Send>;

/// How a term stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The work may go on.
    Firm,
    /// The work should come to its end: renewals fail, or somebody has asked it to stop.
    Endangered,
    /// The term is over, and this is why.
    Over(Reason),
}

impl Term {
    pub(crate) fn new(
        election: &str,
        id: types::Term,
        key: Vec<u8>,
        validity: Arc<Validity>,
        deadlines: Arc<Deadlines>,
    ) -> Self {
        Self {
            election: election.into(),
            id,
            key,
            validity,
            end: AtomicU64::new(0),
            standing: watch::Sender::new(Standing::Firm),
            endangered: AtomicU64::new(0),
            endings: Mutex::default(),
            taken: AtomicBool::new(false),
            yielded: watch::Sender::new(false),
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

    pub(crate) fn lease(&self) -> LeaseId {
        self.validity.lease
    }

    pub(crate) fn validity(&self) -> &Arc<Validity> {
        &self.validity
    }

    /// As extended while the term stood.
    pub(crate) fn deadline(&self) -> Mark {
        // In this order, an extension that came after the end is not taken for its own.
        let extended = self.validity.deadline();
        match self.end.load(Ordering::Acquire) {
            0 => extended,
            at_the_end => at_the_end,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_valid() {
            Duration::from_nanos(self.deadline().saturating_sub(self.now()))
        } else {
            Duration::ZERO
        }
    }

    /// False is final: an extension that comes after it is too late.
    pub(crate) fn is_valid(&self) -> bool {
        self.end.load(Ordering::Acquire) == 0 && self.validity.is_valid()
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
        self.yielded.send_replace(true);
    }

    pub(crate) fn is_yielded(&self) -> bool {
        *self.yielded.borrow()
    }

    /// Waits until its work has stopped.
    pub(crate) async fn yielded(&self) {
        // The sender is in this very term.
        let _ = self.yielded.subscribe().wait_for(|yielded| *yielded).await;
    }

    // What becomes of it. The driver endangers; the driver and the thread of the deadlines
    // end, and the first one is right.

    pub(crate) fn endanger(&self) {
        self.standing.send_if_modified(|standing| match standing {
            Standing::Firm | Standing::Endangered => {
                self.endangered.store(self.validity.deadline(), Ordering::Release);
                *standing = Standing::Endangered;
                true
            }
            Standing::Over(_) => false,
        });
    }

    /// What it was told, if no extension has come since.
    fn as_extended(&self, told: &Standing) -> Standing {
        let extended = || {
            let asked_to_stop = self.asked_to_stop.load(Ordering::Acquire);
            !asked_to_stop && self.endangered.load(Ordering::Acquire) < self.validity.deadline()
        };
        match told {
            Standing::Endangered if extended() => Standing::Firm,
            Standing::Firm | Standing::Endangered | Standing::Over(_) => told.clone(),
        }
    }

    /// Endangers it for good.
    pub(crate) fn ask_to_stop(&self) {
        self.asked_to_stop.store(true, Ordering::Release);
        self.endanger();
    }

    /// Ends it, unless it is over, and returns the reason of its end.
    pub(crate) fn end(self: &Arc<Self>, reason: Reason) -> Reason {
        let reason = self.conclude(reason);
        self.deadlines.tell(self);
        reason
    }

    /// The same, without what is to be called.
    pub(crate) fn conclude(&self, mut reason: Reason) -> Reason {
        self.standing.send_if_modified(|standing| {
            if let Standing::Over(earlier) = standing {
                reason.clone_from(earlier);
                return false;
            }
            self.end.store(self.validity.deadline(), Ordering::Release);
            *standing = Standing::Over(reason.clone());
            true
        });
        reason
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
        let _ = standing.wait_for(|told| self.as_extended(told) != Standing::Firm).await;
    }

    /// Waits until the deadline is another one than this. For ever, once the term is over.
    pub(crate) async fn extended(&self, last: Mark) -> Mark {
        let mut extended = self.validity.extended.subscribe();
        loop {
            let deadline = self.deadline();
            if deadline > last {
                return deadline;
            }
            // The sender is in what this term holds.
            let _ = extended.changed().await;
        }
    }

    /// How it stands at this moment, by the clock.
    pub(crate) fn standing(self: &Arc<Self>) -> Standing {
        if self.is_valid() {
            self.as_extended(&self.standing.borrow())
        } else {
            Standing::Over(self.end(Reason::Expired))
        }
    }

    /// Waits until it stands otherwise, or is over.
    pub(crate) async fn changed(self: &Arc<Self>, last: &Standing) -> Standing {
        let mut news = self.standing.subscribe();
        loop {
            news.mark_unchanged();
            let deadline = self.deadline();
            let standing = self.standing();
            if standing != *last || matches!(standing, Standing::Over(_)) {
                return standing;
            }
            tokio::select! {
                // As above.
                _ = news.changed() => {}
                _ = self.extended(deadline) => {}
                () = self.deadlines.clock().sleep_until(deadline) => {}
            }
        }
    }

    /// What comes of a future before the deadline; none if nothing does.
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
            self.deadlines.tell(self);
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
            .field("deadline", &self.deadline())
            .field("standing", &*self.standing.borrow())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validity")
            .field("lease", &self.lease)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
