//! The proof that an etcd answers and lets us in, or the sentence that says why
//! not.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::Error;
use tokio::time::{Instant, timeout};

use super::access::Access;
use super::credentials::Credentials;
use super::diagnosis::{diagnose, silence};
use super::endpoints::{Endpoint, Endpoints};
use super::failure::{chain, failure, is_from_another_service, tls_objection};
use super::keyspace::Keyspace;
use crate::store::url::EtcdUrl;
use crate::types::Failure;

/// Why there is no connection to an etcd: one sentence each, which says what to
/// do about it.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A certificate or key cannot be read.
    #[error("the {what} {} cannot be read: {source}", path.display())]
    Unreadable {
        /// Which one, and its flag.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A certificate or key is none.
    #[error("the {what} {} cannot be used: {reason}", path.display())]
    Unusable {
        /// Which one, and its flag.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The credentials do not go together.
    #[error("{0}")]
    Mismatched(&'static str),
    /// Nothing answers in time.
    #[error("no etcd answers at {endpoint} ({reason}): is it running, and is --store right?")]
    Unreachable {
        /// `HOST:PORT`
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// There is something, but it does not let us in.
    #[error("{endpoint} refuses the connection: {reason}")]
    Refused {
        /// `HOST:PORT`
        endpoint: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Something answers, and it is no etcd.
    #[error("what answers at {endpoint} is no etcd ({reason}): is --store right?")]
    NotAnEtcd {
        /// `HOST:PORT`
        endpoint: String,
        /// What gave it away.
        reason: String,
    },
}

impl ConnectError {
    /// Whether it is wrong as it was asked for, so that no store was tried.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::Unusable { .. } | Self::Mismatched(_) => true,
            Self::Unreachable { .. } | Self::Refused { .. } | Self::NotAnEtcd { .. } => false,
        }
    }
}

/// Tries one member after the other, each with its share of the time.
pub(super) async fn connect(
    url: &EtcdUrl,
    credentials: &Credentials,
    keyspace: &Keyspace,
    dial_timeout: Duration,
) -> Result<Endpoints, ConnectError> {
    let access = Arc::new(Access::new(url, credentials, keyspace, dial_timeout).await?);
    let all: Vec<_> = url
        .endpoints()
        .iter()
        .map(|address| Arc::new(Endpoint::new(address, Arc::clone(&access))))
        .collect();
    // No deadline: a very long time-out ends beyond what an instant can hold.
    let start = Instant::now();
    let mut telling: Option<ConnectError> = None;
    for (left, endpoint) in (1..=all.len()).rev().zip(&all) {
        let remaining = dial_timeout.saturating_sub(start.elapsed());
        let share = remaining / u32::try_from(left).unwrap_or(u32::MAX);
        match try_member(endpoint, share).await {
            Ok(()) => return Ok(Endpoints::new(all.clone(), Arc::clone(endpoint))),
            Err(error) => {
                tracing::debug!(%error, "etcd member not connected");
                // A member that refuses tells more than one that is not there.
                if matches!(telling, None | Some(ConnectError::Unreachable { .. })) {
                    telling = Some(error);
                }
            }
        }
    }
    Err(telling.unwrap_or(ConnectError::Mismatched("the store URL names no host")))
}

/// Whether this member is an etcd that lets us in.
async fn try_member(endpoint: &Arc<Endpoint>, within: Duration) -> Result<(), ConnectError> {
    let answer = timeout(within, async {
        let client = endpoint.client().await?;
        endpoint.prove(&client).await
    });
    match answer.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(objection(endpoint, error).await),
        Err(_) => Err(silence(endpoint, within).await),
    }
}

/// Why a member did not let us in. To find that out may take 2 s.
pub(super) async fn objection(endpoint: &Endpoint, error: Error) -> ConnectError {
    if is_from_another_service(&error) {
        return not_an_etcd(endpoint, "it speaks HTTP/2, but not etcd's services");
    }
    let said = chain(&error);
    let tls = tls_objection(&error).cloned();
    match failure(error) {
        Failure::Denied(text) if text.contains("user name is empty") => {
            refused(endpoint, "it wants a user: give --user and --password-file")
        }
        Failure::Denied(text) => {
            refused(endpoint, format!("{text}: check --user and --password-file"))
        }
        Failure::Unavailable if said.contains("etcdserver:") => unreachable(endpoint, said),
        Failure::Unavailable => diagnose(endpoint, tls).await,
        Failure::Timeout | Failure::Compacted(_) | Failure::Invalid(_) | Failure::Other(_) => {
            unreachable(endpoint, said)
        }
    }
}

pub(super) fn unreachable(endpoint: &Endpoint, reason: impl Into<String>) -> ConnectError {
    ConnectError::Unreachable { endpoint: endpoint.address().to_owned(), reason: reason.into() }
}

pub(super) fn refused(endpoint: &Endpoint, reason: impl Into<String>) -> ConnectError {
    ConnectError::Refused { endpoint: endpoint.address().to_owned(), reason: reason.into() }
}

pub(super) fn not_an_etcd(endpoint: &Endpoint, reason: impl Into<String>) -> ConnectError {
    ConnectError::NotAnEtcd { endpoint: endpoint.address().to_owned(), reason: reason.into() }
}
