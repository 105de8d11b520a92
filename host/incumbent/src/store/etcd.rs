//! The store on etcd.
//!
//! | module | holds |
//! | --- | --- |
//! | `failure` | what etcd's errors mean |
//! | `keyspace` | the prefix of all keys |
//! | `secrets`, `access` | the credentials as etcd's client takes them, and as they are on disk now |
//! | `diagnosis` | why a connection failed |
//! | `connection`, `executor` | a connection to one member, and what runs it |
//! | `endpoint` | one member, and the renewal of its credentials |
//! | `endpoints` | all members: the first connection to one, and which one is asked |
//! | `inspection`, `version` | what each member says of itself, and what is known of its version |
//! | `request` | the operations that are one request each |
//! | `batch`, `joint` | what waits while requests are under way, and goes together in one |
//! | `stream_pool` | connections for long streams |
//! | `keep_alive` | renewals |
//! | `watch`, `watch_stream` | all watches of a set on one stream, and its repair |

mod access;
mod batch;
mod connection;
mod diagnosis;
mod endpoint;
mod endpoints;
mod executor;
mod failure;
mod inspection;
mod joint;
mod keep_alive;
mod keyspace;
mod request;
mod secrets;
mod stream_pool;
mod version;
mod watch;
mod watch_stream;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Handle, Id};

use self::batch::Batches;
use self::endpoint::Contact;
use self::endpoints::Endpoints;
pub use self::inspection::{ListedMember, MemberStatus};
use self::joint::Joint;
use self::keep_alive::Renewals;
use self::keyspace::Keyspace;
use self::stream_pool::StreamPool;
use self::watch::EtcdWatches;
use super::connect_error::ConnectError;
use super::credentials::Credentials;
use super::memory::keys_of;
use super::sharing::Opened;
use super::url::EtcdUrl;
use super::{LeaseLeft, Store, Watches};
use crate::types::{Answer, Entry, Failure, Operation};

/// Leases and keys on etcd. A cheap clone: all clones share the connections.
///
/// Lives on the tokio runtime that it was made on.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

/// What clones share.
#[derive(Debug)]
struct Shared {
    endpoints: Arc<Endpoints>,
    streams: StreamPool,
    renewals: Renewals,
    writes: Arc<Batches>,
    reads: Arc<Batches>,
    keyspace: Keyspace,
}

