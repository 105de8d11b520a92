//! Who is registered for elections, and how each registrant is told what happens.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::warn;

use super::broadcast;
use super::candidate::CandidateState;
use super::place::Place;
use super::queue::too_large;
use super::verify::{Verified, misnamed};
use crate::elector::size;
use crate::event::{self, Participant};
use crate::term::{Deadlines, Validity};
use crate::types::{
    self, ElectionId, Entry, Epoch, Event, Failure, LeaseId, Observation, Ticket, WriteOutcome,
};

/// What an observer is told.
pub(crate) type Observed = Result<Option<Participant>, Failure>;

/// A candidate, an observer, or a caller that wants the list of candidates.
#[derive(Debug)]
pub(crate) enum Registrant {
    Candidate(CandidateState),
    Observer {
        observation: Observation,
        sightings: broadcast::Sender<Observed>,
        _place: Place,
    },
    Inspector {
        observation: Observation,
        listed: oneshot::Sender<Result<Vec<Entry>, Failure>>,
        _place: Place,
    },
}

/// A write that is under way.
#[derive(Debug)]
pub(crate) struct Pending {
    outcome: oneshot::Sender<WriteOutcome>,
    /// Lets another write follow, once this one is answered.
    _permit: OwnedSemaphorePermit,
}

/// All registrants of a driver, by the ids of their elections.
pub(super) struct Registrants {
    pub(super) all: BTreeMap<ElectionId, Registrant>,
    /// The leases on which somebody leads.
    pub(super) leases: BTreeMap<LeaseId, OnLease>,
    pub(super) writes: BTreeMap<Ticket, (Pending, Option<NewValue>)>,
    last_ticket: Ticket,
    pub(super) deadlines: Arc<Deadlines>,
    pub(super) troubles: broadcast::Sender<Failure>,
}

/// A candidate's new value, which the next elector has to know.
pub(super) type NewValue = (ElectionId, Vec<u8>);

/// The elections that are led on one lease, and the validity that their terms share.
pub(super) struct OnLease {
    pub(super) validity: Arc<Validity>,
    pub(super) elections: BTreeSet<ElectionId>,
}

impl Registrants {
    pub(super) fn new(deadlines: Arc<Deadlines>, troubles: broadcast::Sender<Failure>) -> Self {
        Self {
            all: BTreeMap::new(),
            leases: BTreeMap::new(),
            writes: BTreeMap::new(),
            last_ticket: 0,
            deadlines,
            troubles,
        }
    }

    /// Takes one in, and returns what the elector has to be told.
    pub(super) fn register(&mut self, registrant: Registrant) -> Option<Event> {
        let event = registrant.event();
        let size = event.as_ref().map_or(0, size::event);
        if let Some(too_large) = too_large("what it was given", size) {
            registrant.withdraw(Some(Failure::Invalid(too_large)));
            return None;
        }
        self.all.insert(registrant.election().0, registrant);
        event
    }

    /// Takes a write in, and returns what the elector has to be told.
    pub(super) fn write(
        &mut self,
        pending: Pending,
        event: impl FnOnce(Ticket) -> Event,
    ) -> Option<Event> {
        let ticket = self.last_ticket + 1;
        let event = event(ticket);
        if let Some(too_large) = too_large("the write", size::event(&event)) {
            pending.answer(WriteOutcome::Failed(Failure::Invalid(too_large)));
            return None;
        }
        let mut new_value = None;
        if let Event::Proclaim(new) = &event {
            new_value = Some((new.election, new.value.clone()));
        }
        self.last_ticket = ticket;
        self.writes.insert(ticket, (pending, new_value));
        Some(event)
    }

    /// The work of a term has stopped. Returns whether the elector has to be told.
    pub(super) fn work_stopped(&mut self, term: types::Term) -> bool {
        match self.all.get_mut(&term.election) {
            Some(Registrant::Candidate(candidate))
                if candidate.last_epoch == Epoch::from(term.epoch) =>
            {
                candidate.work_stopped()
            }
            Some(_) | None => false,
        }
    }

