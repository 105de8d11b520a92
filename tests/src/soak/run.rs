//! A run: servers, their hosts, and what goes wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use etcd_client::Client;
use incumbent::admin::Admin;
use incumbent::{Credentials, Epoch, EtcdStore, Failure, Participant};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::advisory;
use super::faults::{Cut, Fault, Kind, Members, Plan, Planned, Removal};
use super::hosts::{Host, Program};
use super::log::{self, Event, Log, Settings, nanoseconds};
use super::servers::{MEMBERS, Pair, Servers};
use crate::cluster::Cluster;
use crate::counter::Counter;
use crate::etcd::Version;
use crate::netns;

/// In the directory of the logs, what the hosts by advisory lock log.
pub const ADVISORY: &str = "advisory";
/// How far from the true time a step puts the database's clock, in seconds.
const STEPS: [i64; 6] = [-86_400, -3_600, -3, 2, 3_600, 86_400];
/// How long an operation of an operator may take.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take until somebody leads: far beyond the bound, because the logs are judged.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// How much longer a piece may take than another, each way, where false alarms are looked for.
const JITTER: Duration = Duration::from_millis(50);

/// What each further election adds to the time that it may take until all are led again: hosts of
/// a soak are not optimised, and share the machine with etcd.
const EACH: Duration = Duration::from_millis(1);
/// As many as the command line of a host can name.
const MOST_ELECTIONS: i64 = 20_000;

/// How a soak runs.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// How long.
    #[arg(long = "minutes", value_name = "MINUTES", default_value = "2", value_parser = minutes)]
    pub length: Duration,
    /// On a PostgreSQL and its standby, in place of etcd. Beside each host, another one goes by an
    /// advisory lock, as people write it: what it does wrong is counted.
    #[arg(long, conflicts_with_all = ["version", "operator", "false_alarms"])]
    pub postgres: bool,
    /// Which etcd: 3.4, 3.5.16, or 3.5, of which members that are killed may come to differ.
    #[arg(long = "etcd", value_name = "VERSION", default_value = "3.5.16")]
    pub version: Version,
    /// What the faults are drawn from; a new one unless given. The times at which they
    /// come are real: no two runs are the same.
    #[arg(long)]
    pub seed: Option<u64>,
    /// How long leases live, in seconds: 3 unless given, 5 for false alarms.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..))]
    pub ttl: Option<u64>,
    /// In how many elections all hosts campaign, each by one session.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=MOST_ELECTIONS),
        conflicts_with_all = ["operator", "false_alarms"]
    )]
    pub elections: u32,
    /// An operator removes leaders as well: then two may believe that they lead, for a
    /// moment, and only what they write is judged.
    #[arg(long, conflicts_with = "false_alarms")]
    pub operator: bool,
    /// No faults but 1% loss and 50 ms jitter between hosts and members: four elections,
    /// and no leader may lose its term. Needs root, or user namespaces; ip and nft.
    #[arg(long, conflicts_with = "seed")]
    pub false_alarms: bool,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "is no number")?;
    // Longer ones would be cut short by the memory that their judgement takes.
    let is_possible = (0.0..=1440.0).contains(&minutes);
    is_possible.then(|| Duration::from_secs_f64(60.0 * minutes)).ok_or("0 to 1440".into())
}

/// Carries a run through, with the program `counter`. [`judge`](super::terms::judge) can then read
/// it from its logs, in an empty directory.
///
/// Needs a tokio runtime with several threads, and for false alarms a network namespace (see
/// [`netns`]). Dropped, it ends all that it started.
///
/// # Errors
///
/// Where it could not be carried through; the logs until then can be judged.
pub async fn run(options: &Options, logs: &Path, counter: &Path) -> io::Result<()> {
    let mut run = Run::prepare(options, logs, counter).await?;
    let result = run.carry_through(options, logs).await;
    run.servers.write_logs(logs)?;
    result
}

struct Run {
    log: Log,
    plan: Plan,
    servers: Servers,
    elections: Vec<String>,
    hosts: Vec<Host>,
    /// Beside each host one that goes by an advisory lock, which suffers all that its host suffers.
    beside: Vec<Host>,
}

