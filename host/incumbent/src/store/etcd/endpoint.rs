//! One member: its connection, the credentials it was made with, and whether the member
//! answers.
//!
//! When the credentials change, the old connection serves until a new one has proved itself:
//! certificates that etcd does not take, or a password that it does not know yet, break
//! nothing that works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Error};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::access::Access;
use super::connection::{Connection, dial, prove};
use super::diagnosis::{objection, silence};
use super::failure::{failure, is_login_outdated, is_login_refused};
use super::secrets::Secrets;
use crate::backoff::Backoff;
use crate::store::connect_error::ConnectError;
use crate::types::{Answer, Failure};

/// How long a member that did not answer is the last to be asked.
const COOL_DOWN: Duration = Duration::from_secs(10);
/// How long etcd may take to answer a login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that all met the end of one login cause one new login: a login as young as this is
/// not repeated.
const YOUNG_LOGIN: Duration = Duration::from_millis(200);
/// How often credentials that etcd has refused are tried again.
const RETRY_REFUSED: Duration = Duration::from_secs(2);

/// One member.
pub(super) struct Endpoint {
    /// `HOST:PORT`.
    pub(super) address: String,
    access: Arc<Access>,
    /// The connection that requests go over.
    connection: watch::Sender<Arc<Connection>>,
    /// Held while a connection with other credentials, or another login, is made.
    renewing: Arc<tokio::sync::Mutex<()>>,
    /// The credentials that etcd refused last, and when.
    refused: Mutex<Option<(Arc<Secrets>, Instant)>>,
    /// When it failed last, unless it has answered since.
    failed: Mutex<Option<Instant>>,
}

