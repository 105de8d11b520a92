//! The members of the cluster, one client each: which one is asked, and how many
//! requests are under way.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, TlsOptions};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use super::failure::{failure, is_without_users};
use crate::types::Failure;

/// etcd refuses requests when some ten thousand of one client are under way.
const REQUESTS_UNDER_WAY: usize = 256;
/// etcd closes connections that are pinged more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What all connections have in common.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) tls: Option<TlsOptions>,
    /// Name and password.
    pub(super) user: Option<(String, String)>,
    pub(super) dial_timeout: Duration,
}

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
        F: Future<Output = Result<T, Failure>>,
    {
        let endpoint = self.current();
        let answer = timeout(within, async {
            let _permit = self.permits.acquire().await;
            let client = endpoint.client().await.map_err(failure)?;
            request(client).await
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
    access: Access,
    connection: Mutex<Arc<Connection>>,
}

/// A connection to a member, made when it is first wanted.
#[derive(Default)]
pub(super) struct Connection {
    client: OnceCell<Client>,
}

impl Endpoint {
    /// Connects when it is first asked.
    pub(super) fn new(address: &str, access: Access) -> Self {
        Self { address: address.to_owned(), access, connection: Mutex::default() }
    }

    /// `HOST:PORT`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// The connection that requests go over.
    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives this connection up, unless that was done already: the next request
    /// dials anew. What is under way on it goes on.
    pub(super) fn reconnect(&self, connection: &Arc<Connection>) {
        let mut current = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current, connection) {
            *current = Arc::default();
        }
    }

    /// The client, logged in where there is a user. Takes as long as etcd takes
    /// to answer the login, without a bound. Cancel safe.
    pub(super) async fn client(&self) -> Result<Client, Error> {
        let connection = self.connection();
        let client = connection.client.get_or_try_init(|| self.dial()).await?;
        Ok(client.clone())
    }

    async fn dial(&self) -> Result<Client, Error> {
        match self.connect(self.access.user.as_ref()).await {
            // Where nobody has to log in, a user does no harm: so does etcdctl see
            // it.
            Err(error) if is_without_users(&error) => self.connect(None).await,
            result => result,
        }
    }

    async fn connect(&self, user: Option<&(String, String)>) -> Result<Client, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.access.dial_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            // etcd allows pings only where there is a stream.
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = user {
            options = options.with_user(name, password);
        }
        let scheme = match &self.access.tls {
            Some(tls) => {
                options = options.with_tls(tls.clone());
                "https"
            }
            None => "http",
        };
        Client::connect([format!("{scheme}://{}", self.address)], Some(options)).await
    }
}

/// Without the access, which holds a password and a key.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}
