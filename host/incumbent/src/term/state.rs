//! The state of one term: its deadline, its end, and what is called at the end.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::error;

use super::validity::Validity;
use crate::clock::nanoseconds;
use crate::metrics;
use crate::observable::Observable;
use crate::types::{self, Epoch, LeaseId, Mark, Reason};

/// One term, from its election to its end, which is final.
pub(crate) struct TermState {
    pub(crate) election: Box<str>,
    pub(crate) id: types::Term,
    pub(crate) key: Vec<u8>,
    pub(super) validity: Arc<Validity>,
    /// The deadline that it had at its end; 0 before.
    end: AtomicU64,
    pub(super) said: Observable<Said>,
    /// The deadline at which the danger was said.
    endangered: AtomicU64,
    endings: Mutex<Vec<Ending>>,
    /// A [`Leadership`](crate::Leadership) of it was handed out, or never will be.
    taken: AtomicBool,
    /// Its work has to stop, whatever renewals come.
    asked_to_stop: AtomicBool,
    /// Its holder hears that it is asked to resign, and does.
    resigns_itself: AtomicBool,
}

/// What was said of a term.
pub(super) struct Said {
    /// By the driver or the deadline thread. An extension takes a danger away without saying so.
    pub(super) standing: Standing,
    /// By the holder of the term: its work has stopped.
    yielded: bool,
    /// By the driver: an operator wants another candidate to lead.
    asked_to_resign: bool,
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
        metrics::elected(election, id.epoch.into());
        Self {
            election: election.into(),
            id,
            key,
            validity,
            end: AtomicU64::new(0),
            said: Observable::new(Said {
                standing: Standing::Firm,
                yielded: false,
                asked_to_resign: false,
            }),
            endangered: AtomicU64::new(0),
            endings: Mutex::default(),
            taken: AtomicBool::new(false),
            asked_to_stop: AtomicBool::new(false),
            resigns_itself: AtomicBool::new(false),
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
        self.said.read(|said| matches!(said.standing, Standing::Over(_)))
    }

    /// True for the first caller, who has to say `yielded`.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn mark_yielded(&self) {
        self.said.change_if(|said| !mem::replace(&mut said.yielded, true));
    }

    pub(crate) fn is_yielded(&self) -> bool {
        self.said.read(|said| said.yielded)
    }

    /// Waits until its work has stopped.
    pub(crate) async fn yielded(&self) {
        self.said.wait_for(|said| said.yielded.then_some(())).await;
    }

    pub(crate) fn endanger(&self) {
        self.said.change_if(|said| {
            let stands = !matches!(said.standing, Standing::Over(_));
            if stands {
                self.endangered.store(self.validity.deadline(), Ordering::Release);
                said.standing = Standing::Endangered;
            }
            stands
        });
    }

    /// Endangers it for good.
    pub(crate) fn ask_to_stop(&self) {
        self.asked_to_stop.store(true, Ordering::Release);
        self.endanger();
    }

    /// True for the first time.
    pub(crate) fn ask_to_resign(&self) -> bool {
        let mut is_first = false;
        self.said.change_if(|said| {
            is_first = !mem::replace(&mut said.asked_to_resign, true);
            is_first
        });
        is_first
    }

    pub(crate) fn resigns_itself(&self) -> bool {
        self.resigns_itself.load(Ordering::Acquire)
    }

    /// Waits until it is asked to resign, which its holder does from now on.
    pub(crate) async fn asked_to_resign(&self) {
        self.resigns_itself.store(true, Ordering::Release);
        self.said.wait_for(|said| said.asked_to_resign.then_some(())).await;
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
        let mut has_ended = false;
        self.said.change_if(|said| {
            if let Standing::Over(earlier) = &said.standing {
                reason.clone_from(earlier);
                return false;
            }
            self.end.store(self.validity.deadline(), Ordering::Release);
            said.standing = Standing::Over(reason.clone());
            has_ended = true;
            true
        });
        if has_ended {
            metrics::ended(&self.election, &reason);
        }
        reason
    }

    /// Adds a call for the end.
    pub(super) fn add_ending(&self, ending: Ending) {
        self.endings.lock().push(ending);
    }

    pub(super) fn has_endings(&self) -> bool {
        !self.endings.lock().is_empty()
    }

    /// Calls what is to be called at the end; nothing before the end.
    pub(super) fn call_endings(&self) {
        let Standing::Over(reason) = self.said.read(|said| said.standing.clone()) else {
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
        let over = |said: &Said| match &said.standing {
            Standing::Over(reason) => Some(reason.clone()),
            Standing::Firm | Standing::Endangered => None,
        };
        self.said.wait_for(over).await
    }

    pub(crate) async fn endangered(&self) {
        let firm = |said: &Said| self.as_extended(&said.standing) == Standing::Firm;
        self.said.wait_for(|said| (!firm(said)).then_some(())).await;
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
            .field("standing", &self.said.read(|said| said.standing.clone()))
            .finish_non_exhaustive()
    }
}
