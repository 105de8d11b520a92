//! One instance's part in one election.

use std::future::pending;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, Stream};
use parking_lot::Mutex;
use tokio::task::coop::unconstrained;

use crate::driver::{
    CandidateReceiver, CandidateState, Handle, Pool, Registrant, Registration, Stage, Told,
    broadcast, channel, over,
};
use crate::error::Error;
use crate::event::{Event, TermInfo};
use crate::leadership::Leadership;
use crate::observable::Observable;
use crate::term::Term;
use crate::types::{Candidacy, ElectionId, Failure, Mark};

/// A candidate of an election, in line until it leaves.
///
/// It gets back in line by itself, after a lost term as after a lost lease.
/// Dropping it leaves the election, and ends a term that still stands, as if that was
/// resigned.
#[derive(Debug)]
pub struct Candidate {
    registration: Registration,
    stage: Arc<Observable<Stage>>,
    /// Holds what happened since the start, until the first call of [`events`](Self::events).
    first: Mutex<Option<broadcast::Receiver<Arc<Told>>>>,
    later: broadcast::WeakSender<Arc<Told>>,
}

impl Candidate {
    pub(crate) fn new(
        pool: &Pool,
        name: &str,
        candidacy: impl FnOnce(ElectionId) -> Candidacy,
    ) -> Self {
        let (sender, CandidateReceiver { stage, events, sender: later }) = channel();
        let registration = pool.register(Some(name), |id, place| {
            Registrant::Candidate(CandidateState::new(candidacy(id), sender, place))
        });
        Self { registration, stage, first: Mutex::new(Some(events)), later }
    }

    /// Waits for a place in line, and is ready at once if the candidate has had one. Cancel safe.
    ///
    /// # Errors
    ///
    /// As for [`elected`](Self::elected).
    pub async fn joined(&mut self) -> Result<(), Error> {
        let joined = self.stage.wait_for(|stage| match stage {
            Stage::Joining => None,
            Stage::Waiting | Stage::Leading(_) => Some(Ok(())),
            Stage::Over(cause) => Some(Err(ended(cause.clone()))),
        });
        joined.await
    }

    /// Waits for this candidate's next term. Call it again after each term: each is handed out
    /// once. Cancel safe.
    ///
    /// A term that begins while nobody waits for it stands, and is handed out to
    /// the next call if it still stands then.
    ///
    /// # Errors
    ///
    /// [`Error::Withdrawn`] if the store refuses the candidate for good,
    /// [`Error::Closed`] if the session is closed.
    pub async fn elected(&mut self) -> Result<Leadership, Error> {
        let elected = self.stage.wait_for(|stage| match stage {
            Stage::Joining | Stage::Waiting => None,
            Stage::Leading(term) => (term.is_valid() && term.take()).then(|| Ok(term.clone())),
            Stage::Over(cause) => Some(Err(ended(cause.clone()))),
        });
        Ok(Leadership::new(elected.await?, self.registration.handle.clone()))
    }