impl Run {
    /// Starts the servers. The hosts do not run yet.
    async fn prepare(options: &Options, logs: &Path, counter: &Path) -> io::Result<Self> {
        let (elections, count, ttl, seed) = if options.false_alarms {
            (4, 8, 5, Some(0))
        } else {
            (options.elections, 3, 3, options.seed)
        };
        let ttl = Duration::from_secs(options.ttl.unwrap_or(ttl));
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        println!("seed {seed}");
        let elections: Vec<_> = (1..=elections).map(|number| format!("jobs-{number}")).collect();
        let (mut settings, plan) = if options.postgres {
            (Settings::of_postgres(ttl, seed), Plan::on_postgres(seed, ttl))
        } else {
            (Settings::new(options.version, ttl, seed), Plan::on_etcd(seed, ttl, options.operator))
        };
        settings.bound += nanoseconds(EACH * (options.elections - 1));
        let log = Log::of_soak(logs, settings)?;
        let servers = if options.postgres {
            let advisory = advisory::counter_of(&elections[0]);
            let counters: Vec<_> = elections.iter().cloned().chain([advisory]).collect();
            Servers::Postgres(Box::new(block_in_place(|| Pair::start(&counters))))
        } else {
            Servers::Etcd(Cluster::start(options.version, MEMBERS).await)
        };
        let (hosts, beside) = (Vec::new(), Vec::new());
        let mut run = Self { log, plan, servers, elections, hosts, beside };
        let (store, members) = (run.servers.store(), run.servers.addresses());
        for number in 0..count {
            let elections = if options.false_alarms {
                // In each election one leads, and one waits.
                vec![run.elections[number % run.elections.len()].clone()]
            } else {
                run.elections.clone()
            };
            let (command, logs) = (vec![counter.into()], logs.to_owned());
            let program = Program { command, store, elections, logs, ttl };
            let seed = (!options.false_alarms).then(|| run.plan.rng().u64(..));
            let name = format!("worker-{}", number + 1);
            if options.postgres {
                let mut program = program.clone();
                program.command.push("--advisory-lock".into());
                program.logs.push(ADVISORY);
                log::directory(&program.logs)?;
                run.beside.push(Host::new(name.clone(), program, seed, &members).await);
            }
            run.hosts.push(Host::new(name, program, seed, &members).await);
        }
        Ok(run)
    }

    async fn carry_through(&mut self, options: &Options, logs: &Path) -> io::Result<()> {
        if options.false_alarms {
            self.disturb_links();
        }
        for host in self.hosts.iter_mut().chain(&mut self.beside) {
            host.start()?;
        }
        self.all_elections_have_leaders().await?;
        self.log.write(Event::Ready);
        if options.false_alarms {
            sleep(options.length).await;
            self.all_elections_have_leaders().await?;
            let packets = netns::packets_lost();
            self.log.write(Event::Lost { packets });
            if packets == 0 {
                return Err(io::Error::other("no packet was lost: nothing was shown"));
            }
        } else {
            let began = Instant::now();
            while began.elapsed() < options.length {
                self.phase().await?;
                self.all_elections_have_leaders().await?;
                sleep(self.plan.calm()).await;
            }
        }
        self.log.write(Event::Ended);
        if options.postgres {
            self.finish_beside(logs).await?;
        }
        finish(&mut self.hosts, &self.servers.url(), &self.elections, &self.log).await
    }

    /// Ends the hosts by advisory lock, and leaves in their directory what the soak has logged, and what
    /// their counter has come to.
    async fn finish_beside(&mut self, logs: &Path) -> io::Result<()> {
        self.beside.clear();
        let directory = logs.join(ADVISORY);
        std::fs::copy(logs.join(log::OF_SOAK), directory.join(log::OF_SOAK))?;
        let election = advisory::counter_of(&self.elections[0]);
        let counter = Counter::connect(&self.servers.url(), &election).await;
        let value = counter.map_err(failed)?.value().await.map_err(failed)?;
        Log::create(&directory, "counter")?.write(Event::Counted { election, value });
        Ok(())
    }

    /// Loses 1% of the packets between hosts and members, and delays the others. The packets
    /// between the members are spared.
    fn disturb_links(&self) {
        let links = || self.hosts.iter().flat_map(|host| &host.links);
        links().for_each(|link| link.slow(Duration::ZERO, JITTER));
        let ports: Vec<_> = links().map(|link| link.address().port().to_string()).collect();
        let ports = ports.join(", ");
        let lost = |port: &str| format!("tcp {port} {{ {ports} }} numgen random mod 100 < 1");
        netns::lose_packets(&[&lost("dport"), &lost("sport")]);
    }

