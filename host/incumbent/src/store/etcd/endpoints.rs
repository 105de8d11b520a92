//! The members of the cluster: which one is asked, over which connection, and how
//! many requests are under way.
//!
//! A member that did not answer rests: whoever asks next goes on with another one.
//! Its connection is given up as well where it kept silent: a link that died in
//! silence shows in no other way, and where there is one member only, a new
//! connection is what helps. A connection is used once the member has said over it
//! that it knows a leader; while the first choice has not, the next one is tried
//! beside it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, Error};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::access::Access;
use super::connection::{Connection, Moves};
use crate::types::Failure;

/// etcd refuses requests when some ten thousand of one client are under way.
const REQUESTS_UNDER_WAY: usize = 256;
/// How long a member that did not answer is the last to be asked.
const REST: Duration = Duration::from_secs(10);
/// How long a member may take to connect before the next one is tried as well: not
/// long beside the time-out of a renewal, which is a third of a second at least.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long an answer is waited for before another member is asked as well, where
/// that does no harm, however much time there is.
const PATIENCE: Duration = Duration::from_secs(1);

/// All members, and the one that is asked.
pub(super) struct Endpoints {
    all: Vec<Arc<Endpoint>>,
    current: Mutex<Arc<Endpoint>>,
    permits: Semaphore,
}

impl Endpoints {
    /// `first` is asked until it fails.
    pub(super) fn new(all: Vec<Arc<Endpoint>>, first: Arc<Endpoint>) -> Self {
        Self { all, current: Mutex::new(first), permits: Semaphore::new(REQUESTS_UNDER_WAY) }
    }

    /// Makes one request, of one member, within this time.
    pub(super) async fn request<T, F>(
        &self,
        within: Duration,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut asked = None;
        let answer = timeout(within, async {
            let _permit = self.permits.acquire().await;
            let contact = asked.insert(self.reach().await?);
            let answer = request(contact.client.clone()).await;
            contact.judge(answer).await
        });
        let answer = answer.await.unwrap_or(Err(Failure::Timeout));
        if let Some(contact) = asked {
            contact.note(&answer);
        }
        answer
    }

    /// Makes one request, and where no answer comes for a good part of the time, or
    /// none can come, makes it of another member as well: for what is safe to be
    /// asked twice.
    pub(super) async fn request_twice<T, F>(
        &self,
        within: Duration,
        request: impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let answer = timeout(within, async {
            let _permit = self.permits.acquire().await;
            let ask = |contact: Contact| {
                let answer = request(contact.client.clone());
                async move { contact.judge(answer.await).await }
            };
            self.ask_twice(PATIENCE.min(within / 2), ask).await
        });
        answer.await.unwrap_or(Err(Failure::Timeout))
    }

    /// Asks one member, and once that has failed, or has kept silent for so long,
    /// another one. The first answer counts, however late it comes.
    pub(super) async fn ask_twice<T, F>(
        &self,
        patience: Duration,
        ask: impl Fn(Contact) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let contact = self.reach().await?;
        let mut first = Box::pin(ask(contact.clone()));
        let silent = match timeout(patience, &mut first).await {
            Ok(answer) => {
                contact.note(&answer);
                if !is_no_answer(&answer) {
                    return answer;
                }
                None
            }
            Err(_) => {
                contact.lost();
                Some(first)
            }
        };
        let second = async {
            let contact = self.reach().await?;
            let mut answer = Box::pin(ask(contact.clone()));
            let answer = match timeout(patience, &mut answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    contact.lost();
                    answer.await
                }
            };
            contact.note(&answer);
            answer
        };
        let Some(first) = silent else {
            return second.await;
        };
        match select(first, Box::pin(second)).await {
            Either::Left((answer, second)) if is_no_answer(&answer) => second.await,
            Either::Right((answer, first)) if is_no_answer(&answer) => first.await,
            Either::Left((answer, _)) | Either::Right((answer, _)) => answer,
        }
    }

    /// A member to ask: the one that was asked last, if it has not failed.
    ///
    /// Takes the dial time-out at most. Cancel safe.
    pub(super) async fn reach(&self) -> Result<Contact, Failure> {
        let current = Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner));
        if current.resting().is_none() && current.connection().is_made() {
            return current.contact().await;
        }
        self.search(&current).await
    }

    /// Connects to one member after the other, side by side, until one is there. It
    /// is asked from now on.
    async fn search(&self, current: &Arc<Endpoint>) -> Result<Contact, Failure> {
        let mut untried = self.by_preference(current).into_iter();
        let mut dialing = FuturesUnordered::new();
        let mut trouble = Failure::Unavailable;
        loop {
            if let Some(endpoint) = untried.next() {
                dialing.push(async move { endpoint.contact().await });
            }
            let dialed = if untried.len() > 0 {
                timeout(HEAD_START, dialing.next()).await
            } else {
                Ok(dialing.next().await)
            };
            match dialed {
                Ok(Some(Ok(contact))) => {
                    self.choose(current, &contact.endpoint);
                    return Ok(contact);
                }
                // A member that refuses tells more than one that is not there.
                Ok(Some(Err(failure))) => {
                    if failure != Failure::Unavailable {
                        trouble = failure;
                    }
                }
                Ok(None) => return Err(trouble),
                Err(_) => {}
            }
        }
    }

    /// All members: those that have not failed of late, from `current` on, and then
    /// the others, the one first that has failed first.
    fn by_preference(&self, current: &Arc<Endpoint>) -> Vec<Arc<Endpoint>> {
        let mut all = self.all.clone();
        let at = all.iter().position(|one| Arc::ptr_eq(one, current)).unwrap_or(0);
        all.rotate_left(at);
        all.sort_by_cached_key(|endpoint| endpoint.resting());
        all
    }

    fn choose(&self, last: &Arc<Endpoint>, next: &Arc<Endpoint>) {
        if !Arc::ptr_eq(last, next) {
            tracing::debug!(from = last.address(), to = next.address(), "etcd member changed");
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(next);
        }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

/// Whether nothing came of it, as far as anyone knows.
fn is_no_answer<T>(answer: &Result<T, Failure>) -> bool {
    matches!(answer, Err(Failure::Timeout | Failure::Unavailable))
}

/// A member that was reached, and the connection over which it was.
#[derive(Clone)]
pub(super) struct Contact {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) connection: Arc<Connection>,
    pub(super) client: Client,
}

