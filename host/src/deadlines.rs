//! Keeps deadlines, whatever else goes wrong.
//!
//! A term is over at its deadline, also where the runtime is starved, a call of the store
//! blocks, or the elector runs wild. Asked [`Term::is_valid`], the clock says so; a thread
//! sees to it that those who wait are told, and that what hangs on the end is called.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

#[cfg(feature = "testing")]
use tokio::sync::oneshot;
use tracing::error;

use crate::clock::{Bell, Clock};
use crate::term::Term;
use crate::types::{self, Mark, Reason};

/// The terms of a session, and one thread for them while there are any.
#[derive(Debug)]
pub(crate) struct Deadlines {
    clock: Arc<dyn Clock>,
    bell: Bell,
    watch: Mutex<Watch>,
}

#[derive(Debug, Default)]
struct Watch {
    /// Those that stand, and those whose end is to be told.
    terms: Vec<Arc<Term>>,
    /// The thread is there.
    kept: bool,
    #[cfg(feature = "testing")]
    rehearsal: Rehearsal,
}

/// What a test wants of the thread.
#[cfg(feature = "testing")]
#[derive(Debug, Default)]
struct Rehearsal {
    /// It stands still, as that of a stopped process.
    paused: bool,
    /// It tells of ends at this moment.
    busy: bool,
    /// They wait until it has told of all.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Deadlines {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, bell: Bell::default(), watch: Mutex::default() })
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// A term begins: its deadline is kept from now on.
    pub(crate) fn begin(
        self: &Arc<Self>,
        election: &str,
        leadership: types::Leadership,
    ) -> Arc<Term> {
        let term = Arc::new(Term::new(election, leadership, Arc::clone(self)));
        self.look(&term);
        term
    }

    /// Has the thread look at a term, which is new, or over.
    pub(crate) fn look(self: &Arc<Self>, term: &Arc<Term>) {
        let mut watch = self.watch();
        if !watch.terms.iter().any(|known| Arc::ptr_eq(known, term)) {
            watch.terms.push(Arc::clone(term));
        }
        if watch.kept {
            self.bell.ring();
            return;
        }
        let deadlines = Arc::clone(self);
        let keep = move || deadlines.keep();
        match thread::Builder::new().name("incumbent-terms".into()).spawn(keep) {
            Ok(_) => watch.kept = true,
            Err(error) => {
                error!(%error, "no thread for the deadlines: only the runtime keeps them");
            }
        }
    }

    /// The thread: ends what is due, until there is no term left.
    fn keep(&self) {
        loop {
            let (due, next) = self.due();
            if due.is_empty() {
                let Some(next) = next else {
                    return;
                };
                self.clock.wait_until(next, &self.bell);
            }
            for term in &due {
                term.conclude(Reason::Expired);
            }
            for term in &due {
                term.call_endings();
            }
        }
    }

    /// Takes out the terms that stand no more, and returns them with the next deadline.
    fn due(&self) -> (Vec<Arc<Term>>, Option<Mark>) {
        let mut watch = self.watch();
        #[cfg(feature = "testing")]
        if watch.rehearsal.paused {
            watch.rehearsal.waiting.clear();
            return (Vec::new(), Some(Mark::MAX));
        }
        let due: Vec<_> = watch.terms.extract_if(.., |term| !term.is_valid()).collect();
        let next = watch.terms.iter().map(|term| term.limit()).min();
        watch.kept = next.is_some() || !due.is_empty();
        #[cfg(feature = "testing")]
        watch.rehearsal.found(!due.is_empty());
        (due, next)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For tests.
#[cfg(feature = "testing")]
impl Deadlines {
    /// Waits until every end that is due has been told, and what hangs on it called.
    pub(crate) async fn settled(&self) {
        let (asked, told) = oneshot::channel();
        {
            let mut watch = self.watch();
            let all_stand = watch.terms.iter().all(|term| term.is_valid());
            let idle = all_stand && !watch.rehearsal.busy;
            if idle || !watch.kept || watch.rehearsal.paused {
                return;
            }
            watch.rehearsal.waiting.push(asked);
        }
        self.bell.ring();
        // It is dropped instead of answered.
        let _ = told.await;
    }

    /// Has the thread stand still, or go on.
    pub(crate) fn pause(&self, pause: bool) {
        self.watch().rehearsal.paused = pause;
        self.bell.ring();
    }
}

#[cfg(feature = "testing")]
impl Rehearsal {
    fn found(&mut self, due: bool) {
        self.busy = due;
        if !due {
            self.waiting.clear();
        }
    }
}
