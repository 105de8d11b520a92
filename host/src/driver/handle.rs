//! How the users of a session reach its driver.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::candidate::Seat;
use crate::clock::Clock;
use crate::error::{WriteError, written};
use crate::observer::Sighted;
use crate::outside;
use crate::store::Store;
use crate::types::{
    self, Candidacy, ElectionId, Entry, Expectation, Failure, Mutation, Observation, WriteOutcome,
};

/// How the users of a session reach its driver. A cheap clone.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(super) wishes: mpsc::UnboundedSender<Wish>,
    pub(super) elections: Arc<AtomicU32>,
    pub(super) troubles: broadcast::WeakSender<Failure>,
    pub(super) identity: Arc<str>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Weak<dyn Store>,
    /// How long to wait for an answer of the store.
    pub(super) patience: Duration,
    /// Where the session lives.
    pub(super) runtime: tokio::runtime::Handle,
}

impl Handle {
    /// False if the driver is gone.
    pub(crate) fn send(&self, wish: Wish) -> bool {
        self.wishes.send(wish).is_ok()
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    #[cfg(feature = "plugin")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Changes what others read of a candidate.
    pub(crate) async fn proclaim(
        &self,
        election: ElectionId,
        value: Vec<u8>,
    ) -> Result<(), WriteError> {
        let (outcome, answer) = oneshot::channel();
        if !self.send(Wish::Proclaim { election, value, outcome }) {
            return Err(WriteError::Closed);
        }
        // The driver was ended after it had taken the value.
        answer.await.map_or(Err(WriteError::Unknown), written).map(|_| ())
    }

    /// Reads a key past the driver: it is nothing of the elector's. Cancel safe.
    pub(crate) async fn get(&self, key: Vec<u8>) -> Result<Option<Entry>, Failure> {
        let closed = || Failure::Other("the session is closed".into());
        let store = self.store.upgrade().ok_or_else(closed)?;
        let patience = self.patience;
        // The one request that the driver does not make. It is made where the session lives as
        // well: a connection that it opens is the session's, and is not to stand still or to
        // end with the caller's runtime.
        let mut reading = JoinSet::new();
        let read = async move { outside::get(&*store, key, patience).await };
        reading.spawn_on(read, &self.runtime);
        match reading.join_next().await {
            Some(Ok(found)) => found,
            Some(Err(_)) | None => Err(closed()),
        }
    }

    /// None if the driver is gone.
    pub(crate) fn troubles(&self) -> Option<broadcast::Receiver<Failure>> {
        Some(self.troubles.upgrade()?.subscribe())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Takes part in an election, as candidate or observer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Attendance {
    handle: Handle,
    id: ElectionId,
}

impl Attendance {
    pub(crate) fn new(handle: Handle) -> Self {
        let id = handle.elections.fetch_add(1, Ordering::Relaxed);
        Self { handle, id }
    }

    pub(crate) fn id(&self) -> ElectionId {
        self.id
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Said again when it is dropped, which does no harm.
    pub(crate) fn leave(&self) {
        self.handle.send(Wish::Leave(self.id));
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What the users of a session want.
#[derive(Debug)]
pub(crate) enum Wish {
    Campaign {
        candidacy: Candidacy,
        seat: Seat,
    },
    Observe {
        observation: Observation,
        sightings: broadcast::Sender<Sighted>,
    },
    Inspect {
        observation: Observation,
        listed: oneshot::Sender<Result<Vec<Entry>, Failure>>,
    },
    Proclaim {
        election: ElectionId,
        value: Vec<u8>,
        outcome: oneshot::Sender<WriteOutcome>,
    },
    Write {
        term: types::Term,
        expect: Vec<Expectation>,
        mutations: Vec<Mutation>,
        outcome: oneshot::Sender<WriteOutcome>,
    },
    Yielded(types::Term),
    Leave(ElectionId),
    Close(oneshot::Sender<()>),
}
