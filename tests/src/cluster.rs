//! A real etcd of several members, with a link that can be cut between each two of them.

use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::etcd::process::{Ports, Settings, local};
use crate::etcd::{Etcd, Version, run};
use crate::relay::{Link, PeerRelay};
use crate::wait::LIMIT;

/// A running cluster. Needs a tokio runtime, as [`PeerRelay`] does.
#[derive(Debug)]
pub struct Cluster {
    version: Version,
    members: Vec<Member>,
    more: Vec<String>,
    /// How many members there have ever been.
    made: usize,
}

#[derive(Debug)]
struct Member {
    etcd: Etcd,
    failure: Option<Failure>,
    /// etcd's own id for it.
    id: u64,
    peers: PeerRelay,
}

/// How a member fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// SIGKILL. Its data stays.
    Killed,
    /// SIGSTOP.
    Paused,
    /// Its clients reach it, and the other members do not.
    Isolated,
}

impl Cluster {
    /// Starts a cluster of so many members, and waits until all are healthy.
    pub async fn start(version: Version, members: usize) -> Self {
        Self::start_with(version, members, &[]).await
    }

    /// Starts one with more arguments of etcd's own for each member.
    pub async fn start_with(version: Version, members: usize, more: &[&str]) -> Self {
        let since = Instant::now();
        loop {
            match Self::launch(version, members, more).await {
                Ok(cluster) => return cluster,
                // Someone else may have been given a port of ours meanwhile.
                Err(excuse) => assert!(since.elapsed() < LIMIT, "{excuse}"),
            }
        }
    }

    /// How many members there are, whatever becomes of them.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// All members, as `--store` takes them.
    pub fn url(&self) -> String {
        self.url_from(0)
    }

    /// All members, this one first.
    pub fn url_from(&self, first: usize) -> String {
        let all = (0..self.members()).map(|at| self.address((first + at) % self.members()));
        format!("etcd://{}", joined(all))
    }

    /// Where clients find a member.
    pub fn address(&self, member: usize) -> SocketAddr {
        self.members[member].etcd.address()
    }

    /// The member that leads among those that can; waits until there is one.
    pub fn leader(&self) -> usize {
        let since = Instant::now();
        loop {
            let leads = |member: &Member| {
                member.failure.is_none()
                    && member
                        .etcd
                        .get("/metrics")
                        .is_some_and(|metrics| metrics.contains("\netcd_server_is_leader 1\n"))
            };
            if let Some(leader) = self.members.iter().position(leads) {
                return leader;
            }
            assert!(since.elapsed() < LIMIT, "no member leads");
            sleep(Duration::from_millis(20));
        }
    }

    /// A member that runs and does not lead.
    pub fn follower(&self) -> usize {
        let leader = self.leader();
        let follows = |at: &usize| *at != leader && self.members[*at].failure.is_none();
        (0..self.members()).find(follows).expect("a cluster has followers")
    }

    /// What a member has written to its log.
    pub fn log(&self, member: usize) -> String {
        self.members[member].etcd.log()
    }

    /// A member's own figures, in Prometheus' form.
    pub fn metrics(&self, member: usize) -> String {
        self.members[member].etcd.metrics()
    }

    /// A member's revision, as it says itself: all have the same, soon after the last write.
    pub fn revision(&self, member: usize) -> String {
        let metrics = self.members[member].etcd.get("/metrics").unwrap_or_default();
        let of =
            |line: &str| Some(line.strip_prefix("etcd_debugging_mvcc_current_revision ")?.into());
        metrics.lines().find_map(of).unwrap_or_else(|| "none".into())
    }

    /// Makes a member fail, until [`recover`](Self::recover).
    pub fn fail(&mut self, member: usize, failure: Failure) {
        match failure {
            Failure::Killed => self.members[member].etcd.kill(),
            Failure::Paused => self.members[member].etcd.pause(),
            Failure::Isolated => self.peers_of(member).for_each(|link| link.black_hole()),
        }
        self.members[member].failure = Some(failure);
    }

    /// Ends every failure, and waits until the members that were killed are healthy.
    pub fn recover(&mut self) {
        for at in 0..self.members() {
            match self.members[at].failure {
                Some(Failure::Killed) => self.members[at].etcd.start_again(),
                Some(Failure::Paused) => self.members[at].etcd.resume(),
                Some(Failure::Isolated) => self.peers_of(at).for_each(|link| {
                    // As after a time-out: what was said then is not heard now.
                    link.cut();
                    link.heal();
                }),
                None => {}
            }
        }
        for member in &mut self.members {
            if member.failure.take() == Some(Failure::Killed) {
                member.etcd.expect_healthy();
            }
        }
    }

    /// Ends every failure, and waits until all members are healthy.
    pub fn heal(&mut self) {
        self.recover();
        for member in &mut self.members {
            assert!(member.etcd.wait_until_healthy(), "{}", member.etcd.excuse());
        }
    }

