//! Those who take part in an election, and how they are told what happens.

use std::mem;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, broadcast, oneshot};
use tracing::{info, warn};

use super::hex;
use crate::candidate::{self, Seat, Stage};
use crate::observer::Sighted;
use crate::term::Term;
use crate::types::{
    Candidacy, ElectionId, Entry, Event, Failure, Observation, Reason, WriteOutcome,
};

/// Who takes part in an election.
pub(super) enum Attendant {
    Candidate(Candidate),
    Observer { observation: Observation, sightings: broadcast::Sender<Sighted> },
    Inspector { observation: Observation, listed: oneshot::Sender<Result<Vec<Entry>, Failure>> },
}

pub(super) struct Candidate {
    pub(super) candidacy: Candidacy,
    pub(super) seat: Seat,
    pub(super) tenure: Tenure,
    pub(super) last_epoch: i64,
    /// The elector was told that the work of the standing term has stopped.
    pub(super) has_yielded: bool,
    pub(super) leaving: bool,
}

pub(super) enum Tenure {
    None,
    Leads(Arc<Term>),
    /// Demoted, and not yet yielded.
    Stops(Arc<Term>),
    /// Its elector broke. Unless yielded before, it stands to its deadline, and
    /// the candidate campaigns again only once it has yielded.
    Orphan(Arc<Term>),
}

/// A write that is under way.
pub(super) struct Pending {
    pub(super) outcome: oneshot::Sender<WriteOutcome>,
    /// A candidate's new value, which the next elector has to know.
    pub(super) proclaimed: Option<(ElectionId, Vec<u8>)>,
    /// Lets another one follow, once this one is answered.
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Attendant {
    pub(super) fn id(&self) -> ElectionId {
        match self {
            Self::Candidate(candidate) => candidate.candidacy.election,
            Self::Observer { observation, .. } | Self::Inspector { observation, .. } => {
                observation.election
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Candidate(candidate) => &candidate.candidacy.name,
            Self::Observer { observation, .. } | Self::Inspector { observation, .. } => {
                &observation.name
            }
        }
    }

    /// What an elector that knows nothing of it has to be told; nothing while an
    /// earlier term has to yield first.
    pub(super) fn wish(&self) -> Option<Event> {
        match self {
            Self::Candidate(candidate) => match candidate.tenure {
                Tenure::None => Some(Event::Campaign(candidate.candidacy.clone())),
                Tenure::Leads(_) | Tenure::Stops(_) | Tenure::Orphan(_) => None,
            },
            Self::Observer { observation, .. } => Some(Event::Observe(observation.clone())),
            Self::Inspector { observation, .. } => Some(Event::Inspect(observation.clone())),
        }
    }

    pub(super) fn as_candidate(&self) -> Option<&Candidate> {
        match self {
            Self::Candidate(candidate) => Some(candidate),
            Self::Observer { .. } | Self::Inspector { .. } => None,
        }
    }

    pub(super) fn orphan(&self) -> Option<&Arc<Term>> {
        match &self.as_candidate()?.tenure {
            Tenure::Orphan(term) => Some(term),
            Tenure::None | Tenure::Leads(_) | Tenure::Stops(_) => None,
        }
    }

    /// Nothing, if it was on its way out and no term of its has to stop.
    pub(super) fn unless_leaving(self) -> Option<Self> {
        let leaving = match &self {
            Self::Candidate(candidate) => {
                let done = candidate.last_epoch != 0 && !candidate.candidacy.rejoin;
                let idle = matches!(candidate.tenure, Tenure::None);
                idle && (done || candidate.leaving)
            }
            Self::Observer { sightings, .. } => sightings.receiver_count() == 0,
            Self::Inspector { listed, .. } => listed.is_closed(),
        };
        if leaving {
            self.withdraw(None);
            return None;
        }
        Some(self)
    }

    pub(super) fn withdraw(self, cause: Option<Failure>) {
        match self {
            Self::Candidate(candidate) => {
                let election = candidate.candidacy.name;
                match &cause {
                    Some(failure) => warn!(election, %failure, "withdrawn"),
                    None => info!(election, "withdrawn"),
                }
                if let Tenure::Leads(term) | Tenure::Orphan(term) = &candidate.tenure {
                    term.end(Reason::Other("the candidacy has ended".into()));
                }
                let event = candidate::Event::Withdrawn(cause.clone());
                candidate.seat.tell(event);
                candidate.seat.stage.send_replace(Stage::Over(cause));
            }
            Self::Observer { observation, sightings } => {
                if let Some(failure) = cause {
                    warn!(election = observation.name, %failure, "withdrawn");
                    // The observer may have gone.
                    let _ = sightings.send(Err(failure));
                }
            }
            Self::Inspector { listed, .. } => {
                if let Some(failure) = cause {
                    // Whoever asked may have gone.
                    let _ = listed.send(Err(failure));
                }
            }
        }
    }
}

impl Candidate {
    /// Its elector broke. Returns its term, if that is an orphan now, and was none before.
    pub(super) fn orphan(&mut self) -> Option<&Arc<Term>> {
        self.tenure = match mem::replace(&mut self.tenure, Tenure::None) {
            Tenure::Leads(term) => {
                self.endanger(&term, term.key().to_vec());
                Tenure::Orphan(term)
            }
            Tenure::Stops(term) => Tenure::Orphan(term),
            same @ (Tenure::Orphan(_) | Tenure::None) => {
                self.tenure = same;
                return None;
            }
        };
        match &self.tenure {
            Tenure::Orphan(term) => Some(term),
            Tenure::Leads(_) | Tenure::Stops(_) | Tenure::None => None,
        }
    }

    pub(super) fn endanger(&self, term: &Term, key: Vec<u8>) {
        if !self.leads() {
            return;
        }
        warn!(
            election = self.candidacy.name,
            epoch = term.id().epoch,
            lease = hex(term.lease()),
            valid_until = term.deadline(),
            "endangered"
        );
        term.endanger();
        self.seat.tell(candidate::Event::Endangered {
            epoch: term.id().epoch,
            key,
            lease: term.lease(),
            valid_until: term.deadline(),
        });
    }

    /// As it was told: the end of its last term has not been.
    pub(super) fn leads(&self) -> bool {
        matches!(*self.seat.stage.borrow(), Stage::Leading(_))
    }

    /// Ends the term, and tells of it. False if that has been told.
    pub(super) fn demote(&self, term: &Arc<Term>, reason: Reason) -> bool {
        if !self.leads() {
            return false;
        }
        let epoch = term.id().epoch;
        // Its deadline may have been first.
        let reason = term.end(reason);
        info!(
            election = self.candidacy.name,
            epoch,
            lease = hex(term.lease()),
            %reason,
            "demoted"
        );
        self.seat.stage.send_replace(Stage::Waiting);
        self.seat.tell(candidate::Event::Demoted { epoch, reason });
        true
    }
}

impl Pending {
    pub(super) fn answer(self, outcome: WriteOutcome) {
        // Whoever asked may have gone.
        let _ = self.outcome.send(outcome);
    }
}