impl Endpoint {
    /// Connects when it is first asked.
    pub(super) fn new(address: &str, access: Arc<Access>) -> Self {
        Self {
            address: address.to_owned(),
            access,
            connection: watch::Sender::default(),
            renewing: Arc::default(),
            refused: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// The same member, over a connection of its own.
    pub(super) fn reconnecting(&self) -> Self {
        Self::new(&self.address, Arc::clone(&self.access))
    }

    /// Makes sure that this member is an etcd that lets us in.
    pub(super) async fn try_connect(
        self: &Arc<Self>,
        within: Duration,
    ) -> Result<(), ConnectError> {
        let answer = timeout(within, async {
            let client = self.client().await?;
            prove(&self.access, &client).await
        });
        match answer.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(objection(&self.address, &self.access, error).await),
            Err(_) => Err(silence(&self.address, within).await),
        }
    }

    /// Whether it is connected, and has not failed of late.
    pub(super) fn is_ready(&self) -> bool {
        self.failed_lately().is_none() && self.connection().made.initialized()
    }

    /// When it failed, if it is still cooling down.
    pub(super) fn failed_lately(&self) -> Option<Instant> {
        self.failed.lock().filter(|failed| failed.elapsed() < COOL_DOWN)
    }

    /// The client, logged in where there is a user. Takes as long as etcd takes
    /// to answer the login, without a bound. Cancel safe.
    pub(super) async fn client(self: &Arc<Self>) -> Result<Client, Error> {
        let secrets = self.access.secrets().await;
        let connection = self.connection();
        let made = connection.make(&self.address, &self.access, &secrets).await?;
        if !Arc::ptr_eq(&made.secrets, &secrets) {
            self.begin_to_renew(Arc::clone(&connection), secrets);
        }
        Ok(made.client.clone())
    }

    /// Connects, where there is no connection yet.
    ///
    /// Takes the dial time-out at most. Cancel safe: the next caller finds the connection as
    /// far as it has come.
    pub(super) async fn contact(self: &Arc<Self>) -> Answer<Contact> {
        let connection = self.connection();
        let client = if connection.made.initialized() {
            self.client().await
        } else {
            let endpoint = Arc::clone(self);
            let within = self.access.dial_timeout;
            // In a task of its own: callers that give up early do not stop it on a slow link.
            match tokio::spawn(async move { timeout(within, endpoint.client()).await }).await {
                Ok(Ok(client)) => client,
                Ok(Err(_)) | Err(_) => {
                    self.kept_silent(&connection);
                    return Err(Failure::Timeout);
                }
            }
        };
        match client {
            Ok(client) => Ok(Contact { endpoint: Arc::clone(self), connection, client }),
            Err(error) => {
                self.cool_down();
                Err(self.judge(&connection, error).await)
            }
        }
    }

    /// Ends when another connection has taken the place of this one. Cancel safe.
    pub(super) async fn replaced(&self, connection: &Arc<Connection>) {
        let mut current = self.connection.subscribe();
        // The sender lives as long as `self`.
        let _ = current.wait_for(|current| !Arc::ptr_eq(current, connection)).await;
    }

    /// What an error means to the caller. Where the login was too old, there is another one
    /// now, or other credentials, and the caller may ask again.
    async fn judge(&self, connection: &Arc<Connection>, error: Error) -> Failure {
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
    /// now. False where there is no user.
    pub(super) async fn log_in_again(&self, connection: &Arc<Connection>) -> Answer<bool> {
        let _renewing = self.renewing.lock().await;
        let Some(made) = connection.made.get().filter(|made| made.secrets.user.is_some()) else {
            return Ok(false);
        };
        let is_young = made.logged_in.lock().elapsed() < YOUNG_LOGIN;
        if is_young || !self.is_current(connection) {
            return Ok(true);
        }
        let refused = match timeout(LOGIN_TIMEOUT, made.client.refresh_token()).await {
            Ok(Ok(())) => {
                *made.logged_in.lock() = Instant::now();
                return Ok(true);
            }
            Ok(Err(error)) => failure(error),
            Err(_) => return Err(Failure::Timeout),
        };
        let secrets = self.access.newest_secrets().await;
        if Arc::ptr_eq(&secrets, &made.secrets) {
            return Err(refused);
        }
        if self.renew(connection, secrets).await { Ok(true) } else { Err(refused) }
    }

    /// Connects with newer credentials, while requests go on with the old ones.
    fn begin_to_renew(self: &Arc<Self>, from: Arc<Connection>, secrets: Arc<Secrets>) {
        let is_too_early = self.refused.lock().as_ref().is_some_and(|(refused, at)| {
            Arc::ptr_eq(refused, &secrets) && at.elapsed() < RETRY_REFUSED
        });
        let Ok(renewing) = Arc::clone(&self.renewing).try_lock_owned() else {
            return;
        };
        if is_too_early || !self.is_current(&from) {
            return;
        }
        let endpoint = Arc::clone(self);
        tokio::spawn(async move {
            endpoint.renew(&from, secrets).await;
            drop(renewing);
        });
    }

    /// Puts a connection with these credentials in the place of another, if it works. The
    /// caller holds `renewing`.
    async fn renew(&self, from: &Arc<Connection>, secrets: Arc<Secrets>) -> bool {
        let proof = timeout(self.access.dial_timeout, async {
            let client = dial(&self.address, &self.access, &secrets).await?;
            prove(&self.access, &client).await?;
            Ok(client)
        });
        let error = match proof.await {
            Ok(Ok(client)) => {
                tracing::info!(endpoint = self.address, "connected with the new credentials");
                self.replace(from, Arc::new(Connection::new(client, secrets)));
                return true;
            }
            Ok(Err(error)) => objection(&self.address, &self.access, error).await,
            Err(_) => {
                tracing::debug!(endpoint = self.address, "not connected with new credentials");
                return false;
            }
        };
        let refused = self.refused.lock().replace((Arc::clone(&secrets), Instant::now()));
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

    /// It failed: others are asked from now on.
    pub(super) fn cool_down(&self) {
        *self.failed.lock() = Some(Instant::now());
    }

    fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.borrow())
    }

    fn is_current(&self, connection: &Arc<Connection>) -> bool {
        Arc::ptr_eq(&self.connection.borrow(), connection)
    }

    /// It kept silent: others are asked from now on, and this member over another connection,
    /// which the next request dials. What is under way goes on.
    fn kept_silent(&self, connection: &Arc<Connection>) {
        self.cool_down();
        self.replace(connection, Arc::default());
    }

    /// Puts another connection in the place of this one, if it still has it. What
    /// is under way on this one goes on.
    fn replace(&self, connection: &Arc<Connection>, by: Arc<Connection>) {
        self.connection.send_if_modified(|current| {
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

/// A member that was reached, and the connection over which it was.
#[derive(Clone)]
pub(super) struct Contact {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) connection: Arc<Connection>,
    pub(super) client: Client,
}

impl Contact {
    /// What an answer means to the caller.
    pub(super) async fn judge<T>(&self, answer: Result<T, Error>) -> Answer<T> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.endpoint.judge(&self.connection, error).await),
        }
    }

    /// Learns from an answer whether to ask this member again.
    pub(super) fn note<T>(&self, answer: &Answer<T>) {
        match answer {
            Err(Failure::Timeout) => self.kept_silent(),
            Err(Failure::Unavailable) => self.endpoint.cool_down(),
            Ok(_)
            | Err(
                Failure::Denied(_)
                | Failure::Invalid(_)
                | Failure::Compacted(_)
                | Failure::Other(_),
            ) => {
                *self.connection.answered.lock() = Some(Instant::now());
                *self.endpoint.failed.lock() = None;
            }
        }
    }

    /// Ends when a stream should move to the connection that has taken the place of this one: at
    /// once if that has other credentials, but not where this one is only slow. A slow etcd, on
    /// which thousands of watches are opened anew again and again, becomes slower, and none of
    /// them hears anything. Cancel safe.
    pub(super) async fn given_up(&self, patience: &mut Backoff) {
        let mut latest = Arc::clone(&self.connection);
        loop {
            self.endpoint.replaced(&latest).await;
            latest = self.endpoint.connection();
            if latest.has_other_secrets(&self.connection) {
                return;
            }
            // Only a member that is in touch with the others answers.
            let answer = prove(&self.endpoint.access, &self.client);
            if !matches!(timeout(patience.pause(), answer).await, Ok(Ok(()))) {
                return;
            }
            patience.reset();
            *self.connection.answered.lock() = Some(Instant::now());
        }
    }

    /// Its member kept silent.
    pub(super) fn kept_silent(&self) {
        self.endpoint.kept_silent(&self.connection);
    }
}