    /// Runs etcdctl of the same version with all members, and gives what it prints.
    /// Panics where it fails.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        run(self.version.etcdctl_command(&self.endpoints(), arguments))
    }

    /// Runs etcdctl with one member.
    pub fn etcdctl_at(&self, member: usize, arguments: &[&str]) -> String {
        run(self.version.etcdctl_command(&self.address(member).to_string(), arguments))
    }

    /// Takes a member out of the cluster, and ends it. The numbers of the members after
    /// it go down by one.
    pub fn remove(&mut self, member: usize) {
        let removed = self.members.remove(member);
        self.change(&["member", "remove", &format!("{:x}", removed.id)]);
    }

    /// Adds a member, which comes last, and waits until it is healthy.
    pub async fn add(&mut self) {
        let name = format!("member-{}", self.made);
        self.made += 1;
        let ports = Ports::free();
        let peers = PeerRelay::start(local(ports.peer)).await;
        let url = format!("--peer-urls=http://{}", peers.address());
        self.change(&["member", "add", &name, &url]);
        let mut all: Vec<_> = self.members.iter().map(Member::named).collect();
        all.push(named(&name, &peers));
        let mut more: Vec<_> = self.more.iter().map(String::as_str).collect();
        more.extend(["--initial-cluster-state", "existing"]);
        let settings = Settings::alone(self.version, ports, &more);
        let mut member = Member::start(settings, name, all.join(","), peers);
        member.etcd.expect_healthy();
        self.members.push(member);
        self.learn_ids();
    }

    /// Ends all members, puts the state of a snapshot in place of theirs, as
    /// `etcdctl snapshot restore` does it, and starts them again.
    pub fn restore(&mut self, snapshot: &Path) {
        let all: Vec<_> = self.members.iter().map(Member::named).collect();
        let all = all.join(",");
        (0..self.members()).for_each(|at| self.fail(at, Failure::Killed));
        for at in 0..self.members() {
            let settings = &self.members[at].etcd.settings;
            let data = settings.directory.path().join("data");
            std::fs::remove_dir_all(&data).expect("it has data");
            let mut command = self.version.etcdctl_command(
                "",
                &["snapshot", "restore", "--initial-cluster", &all, "--name", &settings.name],
            );
            command
                .args(["--initial-advertise-peer-urls", &format!("http://{}", settings.peer)])
                .args(["--initial-cluster-token", "restored"])
                .arg("--data-dir")
                .arg(&data)
                .arg(snapshot);
            run(command);
        }
        self.recover();
        self.learn_ids();
    }

    /// Changes the members. etcd refuses that for a few seconds after any of them was away.
    fn change(&self, arguments: &[&str]) {
        let since = Instant::now();
        loop {
            let mut command = self.version.etcdctl_command(&self.endpoints(), arguments);
            let output = command.output().expect("etcdctl runs");
            if output.status.success() {
                return;
            }
            assert!(since.elapsed() < LIMIT, "{arguments:?}: {output:?}");
            sleep(Duration::from_millis(100));
        }
    }

    async fn launch(version: Version, members: usize, more: &[&str]) -> Result<Self, String> {
        let mut peers = Vec::new();
        for at in 0..members {
            let ports = Ports::free();
            peers.push((format!("member-{at}"), ports, PeerRelay::start(local(ports.peer)).await));
        }
        let all: Vec<_> = peers.iter().map(|(name, _, peers)| named(name, peers)).collect();
        let all = all.join(",");
        let more_of_it = more.iter().map(ToString::to_string).collect();
        let mut cluster = Self { version, members: Vec::new(), more: more_of_it, made: members };
        for (name, ports, peers) in peers {
            let settings = Settings::alone(version, ports, more);
            cluster.members.push(Member::start(settings, name, all.clone(), peers));
        }
        for member in &mut cluster.members {
            if !member.etcd.wait_until_healthy() {
                return Err(member.etcd.excuse());
            }
        }
        cluster.learn_ids();
        Ok(cluster)
    }

    /// Each line of `member list` is `ID, STATUS, NAME, PEER-URL, …`.
    fn learn_ids(&mut self) {
        let list = self.etcdctl(&["member", "list"]);
        for member in &mut self.members {
            let url = format!("http://{}", member.peers.address());
            let line = list.lines().find(|line| line.contains(&url)).expect("it is a member");
            let id = line.split(',').next().and_then(|id| u64::from_str_radix(id, 16).ok());
            member.id = id.expect("an id");
        }
    }

    /// All links between a member and the others.
    fn peers_of(&self, member: usize) -> impl Iterator<Item = Link> {
        // etcd's members talk over the links of both directions.
        let link = |from: usize, to: usize| self.members[to].peers.link(self.members[from].id);
        (0..self.members())
            .filter(move |other| *other != member)
            .flat_map(move |other| [link(member, other), link(other, member)])
            // Requests to a leader on behalf of clients do not name the member that sends them.
            .chain([self.members[member].peers.link(0)])
    }

    fn endpoints(&self) -> String {
        joined(self.members.iter().map(|member| member.etcd.address()))
    }
}

impl Member {
    fn start(alone: Settings, name: String, members: String, peers: PeerRelay) -> Self {
        let etcd = Etcd::spawn(Settings { name, members, peer: peers.address(), ..alone });
        Self { etcd, failure: None, id: 0, peers }
    }

    fn named(&self) -> String {
        named(&self.etcd.settings.name, &self.peers)
    }
}

/// As etcd wants a member in a list of them.
fn named(name: &str, peers: &PeerRelay) -> String {
    format!("{name}=http://{}", peers.address())
}

fn joined(addresses: impl Iterator<Item = SocketAddr>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
}
