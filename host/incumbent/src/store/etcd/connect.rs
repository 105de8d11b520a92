//! The first connection to a cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::access::Access;
use super::connection::prove;
use super::credentials::Credentials;
use super::diagnosis::{objection, silence};
use super::endpoint::Endpoint;
use super::endpoints::Endpoints;
use super::error::ConnectError;
use super::keyspace::Keyspace;
use crate::store::url::EtcdUrl;

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
        match try_member(endpoint, &access, share).await {
            Ok(()) => return Ok(Endpoints::new(all.clone(), Arc::clone(endpoint))),
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

/// Makes sure that this member is an etcd that lets us in.
async fn try_member(
    endpoint: &Arc<Endpoint>,
    access: &Access,
    within: Duration,
) -> Result<(), ConnectError> {
    let answer = timeout(within, async {
        let client = endpoint.client().await?;
        prove(access, &client).await
    });
    match answer.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(objection(endpoint.address(), access, error).await),
        Err(_) => Err(silence(endpoint.address(), within).await),
    }
}
