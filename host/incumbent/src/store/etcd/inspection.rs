//! What each member says of itself, for those who want to know it before they trust an etcd.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Error, Member};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::access::Access;
use super::connection::{dial, prove};
use super::diagnosis::{objection, silence};
use super::keyspace::Keyspace;
use super::version::known_faults;
use crate::store::connect_error::ConnectError;
use crate::store::credentials::Credentials;
use crate::store::url::EtcdUrl;

/// What one member of an etcd says of itself.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its own id.
    pub id: u64,
    /// The id of its cluster.
    pub cluster: u64,
    /// Its version.
    pub version: String,
    /// What is known against that version, each as the rest of a sentence about the member.
    pub known_faults: Vec<&'static str>,
    /// The id of the member that leads the cluster. None if it knows of none: it is cut off, or
    /// there is no quorum.
    pub leader: Option<u64>,
    /// Whether it is a learner, which serves no clients.
    pub is_learner: bool,
    /// The alarms of the cluster, and what else etcd finds wrong, as etcd says it.
    pub errors: Vec<String>,
    /// The members of the cluster. None if it does not say.
    pub members: Option<Vec<ListedMember>>,
}

/// A member in the list of its cluster.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListedMember {
    /// Its id.
    pub id: u64,
    /// Its name. Empty if it has not been started yet.
    pub name: String,
    /// Where it says that clients find it, each with its scheme.
    pub client_urls: Vec<String>,
    /// Whether it is a learner.
    pub is_learner: bool,
}

/// Asks each member that the URL names, side by side.
pub(super) async fn inspect(
    url: &EtcdUrl,
    credentials: &Credentials,
    dial_timeout: Duration,
) -> Result<Vec<(String, Result<MemberStatus, ConnectError>)>, ConnectError> {
    let keyspace = Keyspace::new(url.prefix());
    let access = Arc::new(Access::new(url, credentials, &keyspace, dial_timeout).await?);
    let asked = url.endpoints().iter().map(|address| {
        let access = &access;
        async move { (address.clone(), of_member(address, access).await) }
    });
    Ok(join_all(asked).await)
}

async fn of_member(address: &str, access: &Arc<Access>) -> Result<MemberStatus, ConnectError> {
    let answer = timeout(access.dial_timeout, async {
        let secrets = access.secrets().await;
        let client = dial(address, access, &secrets).await?;
        let status = status(&client).await?;
        // Otherwise it serves no reads, and would not answer.
        if status.leader.is_some() && !status.is_learner {
            prove(access, &client).await?;
        }
        Ok(status)
    });
    match answer.await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(error)) => Err(objection(address, access, error).await),
        Err(_) => Err(silence(address, access.dial_timeout).await),
    }
}

async fn status(client: &Client) -> Result<MemberStatus, Error> {
    let said = client.maintenance_client().status().await?;
    // Some versions tell it to no user.
    let members = client.cluster_client().member_list().await.ok();
    Ok(MemberStatus {
        id: said.header().map_or(0, |header| header.member_id()),
        cluster: said.header().map_or(0, |header| header.cluster_id()),
        version: said.version().to_owned(),
        known_faults: known_faults(said.version()),
        leader: Some(said.leader()).filter(|leader| *leader != 0),
        is_learner: said.is_learner(),
        errors: said.errors().to_vec(),
        members: members.map(|list| list.members().iter().map(listed).collect()),
    })
}

fn listed(member: &Member) -> ListedMember {
    ListedMember {
        id: member.id(),
        name: member.name().to_owned(),
        client_urls: member.client_urls().to_vec(),
        is_learner: member.is_learner(),
    }
}
