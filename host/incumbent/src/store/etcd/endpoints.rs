//! The members of the cluster: which one is asked, and how many requests are under way.
//!
//! A member that did not answer cools down: the next request goes to another one. Where it
//! kept silent, its connection is given up as well: a link that died in silence shows in no
//! other way, and where there is one member only, a new connection is what helps. A connection
//! is used once the member has said over it that it knows a leader; while the first choice has
//! not, the next one is tried beside it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Error};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::access::Access;
use super::endpoint::{Contact, Endpoint};
use super::keyspace::Keyspace;
use crate::store::connect_error::ConnectError;
use crate::store::credentials::Credentials;
use crate::store::url::EtcdUrl;
use crate::types::{Answer, Failure};

/// etcd refuses requests when some ten thousand of one client are under way.
const REQUESTS_UNDER_WAY: usize = 256;
/// How long a member may take to connect before the next one is tried as well: not
/// long beside the time-out of a renewal, which is a third of a second at least.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long to wait for an answer before asking another member as well, where that does no
/// harm, however much time there is.
const SECOND_REQUEST: Duration = Duration::from_secs(1);

/// All members, and the one that is asked.
pub(super) struct Endpoints {
    all: Vec<Arc<Endpoint>>,
    current: Mutex<Arc<Endpoint>>,
    permits: Semaphore,
}

impl Endpoints {
    /// Connects to the first member that lets us in. Tries one after the other, each with its
    /// share of the time.
    pub(super) async fn connect(
        url: &EtcdUrl,
        credentials: &Credentials,
        keyspace: &Keyspace,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let access = Arc::new(Access::new(url, credentials, keyspace, dial_timeout).await?);
        let endpoint = |address: &String| Arc::new(Endpoint::new(address, Arc::clone(&access)));
        let all: Vec<_> = url.endpoints().iter().map(endpoint).collect();
        // No deadline: a very long time-out ends beyond what an instant can hold.
        let start = Instant::now();
        let mut telling: Option<ConnectError> = None;
        for (left, endpoint) in (1..=all.len()).rev().zip(&all) {
            let remaining = dial_timeout.saturating_sub(start.elapsed());
            let share = remaining / u32::try_from(left).unwrap_or(u32::MAX);
            match endpoint.try_connect(share).await {
                Ok(()) => {
                    let current = Mutex::new(Arc::clone(endpoint));
                    return Ok(Self { current, all, permits: Semaphore::new(REQUESTS_UNDER_WAY) });
                }
                Err(error) => {
                    tracing::debug!(%error, "etcd member not connected");
                    // A member that refuses tells more than one that does not answer.
                    if matches!(telling, None | Some(ConnectError::Unreachable { .. })) {
                        telling = Some(error);
                    }
                }
            }
        }
        Err(telling.unwrap_or(ConnectError::Mismatched("the store URL names no host")))
    }

    /// The same members, over connections of their own that are made when they are wanted.
    pub(super) fn reconnecting(&self) -> Self {
        let current = self.current.lock();
        let at = self.all.iter().position(|one| Arc::ptr_eq(one, &current)).unwrap_or(0);
        let all: Vec<_> = self.all.iter().map(|one| Arc::new(one.reconnecting())).collect();
        let current = Mutex::new(all.get(at).map_or_else(|| Arc::clone(&current), Arc::clone));
        Self { current, all, permits: Semaphore::new(REQUESTS_UNDER_WAY) }
    }

    /// Makes one request, of one member, within this time.
    pub(super) async fn request<T, F>(
        &self,
        within: Duration,
        request: impl FnOnce(Client) -> F,
    ) -> Answer<T>
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
    /// none can come, makes it of another member as well. Only for reads and renewals: a claim or
    /// a write that was given up may still land, and only the elector knows what follows from that.
    pub(super) async fn request_twice<T, F>(
        &self,
        within: Duration,
        request: impl Fn(Contact) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let answer = timeout(within, async {
            let _permit = self.permits.acquire().await;
            let ask = |contact: Contact| {
                let answer = request(contact.clone());
                async move { contact.judge(answer.await).await }
            };
            self.ask_twice(SECOND_REQUEST.min(within / 2), ask).await
        });
        answer.await.unwrap_or(Err(Failure::Timeout))
    }

    /// Asks one member, and another one once that has failed or has kept silent for
    /// `silence`. The first answer counts, however late it comes.
    pub(super) async fn ask_twice<T, F>(
        &self,
        silence: Duration,
        ask: impl Fn(Contact) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Answer<T>>,
    {
        let contact = self.reach().await?;
        let mut first = Box::pin(ask(contact.clone()));
        let silent = match timeout(silence, &mut first).await {
            Ok(answer) => {
                contact.note(&answer);
                if !is_no_answer(&answer) {
                    return answer;
                }
                None
            }
            Err(_) => {
                contact.kept_silent();
                Some(first)
            }
        };
        let second = async {
            let contact = self.reach().await?;
            let mut answer = Box::pin(ask(contact.clone()));
            let answer = match timeout(silence, &mut answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    contact.kept_silent();
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

    /// A member to ask: the last one, if it has not failed.
    ///
    /// Takes the dial time-out at most. Cancel safe.
    pub(super) async fn reach(&self) -> Answer<Contact> {
        let current = Arc::clone(&self.current.lock());
        if current.is_ready() {
            return current.contact().await;
        }
        self.search(&current).await
    }

    /// Connects to one member after the other, side by side, until one is connected: that one
    /// is asked from now on.
    async fn search(&self, current: &Arc<Endpoint>) -> Answer<Contact> {
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
                // A member that refuses tells more than one that does not answer.
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

    /// All members: first the ones that have not failed of late, from `current` on, and then the
    /// others in the order of their failures.
    fn by_preference(&self, current: &Arc<Endpoint>) -> Vec<Arc<Endpoint>> {
        let mut all = self.all.clone();
        let at = all.iter().position(|one| Arc::ptr_eq(one, current)).unwrap_or(0);
        all.rotate_left(at);
        all.sort_by_cached_key(|endpoint| endpoint.failed_lately());
        all
    }

    fn choose(&self, last: &Arc<Endpoint>, next: &Arc<Endpoint>) {
        if !Arc::ptr_eq(last, next) {
            tracing::debug!(from = last.address, to = next.address, "etcd member changed");
            *self.current.lock() = Arc::clone(next);
        }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

/// Whether the member, as far as is known, did nothing.
fn is_no_answer<T>(answer: &Answer<T>) -> bool {
    matches!(answer, Err(Failure::Timeout | Failure::Unavailable))
}
