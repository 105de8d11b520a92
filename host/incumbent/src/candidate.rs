//! One instance's part in one election.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, Stream};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use tokio::task::coop::unconstrained;

use crate::driver::Attendance;
use crate::error::Error;
use crate::leadership::Leadership;
use crate::observer::{Leader, passed};
use crate::term::Term;
use crate::types::{Failure, Mark, Reason};

/// A candidate of an election, in line until it leaves.
///
/// It gets back in line by itself, after a lost term as after a lost lease.
/// Dropping it leaves the election: a term of its that stands then is over, as
/// if resigned.
#[derive(Debug)]
pub struct Candidate {
    attendance: Attendance,
    stage: watch::Receiver<Stage>,
    /// Holds what happened since the start, until somebody asks.
    first: Mutex<Option<broadcast::Receiver<Arc<Told>>>>,
    later: broadcast::WeakSender<Arc<Told>>,
}

/// What happens to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// In line.
    Joined {
        /// The candidate's key.
        key: Vec<u8>,
        /// The epoch, if this key comes to lead; 0 in a race that somebody else
        /// leads.
        epoch: i64,
    },
    /// Leads from now on.
    Elected {
        /// The term's.
        epoch: i64,
        /// The leader key.
        key: Vec<u8>,
        /// The lease that the key is attached to.
        lease: i64,
        /// The work must have stopped by then, unless extended.
        valid_until: Mark,
    },
    /// Leads on, to a later `valid_until`.
    Extended {
        /// The term's.
        epoch: i64,
        /// The leader key.
        key: Vec<u8>,
        /// The lease that the key is attached to.
        lease: i64,
        /// The work must have stopped by then, unless extended.
        valid_until: Mark,
    },
    /// Renewals fail, and less than half of the time is left.
    Endangered {
        /// The term's.
        epoch: i64,
        /// The leader key.
        key: Vec<u8>,
        /// The lease that the key is attached to.
        lease: i64,
        /// The work must have stopped by then, unless extended.
        valid_until: Mark,
    },
    /// Leads no more.
    Demoted {
        /// The term's.
        epoch: i64,
        /// Why it ended.
        reason: Reason,
    },
    /// Who leads, as a candidate in a race sees it that somebody else leads.
    Leader(Option<Leader>),
    /// Something a person should know, while the candidate carries on.
    Trouble(Failure),
    /// The candidacy is over for good: as asked, or for this reason. The last
    /// event.
    Withdrawn(Option<Failure>),
}

impl Candidate {
    pub(crate) fn new(
        attendance: Attendance,
        stage: watch::Receiver<Stage>,
        events: broadcast::Receiver<Arc<Told>>,
        later: broadcast::WeakSender<Arc<Told>>,
    ) -> Self {
        Self { attendance, stage, first: Mutex::new(Some(events)), later }
    }

    /// Waits for this candidate's next term. Cancel safe, and to be called again
    /// after each term; each is handed out once.
    ///
    /// A term that begins while nobody waits for it stands, and is handed out to
    /// the next call if it still stands then.
    ///
    /// # Errors
    ///
    /// [`Error::Withdrawn`] if the store refuses the candidate for good,
    /// [`Error::Closed`] if the session is closed.
    pub async fn elected(&mut self) -> Result<Leadership, Error> {
        loop {
            let stage = self.stage.borrow_and_update().clone();
            match stage {
                Stage::Joining | Stage::Waiting => {}
                Stage::Leading(term) => {
                    if term.is_valid() && term.take() {
                        return Ok(Leadership::new(term, self.attendance.handle().clone()));
                    }
                }
                Stage::Over(None) => return Err(Error::Closed),
                Stage::Over(Some(failure)) => return Err(Error::Withdrawn(failure)),
            }
            self.stage.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// What happens to this candidate. The first stream has everything since the
    /// candidate's start, later ones what comes from now on. Each holds the
    /// last 256 events for its reader, and of several extensions in a row the last
    /// one. It ends after [`Event::Withdrawn`], or with the session.
    pub fn events(&self) -> impl Stream<Item = Event> + Send + Unpin + 'static + use<> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = match first.take() {
            Some(events) => Listener { events, led: None, next: None },
            None => {
                let Some(later) = self.later.upgrade() else {
                    return stream::empty().boxed();
                };
                // In this order: a term that begins in between is told of.
                let events = later.subscribe();
                let led = match &*self.stage.borrow() {
                    Stage::Leading(term) => Some((Arc::clone(term), term.deadline())),
                    Stage::Joining | Stage::Waiting | Stage::Over(_) => None,
                };
                Listener { events, led, next: None }
            }
        };
        stream::unfold(
            listener,
            |mut listener| async move { Some((listener.hear().await?, listener)) },
        )
        .boxed()
    }

