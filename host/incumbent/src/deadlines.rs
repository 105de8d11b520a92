//! Keeps deadlines, whatever else goes wrong.
//!
//! A term is over at its deadline, also where the runtime is starved, a call of the store
//! blocks, or the elector runs wild. Asked [`Term::is_valid`], the clock says so; a thread
//! sees to it that those who wait are told, and that what hangs on the end is called.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

#[cfg(feature = "testing")]
use tokio::sync::oneshot;
use tracing::error;

use crate::clock::{Bell, Clock};
use crate::term::{Term, Validity};
use crate::types::{self, ElectionId, LeaseId, Mark, Reason};

/// The terms of a session, and one thread for them while there are any.
#[derive(Debug)]
pub(crate) struct Deadlines {
    clock: Arc<dyn Clock>,
    bell: Bell,
    watch: Mutex<Watch>,
}

#[derive(Debug, Default)]
struct Watch {
    /// When to look at which validity. An extension is seen when its time has come.
    queue: BTreeSet<(Mark, u64)>,
    /// The validities on which terms stand, by their serial numbers.
    standing: BTreeMap<u64, Standing>,
    last_serial: u64,
    /// Those whose end is to be told.
    over: Vec<Arc<Term>>,
    /// The thread is there.
    kept: bool,
    #[cfg(feature = "testing")]
    rehearsal: Rehearsal,
}

/// The terms that stand on one validity.
#[derive(Debug)]
struct Standing {
    validity: Arc<Validity>,
    /// Its place in the queue.
    queued: Mark,
    terms: BTreeMap<(ElectionId, i64), Arc<Term>>,
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

    /// For the terms that begin on a lease, and end with it.
    pub(crate) fn validity(&self, lease: LeaseId, valid_until: Mark) -> Arc<Validity> {
        let mut watch = self.watch();
        watch.last_serial += 1;
        Arc::new(Validity::new(watch.last_serial, lease, valid_until, Arc::clone(&self.clock)))
    }

    /// A term begins: its deadline is kept from now on.
    pub(crate) fn begin(
        self: &Arc<Self>,
        election: &str,
        id: types::Term,
        key: Vec<u8>,
        validity: &Arc<Validity>,
    ) -> Arc<Term> {
        let validity = Arc::clone(validity);
        let term = Arc::new(Term::new(election, id, key, Arc::clone(&validity), Arc::clone(self)));
        let mut watch = self.watch();
        let Watch { queue, standing, .. } = &mut *watch;
        let mut is_new = false;
        let standing = standing.entry(validity.serial()).or_insert_with(|| {
            is_new = true;
            let queued = validity.deadline();
            queue.insert((queued, validity.serial()));
            Standing { validity, queued, terms: BTreeMap::new() }
        });
        standing.terms.insert((id.election, id.epoch), Arc::clone(&term));
        if is_new || !watch.kept {
            self.call_thread(watch);
        }
        term
    }

    /// Has the thread tell of a term that is over.
    pub(crate) fn tell(self: &Arc<Self>, term: &Arc<Term>) {
        let mut watch = self.watch();
        let serial = term.validity().serial();
        if let Some(standing) = watch.standing.get_mut(&serial) {
            standing.terms.remove(&(term.id().election, term.id().epoch));
            if standing.terms.is_empty() {
                let queued = (standing.queued, serial);
                watch.queue.remove(&queued);
                watch.standing.remove(&serial);
            }
        }
        watch.over.push(Arc::clone(term));
        self.call_thread(watch);
    }

    /// Has the thread look again, and starts it if it is not there.
    fn call_thread(self: &Arc<Self>, mut watch: MutexGuard<'_, Watch>) {
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
    /// Costs no more than what is due, and the logarithm of what is not.
    fn due(&self) -> (Vec<Arc<Term>>, Option<Mark>) {
        let mut watch = self.watch();
        #[cfg(feature = "testing")]
        if watch.rehearsal.paused {
            watch.rehearsal.waiting.clear();
            return (Vec::new(), Some(Mark::MAX));
        }
        let now = self.clock.now();
        let Watch { queue, standing, over, .. } = &mut *watch;
        let mut due = mem::take(over);
        while let Some(&(mark, serial)) = queue.first()
            && mark <= now
        {
            queue.pop_first();
            let Some(known) = standing.get_mut(&serial) else {
                continue;
            };
            if known.validity.is_valid_at(now) {
                known.queued = known.validity.deadline();
                queue.insert((known.queued, serial));
            } else if let Some(known) = standing.remove(&serial) {
                due.extend(known.terms.into_values());
            }
        }
        let next = queue.first().map(|(mark, _)| *mark);
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
            let due = watch.queue.first().is_some_and(|(mark, _)| *mark <= self.clock.now());
            let idle = !due && watch.over.is_empty() && !watch.rehearsal.busy;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn each_lease_has_a_deadline_of_its_own() {
        let clock = ManualClock::default();
        let deadlines = Deadlines::new(Arc::new(clock.clone()));
        let begin = |election: ElectionId, validity: &Arc<Validity>| {
            let id = types::Term { election, epoch: 1 };
            deadlines.begin("jobs", id, b"jobs/1".to_vec(), validity)
        };
        let (first, second) = (deadlines.validity(1, 10), deadlines.validity(2, 20));
        let ends = [begin(1, &first), begin(2, &first)];
        let stands = begin(3, &second);
        let (told, ended) = std::sync::mpsc::channel();
        for term in ends.iter().chain([&stands]) {
            let told = told.clone();
            let election = term.id().election;
            term.on_end(Box::new(move |reason| drop(told.send((election, reason)))));
        }
        assert!(second.extend(30));
        assert!(second.extend(25));
        assert_eq!(second.deadline(), 30, "it only grows");
        clock.advance(std::time::Duration::from_nanos(15));
        let mut over: Vec<_> = ended.iter().take(2).collect();
        over.sort_by_key(|(election, _)| *election);
        assert_eq!(over, [(1, Reason::Expired), (2, Reason::Expired)]);
        assert!(stands.is_valid() && !stands.is_over());
        clock.advance(std::time::Duration::from_nanos(15));
        assert_eq!(ended.recv(), Ok((3, Reason::Expired)));
    }
}
