//! The cluster, the hosts, and the hands of the faults.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::Client;
use incumbent::admin::Admin;
use incumbent::{Contest, Credentials, Epoch, EtcdStore, EtcdUrl};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::faults::{Cut, Fault, Kind, Plan, Planned, Removal};
use super::hosts::{Host, Program};
use super::log::{Event, Log, Settings};
use crate::cluster::Cluster;
use crate::counter::Counter;
use crate::etcd::Version;

const ELECTION: &str = "office";
const HOSTS: usize = 3;
const MEMBERS: usize = 3;

/// What an operator's order may take.
const ORDER: Duration = Duration::from_secs(2);
/// How long the end of a fault may take: members that were killed have to be healthy.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a soak is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which etcd.
    pub version: Version,
    /// How long leases live: whole seconds.
    pub ttl: Duration,
    /// How long phase follows phase.
    pub length: Duration,
    /// What the faults are drawn from.
    pub seed: u64,
    /// An operator removes leaders, too: for a moment two may believe that they lead.
    pub operator: bool,
    /// Where the logs are written: an empty directory.
    pub logs: PathBuf,
    /// The program `counter`.
    pub counter: PathBuf,
}

/// Law 10: how long an election may be without a leader when nothing is wrong any more.
pub fn bound(ttl: Duration) -> Duration {
    // The lease of the departed, which etcd extends by an election time-out when its own
    // leader changes, and how often it looks for leases that ran out.
    let lease = ttl + Duration::from_secs(1) + Duration::from_millis(500);
    // An election of etcd's: one to two election time-outs, and once more if it is split.
    let election = Duration::from_secs(4);
    let back_off = Duration::from_secs(1);
    let round_trips = Duration::from_millis(500);
    lease + election + back_off + round_trips
}

/// Runs a soak, which [`judge`](super::terms::judge) can then read from its logs.
///
/// Needs a tokio runtime with several threads. Dropped, it ends all that it started.
///
/// # Errors
///
/// Where it could not be carried through; what was written until then can be judged.
pub async fn run(options: &Options) -> io::Result<()> {
    let log = Log::create(&options.logs, "soak", "soak")?;
    log.write(Event::Began(Settings {
        seed: options.seed,
        etcd: options.version.to_string(),
        ttl: nanoseconds(options.ttl),
        bound: nanoseconds(bound(options.ttl)),
    }));
    let mut soak = Soak::start(options, log).await?;
    let result = soak.carry_through().await;
    for member in 0..MEMBERS {
        let path = options.logs.join(format!("member-{member}.log"));
        std::fs::write(path, soak.cluster.log(member))?;
    }
    result
}

/// The members' own addresses.
pub(super) fn members_of(cluster: &Cluster) -> Vec<SocketAddr> {
    let url: EtcdUrl = cluster.direct_url().parse().expect("is a URL");
    url.endpoints().iter().map(|address| address.parse().expect("an address")).collect()
}

/// As logs have it.
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a soak ends")
}

struct Soak<'a> {
    options: &'a Options,
    log: Log,
    plan: Plan,
    cluster: Cluster,
    members: Vec<SocketAddr>,
    hosts: Vec<Host>,
    faults: u64,
}

impl<'a> Soak<'a> {
    async fn start(options: &'a Options, log: Log) -> io::Result<Self> {
        let cluster = Cluster::start(options.version, MEMBERS).await;
        let members = members_of(&cluster);
        let mut plan = Plan::new(options.seed, options.ttl, options.operator);
        let mut hosts = Vec::new();
        for number in 1..=HOSTS {
            let program = Program {
                command: vec![options.counter.clone().into()],
                election: ELECTION.into(),
                logs: options.logs.clone(),
                ttl: options.ttl,
                contest: Contest::Queue,
            };
            let seed = Some(plan.rng().u64(..));
            let name = format!("worker-{number}");
            let mut host = Host::new(name, program, seed, &members).await;
            host.start()?;
            hosts.push(host);
        }
        Ok(Self { options, log, plan, cluster, members, hosts, faults: 0 })
    }

    async fn carry_through(&mut self) -> io::Result<()> {
        self.somebody_leads().await?;
        self.log.write(Event::Ready);
        let began = Instant::now();
        while began.elapsed() < self.options.length {
            self.phase().await?;
            self.somebody_leads().await?;
            sleep(self.plan.calm()).await;
        }
        self.log.write(Event::Ended);
        end(&mut self.hosts).await?;
        note_counter(&self.cluster.direct_url(), ELECTION, &self.log).await
    }