    /// Changes what others read of this candidate: at most 4,096 bytes. It may
    /// happen also where the future was dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Proclaim`], if it did not happen or perhaps not, for instance
    /// while the candidate is not in line.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        let handle = self.attendance.handle();
        handle.proclaim(self.attendance.id(), value.into()).await.map_err(Error::Proclaim)
    }

    /// Leaves the election, and waits until nothing of the candidate is left in
    /// the store. Where a [`Leadership`] of its is still held somewhere, that is
    /// when it is dropped, or at its deadline. Cancel safe: it leaves without
    /// the future as well.
    ///
    /// # Errors
    ///
    /// [`Error::Withdrawn`] if the candidacy ended otherwise.
    pub async fn leave(mut self) -> Result<(), Error> {
        self.attendance.leave();
        self.over().await
    }

    /// Waits for a place in line.
    pub(crate) async fn joined(&mut self) -> Result<(), Error> {
        let stage = self
            .stage
            .wait_for(|stage| !matches!(stage, Stage::Joining))
            .await
            .map_err(|_| Error::Closed)?;
        match &*stage {
            Stage::Joining | Stage::Waiting | Stage::Leading(_) => Ok(()),
            Stage::Over(None) => Err(Error::Closed),
            Stage::Over(Some(failure)) => Err(Error::Withdrawn(failure.clone())),
        }
    }

    /// Waits for the end of the candidacy.
    pub(crate) async fn over(&mut self) -> Result<(), Error> {
        let stage = self.stage.wait_for(|stage| matches!(stage, Stage::Over(_))).await;
        match stage.as_deref() {
            Ok(Stage::Over(Some(failure))) => Err(Error::Withdrawn(failure.clone())),
            // Without its driver it is over as well.
            Ok(Stage::Joining | Stage::Waiting | Stage::Leading(_) | Stage::Over(None))
            | Err(_) => Ok(()),
        }
    }

    /// Of a candidacy for one term that is over, without a reason: whether that term was over
    /// before anybody took it, so that another one has to be asked for. If the session was closed
    /// instead, the next candidacy ends before it is in line, and this says so then.
    pub(crate) fn was_in_line(&self) -> bool {
        // What has come already is there, however little this task may still poll.
        match unconstrained(self.events().next()).now_or_never() {
            Some(Some(Event::Withdrawn(_)) | None) | None => false,
            Some(Some(_)) => true,
        }
    }

    /// The end of the candidacy, for one who has given the candidate away.
    pub(crate) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.clone()
    }
}

/// How far a candidate has come.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Not in line yet.
    Joining,
    /// Was in line; perhaps on its way back there.
    Waiting,
    Leading(Arc<Term>),
    Over(Option<Failure>),
}

/// The driver's side of a [`Candidate`].
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) stage: watch::Sender<Stage>,
    pub(crate) events: broadcast::Sender<Arc<Told>>,
}

/// What the driver tells: all but the extensions, which are seen in the term that has begun.
#[derive(Debug)]
pub(crate) struct Told {
    event: Event,
    begun: Option<Arc<Term>>,
}

impl Seat {
    pub(crate) fn tell(&self, event: Event) {
        self.send(Told { event, begun: None });
    }

    pub(crate) fn tell_elected(&self, event: Event, term: Arc<Term>) {
        self.send(Told { event, begun: Some(term) });
    }

    fn send(&self, told: Told) {
        // Nobody has to listen.
        let _ = self.events.send(Arc::new(told));
    }
}

/// Puts together what the driver tells, and the extensions.
struct Listener {
    events: broadcast::Receiver<Arc<Told>>,
    /// The term that stands, and the deadline that was told last.
    led: Option<(Arc<Term>, Mark)>,
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
                told = self.events.recv() => match told {
                    Ok(told) => return Some(self.take(&told)),
                    Err(RecvError::Lagged(passed_over)) => passed(passed_over),
                    Err(RecvError::Closed) => return None,
                },
                until = extended(&self.led) => if let Some(event) = self.extended(until) {
                    return Some(event);
                },
            }
        }
    }

    /// What is to be told next; an extension goes before what came after it.
    fn take(&mut self, told: &Told) -> Event {
        let event = told.event.clone();
        let before = match &event {
            Event::Endangered { valid_until, .. } => self.extended(*valid_until),
            Event::Demoted { .. } => {
                let deadline = self.led.as_ref().map(|(term, _)| term.deadline());
                let extended = deadline.and_then(|deadline| self.extended(deadline));
                self.led = None;
                extended
            }
            Event::Withdrawn(_) => {
                self.led = None;
                None
            }
            Event::Elected { valid_until, .. } => {
                self.led = told.begun.as_ref().map(|term| (Arc::clone(term), *valid_until));
                None
            }
            Event::Joined { .. }
            | Event::Extended { .. }
            | Event::Leader(_)
            | Event::Trouble(_) => None,
        };
        match before {
            Some(extended) => {
                self.next = Some(event);
                extended
            }
            None => event,
        }
    }

    /// The event, unless it was told.
    fn extended(&mut self, valid_until: Mark) -> Option<Event> {
        let (term, told) = self.led.as_mut().filter(|(_, told)| *told < valid_until)?;
        *told = valid_until;
        Some(Event::Extended {
            epoch: term.id().epoch,
            key: term.key().to_vec(),
            lease: term.lease(),
            valid_until,
        })
    }
}

/// Waits for an extension of the term that stands.
async fn extended(led: &Option<(Arc<Term>, Mark)>) -> Mark {
    match led {
        Some((term, told)) => term.extended(*told).await,
        None => pending().await,
    }
}
