//! When the elector breaks: its terms go on to their deadlines, and another one takes
//! its place.

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
use crate::types::{Event, Failure, Mark, Operation, Reason, WriteOutcome};

impl Driver {
    /// Drops all that is outstanding. Terms go on to their deadlines, and the
    /// leases are kept until then.
    pub(super) fn elector_broke(&mut self, error: &ComponentError) {
        let now = self.clock.now();
        if now.saturating_sub(self.opened) > nanoseconds(PROBATION) {
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
        self.granted.clear();
        self.watches = self.store.watches();
        for (_, pending) in mem::take(&mut self.tickets) {
            pending.answer(WriteOutcome::Unknown);
        }

        let mut terms = Vec::new();
        for attendant in self.seats.values_mut() {
            if let Attendant::Candidate(candidate) = attendant {
                candidate.orphan();
                if let Tenure::Orphan(term) = &candidate.tenure {
                    terms.push(Arc::clone(term));
                }
            }
        }
        for lease in mem::take(&mut self.leases) {
            let mut on_it = terms.clone();
            on_it.retain(|term| term.lease() == lease);
            self.orphaned.push((lease, on_it));
        }
        self.tend_orphans(now);
        self.seats = mem::take(&mut self.seats)
            .into_iter()
            .filter_map(|(id, attendant)| Some((id, attendant.unless_leaving()?)))
            .collect();
    }

    /// Ends terms without an elector that are due, gives back the leases that no
    /// term needs any more, and lets those campaign again who have yielded.
    pub(super) fn tend_orphans(&mut self, now: Mark) {
        let mut gone = Vec::new();
        for (id, attendant) in &mut self.seats {
            let Attendant::Candidate(candidate) = attendant else {
                continue;
            };
            let Tenure::Orphan(term) = &candidate.tenure else {
                continue;
            };
            let term = Arc::clone(term);
            if candidate.leads() {
                if term.is_yielded() {
                    candidate.demote(&term, Reason::Resigned);
                } else if term.deadline() <= now {
                    candidate.demote(&term, Reason::Expired);
                } else {
                    continue;
                }
            }
            // Nobody was told of the term, so nobody works for it.
            if term.take() {
                term.mark_yielded();
            }
            if term.is_yielded() {
                candidate.tenure = Tenure::None;
                if candidate.leaving || !candidate.candidacy.rejoin {
                    gone.push(*id);
                } else if let State::Running(_) = self.elector {
                    self.events.push(Event::Campaign(candidate.candidacy.clone()));
                }
            }
        }
        for id in gone {
            if let Some(attendant) = self.seats.remove(&id) {
                attendant.withdraw(None);
            }
        }

        let over = |terms: &Vec<Arc<Term>>| terms.iter().all(|term| term.is_over());
        let within = Duration::from_nanos(self.config.request_timeout);
        for (lease, _) in self.orphaned.extract_if(.., |(_, terms)| over(terms)) {
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
                let wishes = self.seats.values().flat_map(Attendant::wish);
                self.events = wishes.collect();
            }
            Err(error) => self.elector_broke(&error),
        }
    }
}

/// An error and what caused it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    // Backtraces have several.
    texts.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}