    /// What happens to this candidate. The first stream has everything since the
    /// candidate's start, later ones what comes from now on. Each holds the
    /// last 256 events for its reader, and of several extensions in a row the last
    /// one. It ends after [`Event::Withdrawn`], or with the session.
    pub fn events(&self) -> impl Stream<Item = Event> + Send + Unpin + 'static + use<> {
        let listener = match self.first.lock().take() {
            Some(events) => Listener { events, led: None, next: None },
            None => {
                let Some(later) = self.later.upgrade() else {
                    return stream::empty().boxed();
                };
                // In this order: a term that begins in between is told of.
                let events = later.subscribe();
                let led = self.stage.read(|stage| match stage {
                    Stage::Leading(term) => Some((term.clone(), term.deadline())),
                    Stage::Joining | Stage::Waiting | Stage::Over(_) => None,
                });
                Listener { events, led, next: None }
            }
        };
        stream::unfold(
            listener,
            |mut listener| async move { Some((listener.hear().await?, listener)) },
        )
        .boxed()
    }

    /// Changes what others read of this candidate: at most 4,096 bytes. Not cancel safe: the
    /// change may happen although the future was dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Proclaim`] if the change did not happen, or may not have happened, for instance
    /// while the candidate is not in line.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        let Registration { handle, id } = &self.registration;
        handle.proclaim(*id, value.into()).await.map_err(Error::Proclaim)
    }

    /// Leaves the election, and waits until nothing of the candidate is left in
    /// the store. While a [`Leadership`] of it is still held, it waits until that is
    /// dropped, or for its deadline. Cancel safe: the candidate leaves even if the future is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Withdrawn`] if the candidacy ended otherwise.
    pub async fn leave(self) -> Result<(), Error> {
        self.registration.leave();
        over(&self.stage).await.map_err(Error::Withdrawn)
    }

    /// Whether a candidacy for one term, which is over without a reason, was in line. Then its
    /// term was over before anybody took it, and the caller campaigns again. If the session was
    /// closed instead, that next candidacy ends before it is in line.
    pub(crate) fn was_in_line(&self) -> bool {
        // What has come already is there, however little this task may still poll.
        match unconstrained(self.events().next()).now_or_never() {
            Some(Some(Event::Withdrawn(_)) | None) | None => false,
            Some(Some(_)) => true,
        }
    }

    /// How far it has come, for a caller that gives the candidate away.
    pub(crate) fn stage(&self) -> Arc<Observable<Stage>> {
        Arc::clone(&self.stage)
    }

    /// The way to its driver.
    pub(crate) fn handle(&self) -> &Handle {
        &self.registration.handle
    }

    /// Ties the candidacy to its only term.
    pub(crate) fn tie_to(self, leadership: Leadership) -> Leadership {
        leadership.with_candidacy(self.registration, self.stage)
    }
}

/// Why a candidacy is over.
fn ended(cause: Option<Failure>) -> Error {
    cause.map_or(Error::Closed, Error::Withdrawn)
}

/// Merges what the driver tells with the extensions.
struct Listener {
    events: broadcast::Receiver<Arc<Told>>,
    /// The term that stands, and the deadline that was told last.
    led: Option<(Term, Mark)>,
    /// What comes right after an extension.
    next: Option<Event>,
}

impl Listener {
    async fn hear(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.next.take() {
                return Some(event);
            }
            tokio::select! {
                biased;
                told = self.events.recv() => return told.map(|told| self.take(&told)),
                until = extended(&self.led) => if let Some(event) = self.extended(until) {
                    return Some(event);
                },
            }
        }
    }

    /// What to tell next; an extension goes before what came after it.
    fn take(&mut self, told: &Told) -> Event {
        let event = told.event.clone();
        let mut extended = None;
        if let Event::Endangered(term) = &event {
            extended = self.extended(term.valid_until);
        } else if let Event::Elected(TermInfo { valid_until, .. }) = &event {
            self.led = told.begun.as_ref().map(|term| (term.clone(), *valid_until));
        } else if let Event::Demoted { .. } = &event {
            let deadline = self.led.as_ref().map(|(term, _)| term.deadline());
            extended = deadline.and_then(|deadline| self.extended(deadline));
            self.led = None;
        } else if let Event::Withdrawn(_) = &event {
            self.led = None;
        }
        let Some(extended) = extended else {
            return event;
        };
        self.next = Some(event);
        extended
    }

    /// The event, unless it was told.
    fn extended(&mut self, valid_until: Mark) -> Option<Event> {
        let (term, told) = self.led.as_mut().filter(|(_, told)| *told < valid_until)?;
        *told = valid_until;
        Some(Event::Extended(TermInfo::new(term, valid_until)))
    }
}

/// Waits for an extension of the term that stands.
async fn extended(led: &Option<(Term, Mark)>) -> Mark {
    match led {
        Some((term, told)) => term.extended(*told).await,
        None => pending().await,
    }
}
