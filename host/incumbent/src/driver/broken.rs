//! When the elector breaks: its terms go on to their deadlines, and another one takes
//! its place.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::FuturesUnordered;
use tracing::{error, info, warn};

use super::attendant::{Attendant, Tenure};
use super::{Driver, PAUSES, PROBATION, State, hex, reseeded};
use crate::clock::nanoseconds;
use crate::component::{ComponentError, Elector};
use crate::term::Term;
use crate::types::{ElectionId, Event, Failure, LeaseId, Mark, Operation, Reason, WriteOutcome};

/// How many elections a successor is told of at once, at first.
const PORTION: usize = 128;

impl Driver {
    /// Drops all that is outstanding. Terms go on to their deadlines, and the
    /// leases are kept until then.
    pub(super) fn elector_broke(&mut self, error: &ComponentError) {
        let now = self.clock.now();
        let in_a_row = now.saturating_sub(self.opened) <= nanoseconds(PROBATION);
        if !in_a_row {
            self.pause = PAUSES.0;
        }
        let error = chain(error);
        error!(error, pause = ?self.pause, "the elector is replaced");
        let trouble = format!("the elector is replaced, in {:?}: {error}", self.pause);
        self.tell_trouble(None, Failure::Other(trouble));
        self.elector = State::Broken(now.saturating_add(nanoseconds(self.pause)));
        self.pause = (self.pause * 2).min(PAUSES.1);
        self.opened = now;
        self.deadline = None;
        self.events.clear();
        self.calls = FuturesUnordered::new();
        self.outstanding.clear();
        self.watched.clear();
        self.granted.clear();
        self.watches = self.store.watches();
        for (_, pending) in mem::take(&mut self.tickets) {
            pending.answer(WriteOutcome::Unknown);
        }

        self.leading.clear();
        self.orphans.keep(mem::take(&mut self.leases));
        let mut over = Vec::new();
        for (id, attendant) in &mut self.seats {
            if let Attendant::Candidate(candidate) = attendant
                && let Some(term) = candidate.orphan()
            {
                self.orphans.insert(*id, term);
                if term.is_yielded() {
                    over.push(*id);
                }
            }
        }
        for id in over {
            self.tend_orphan(id, false);
        }
        self.tend_orphans(now);
        self.orphans.let_go();
        self.give_back();
        if let Some(culprit) = self.successor.broke(in_a_row)
            && let Some(attendant) = self.seats.remove(&culprit)
        {
            let sentence = "the elector breaks whenever it is told of this election";
            attendant.withdraw(Some(Failure::Other(sentence.into())));
        }
        self.seats = mem::take(&mut self.seats)
            .into_iter()
            .filter_map(|(id, attendant)| Some((id, attendant.unless_leaving()?)))
            .collect();
    }

    /// Ends terms without an elector that are due.
    pub(super) fn tend_orphans(&mut self, now: Mark) {
        while let Some(id) = self.orphans.due(now) {
            self.tend_orphan(id, true);
        }
        self.give_back();
    }

    /// Ends a term without an elector that is due, or has yielded, and lets its candidate
    /// campaign again once it has yielded.
    pub(super) fn tend_orphan(&mut self, id: ElectionId, is_due: bool) {
        let Some(Attendant::Candidate(candidate)) = self.seats.get_mut(&id) else {
            return;
        };
        let Tenure::Orphan(term) = &candidate.tenure else {
            return;
        };
        let term = Arc::clone(term);
        if is_due || term.is_yielded() {
            let reason = if term.is_yielded() { Reason::Resigned } else { Reason::Expired };
            candidate.demote(&term, reason);
            self.orphans.yielded(id, &term);
        }
        // Nobody was told of the term, so nobody works for it.
        if is_due && term.take() {
            term.mark_yielded();
        }
        if term.is_yielded() {
            candidate.tenure = Tenure::None;
            if candidate.leaving || !candidate.candidacy.rejoin {
                if let Some(attendant) = self.seats.remove(&id) {
                    attendant.withdraw(None);
                }
            } else if let State::Running(_) = self.elector
                && self.closing.is_none()
            {
                self.successor.tell(id);
            }
        }
        self.give_back();
    }

    /// Gives back the leases that no term without an elector needs any more: each has
    /// yielded, or reached its deadline.
    fn give_back(&mut self) {
        let within = Duration::from_nanos(self.config.request_timeout);
        for lease in mem::take(&mut self.orphans.unneeded) {
            let revoked = self.store.call(Operation::Revoke(lease), within);
            let told = revoked.map(move |outcome| {
                if let Err(failure) = outcome {
                    warn!(lease = hex(lease), %failure, "a lease is left to run out");
                }
            });
            self.revocations.push(told.boxed());
        }
    }

    /// Opens another elector, when it is time, and tells it of all that wait.
    pub(super) fn reopen(&mut self) {
        let State::Broken(reopen) = self.elector else {
            return;
        };
        let now = self.clock.now();
        if now < reopen || self.closing.is_some() {
            return;
        }
        let opened =
            reseeded(self.config).and_then(|config| Elector::open(&self.component, config, now));
        match opened {
            Ok(elector) => {
                info!("another elector is at work");
                self.elector = State::Running(elector);
                self.opened = now;
                self.successor.tell_all(self.seats.keys());
            }
            Err(error) => self.elector_broke(&error),
        }
    }
}

