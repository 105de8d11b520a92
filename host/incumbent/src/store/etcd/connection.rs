//! A connection to one member: how it is made, and how one with newer
//! credentials takes its place.
//!
//! The old connection serves until the new one has proved itself: certificates
//! that etcd does not take, or a password that it does not know yet, cost nothing
//! that works.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::connect::{ConnectError, objection};
use super::credentials::Secrets;
use super::endpoints::Endpoint;
use super::failure::{
    failure, is_key_forbidden, is_login_outdated, is_login_refused, is_without_users,
};
use crate::types::Failure;

/// etcd closes connections that are pinged more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long etcd may take to answer a login.
const LOGIN: Duration = Duration::from_secs(5);
/// A login is not made again for the many requests that all met its end.
const FRESH: Duration = Duration::from_millis(200);
/// How often credentials that etcd has refused are tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// A connection to a member, made when it is first wanted.
#[derive(Default)]
pub(super) struct Connection {
    made: OnceCell<Made>,
    /// When a request was answered on it last.
    answered: Mutex<Option<Instant>>,
}

struct Made {
    client: Client,
    secrets: Arc<Secrets>,
    logged_in: Mutex<Instant>,
}

/// What newer credentials came to so far.
#[derive(Default)]
pub(super) struct Moves {
    /// Held by whoever tries.
    turn: Arc<tokio::sync::Mutex<()>>,
    refused: Mutex<Option<(Arc<Secrets>, Instant)>>,
}

impl Connection {
    /// Whether there is somebody at the other end, as far as is known.
    pub(super) fn is_made(&self) -> bool {
        self.made.initialized()
    }