    /// Some faults, until all of them are healed.
    async fn phase(&mut self) -> io::Result<()> {
        let leader = block_in_place(|| self.cluster.leader());
        let mut steps: Vec<(Duration, usize, Option<Kind>)> = Vec::new();
        for (number, Planned { kind, begins, ends }) in self.plan.phase().into_iter().enumerate() {
            steps.push((begins, number, Some(kind)));
            steps.push((ends, number, None));
        }
        steps.sort_by_key(|(at, number, kind)| (*at, *number, kind.is_none()));
        let began = Instant::now();
        let mut in_force: BTreeMap<usize, (u64, Fault)> = BTreeMap::new();
        for (at, number, begins) in steps {
            sleep_until(began + at).await;
            match begins {
                Some(kind) => {
                    let busy: Vec<_> =
                        in_force.values().filter_map(|(_, fault)| fault.host()).collect();
                    let is_idle = |host: &usize| !busy.contains(&self.hosts[*host].name.as_str());
                    let idle: Vec<_> = (0..HOSTS).filter(is_idle).collect();
                    if let Some(fault) = self.aim(kind, &idle, leader).await {
                        self.faults += 1;
                        self.log.write(Event::Fault { id: self.faults, fault: fault.clone() });
                        self.make(&fault).await;
                        in_force.insert(number, (self.faults, fault));
                    }
                }
                None => {
                    if let Some((id, fault)) = in_force.remove(&number) {
                        self.heal(&fault)?;
                        self.log.write(Event::Healed { id });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whom it hits: one of the `idle` hosts, and of the members those that it is for.
    /// None if there is nobody.
    async fn aim(&mut self, kind: Kind, idle: &[usize], leader: usize) -> Option<Fault> {
        // Hosts that lead are hit as often as all others.
        let leads = idle.iter().copied().find(|host| self.hosts[*host].leads());
        let rng = self.plan.rng();
        let host = if rng.bool() { leads } else { None };
        let host = host.or_else(|| rng.choice(idle.iter().copied()));
        let host = host.map(|host| self.hosts[host].name.clone());
        let others: Vec<_> = (0..MEMBERS).filter(|member| *member != leader).collect();
        let follower = rng.choice(others).expect("a cluster has followers");
        let all: Vec<_> = (0..MEMBERS).collect();
        let one = vec![rng.usize(..MEMBERS)];
        let two = vec![follower, leader];
        Some(match kind {
            Kind::KillHost => Fault::KillHost { host: host? },
            Kind::PauseHost { .. } => Fault::PauseHost { host: host? },
            Kind::CutHost(cut) => Fault::CutHost { host: host?, members: all, cut },
            Kind::CutHostFromOne(cut) => Fault::CutHost { host: host?, members: one, cut },
            Kind::SlowHost => Fault::SlowHost {
                host: host?,
                delay_ms: rng.u64(1..50),
                jitter_ms: rng.u64(1..100),
            },
            Kind::KillMember => Fault::KillMembers { members: vec![follower], leader: false },
            Kind::KillLeader => Fault::KillMembers { members: vec![leader], leader: true },
            Kind::KillTwo => Fault::KillMembers { members: two, leader: true },
            Kind::PauseMember => Fault::PauseMembers { members: vec![follower], leader: false },
            Kind::PauseLeader => Fault::PauseMembers { members: vec![leader], leader: true },
            Kind::PauseTwo => Fault::PauseMembers { members: two, leader: true },
            Kind::IsolateMember => Fault::IsolateMember { member: follower, leader: false },
            Kind::IsolateLeader => Fault::IsolateMember { member: leader, leader: true },
            Kind::Compact => Fault::Compact,
            Kind::Defragment => Fault::Defragment { member: one[0] },
            Kind::Depose(by) => Fault::Depose { epoch: self.leader().await?.epoch.into(), by },
        })
    }

    async fn make(&mut self, fault: &Fault) {
        match fault {
            Fault::KillHost { host } => self.host(host).kill(),
            Fault::PauseHost { host } => self.host(host).pause(),
            Fault::CutHost { host, members, cut } => {
                for member in members {
                    let link = &self.host(host).links[*member];
                    match cut {
                        Cut::Requests => link.stall_requests(),
                        Cut::Replies => link.stall_replies(),
                        Cut::Both => link.black_hole(),
                        Cut::Refused => link.refuse(),
                    }
                }
            }
            Fault::SlowHost { host, delay_ms, jitter_ms } => {
                let [delay, jitter] = [delay_ms, jitter_ms].map(|ms| Duration::from_millis(*ms));
                self.host(host).links.iter().for_each(|link| link.slow(delay, jitter));
            }
            Fault::KillMembers { members, .. } => block_in_place(|| {
                members.iter().for_each(|member| self.cluster.kill(*member));
            }),
            Fault::PauseMembers { members, .. } => block_in_place(|| {
                members.iter().for_each(|member| self.cluster.pause(*member));
            }),
            Fault::IsolateMember { member, .. } => self.cluster.isolate(*member),
            Fault::Compact => self.order(compact(&self.members)).await,
            Fault::Defragment { member } => self.order(defragment(self.members[*member])).await,
            Fault::Depose { epoch, by } => self.order(self.depose((*epoch).into(), *by)).await,
        }
    }

    fn heal(&mut self, fault: &Fault) -> io::Result<()> {
        match fault {
            Fault::KillHost { host } => self.host(host).start()?,
            Fault::PauseHost { host } => self.host(host).resume(),
            Fault::CutHost { host, .. } | Fault::SlowHost { host, .. } => {
                self.host(host).links.iter().for_each(|link| link.heal());
            }
            Fault::KillMembers { .. } => block_in_place(|| self.cluster.restart_killed()),
            Fault::PauseMembers { members, .. } => {
                members.iter().for_each(|member| self.cluster.resume(*member));
            }
            Fault::IsolateMember { member, .. } => self.cluster.rejoin(*member),
            Fault::Compact | Fault::Defragment { .. } | Fault::Depose { .. } => {}
        }
        Ok(())
    }

    /// Waits until a host leads, and far beyond the bound: it is the logs that are judged.
    async fn somebody_leads(&mut self) -> io::Result<()> {
        let since = Instant::now();
        loop {
            for host in &mut self.hosts {
                if let Some(status) = host.has_ended() {
                    let sentence = format!("{} ended by itself, with {status}", host.name);
                    return Err(io::Error::other(sentence));
                }
                if host.leads() {
                    return Ok(());
                }
            }
            if since.elapsed() > PATIENCE {
                return Err(io::Error::other("nobody leads any more"));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn host(&mut self, name: &str) -> &mut Host {
        self.hosts.iter_mut().find(|host| host.name == name).expect("it is one of them")
    }

    /// What an operator asks of etcd. It may fail: other things are wrong as well.
    async fn order(&self, order: impl Future<Output = Result<(), String>>) {
        if let Err(text) = timeout(ORDER, order).await.unwrap_or(Err("no answer".into())) {
            self.log.write(Event::Trouble { text });
        }
    }

    async fn leader(&self) -> Option<incumbent::Participant> {
        let leader = async {
            let store = self.store().await.ok()?;
            Admin::new(&store, ELECTION).timeout(ORDER).leader().await.ok()?
        };
        timeout(ORDER, leader).await.ok()?
    }

    async fn store(&self) -> Result<EtcdStore, String> {
        let url = self.cluster.direct_url().parse().expect("is a URL");
        let store = EtcdStore::connect(&url, &Credentials::default(), ORDER).await;
        store.map_err(|error| error.to_string())
    }

    async fn depose(&self, epoch: Epoch, by: Removal) -> Result<(), String> {
        let leader = self.leader().await.filter(|leader| leader.epoch == epoch);
        let leader = leader.ok_or("it leads no more")?;
        match by {
            Removal::Order => {
                let store = self.store().await?;
                let deposed = Admin::new(&store, ELECTION).timeout(ORDER).depose(Some(epoch)).await;
                deposed.map_err(|error| error.to_string())?;
            }
            Removal::Key => {
                client(&self.members).await?.delete(leader.key, None).await.map_err(told)?;
            }
            Removal::Lease => {
                client(&self.members)
                    .await?
                    .lease_revoke(leader.lease.into())
                    .await
                    .map_err(told)?;
            }
        }
        Ok(())
    }
}

/// Ends hosts in order.
///
/// # Errors
///
/// Where one does not end, or not in order.
pub async fn end(hosts: &mut [Host]) -> io::Result<()> {
    hosts.iter().for_each(Host::end);
    for host in hosts {
        host.ended().await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Writes down what the counter of an election has come to.
///
/// # Errors
///
/// Where etcd does not answer.
pub async fn note_counter(url: &str, election: &str, log: &Log) -> io::Result<()> {
    let value = async { Counter::connect(url, election).await?.value().await };
    let value = value.await.map_err(|failure| io::Error::other(failure.to_string()))?;
    log.write(Event::Counted { election: election.to_owned(), value });
    Ok(())
}

async fn client(members: &[SocketAddr]) -> Result<Client, String> {
    let members: Vec<_> = members.iter().map(|member| format!("http://{member}")).collect();
    Client::connect(members, None).await.map_err(told)
}

fn told(error: etcd_client::Error) -> String {
    error.to_string()
}

async fn compact(members: &[SocketAddr]) -> Result<(), String> {
    let mut client = client(members).await?;
    let read = client.get(ELECTION, None).await.map_err(told)?;
    let revision = read.header().map_or(0, |header| header.revision());
    client.compact(revision, None).await.map_err(told)?;
    Ok(())
}

async fn defragment(member: SocketAddr) -> Result<(), String> {
    client(&[member]).await?.defragment().await.map_err(told)?;
    Ok(())
}