/// The terms of broken electors that have neither yielded nor reached their deadlines, and
/// the leases of these electors. A lease stays as long as one of its terms needs it.
#[derive(Default)]
pub(super) struct Orphans {
    /// By deadline, with their leases.
    terms: BTreeMap<(Mark, ElectionId), LeaseId>,
    /// How many terms need each.
    leases: BTreeMap<LeaseId, usize>,
    /// To be given back.
    unneeded: Vec<LeaseId>,
}

impl Orphans {
    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.unneeded.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Mark> {
        self.terms.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Takes out one whose deadline has come.
    fn due(&mut self, now: Mark) -> Option<ElectionId> {
        let first = self.terms.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, election), lease) = first.remove_entry();
        self.needs_no_more(lease);
        Some(election)
    }

    /// Keeps leases for the terms that are inserted next.
    fn keep(&mut self, leases: BTreeSet<LeaseId>) {
        for lease in leases {
            self.leases.entry(lease).or_default();
        }
    }

    fn insert(&mut self, election: ElectionId, term: &Term) {
        if let Some(terms) = self.leases.get_mut(&term.lease()) {
            *terms += 1;
        }
        // Nothing extends it any more.
        self.terms.insert((term.deadline(), election), term.lease());
    }

    fn yielded(&mut self, election: ElectionId, term: &Term) {
        if let Some(lease) = self.terms.remove(&(term.deadline(), election)) {
            self.needs_no_more(lease);
        }
    }

    fn needs_no_more(&mut self, lease: LeaseId) {
        if let Some(terms) = self.leases.get_mut(&lease) {
            *terms = terms.saturating_sub(1);
            if *terms == 0 {
                self.leases.remove(&lease);
                self.unneeded.push(lease);
            }
        }
    }

    /// Gives up the leases that no term needs.
    fn let_go(&mut self) {
        self.unneeded.extend(self.leases.extract_if(.., |_, terms| *terms == 0).map(|(id, _)| id));
    }
}

/// What the next elector is to be told: all elections, in portions, which get smaller when
/// it breaks as well. So no number of them is too much for a step, and one that breaks
/// each elector is found.
pub(super) struct Successor {
    /// With those last, at which the one before broke.
    untold: BTreeSet<(bool, ElectionId)>,
    portion: usize,
    /// It has been told of these, and has not come to rest since.
    taking: Vec<ElectionId>,
    suspects: BTreeSet<ElectionId>,
    /// An elector broke when it was told of this one, and of nothing else.
    culprit: Option<ElectionId>,
}

impl Default for Successor {
    fn default() -> Self {
        Self {
            untold: BTreeSet::new(),
            portion: PORTION,
            taking: Vec::new(),
            suspects: BTreeSet::new(),
            culprit: None,
        }
    }
}

impl Successor {
    fn tell_all<'a>(&mut self, elections: impl Iterator<Item = &'a ElectionId>) {
        self.untold = elections.map(|id| (self.suspects.contains(id), *id)).collect();
    }

    fn tell(&mut self, election: ElectionId) {
        self.untold.insert((self.suspects.contains(&election), election));
    }

    /// Whether it had still to be told of this one.
    pub(super) fn forget(&mut self, election: ElectionId) -> bool {
        self.untold.remove(&(false, election)) || self.untold.remove(&(true, election))
    }

    pub(super) fn forget_all(&mut self) {
        self.untold.clear();
    }

    /// Whether there is something to tell right now.
    pub(super) fn has_next(&self) -> bool {
        self.taking.is_empty() && !self.untold.is_empty()
    }

    /// The next portion, once it has dealt with the one before.
    pub(super) fn next(&mut self, seats: &BTreeMap<ElectionId, Attendant>) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.taking.is_empty() {
            return events;
        }
        while events.len() < self.portion
            && let Some((_, election)) = self.untold.pop_first()
        {
            if let Some(event) = seats.get(&election).and_then(Attendant::wish) {
                self.taking.push(election);
                events.push(event);
            }
        }
        events
    }

    /// Whether nothing else is to be told beside this portion.
    pub(super) fn is_told_alone(&self) -> bool {
        self.portion == 1 && !self.taking.is_empty()
    }

    /// It has come to rest.
    pub(super) fn has_taken(&mut self) {
        self.taking.clear();
    }

    /// It broke. Returns the election that is to blame, if that is certain.
    fn broke(&mut self, in_a_row: bool) -> Option<ElectionId> {
        self.untold.clear();
        let taking = mem::take(&mut self.taking);
        let alone = taking.first().copied().filter(|_| self.portion == 1);
        if alone.is_some() && alone == self.culprit {
            *self = Self::default();
            return alone;
        }
        self.culprit = alone;
        self.portion = match taking.len() {
            _ if !in_a_row => PORTION,
            0 => self.portion / 2,
            many => self.portion.min(many) / 2,
        }
        .max(1);
        self.suspects = taking.into_iter().collect();
        None
    }
}

/// An error and what caused it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    // Backtraces have several.
    texts.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_that_was_left_is_not_told() {
        let mut successor = Successor::default();
        assert!(!successor.has_next());
        successor.suspects.insert(2);
        successor.tell_all([1, 2, 3].iter());
        assert!(successor.forget(1) && successor.forget(2));
        assert!(!successor.forget(1) && !successor.forget(2));
        assert!(successor.has_next());
        successor.forget_all();
        assert!(!successor.has_next());
    }
}