impl EtcdStore {
    /// Connects to the first member that answers, and logs in if there is a user.
    ///
    /// # Errors
    /// If no member answers within `dial_timeout` in all, if none lets us in, or if the
    /// credentials cannot be used. To find out what is wrong with a member may take 2 s more.
    ///
    /// Cancel safe: nothing is left behind.
    pub async fn connect(
        url: &EtcdUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let keyspace = Keyspace::new(url.prefix());
        // On the heap, because its future has 11 kilobytes: an unoptimised program copies them
        // with each future around it, and three sessions in one test overflowed the stack.
        let connecting = Box::pin(Endpoints::connect(url, credentials, &keyspace, dial_timeout));
        let endpoints = Arc::new(connecting.await?);
        let shared = Shared {
            streams: StreamPool::new(Arc::clone(&endpoints)),
            endpoints,
            renewals: Renewals::default(),
            writes: Arc::new(Batches::new()),
            reads: Arc::new(Batches::new()),
            keyspace,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Asks every member that the URL names what it says of itself, side by side: its status, or
    /// why it did not let us in, beside its address. Cancel safe.
    ///
    /// # Errors
    /// If the credentials cannot be used.
    pub async fn inspect(
        url: &EtcdUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
    ) -> Result<Vec<(String, Result<MemberStatus, ConnectError>)>, ConnectError> {
        inspection::inspect(url, credentials, dial_timeout).await
    }

    /// The store that other sessions on this runtime have with the same credentials, if etcd
    /// answers; otherwise as [`connect`](Self::connect).
    pub(crate) async fn shared(
        url: &EtcdUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        static OPENED: Opened<(EtcdUrl, Credentials, Duration, Id), Shared> = Opened::new();
        let key = (url.clone(), credentials.clone(), dial_timeout, Handle::current().id());
        let serves = async |shared: &Arc<Shared>| {
            let store = Self { shared: Arc::clone(shared) };
            matches!(store.peek(vec![0], dial_timeout).await, Ok(_) | Err(Failure::Denied(_)))
        };
        let open = async || Ok(Self::connect(url, credentials, dial_timeout).await?.shared);
        Ok(Self { shared: OPENED.get(key, serves, open).await? })
    }

    /// Sends one operation by itself.
    async fn alone(&self, operation: Operation, within: Duration) -> Answer {
        let Shared { endpoints, streams, renewals, keyspace, .. } = &*self.shared;
        match operation {
            Operation::Grant(grant) => {
                endpoints.request(within, |client| request::grant(client, grant)).await
            }
            Operation::KeepAlive(lease) => renewals.renew(streams, lease, within).await,
            Operation::Revoke(lease) => {
                renewals.forget(lease);
                let revoked = endpoints.request(within, |client| request::revoke(client, lease));
                // Again, for renewals that were sent in between.
                revoked.await.inspect(|_| renewals.forget(lease))
            }
            Operation::Claim(claim) => {
                endpoints.request(within, |client| request::claim(client, keyspace, claim)).await
            }
            Operation::Read(selections) => {
                let read = |contact: Contact| request::read(contact.client, keyspace, &selections);
                endpoints.request_twice(within, read).await
            }
            Operation::Guarded(guarded) => {
                let write = |client| request::guarded(client, keyspace, guarded);
                endpoints.request(within, write).await
            }
        }
    }

    /// Sends several operations in one request: either reads or writes.
    async fn together(&self, operations: &[&Operation], within: Duration) -> Answer<Joint> {
        let Shared { endpoints, keyspace, .. } = &*self.shared;
        if let Some(Operation::Read(_)) = operations.first() {
            let read = |contact| joint::read(contact, keyspace, operations);
            endpoints.request_twice(within, read).await
        } else {
            let write = |client| joint::write(client, keyspace, operations);
            endpoints.request(within, write).await
        }
    }
}

impl Store for EtcdStore {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        // etcd refuses an empty key itself, but not below a prefix.
        if keys_of(&operation).0.iter().any(|key| key.is_empty()) {
            return ready(Err(Failure::Invalid("etcdserver: key is not provided".into()))).boxed();
        }
        let batches = match &operation {
            Operation::Claim(_) | Operation::Guarded(_) => &self.shared.writes,
            Operation::Read(selections) if joint::is_small(selections) => &self.shared.reads,
            Operation::Read(_)
            | Operation::Grant(_)
            | Operation::KeepAlive(_)
            | Operation::Revoke(_) => {
                let store = self.clone();
                return async move { store.alone(operation, within).await }.boxed();
            }
        };
        batches.send(self, operation, within)
    }

    fn peek(&self, key: Vec<u8>, within: Duration) -> BoxFuture<'static, Answer<Option<Entry>>> {
        let store = self.clone();
        async move {
            let Shared { endpoints, keyspace, .. } = &*store.shared;
            let peek = |contact: Contact| request::peek(contact.client, keyspace, &key);
            endpoints.request_twice(within, peek).await
        }
        .boxed()
    }

    /// In whole seconds, rounded down.
    fn lease_left(
        &self,
        lease: i64,
        within: Duration,
    ) -> BoxFuture<'static, Answer<Option<LeaseLeft>>> {
        let store = self.clone();
        async move {
            let ask = async |client: Client| client.lease_client().time_to_live(lease, None).await;
            let answer = store.shared.endpoints.request(within, ask).await?;
            let seconds = |number| u64::try_from(number).ok().map(Duration::from_secs);
            // Of a lease that is gone etcd says -1.
            let (left, granted) = (seconds(answer.ttl()), seconds(answer.granted_ttl()));
            Ok(left.zip(granted).map(|(left, granted)| LeaseLeft { left, granted }))
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        let Shared { streams, keyspace, .. } = &*self.shared;
        Box::new(EtcdWatches::new(streams.get(), keyspace.clone()))
    }
}