    /// A request was answered on it now.
    pub(super) fn has_answered(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// When a request was answered on it last.
    pub(super) fn answered(&self) -> Option<Instant> {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(client: Client, secrets: Arc<Secrets>) -> Self {
        let logged_in = Mutex::new(Instant::now());
        let made = OnceCell::new_with(Some(Made { client, secrets, logged_in }));
        Self { made, answered: Mutex::default() }
    }
}

impl Endpoint {
    /// The client, logged in where there is a user. Takes as long as etcd takes
    /// to answer the login, without a bound. Cancel safe.
    pub(super) async fn client(self: &Arc<Self>) -> Result<Client, Error> {
        let secrets = self.access().secrets().await;
        let connection = self.connection();
        let made = connection
            .made
            .get_or_try_init(|| async {
                let client = self.dial(&secrets).await?;
                has_leader(&client).await?;
                let logged_in = Mutex::new(Instant::now());
                Ok::<_, Error>(Made { client, secrets: Arc::clone(&secrets), logged_in })
            })
            .await?;
        if !Arc::ptr_eq(&made.secrets, &secrets) {
            self.begin_to_move(Arc::clone(&connection), secrets);
        }
        Ok(made.client.clone())
    }

    /// Ends when this connection is not the one to use any more. Cancel safe.
    pub(super) async fn has_left(&self, connection: &Arc<Connection>) {
        let mut current = self.connections().subscribe();
        // The sender lives as long as `self`.
        let _ = current.wait_for(|current| !Arc::ptr_eq(current, connection)).await;
    }

    /// What an error means to whoever asked. Where the login was too old, there is
    /// another one now, or other credentials, and it may be asked again.
    pub(super) async fn judge(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        error: Error,
    ) -> Failure {
        if !is_login_outdated(&error) && !is_login_refused(&error) {
            return failure(error);
        }
        match self.log_in_again(connection).await {
            Ok(true) => Failure::Unavailable,
            Ok(false) => failure(error),
            Err(failure) => failure,
        }
    }

    /// Logs in again: as before, or where that is refused, with what the files hold
    /// now. False where nobody logs in.
    pub(super) async fn log_in_again(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<bool, Failure> {
        let _turn = self.moves().turn.lock().await;
        let Some(made) = connection.made.get().filter(|made| made.secrets.user.is_some()) else {
            return Ok(false);
        };
        let is_fresh = made.logged_in().elapsed() < FRESH;
        if is_fresh || !Arc::ptr_eq(&self.connection(), connection) {
            return Ok(true);
        }
        let refused = match timeout(LOGIN, made.client.refresh_token()).await {
            Ok(Ok(())) => {
                *made.logged_in() = Instant::now();
                return Ok(true);
            }
            Ok(Err(error)) => failure(error),
            Err(_) => return Err(Failure::Timeout),
        };
        let secrets = self.access().newest_secrets().await;
        if Arc::ptr_eq(&secrets, &made.secrets) {
            return Err(refused);
        }
        if self.move_over(connection, secrets).await { Ok(true) } else { Err(refused) }
    }

    /// Connects with newer credentials, beside the requests that go on with the old
    /// ones.
    fn begin_to_move(self: &Arc<Self>, from: Arc<Connection>, secrets: Arc<Secrets>) {
        let moves = self.moves();
        let is_too_early = moves
            .refused()
            .as_ref()
            .is_some_and(|(refused, at)| Arc::ptr_eq(refused, &secrets) && at.elapsed() < AGAIN);
        let Ok(turn) = Arc::clone(&moves.turn).try_lock_owned() else {
            return;
        };
        if is_too_early || !Arc::ptr_eq(&self.connection(), &from) {
            return;
        }
        let endpoint = Arc::clone(self);
        tokio::spawn(async move {
            endpoint.move_over(&from, secrets).await;
            drop(turn);
        });
    }

    /// Puts a connection with these credentials in the place of another, if it
    /// works. Whoever calls has the turn.
    async fn move_over(self: &Arc<Self>, from: &Arc<Connection>, secrets: Arc<Secrets>) -> bool {
        let proof = timeout(self.access().dial_timeout, async {
            let client = self.dial(&secrets).await?;
            self.prove(&client).await?;
            Ok(client)
        });
        let error = match proof.await {
            Ok(Ok(client)) => {
                tracing::info!(endpoint = self.address(), "connected with the new credentials");
                self.replace(from, Arc::new(Connection::of(client, secrets)));
                return true;
            }
            Ok(Err(error)) => objection(self, error).await,
            Err(_) => {
                tracing::debug!(endpoint = self.address(), "not connected with new credentials");
                return false;
            }
        };
        let refused = self.moves().refused().replace((Arc::clone(&secrets), Instant::now()));
        let is_said = refused.is_some_and(|(refused, _)| Arc::ptr_eq(&refused, &secrets));
        if is_said || matches!(error, ConnectError::Unreachable { .. }) {
            tracing::debug!(%error, "not connected with the new credentials");
        } else {
            tracing::warn!(
                %error,
                "the new credentials are refused: the connection with the old ones is kept, and \
                 the new ones are tried again"
            );
        }
        false
    }

    /// Makes sure that an etcd answers, and lets us in.
    pub(super) async fn prove(&self, client: &Client) -> Result<(), Error> {
        match client.kv_client().get(self.access().probe.clone(), None).await {
            Ok(_) => Ok(()),
            // Not this key, but the etcd is there and knows us.
            Err(error) if is_key_forbidden(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn dial(&self, secrets: &Secrets) -> Result<Client, Error> {
        match self.connect(secrets, secrets.user.as_ref()).await {
            // Where nobody has to log in, a user does no harm: so does etcdctl see
            // it.
            Err(error) if is_without_users(&error) => self.connect(secrets, None).await,
            result => result,
        }
    }

    async fn connect(
        &self,
        secrets: &Secrets,
        user: Option<&(String, String)>,
    ) -> Result<Client, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.access().dial_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            // etcd allows pings only where there is a stream.
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = user {
            options = options.with_user(name, password);
        }
        let scheme = match &secrets.tls {
            Some(tls) => {
                options = options.with_tls(tls.clone());
                "https"
            }
            None => "http",
        };
        Client::connect([format!("{scheme}://{}", self.address())], Some(options)).await
    }
}

/// Makes sure that a member is in touch with the others. A read would tell as much,
/// but waits for long after a leader was lost, where renewals pass.
async fn has_leader(client: &Client) -> Result<(), Error> {
    let sorry = |text: &str| Err(Error::IoError(io::Error::other(format!("etcdserver: {text}"))));
    match client.maintenance_client().status().await {
        Ok(status) if status.leader() == 0 => sorry("no leader"),
        Ok(status) if status.is_learner() => sorry("a learner does not serve clients"),
        Ok(_) => Ok(()),
        Err(error) if failure(&error) == Failure::Unavailable => Err(error),
        // What it has to say is said to whoever asks for more.
        Err(_) => Ok(()),
    }
}

impl Made {
    fn logged_in(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.logged_in.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Moves {
    fn refused(&self) -> std::sync::MutexGuard<'_, Option<(Arc<Secrets>, Instant)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
