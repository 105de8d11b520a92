//! How the users of a session reach one of its drivers.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::broadcast;
use super::registrants::{Pending, Registrant};
use crate::clock::Clock;
use crate::store::{Store, read};
use crate::types::{self, ElectionId, Entry, Failure, Mark, Revision};
use crate::write::{Write, WriteError, written};

/// How many writes may be under way at once, and how many reads: enough for any store to be
/// busy, and few enough for it to answer each in time. Further ones wait for their turn.
const AT_ONCE: usize = 256;

/// How the users of a session reach one of its drivers. A cheap clone.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Shared>);

/// When the store answered a driver last. A cheap clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Answered(Arc<AtomicU64>);

/// What all handles of a driver share.
pub(crate) struct Shared {
    requests: mpsc::UnboundedSender<Request>,
    elections: AtomicU32,
    writes: Arc<Semaphore>,
    reads: Semaphore,
    troubles: broadcast::WeakSender<Failure>,
    /// Its sender is gone once the session closes.
    open: watch::Receiver<()>,
    pub(crate) identity: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(super) answered: Answered,
    store: Weak<dyn Store>,
    /// For the answers of the store.
    timeout: Duration,
    /// Where the session lives.
    pub(crate) runtime: runtime::Handle,
}

impl Answered {
    pub(super) fn set(&self, now: Mark) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// None if it never has: no clock is at 0 any more.
    pub(super) fn get(&self) -> Option<Mark> {
        Some(self.0.load(Ordering::Relaxed)).filter(|mark| *mark > 0)
    }
}

/// The driver's end.
pub(super) struct Inbox {
    pub(super) requests: mpsc::UnboundedReceiver<Request>,
    pub(super) open: watch::Sender<()>,
}

impl Handle {
    pub(super) fn new(
        identity: &str,
        clock: Arc<dyn Clock>,
        store: &Arc<dyn Store>,
        timeout: Duration,
        troubles: broadcast::WeakSender<Failure>,
    ) -> (Self, Inbox) {
        let (requests, requested) = mpsc::unbounded_channel();
        let (open, is_open) = watch::channel(());
        let handle = Shared {
            requests,
            elections: AtomicU32::new(1),
            writes: Arc::new(Semaphore::new(AT_ONCE)),
            reads: Semaphore::new(AT_ONCE),
            troubles,
            open: is_open,
            identity: identity.into(),
            clock,
            answered: Answered::default(),
            store: Arc::downgrade(store),
            timeout,
            runtime: runtime::Handle::current(),
        };
        (Self(Arc::new(handle)), Inbox { requests: requested, open })
    }

    /// False if the driver is gone.
    pub(crate) fn send(&self, request: Request) -> bool {
        self.requests.send(request).is_ok()
    }

    /// Changes what others read of a candidate.
    pub(crate) async fn proclaim(
        &self,
        election: ElectionId,
        value: Vec<u8>,
    ) -> Result<(), WriteError> {
        let request = |pending| Request::Proclaim { election, value, pending };
        self.write_by(request).await.map(|_| ())
    }

    /// Makes a guarded write of a term.
    pub(crate) async fn write(
        &self,
        term: types::Term,
        write: Write,
    ) -> Result<Revision, WriteError> {
        self.write_by(|pending| Request::Write { term, write, pending }).await
    }

    /// Waits for its turn, and then for the outcome.
    async fn write_by(
        &self,
        request: impl FnOnce(Pending) -> Request,
    ) -> Result<Revision, WriteError> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.writes).acquire_owned().await;
        let permit = permit.map_err(|_| WriteError::Closed)?;
        let (outcome, answer) = oneshot::channel();
        if !self.send(request(Pending::new(outcome, permit))) {
            return Err(WriteError::Closed);
        }
        // The driver was ended after it had taken the write.
        answer.await.map_or(Err(WriteError::Unknown), written)
    }

    /// Reads a key past the driver, because the elector does not need it. Cancel safe.
    pub(crate) async fn get(&self, key: Vec<u8>) -> Result<Option<Entry>, Failure> {
        self.ask(|store, timeout| async move { read::get(&*store, key, timeout).await }).await
    }

    /// Asks the store past the driver: with it, and with the time for each answer.
    pub(crate) async fn ask<T, F>(
        &self,
        ask: impl FnOnce(Arc<dyn Store>, Duration) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let closed = || Failure::Other("the session is closed".into());
        // The semaphore is never closed.
        let _permit = self.reads.acquire().await.map_err(|_| closed())?;
        let store = self.store.upgrade().ok_or_else(closed)?;
        // It is made where the session lives, because a connection that it opens is the session's,
        // and must not stand still or end with the caller's runtime.
        let mut asking = JoinSet::new();
        asking.spawn_on(ask(store, self.timeout), &self.runtime);
        match asking.join_next().await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => Err(closed()),
        }
    }

    /// The store, and the time for each answer; none if the session has ended.
    pub(crate) fn store(&self) -> Option<(Arc<dyn Store>, Duration)> {
        Some((self.store.upgrade()?, self.timeout))
    }

    /// Waits until the session begins to close.
    pub(crate) async fn closing(&self) {
        // Nothing is ever sent.
        let _ = self.open.clone().changed().await;
    }

    /// Waits until the driver is gone.
    pub(crate) async fn closed(&self) {
        self.requests.closed().await;
    }

    /// None if the driver is gone.
    pub(crate) fn troubles(&self) -> Option<broadcast::Receiver<Failure>> {
        Some(self.troubles_sender()?.subscribe())
    }

    /// For another driver of the same session. None if all of them are gone.
    pub(super) fn troubles_sender(&self) -> Option<broadcast::Sender<Failure>> {
        self.troubles.upgrade()
    }

    fn next_id(&self) -> ElectionId {
        self.elections.fetch_add(1, Ordering::Relaxed)
    }
}

impl Deref for Handle {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Takes part in an election, as candidate, observer or inspector, until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) handle: Handle,
    pub(crate) id: ElectionId,
}

impl Registration {
    pub(super) fn new(handle: Handle, registrant: impl FnOnce(ElectionId) -> Registrant) -> Self {
        let id = handle.next_id();
        handle.send(Request::Register(registrant(id)));
        Self { handle, id }
    }

    /// For a registrant that no driver takes.
    pub(super) fn refused(
        handle: Handle,
        failure: Failure,
        registrant: impl FnOnce(ElectionId) -> Registrant,
    ) -> Self {
        let id = handle.next_id();
        registrant(id).withdraw(Some(failure));
        Self { handle, id }
    }

    /// Said again when it is dropped, which does no harm.
    pub(crate) fn leave(&self) {
        self.handle.send(Request::Leave(self.id));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What the users of a session want.
#[derive(Debug)]
pub(crate) enum Request {
    Register(Registrant),
    Proclaim {
        election: ElectionId,
        value: Vec<u8>,
        pending: Pending,
    },
    Write {
        term: types::Term,
        write: Write,
        pending: Pending,
    },
    Yielded(types::Term),
    Leave(ElectionId),
    Limit(Option<types::Limit>),
    /// How many terms stand.
    Terms(oneshot::Sender<usize>),
    Ping(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}
