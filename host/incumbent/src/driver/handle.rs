//! How the users of a session reach its driver.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::admin;
use crate::candidate::Seat;
use crate::clock::Clock;
use crate::error::{WriteError, written};
use crate::observer::Sighted;
use crate::store::Store;
use crate::types::{
    self, Candidacy, ElectionId, Entry, Expectation, Failure, Mutation, Observation, WriteOutcome,
};

/// How many writes may be under way at once, and how many reads: enough for any store to be
/// busy, and few enough for it to answer each in time. Whoever wants more waits in line.
pub(super) const AT_ONCE: usize = 256;

/// How the users of a session reach its driver. A cheap clone.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(super) wishes: mpsc::UnboundedSender<Wish>,
    pub(super) elections: Arc<AtomicU32>,
    pub(super) writes: Arc<Semaphore>,
    pub(super) reads: Arc<Semaphore>,
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

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Changes what others read of a candidate.
    pub(crate) async fn proclaim(
        &self,
        election: ElectionId,
        value: Vec<u8>,
    ) -> Result<(), WriteError> {
        let wish = |outcome, permit| Wish::Proclaim { election, value, outcome, permit };
        self.write(wish).await.map(|_| ())
    }

    /// Waits for its turn, and then for the outcome.
    pub(crate) async fn write(
        &self,
        wish: impl FnOnce(oneshot::Sender<WriteOutcome>, OwnedSemaphorePermit) -> Wish,
    ) -> Result<i64, WriteError> {
        // It is never closed.
        let permit = Arc::clone(&self.writes).acquire_owned().await;
        let permit = permit.map_err(|_| WriteError::Closed)?;
        let (outcome, answer) = oneshot::channel();
        if !self.send(wish(outcome, permit)) {
            return Err(WriteError::Closed);
        }
        // The driver was ended after it had taken the write.
        answer.await.map_or(Err(WriteError::Unknown), written)
    }

    /// Reads a key past the driver: it is nothing of the elector's. Cancel safe.
    pub(crate) async fn get(&self, key: Vec<u8>) -> Result<Option<Entry>, Failure> {
        let closed = || Failure::Other("the session is closed".into());
        // It is never closed.
        let _permit = self.reads.acquire().await.map_err(|_| closed())?;
        let store = self.store.upgrade().ok_or_else(closed)?;
        let patience = self.patience;
        // The one request that the driver does not make. It is made where the session lives as
        // well: a connection that it opens is the session's, and is not to stand still or to
        // end with the caller's runtime.
        let mut reading = JoinSet::new();
        let read = async move { admin::get(&*store, key, patience).await };
        reading.spawn_on(read, &self.runtime);
        match reading.join_next().await {
            Some(Ok(found)) => found,
            Some(Err(_)) | None => Err(closed()),
        }
    }

    /// Waits until the driver is gone.
    pub(crate) async fn closed(&self) {
        self.wishes.closed().await;
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
        permit: OwnedSemaphorePermit,
    },
    Write {
        term: types::Term,
        expect: Vec<Expectation>,
        mutations: Vec<Mutation>,
        outcome: oneshot::Sender<WriteOutcome>,
        permit: OwnedSemaphorePermit,
    },
    Yielded(types::Term),
    Leave(ElectionId),
    Close(oneshot::Sender<()>),
}
