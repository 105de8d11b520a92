//! The store on etcd.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `credentials`, `access` | what etcd is shown, and what the files have of it now |
//! | `connect`, `diagnosis` | the proof that an etcd answers, or why not |
//! | `endpoints` | the members, and which one is asked |
//! | `connection` | a member's connection, and its successor with newer credentials |
//! | `request` | the operations that are one request each |
//! | `keep_alive` | renewals |
//! | `watch` | all watches of a set on one stream, and its repair |
//! | `keyspace` | the prefix of all keys |
//! | `failure` | what etcd's errors mean |

mod access;
mod connect;
mod connection;
mod credentials;
mod diagnosis;
mod endpoints;
mod failure;
mod keep_alive;
mod keyspace;
mod request;
mod watch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Error};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use self::connect::ConnectError;
pub use self::credentials::Credentials;
use self::endpoints::Endpoints;
use self::keep_alive::Renewals;
use self::keyspace::Keyspace;
use self::watch::EtcdWatches;
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
    /// Where no etcd answers within `dial_timeout`, all members together, or none
    /// lets us in; and where the credentials cannot be used. To find out what is
    /// wrong with a member may take 2 s more.
    ///
    /// Cancel safe: nothing is left behind.
    pub async fn connect(
        url: &EtcdUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let keyspace = Keyspace::new(url.prefix());
        let endpoints = connect::connect(url, credentials, &keyspace, dial_timeout).await?;
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
        if keyspace::is_nameless(&operation) {
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
