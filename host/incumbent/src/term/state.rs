//! The state of one term: its deadline, its end, and what is called at the end.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::error;

use super::validity::Validity;
use crate::clock::nanoseconds;
use crate::types::{self, Epoch, LeaseId, Mark, Reason};

/// One term, from its election to its end, which is final.
pub(crate) struct TermState {
    pub(crate) election: Box<str>,
    pub(crate) id: types::Term,
    pub(crate) key: Vec<u8>,
    pub(super) validity: Arc<Validity>,
    /// The deadline that it had at its end; 0 before.
    end: AtomicU64,
    /// What the driver or the deadline thread has said. An extension takes a danger away
    /// without saying so.
    pub(super) standing: watch::Sender<Standing>,
    /// The deadline at which the danger was said.
    endangered: AtomicU64,
    endings: Mutex<Vec<Ending>>,
    /// A [`Leadership`](crate::Leadership) of it was handed out, or never will be.
    taken: AtomicBool,
    yielded: watch::Sender<bool>,
    /// Its work has to stop, whatever renewals come.
    asked_to_stop: AtomicBool,
}

/// A call that is made at the end.
pub(super) type Ending = Box<dyn FnOnce(Reason) + Send>;

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

impl TermState {
    pub(super) fn new(
        election: &str,
        id: types::Term,
        key: Vec<u8>,
        validity: Arc<Validity>,
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
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.id.epoch.into()
    }

    pub(crate) fn lease(&self) -> LeaseId {
        self.validity.lease
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

    /// Whether the driver or the deadline thread has ended it.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Over(_))
    }

    /// True for the first caller, who has to say `yielded`.
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

    pub(crate) fn endanger(&self) {
        self.standing.send_if_modified(|standing| {
            let stands = !matches!(standing, Standing::Over(_));
            if stands {
                self.endangered.store(self.validity.deadline(), Ordering::Release);
                *standing = Standing::Endangered;
            }
            stands
        });
    }

    /// Endangers it for good.
    pub(crate) fn ask_to_stop(&self) {
        self.asked_to_stop.store(true, Ordering::Release);
        self.endanger();
    }

    /// What was said, if no extension has come since.
    pub(super) fn as_extended(&self, said: &Standing) -> Standing {
        let extended = || {
            let asked_to_stop = self.asked_to_stop.load(Ordering::Acquire);
            !asked_to_stop && self.endangered.load(Ordering::Acquire) < self.validity.deadline()
        };
        match said {
            Standing::Endangered if extended() => Standing::Firm,
            Standing::Firm | Standing::Endangered | Standing::Over(_) => said.clone(),
        }
    }

    /// Ends it, unless it is over, and returns the reason of its end. The endings are called
    /// separately.
    pub(super) fn conclude(&self, mut reason: Reason) -> Reason {
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

    /// Adds a call for the end.
    pub(super) fn add_ending(&self, ending: Ending) {
        self.endings.lock().push(ending);
    }

    /// Calls what is to be called at the end; nothing before the end.
    pub(super) fn call_endings(&self) {
        let Standing::Over(reason) = self.standing.borrow().clone() else {
            return;
        };
        let endings = mem::take(&mut *self.endings.lock());
        for ending in endings {
            let reason = reason.clone();
            if catch_unwind(AssertUnwindSafe(|| ending(reason))).is_err() {
                error!(epoch = self.id.epoch, "what was called at the end of a term panicked");
            }
        }
    }

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
        let _ = standing.wait_for(|said| self.as_extended(said) != Standing::Firm).await;
    }

    /// Waits until the deadline is later than this. For ever, once the term is over.
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

    /// The output of a future that ends before the deadline.
    pub(crate) async fn in_time<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                biased;
                outcome = &mut future => return Some(outcome),
                () = self.sleep_until(self.deadline()) => {}
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
                () = self.sleep_until(end) => {}
            }
        }
    }

    pub(super) async fn sleep_until(&self, mark: Mark) {
        self.validity.clock.sleep_until(mark).await;
    }

    fn now(&self) -> Mark {
        self.validity.clock.now()
    }
}

impl fmt::Debug for TermState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermState")
            .field("id", &self.id)
            .field("deadline", &self.deadline())
            .field("standing", &*self.standing.borrow())
            .finish_non_exhaustive()
    }
}
