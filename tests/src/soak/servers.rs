//! What the hosts of a soak have their elections in: a cluster of etcd, or two PostgreSQL.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::faults::Fault;
use super::log::Event;
use crate::cluster::{Cluster, Failure};

mod pair;

pub(super) use pair::Pair;

/// The members of etcd's cluster.
pub(super) const MEMBERS: usize = 3;

#[derive(Debug)]
pub(super) enum Servers {
    Etcd(Cluster),
    Postgres(Box<Pair>),
}

/// Which kind of store, for its URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// etcd.
    Etcd,
    /// PostgreSQL, as the user `owner` of the database `postgres`.
    Postgres,
}

impl Store {
    /// The URL of the store on these servers.
    pub fn url(self, addresses: impl IntoIterator<Item = SocketAddr>) -> String {
        let addresses: Vec<_> = addresses.into_iter().map(|one| one.to_string()).collect();
        let addresses = addresses.join(",");
        match self {
            Self::Etcd => format!("etcd://{addresses}"),
            Self::Postgres => format!("postgres://owner@{addresses}/postgres"),
        }
    }
}

impl Servers {
    pub(super) fn store(&self) -> Store {
        match self {
            Self::Etcd(_) => Store::Etcd,
            Self::Postgres(_) => Store::Postgres,
        }
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Etcd(cluster) => (0..MEMBERS).map(|member| cluster.address(member)).collect(),
            Self::Postgres(pair) => pair.addresses().to_vec(),
        }
    }

    pub(super) fn url(&self) -> String {
        self.store().url(self.addresses())
    }

    /// The member that leads, or the primary; waits until there is one.
    pub(super) fn leader(&self) -> usize {
        match self {
            Self::Etcd(cluster) => cluster.leader(),
            Self::Postgres(pair) => pair.primary(),
        }
    }

    pub(super) fn fail(&mut self, members: &[usize], failure: Failure) {
        for member in members {
            match self {
                Self::Etcd(cluster) => cluster.fail(*member, failure),
                Self::Postgres(pair) => pair.fail(*member, failure),
            }
        }
    }

    /// Ends every failure.
    pub(super) fn recover(&mut self) {
        match self {
            Self::Etcd(cluster) => cluster.recover(),
            Self::Postgres(pair) => pair.recover(),
        }
    }

    /// Makes a fault that there is on PostgreSQL alone. What the logs have to tell of it.
    pub(super) fn disturb(&mut self, fault: &Fault) -> Option<Event> {
        let Self::Postgres(pair) = self else { return None };
        match fault {
            Fault::Promote { behind_ms } => return Some(pair.take_over(*behind_ms)),
            Fault::StepClock { seconds } => pair.step_clock(*seconds),
            Fault::Terminate => pair.terminate(),
            Fault::Vacuum => pair.vacuum(),
            _ => {}
        }
        None
    }

    /// What tells whether they hold the same.
    pub(super) fn state(&self) -> String {
        let revisions: Vec<_> = match self {
            Self::Etcd(cluster) => (0..MEMBERS).map(|member| cluster.revision(member)).collect(),
            Self::Postgres(pair) => vec![pair.revision()],
        };
        let differ = revisions.iter().collect::<BTreeSet<_>>().len() > 1;
        let differ = if differ { ", which differ" } else { "" };
        format!("the revisions are {}{differ}", revisions.join(", "))
    }

    /// Leaves their logs in a directory.
    pub(super) fn write_logs(&self, directory: &Path) -> io::Result<()> {
        let logs: Vec<_> = match self {
            Self::Etcd(cluster) => (0..MEMBERS).map(|member| cluster.log(member)).collect(),
            Self::Postgres(pair) => pair.logs(),
        };
        for (member, log) in logs.iter().enumerate() {
            std::fs::write(directory.join(format!("member-{member}.log")), log)?;
        }
        Ok(())
    }
}
