//! A connection to one member: how it is made and proved.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tonic::transport::Endpoint;

use super::access::Access;
use super::executor::OneTask;
use super::failure::{failure, is_key_forbidden, is_without_users};
use super::secrets::Secrets;
use super::version::Version;
use crate::types::Failure;

/// etcd closes connections that are pinged more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a member, made when it is first wanted.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) made: OnceCell<Made>,
    /// When a request was answered on it last.
    pub(super) answered: Mutex<Option<Instant>>,
    pub(super) version: Version,
}

/// What a connection is once it is made.
pub(super) struct Made {
    pub(super) client: Client,
    pub(super) secrets: Arc<Secrets>,
    pub(super) logged_in: Mutex<Instant>,
}

impl Connection {
    pub(super) fn new(client: Client, secrets: Arc<Secrets>) -> Self {
        Self { made: OnceCell::new_with(Some(Made::new(client, secrets))), ..Self::default() }
    }

    /// Whether both are made, with different credentials.
    pub(super) fn has_other_secrets(&self, other: &Self) -> bool {
        let (one, other) = (self.made.get(), other.made.get());
        one.zip(other).is_some_and(|(one, other)| !Arc::ptr_eq(&one.secrets, &other.secrets))
    }

    /// Connects and logs in, unless that is done. Takes as long as etcd takes to answer the
    /// login, without a bound. Cancel safe.
    pub(super) async fn make(
        &self,
        address: &str,
        access: &Access,
        secrets: &Arc<Secrets>,
    ) -> Result<&Made, Error> {
        let make = || async {
            let client = dial(address, access, secrets).await?;
            has_leader(&client).await?;
            Ok(Made::new(client, Arc::clone(secrets)))
        };
        self.made.get_or_try_init(make).await
    }
}

impl Made {
    fn new(client: Client, secrets: Arc<Secrets>) -> Self {
        Self { client, secrets, logged_in: Mutex::new(Instant::now()) }
    }
}

/// Makes sure that an etcd answers, and lets us in.
pub(super) async fn prove(access: &Access, client: &Client) -> Result<(), Error> {
    match client.kv_client().get(access.probe.clone(), None).await {
        Ok(_) => Ok(()),
        // This key is forbidden, but etcd answers and knows us.
        Err(error) if is_key_forbidden(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Connects with these credentials, and logs in where there is a user.
pub(super) async fn dial(
    address: &str,
    access: &Access,
    secrets: &Secrets,
) -> Result<Client, Error> {
    match open(address, access, secrets, secrets.user.as_ref()).await {
        // As etcdctl does: where etcd has no users, a user does no harm.
        Err(error) if is_without_users(&error) => open(address, access, secrets, None).await,
        result => result,
    }
}

async fn open(
    address: &str,
    access: &Access,
    secrets: &Secrets,
    user: Option<&(String, String)>,
) -> Result<Client, Error> {
    let scheme = if secrets.tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::try_from(format!("{scheme}://{address}"))?
        .connect_timeout(access.dial_timeout)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        // etcd allows pings only where there is a stream.
        .keep_alive_while_idle(false)
        .executor(OneTask::start());
    if let Some(tls) = &secrets.tls {
        endpoint = endpoint.tls_config(tls.clone())?;
    }
    let mut options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
    if let Some((name, password)) = user {
        options = options.with_user(name, password);
    }
    Client::from_channel(Channel::Tonic(endpoint.connect_lazy()), Some(options)).await
}

/// Makes sure that a member is in touch with the others. A read would show the same, but waits
/// long after a leader was lost, while renewals pass.
async fn has_leader(client: &Client) -> Result<(), Error> {
    let unavailable =
        |text: &str| Err(Error::IoError(io::Error::other(format!("etcdserver: {text}"))));
    match client.maintenance_client().status().await {
        Ok(status) if status.leader() == 0 => unavailable("no leader"),
        Ok(status) if status.is_learner() => unavailable("a learner does not serve clients"),
        Ok(_) => Ok(()),
        Err(error) if failure(&error) == Failure::Unavailable => Err(error),
        // The next request meets the same error, and its caller learns of it.
        Err(_) => Ok(()),
    }
}