    /// Waits until every election has a leader.
    async fn all_elections_have_leaders(&mut self) -> io::Result<()> {
        let since = Instant::now();
        loop {
            let mut led = BTreeSet::new();
            for host in &mut self.hosts {
                if let Some(status) = host.has_ended() {
                    let sentence = format!("{} ended by itself, with {status}", host.name);
                    return Err(io::Error::other(sentence));
                }
                led.extend(host.terms().into_keys());
            }
            if led.len() == self.elections.len() {
                return Ok(());
            }
            if since.elapsed() > LEADER_TIMEOUT {
                let state = block_in_place(|| self.servers.state());
                return Err(io::Error::other(format!("not every election has a leader; {state}")));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes some faults, and heals all of them.
    async fn phase(&mut self) -> io::Result<()> {
        let leader = block_in_place(|| self.servers.leader());
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
            if let Some(kind) = begins {
                let busy: Vec<_> =
                    in_force.values().filter_map(|(_, fault)| fault.host()).collect();
                let is_idle = |host: &usize| !busy.contains(&self.hosts[*host].name.as_str());
                let idle: Vec<_> = (0..self.hosts.len()).filter(is_idle).collect();
                if let Some(fault) = self.aim(kind, &idle, leader).await {
                    let id = self.log.write_fault(fault.clone());
                    self.make(&fault).await;
                    in_force.insert(number, (id, fault));
                }
            } else if let Some((id, fault)) = in_force.remove(&number) {
                self.heal(&fault)?;
                self.log.write(Event::Healed { id });
            }
        }
        Ok(())
    }

    /// Chooses what a fault hits: one of the `idle` hosts, and members of its kind. None if there
    /// is nothing to hit.
    async fn aim(&mut self, kind: Kind, idle: &[usize], leader: usize) -> Option<Fault> {
        // Hosts that lead are hit as often as all others.
        let leads = idle.iter().copied().find(|host| self.hosts[*host].leads());
        let rng = self.plan.rng();
        let host = if rng.bool() { leads } else { None };
        let host = host.or_else(|| rng.choice(idle.iter().copied()));
        let host = host.map(|host| self.hosts[host].name.clone());
        let members = self.servers.addresses().len();
        let follower = (leader + rng.usize(1..members)) % members;
        let one = rng.usize(..members);
        Some(match kind {
            Kind::KillHost => Fault::KillHost { host: host? },
            Kind::PauseHost { .. } => Fault::PauseHost { host: host? },
            Kind::CutHost(cut) => {
                Fault::CutHost { host: host?, members: (0..members).collect(), cut }
            }
            Kind::CutHostFromOne(cut) => Fault::CutHost { host: host?, members: vec![one], cut },
            Kind::SlowHost => Fault::SlowHost {
                host: host?,
                delay_ms: rng.u64(1..50),
                jitter_ms: rng.u64(1..100),
            },
            Kind::Fail(which, failure) => {
                let members = match which {
                    Members::Follower => vec![follower],
                    Members::Leader => vec![leader],
                    Members::Two => vec![follower, leader],
                };
                Fault::FailMembers { failure, leader: members.contains(&leader), members }
            }
            Kind::Promote { behind } => {
                Fault::Promote { behind_ms: if behind { rng.u64(500..3_000) } else { 0 } }
            }
            Kind::StepClock => Fault::StepClock { seconds: rng.choice(STEPS)? },
            Kind::Terminate => Fault::Terminate,
            Kind::Vacuum => Fault::Vacuum,
            Kind::Compact => Fault::Compact,
            Kind::Defragment => Fault::Defragment { member: one },
            Kind::Depose(by) => Fault::Depose { epoch: self.leader().await?.epoch.into(), by },
        })
    }

    async fn make(&mut self, fault: &Fault) {
        match fault {
            Fault::KillHost { host } => self.both(host).for_each(Host::kill),
            Fault::PauseHost { host } => self.both(host).for_each(|host| host.pause()),
            Fault::CutHost { host, members, cut } => {
                for host in self.both(host) {
                    for link in members.iter().map(|member| &host.links[*member]) {
                        match cut {
                            Cut::Requests => link.stall_requests(),
                            Cut::Replies => link.stall_replies(),
                            Cut::Both => link.black_hole(),
                            Cut::Refused => link.refuse(),
                        }
                    }
                }
            }
            Fault::SlowHost { host, delay_ms, jitter_ms } => {
                let [delay, jitter] = [delay_ms, jitter_ms].map(|ms| Duration::from_millis(*ms));
                let links = self.both(host).flat_map(|host| &host.links);
                links.for_each(|link| link.slow(delay, jitter));
            }
            Fault::FailMembers { failure, members, .. } => {
                block_in_place(|| self.servers.fail(members, *failure));
            }
            Fault::Promote { .. } | Fault::StepClock { .. } | Fault::Terminate | Fault::Vacuum => {
                if let Some(event) = block_in_place(|| self.servers.disturb(fault)) {
                    self.log.write(event);
                }
            }
            Fault::Compact => self.operate(self.compact()).await,
            Fault::Defragment { member } => self.operate(self.defragment(*member)).await,
            Fault::Depose { epoch, by } => self.operate(self.depose((*epoch).into(), *by)).await,
        }
    }

    fn heal(&mut self, fault: &Fault) -> io::Result<()> {
        match fault {
            Fault::KillHost { host } => {
                for host in self.both(host) {
                    host.start()?;
                }
            }
            Fault::PauseHost { host } => self.both(host).for_each(|host| host.resume()),
            Fault::CutHost { host, .. } | Fault::SlowHost { host, .. } => {
                self.both(host).flat_map(|host| &host.links).for_each(|link| link.heal());
            }
            // A phase has one such fault at the most.
            Fault::FailMembers { .. } | Fault::Promote { .. } => {
                block_in_place(|| self.servers.recover());
            }
            Fault::StepClock { .. } | Fault::Terminate | Fault::Vacuum => {}
            Fault::Compact | Fault::Defragment { .. } | Fault::Depose { .. } => {}
        }
        Ok(())
    }

    /// The host of this name, and the one beside it.
    fn both(&mut self, name: &str) -> impl Iterator<Item = &mut Host> {
        self.hosts.iter_mut().chain(&mut self.beside).filter(move |host| host.name == name)
    }

    // What an operator does, to etcd.

    /// An operation may fail, because other things are wrong as well.
    async fn operate(&self, operation: impl Future<Output = Result<(), Box<dyn Error>>>) {
        let result = timeout(OPERATOR_TIMEOUT, operation).await;
        if let Err(error) = result.unwrap_or_else(|_| Err("no answer".into())) {
            self.log.write(Event::Trouble { text: error.to_string() });
        }
    }

    async fn compact(&self) -> Result<(), Box<dyn Error>> {
        let mut client = self.client(0..MEMBERS).await?;
        let read = client.get("any", None).await?;
        client.compact(read.header().map_or(0, |header| header.revision()), None).await?;
        Ok(())
    }

    async fn defragment(&self, member: usize) -> Result<(), Box<dyn Error>> {
        self.client([member]).await?.defragment().await?;
        Ok(())
    }

    async fn depose(&self, epoch: Epoch, by: Removal) -> Result<(), Box<dyn Error>> {
        let leader = self.leader().await.filter(|leader| leader.epoch == epoch);
        let leader = leader.ok_or("it leads no more")?;
        match by {
            Removal::Order => {
                self.admin(&self.store().await?).depose(Some(epoch)).await?;
            }
            Removal::Key => {
                self.client(0..MEMBERS).await?.delete(leader.key, None).await?;
            }
            Removal::Lease => {
                self.client(0..MEMBERS).await?.lease_revoke(leader.lease.into()).await?;
            }
        }
        Ok(())
    }

    async fn leader(&self) -> Option<Participant> {
        let leader = async { self.admin(&self.store().await.ok()?).leader().await.ok()? };
        timeout(OPERATOR_TIMEOUT, leader).await.ok()?
    }

    fn admin<'a>(&'a self, store: &'a EtcdStore) -> Admin<'a> {
        Admin::new(store, &self.elections[0]).timeout(OPERATOR_TIMEOUT)
    }

    async fn store(&self) -> Result<EtcdStore, Box<dyn Error>> {
        let url = self.servers.url().parse()?;
        Ok(EtcdStore::connect(&url, &Credentials::default(), OPERATOR_TIMEOUT).await?)
    }

    async fn client(
        &self,
        members: impl IntoIterator<Item = usize>,
    ) -> Result<Client, etcd_client::Error> {
        let addresses = self.servers.addresses();
        let members = members.into_iter().map(|member| addresses[member].to_string());
        Client::connect(members.collect::<Vec<_>>(), None).await
    }
}

fn failed(failure: Failure) -> io::Error {
    io::Error::other(failure.to_string())
}

/// Ends hosts in order, and logs what the counters of the elections have come to.
///
/// # Errors
///
/// Where a host does not end, or not in order, or etcd does not answer.
pub async fn finish(
    hosts: &mut [Host],
    url: &str,
    elections: &[String],
    log: &Log,
) -> io::Result<()> {
    hosts.iter().for_each(Host::end);
    for host in hosts {
        host.ended().await.map_err(io::Error::other)?;
    }
    let counter = Counter::connect(url, &elections[0]).await.map_err(failed)?;
    for election in elections {
        let value = counter.of(election).value().await.map_err(failed)?;
        log.write(Event::Counted { election: election.clone(), value });
    }
    Ok(())
}