impl Contact {
    /// What an answer means to whoever asked.
    pub(super) async fn judge<T>(&self, answer: Result<T, Error>) -> Result<T, Failure> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.endpoint.judge(&self.connection, error).await),
        }
    }

    /// Learns from an answer whether this member is to be asked again.
    pub(super) fn note<T>(&self, answer: &Result<T, Failure>) {
        match answer {
            Err(Failure::Timeout) => self.lost(),
            Err(Failure::Unavailable) => self.failed(),
            Ok(_)
            | Err(
                Failure::Denied(_)
                | Failure::Invalid(_)
                | Failure::Compacted(_)
                | Failure::Other(_),
            ) => {
                self.connection.has_answered();
                self.endpoint.recovered();
            }
        }
    }

    /// It failed: others are asked from now on.
    pub(super) fn failed(&self) {
        self.endpoint.rest();
    }

    /// It kept silent: others are asked from now on, and this member over another
    /// connection. What is under way goes on.
    pub(super) fn lost(&self) {
        self.endpoint.rest();
        self.endpoint.reconnect(&self.connection);
    }
}

/// One member.
pub(super) struct Endpoint {
    address: String,
    access: Arc<Access>,
    connections: watch::Sender<Arc<Connection>>,
    moves: Moves,
    /// When it failed last, unless it has answered since.
    failed: Mutex<Option<Instant>>,
}

impl Endpoint {
    /// Connects when it is first asked.
    pub(super) fn new(address: &str, access: Arc<Access>) -> Self {
        let connections = watch::Sender::default();
        Self {
            address: address.to_owned(),
            access,
            connections,
            moves: Moves::default(),
            failed: Mutex::default(),
        }
    }

    /// `HOST:PORT`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    pub(super) fn moves(&self) -> &Moves {
        &self.moves
    }

    pub(super) fn connections(&self) -> &watch::Sender<Arc<Connection>> {
        &self.connections
    }

    /// The connection that requests go over.
    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connections.borrow())
    }

    /// Gives this connection up, unless that was done already: the next request
    /// dials anew. What is under way on it goes on.
    pub(super) fn reconnect(&self, connection: &Arc<Connection>) {
        self.replace(connection, Arc::default());
    }

    /// Connects, where there is no connection yet.
    ///
    /// Takes the dial time-out at most. Cancel safe: the next one who asks finds
    /// the connection as far as it has come.
    async fn contact(self: &Arc<Self>) -> Result<Contact, Failure> {
        let connection = self.connection();
        let client = if connection.is_made() {
            self.client().await
        } else {
            let endpoint = Arc::clone(self);
            let within = self.access.dial_timeout;
            // In a task of its own, so that a slow link needs no patient caller.
            match tokio::spawn(async move { timeout(within, endpoint.client()).await }).await {
                Ok(Ok(client)) => client,
                Ok(Err(_)) | Err(_) => {
                    self.rest();
                    self.reconnect(&connection);
                    return Err(Failure::Timeout);
                }
            }
        };
        match client {
            Ok(client) => Ok(Contact { endpoint: Arc::clone(self), connection, client }),
            Err(error) => {
                self.rest();
                Err(self.judge(&connection, error).await)
            }
        }
    }

    /// It has failed now.
    fn rest(&self) {
        *self.failed() = Some(Instant::now());
    }

    /// It has answered.
    fn recovered(&self) {
        *self.failed() = None;
    }

    /// When it failed, if that is not long ago.
    fn resting(&self) -> Option<Instant> {
        self.failed().filter(|failed| failed.elapsed() < REST)
    }

    fn failed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another connection in the place of this one, if it still has it. What
    /// is under way on this one goes on.
    pub(super) fn replace(&self, connection: &Arc<Connection>, by: Arc<Connection>) {
        self.connections.send_if_modified(|current| {
            let is_current = Arc::ptr_eq(current, connection);
            if is_current {
                *current = by;
            }
            is_current
        });
    }
}

/// Without the access, which holds a password and a key.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}
