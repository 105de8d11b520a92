//! The members of the cluster, one client each: which one is asked, and how many
//! requests are under way.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Client, Error};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::access::Access;
use super::connection::{Connection, Moves};
use crate::types::Failure;

/// etcd refuses requests when some ten thousand of one client are under way.
const REQUESTS_UNDER_WAY: usize = 256;
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

    /// The member to ask.
    pub(super) fn current(&self) -> Arc<Endpoint> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// This member did not answer: ask the next one, unless that was decided
    /// already.
    pub(super) fn failed(&self, endpoint: &Arc<Endpoint>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current, endpoint) {
            return;
        }
        let next = self.all.iter().cycle().skip_while(|one| !Arc::ptr_eq(one, endpoint)).nth(1);
        if let Some(next) = next.filter(|next| !Arc::ptr_eq(next, endpoint)) {
            tracing::debug!(from = endpoint.address(), to = next.address(), "etcd member changed");
            *current = Arc::clone(next);
        }
    }

    /// Makes one request of the current member, within this time.
    pub(super) async fn request<T, F>(
        &self,
        within: Duration,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let endpoint = self.current();
        let answer = timeout(within, async {
            let _permit = self.permits.acquire().await;
            let connection = endpoint.connection();
            let asked = async { request(endpoint.client().await?).await };
            match asked.await {
                Ok(answer) => Ok(answer),
                Err(error) => Err(endpoint.judge(&connection, error).await),
            }
        })
        .await
        .unwrap_or(Err(Failure::Timeout));
        if matches!(answer, Err(Failure::Timeout | Failure::Unavailable)) {
            self.failed(&endpoint);
        }
        answer
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

/// One member.
pub(super) struct Endpoint {
    address: String,
    access: Arc<Access>,
    connections: watch::Sender<Arc<Connection>>,
    moves: Moves,
}

impl Endpoint {
    /// Connects when it is first asked.
    pub(super) fn new(address: &str, access: Arc<Access>) -> Self {
        let connections = watch::Sender::default();
        Self { address: address.to_owned(), access, connections, moves: Moves::default() }
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
