//! Keeps deadlines, whatever else goes wrong.
//!
//! A term is over at its deadline, even if the runtime is starved, a call of the store
//! blocks, or the elector runs wild. [`Leadership::is_valid`](crate::Leadership::is_valid)
//! compares the clock; a thread wakes those who wait for the end, and makes the calls that
//! were asked for at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use tracing::error;

use super::state::TermState;
use super::validity::Validity;
use crate::clock::{Clock, Notifier};
use crate::recording::{HostAction, NamedTerm, Recorder};
use crate::types::{ElectionId, Epoch, LeaseId, Mark, Reason};

/// The terms of a session, and one thread for them while there are any.
#[derive(Debug)]
pub(crate) struct Deadlines {
    clock: Arc<dyn Clock>,
    recorder: Option<Recorder>,
    notifier: Notifier,
    schedule: Mutex<Schedule>,
}

#[derive(Debug, Default)]
struct Schedule {
    /// When to look at which validity. An extension is seen when its time has come.
    queue: BTreeSet<(Mark, u64)>,
    /// The validities on which terms stand, by their serial numbers.
    standing: BTreeMap<u64, OnValidity>,
    last_serial: u64,
    /// Terms whose endings have to be called.
    over: Vec<Arc<TermState>>,
    /// The thread exists.
    has_thread: bool,
    /// A test has stopped the thread, as that of a stopped process.
    paused: bool,
    /// The thread is ending terms at this moment.
    busy: bool,
}

/// The terms that stand on one validity.
#[derive(Debug)]
struct OnValidity {
    validity: Arc<Validity>,
    /// Its place in the queue.
    queued: Mark,
    terms: BTreeMap<(ElectionId, Epoch), Arc<TermState>>,
}

impl Deadlines {
    pub(crate) fn new(clock: Arc<dyn Clock>, recorder: Option<Recorder>) -> Arc<Self> {
        let (notifier, schedule) = (Notifier::default(), Mutex::default());
        Arc::new(Self { clock, recorder, notifier, schedule })
    }

    /// For the terms that begin on a lease, and end with it.
    pub(crate) fn validity(&self, lease: LeaseId, valid_until: Mark) -> Arc<Validity> {
        let mut schedule = self.schedule.lock();
        schedule.last_serial += 1;
        Arc::new(Validity::new(schedule.last_serial, lease, valid_until, Arc::clone(&self.clock)))
    }

    /// Keeps the deadline of a term from now on.
    pub(super) fn begin(self: &Arc<Self>, term: &Arc<TermState>) {
        let mut schedule = self.schedule.lock();
        let Schedule { queue, standing, .. } = &mut *schedule;
        let validity = &term.validity;
        let mut is_new = false;
        let standing = standing.entry(validity.serial).or_insert_with(|| {
            is_new = true;
            let queued = validity.deadline();
            queue.insert((queued, validity.serial));
            OnValidity { validity: Arc::clone(validity), queued, terms: BTreeMap::new() }
        });
        standing.terms.insert((term.id.election, term.epoch()), Arc::clone(term));
        if is_new || !schedule.has_thread {
            self.call_thread(schedule);
        }
    }

    /// Forgets a term that is over, and has the thread call its endings. Otherwise the thread is
    /// not woken: after the last term it is there up to a deadline that it had, or until the
    /// session ends.
    pub(super) fn ended(self: &Arc<Self>, term: &Arc<TermState>) {
        let mut schedule = self.schedule.lock();
        let serial = term.validity.serial;
        if let Some(standing) = schedule.standing.get_mut(&serial) {
            standing.terms.remove(&(term.id.election, term.epoch()));
            if standing.terms.is_empty() {
                let queued = (standing.queued, serial);
                schedule.queue.remove(&queued);
                schedule.standing.remove(&serial);
            }
        }
        if term.has_endings() {
            schedule.over.push(Arc::clone(term));
            self.call_thread(schedule);
        }
    }

    /// Lets the thread end, if no term stands.
    pub(crate) fn finish(&self) {
        self.notifier.notify();
    }

    /// Has the thread look again, and starts it if it is not there.
    fn call_thread(self: &Arc<Self>, mut schedule: MutexGuard<'_, Schedule>) {
        if schedule.has_thread {
            self.notifier.notify();
            return;
        }
        let deadlines = Arc::clone(self);
        let keep = move || deadlines.keep();
        match thread::Builder::new().name("incumbent-terms".into()).spawn(keep) {
            Ok(_) => schedule.has_thread = true,
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
                self.clock.wait_until(next, &self.notifier);
            }
            let is_told = |term: &&Arc<TermState>| self.recorder.is_some() && !term.is_over();
            let expired: Vec<_> = due.iter().filter(is_told).cloned().collect();
            for term in &due {
                term.conclude(Reason::Expired);
            }
            for term in &due {
                term.call_endings();
            }
            if let Some(recorder) = &self.recorder {
                for term in expired {
                    let (name, epoch) = (term.election.to_string(), term.epoch().into());
                    recorder.did(HostAction::Expired(NamedTerm { name, epoch }));
                }
            }
        }
    }

    /// Takes out the terms that stand no more, and returns them with the next deadline.
    /// What this costs grows with the number of those that are due, and with the logarithm of the
    /// number of the others.
    fn due(&self) -> (Vec<Arc<TermState>>, Option<Mark>) {
        let mut schedule = self.schedule.lock();
        if schedule.paused {
            return (Vec::new(), Some(Mark::MAX));
        }
        let now = self.clock.now();
        let Schedule { queue, standing, over, .. } = &mut *schedule;
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
        schedule.busy = !due.is_empty();
        schedule.has_thread = next.is_some() || schedule.busy;
        (due, next)
    }

    /// For tests: whether every term that is due has ended, and its endings have been called.
    /// If not, the thread is woken.
    pub(crate) fn is_idle(&self) -> bool {
        let schedule = self.schedule.lock();
        let due = schedule.queue.first().is_some_and(|(mark, _)| *mark <= self.clock.now());
        let is_done = !due && schedule.over.is_empty() && !schedule.busy;
        let is_idle = is_done || !schedule.has_thread || schedule.paused;
        drop(schedule);
        if !is_idle {
            self.notifier.notify();
        }
        is_idle
    }

    /// For tests: stops the thread, or lets it go on.
    pub(crate) fn pause(&self, pause: bool) {
        self.schedule.lock().paused = pause;
        self.notifier.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::types;

    #[test]
    fn each_lease_has_a_deadline_of_its_own() {
        let clock = ManualClock::default();
        let deadlines = Deadlines::new(Arc::new(clock.clone()), None);
        let begin = |election: ElectionId, validity: &Arc<Validity>| {
            let id = types::Term { election, epoch: 1 };
            let validity = Arc::clone(validity);
            let term = Arc::new(TermState::new("jobs", id, b"jobs/1".to_vec(), validity));
            deadlines.begin(&term);
            term
        };
        let (first, second) = (deadlines.validity(1.into(), 10), deadlines.validity(2.into(), 20));
        let ends = [begin(1, &first), begin(2, &first)];
        let stands = begin(3, &second);
        let (told, ended) = std::sync::mpsc::channel();
        for term in ends.iter().chain([&stands]) {
            let told = told.clone();
            let election = term.id.election;
            term.add_ending(Box::new(move |reason| drop(told.send((election, reason)))));
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
