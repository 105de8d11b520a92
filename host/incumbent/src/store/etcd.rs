//! The store on etcd.
//!
//! | module | holds |
//! | --- | --- |
//! | `failure` | what etcd's errors mean |
//! | `error` | why there is no connection |
//! | `keyspace` | the prefix of all keys |
//! | `credentials`, `access` | the credentials that the user gives, and as they are on disk now |
//! | `diagnosis` | why a connection failed |
//! | `connection` | a connection to one member |
//! | `endpoint` | one member, and the renewal of its credentials |
//! | `endpoints` | all members, and which one is asked |
//! | `connect` | the first connection to a cluster |
//! | `request` | the operations that are one request each |
//! | `keep_alive` | renewals |
//! | `watch`, `watch_stream` | all watches of a set on one stream, and its repair |

mod access;
mod connect;
mod connection;
mod credentials;
mod diagnosis;
mod endpoint;
mod endpoints;
mod error;
mod failure;
mod keep_alive;
mod keyspace;
mod request;
mod watch;
mod watch_stream;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Error};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use self::credentials::Credentials;
use self::endpoints::Endpoints;
pub use self::error::ConnectError;
use self::keep_alive::Renewals;
use self::keyspace::Keyspace;
use self::watch::EtcdWatches;
use super::memory::keys_of;
use super::url::EtcdUrl;
use super::{Store, Watches};
use crate::types::{Entry, Failure, Operation, Response};

/// Leases and keys on etcd. A cheap clone: all clones share the connections.
///
/// Lives on the tokio runtime that it was made on.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    endpoints: Arc<Endpoints>,
    renewals: Arc<Renewals>,
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
        let connecting = Box::pin(connect::connect(url, credentials, &keyspace, dial_timeout));
        let endpoints = connecting.await?;
        Ok(Self { endpoints: Arc::new(endpoints), renewals: Arc::default(), keyspace })
    }

    /// One request, which gives up after `within`.
    fn request<F>(
        &self,
        within: Duration,
        request: impl FnOnce(Client, Keyspace) -> F + Send + 'static,
    ) -> BoxFuture<'static, Result<Response, Failure>>
    where
        F: Future<Output = Result<Response, Error>> + Send,
    {
        let endpoints = Arc::clone(&self.endpoints);
        let keyspace = self.keyspace.clone();
        async move { endpoints.request(within, move |client| request(client, keyspace)).await }
            .boxed()
    }
}

impl Store for EtcdStore {
    fn call(
        &self,
        operation: Operation,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response, Failure>> {
        // etcd does so, unless a prefix hides it.
        if keys_of(&operation).0.iter().any(|key| key.is_empty()) {
            let refused = Failure::Invalid("etcdserver: key is not provided".into());
            return std::future::ready(Err(refused)).boxed();
        }
        match operation {
            Operation::Grant(grant) => {
                self.request(within, move |client, _| request::grant(client, grant))
            }
            Operation::KeepAlive(lease) => {
                let endpoints = Arc::clone(&self.endpoints);
                let renewals = Arc::clone(&self.renewals);
                async move { renewals.renew(&endpoints, lease, within).await }.boxed()
            }
            Operation::Revoke(lease) => {
                self.renewals.forget(lease);
                let revoked = self.request(within, move |client, _| request::revoke(client, lease));
                let renewals = Arc::clone(&self.renewals);
                // Again, for renewals that were sent in between.
                async move { revoked.await.inspect(|_| renewals.forget(lease)) }.boxed()
            }
            Operation::Claim(claim) => self
                .request(within, move |client, keyspace| request::claim(client, keyspace, claim)),
            Operation::Read(selections) => {
                let endpoints = Arc::clone(&self.endpoints);
                let keyspace = self.keyspace.clone();
                let read =
                    move |client| request::read(client, keyspace.clone(), selections.clone());
                async move { endpoints.request_twice(within, read).await }.boxed()
            }
            Operation::Guarded(guarded) => self.request(within, move |client, keyspace| {
                request::guarded(client, keyspace, guarded)
            }),
        }
    }

    fn peek(
        &self,
        key: Vec<u8>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Option<Entry>, Failure>> {
        let endpoints = Arc::clone(&self.endpoints);
        let keyspace = self.keyspace.clone();
        let peek = move |client| request::peek(client, keyspace.clone(), key.clone());
        async move { endpoints.request_twice(within, peek).await }.boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(EtcdWatches::new(Arc::clone(&self.endpoints), self.keyspace.clone()))
    }
}