    /// Notes that a registrant wants to leave. False if it has to stay, because an orphaned
    /// term has to end first, or if this was noted before.
    pub(super) fn leaves(&mut self, election: ElectionId) -> bool {
        match self.all.get_mut(&election) {
            Some(Registrant::Candidate(candidate)) => {
                let repeated = mem::replace(&mut candidate.leaving, true);
                !repeated && candidate.orphaned().is_none()
            }
            Some(Registrant::Observer { .. } | Registrant::Inspector { .. }) => true,
            None => false,
        }
    }

    pub(super) fn withdraw(&mut self, election: ElectionId, cause: Option<Failure>) -> bool {
        let registrant = self.all.remove(&election);
        registrant.map(|registrant| registrant.withdraw(cause)).is_some()
    }

    /// Tells the candidate concerned, or all, and the listeners of the session.
    pub(super) fn tell_trouble(&self, election: Option<ElectionId>, failure: Failure) {
        let tell = |registrant: &Registrant| {
            if let Registrant::Candidate(candidate) = registrant {
                candidate.tell(event::Event::Trouble(failure.clone()));
            }
        };
        match election {
            Some(election) => self.all.get(&election).into_iter().for_each(tell),
            // Said once for a row of failures.
            None => self.all.values().for_each(tell),
        }
        self.troubles.send(failure);
    }

    /// How many terms stand.
    pub(super) fn terms(&self) -> usize {
        let leads =
            |it: &&Registrant| matches!(it, Registrant::Candidate(it) if it.led().is_some());
        self.all.values().filter(leads).count()
    }

    pub(super) fn get(&mut self, election: ElectionId) -> Verified<&mut Registrant> {
        self.all.get_mut(&election).ok_or_else(|| misnamed(election))
    }

    pub(super) fn candidate(&mut self, election: ElectionId) -> Verified<&mut CandidateState> {
        match self.get(election)? {
            Registrant::Candidate(candidate) => Ok(candidate),
            Registrant::Observer { .. } | Registrant::Inspector { .. } => Err(misnamed(election)),
        }
    }
}

impl Registrant {
    /// The id and the name of its election.
    pub(super) fn election(&self) -> (ElectionId, &str) {
        match self {
            Self::Candidate(CandidateState { candidacy, .. }) => {
                (candidacy.election, &candidacy.name)
            }
            Self::Observer { observation, .. } | Self::Inspector { observation, .. } => {
                (observation.election, &observation.name)
            }
        }
    }

    /// What an elector that knows nothing of it has to be told; nothing while an
    /// earlier term has to yield first.
    pub(super) fn event(&self) -> Option<Event> {
        match self {
            Self::Candidate(candidate) => {
                candidate.is_idle().then(|| Event::Campaign(candidate.candidacy.clone()))
            }
            Self::Observer { observation, .. } => Some(Event::Observe(observation.clone())),
            Self::Inspector { observation, .. } => Some(Event::Inspect(observation.clone())),
        }
    }

    /// Whether it is on its way out, and no term of its own has to stop.
    pub(super) fn is_leaving(&self) -> bool {
        match self {
            Self::Candidate(candidate) => {
                let done = candidate.last_epoch != Epoch::default() && !candidate.candidacy.rejoin;
                candidate.is_idle() && (done || candidate.leaving)
            }
            Self::Observer { sightings, .. } => !sightings.has_receivers(),
            Self::Inspector { listed, .. } => listed.is_closed(),
        }
    }

    pub(super) fn withdraw(self, cause: Option<Failure>) {
        match (self, cause) {
            (Self::Candidate(candidate), cause) => candidate.withdraw(cause),
            (Self::Observer { observation, sightings, .. }, Some(failure)) => {
                warn!(election = observation.name, %failure, "withdrawn");
                sightings.send(Err(failure));
            }
            (Self::Inspector { listed, .. }, Some(failure)) => {
                // The caller may have gone.
                let _ = listed.send(Err(failure));
            }
            (Self::Observer { .. } | Self::Inspector { .. }, None) => {}
        }
    }
}

impl Pending {
    pub(super) fn new(
        outcome: oneshot::Sender<WriteOutcome>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { outcome, _permit: permit }
    }

    pub(super) fn answer(self, outcome: WriteOutcome) {
        // The caller may have gone.
        let _ = self.outcome.send(outcome);
    }
}
