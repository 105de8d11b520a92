//! One election of all: hosts in Rust, Node.js and Python take turns with one another and
//! with candidates that are not ours, are killed and paused, and count together. Their logs
//! and recordings are judged like those of a soak.
//!
//! Wants `./setup.sh node python`. Without it the tests say that they were skipped, unless
//! `INCUMBENT_ALL_EXAMPLES` is set.

use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use incumbent_tests::counter::Counter;
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::program::Running;
use incumbent_tests::soak::faults::Fault;
use incumbent_tests::soak::host::RECORDINGS;
use incumbent_tests::soak::hosts::{Host, Program};
use incumbent_tests::soak::log::{self, Event, Log, Settings, nanoseconds};
use incumbent_tests::soak::recordings;
use incumbent_tests::soak::run::finish;
use incumbent_tests::soak::servers::Store;
use incumbent_tests::soak::terms::{self, Report};
use incumbent_tests::wait::{ExpectSoon, LIMIT, until};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::sleep;

mod many;

const ELECTION: &str = "jobs";
/// In the queue each has its turn, so nobody may lose its place while the machine is busy.
const LONG_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(2);
/// How long others than the hosts may lead.
const OTHERS: Duration = Duration::from_secs(30);
/// How often a leader counts before something happens to it.
const COUNTS: u64 = 3;

on_each_version!(all_take_turns_in_one_queue, all_race_with_a_script);

async fn all_take_turns_in_one_queue(version: Version) {
    let Some(mut world) = World::start(version, "queue", LONG_TTL).await else { return };
    let [rust, node, python] = [0, 1, 2];
    for host in [rust, node, python] {
        world.hosts[host].start().expect("starts");
        world.until_in_line(host + 1).await;
    }
    let mut etcdctl = world.etcdctl().await;

    world.counts(rust).await;
    world.resigns(rust).await;
    world.counts(node).await;
    world.dies(node).await;
    world.counts(python).await;
    let paused = world.pauses(python);
    prints(&etcdctl, 1).await;
    world.wakes(python, paused).await;
    // It leaves.
    etcdctl.signal(Signal::INT);
    etcdctl.wait();
    for host in [rust, node, python] {
        world.counts(host).await;
        let paused = world.pauses(host);
        world.counts_someone().await;
        world.wakes(host, paused).await;
    }
    for host in [rust, python] {
        world.counts_in_time(host).await;
        world.dies(host).await;
    }
    world.counts_in_time(node).await;
    let report = world.end().await;
    assert!(report.terms >= 9, "{report}");
}

async fn all_race_with_a_script(version: Version) {
    let Some(mut world) = World::start(version, "race", TTL).await else { return };
    let mut script = world.script();
    prints(&script, 1).await;
    for host in &mut world.hosts {
        host.start().expect("starts");
    }
    // The winner has to go in another way each time, until each host has led.
    let mut led = [0; 3];
    for turn in 0.. {
        let leader = world.counts_someone().await;
        led[leader] += 1;
        match turn % 3 {
            0 => world.dies(leader).await,
            1 => world.resigns(leader).await,
            _ => {
                let paused = world.pauses(leader);
                world.leads_no_more(leader).await;
                world.wakes(leader, paused).await;
            }
        }
        if led.iter().all(|terms| *terms > 0) {
            break;
        }
        assert!(turn < 60, "{led:?}: somebody never wins");
    }
    let before = script.stdout.line_count();
    let report = world.end().await;
    prints(&script, before + 1).await;
    script.signal(Signal::TERM);
    script.wait();
    println!("{led:?}, and the script {before} times\n{report}");
}

/// An etcd, a host of each kind, and what is written down.
struct World {
    hosts: Vec<Host>,
    log: Log,
    counter: Counter,
    logs: TempDir,
    etcd: Etcd,
}

impl World {
    /// None where not all hosts were set up.
    async fn start(version: Version, contest: &str, ttl: Duration) -> Option<Self> {
        let commands = commands()?;
        let etcd = Etcd::start(version);
        let logs = TempDir::with_prefix("incumbent-one-election-").expect("a folder");
        let mut settings = Settings::new(version, ttl, 0);
        settings.bound += nanoseconds(OTHERS);
        let log = Log::of_soak(logs.path(), settings).expect("a new log");
        let mut hosts = Vec::new();
        for (name, mut command) in commands {
            command.extend(["--contest".into(), contest.into()]);
            let (elections, logs) = (vec![ELECTION.into()], logs.path().to_owned());
            let program = Program { command, store: Store::Etcd, elections, logs, ttl };
            hosts.push(Host::new(name.into(), program, None, &[etcd.address()]).await);
        }
        let counter = Counter::connect(&etcd.url(), ELECTION).expect_soon("connects").await;
        log.write(Event::Ready);
        Some(Self { hosts, log, counter, logs, etcd })
    }

    async fn until_in_line(&self, many: usize) {
        let options = incumbent::Options::default();
        let session = incumbent::Session::connect(&self.etcd.url(), options).await;
        let session = session.expect("connects");
        let election = session.election(ELECTION);
        let all = async || election.candidates().await.expect("lists").len() == many;
        until(&format!("{many} are in line"), all).await;
        session.close().expect_soon("closes").await;
    }

    /// Waits until this one leads, and has counted.
    async fn counts(&mut self, host: usize) {
        let leader = self.counts_someone().await;
        assert_eq!(self.hosts[leader].name, self.hosts[host].name, "it is not its turn");
    }

    /// The same, where others may have their turn before.
    async fn counts_in_time(&mut self, host: usize) {
        for _ in 0..3 {
            let leader = self.counts_someone().await;
            if leader == host {
                return;
            }
            self.resigns(leader).await;
        }
        panic!("{} does not lead", self.hosts[host].name);
    }

    /// The leader, once it has counted.
    async fn counts_someone(&mut self) -> usize {
        let began = Instant::now();
        let (mut leader, mut since) = (None, 0);
        loop {
            assert!(began.elapsed() < LIMIT, "nobody counts");
            let leads = self.hosts.iter_mut().position(|host| {
                assert_eq!(host.has_ended(), None, "{} has ended", host.name);
                host.leads()
            });
            let value = self.counter.value().expect_soon("etcd answers").await;
            match leads {
                Some(host) if leads == leader && value >= since + COUNTS => return host,
                Some(_) if leads == leader => {}
                _ => (leader, since) = (leads, value),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asks it to leave, and lets it come back as the last in line.
    async fn resigns(&mut self, host: usize) {
        self.hosts[host].end();
        self.hosts[host].ended().expect_soon("ends in order").await;
        self.hosts[host].start().expect("starts");
    }

    /// SIGKILL, and another process in its place.
    async fn dies(&mut self, host: usize) {
        let id = self.log.write_fault(Fault::KillHost { host: self.hosts[host].name.clone() });
        self.hosts[host].kill();
        self.hosts[host].start().expect("starts");
        self.counts_someone().await;
        self.log.write(Event::Healed { id });
    }

    /// SIGSTOP. Gives the fault's number, and the epoch in which the host leads.
    fn pauses(&mut self, host: usize) -> (u64, Option<i64>) {
        let id = self.log.write_fault(Fault::PauseHost { host: self.hosts[host].name.clone() });
        let epoch = self.hosts[host].terms().remove(ELECTION);
        self.hosts[host].pause();
        (id, epoch)
    }

    /// SIGCONT, and the end of the term that was paused: the host may lead again by then.
    async fn wakes(&mut self, host: usize, (id, epoch): (u64, Option<i64>)) {
        let host = &mut self.hosts[host];
        host.resume();
        self.log.write(Event::Healed { id });
        let what = format!("the paused term of {} is over", host.name);
        let led = async || host.terms().remove(ELECTION).is_none_or(|now| Some(now) != epoch);
        until(&what, led).await;
    }

    /// Waits until its term is over.
    async fn leads_no_more(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        let what = format!("the term of {} is over", host.name);
        until(&what, async || !host.leads()).await;
    }

    /// `etcdctl elect`, once it is in line.
    async fn etcdctl(&self) -> Running {
        let other = Running::start(self.etcd.etcdctl_command(&["elect", ELECTION, "etcdctl"]));
        self.until_in_line(self.hosts.len() + 1).await;
        other
    }

    fn script(&self) -> Running {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/one_election/put_if_absent.sh");
        let mut command = Command::new("sh");
        command.arg(script).arg(self.etcd.version().etcdctl_path());
        command.args([&self.etcd.address().to_string(), ELECTION]);
        Running::start(command)
    }

    /// Ends the hosts, and judges what they wrote down.
    async fn end(&mut self) -> Report {
        self.log.write(Event::Ended);
        until("all hosts are up", async || self.hosts.iter().all(Host::is_up)).await;
        finish(&mut self.hosts, &self.etcd.url(), &[ELECTION.into()], &self.log)
            .expect_soon("all end in order")
            .await;
        let report = terms::judge(&log::read(self.logs.path()).expect("logs"));
        let recorded = recordings::judge(&self.logs.path().join(RECORDINGS));
        println!("{recorded:?}");
        if !report.is_good() || recorded.is_err() {
            self.logs.disable_cleanup(true);
            panic!("{report}\n{recorded:?}\nthe logs are in {}", self.logs.path().display());
        }
        report
    }
}

/// What counts, in each language.
fn commands() -> Option<[(&'static str, Vec<OsString>); 3]> {
    let [node, python] = other_hosts("counter")?.map(|command| {
        let words = iter::once(command.get_program()).chain(command.get_args());
        words.map(OsStr::to_owned).collect()
    });
    Some([("rust", vec![env!("CARGO_BIN_EXE_counter").into()]), ("node", node), ("python", python)])
}

/// A program of the examples in Node.js and in Python, or None where these were not set up.
fn other_hosts(program: &str) -> Option<[Command; 2]> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let (node, python) = (examples.join("node"), examples.join("python"));
    let interpreter = python.join(".venv/bin/python");
    let ready = node.join("node_modules").exists() && interpreter.exists();
    if !ready {
        let wanted = std::env::var_os("INCUMBENT_ALL_EXAMPLES").is_some();
        assert!(!wanted, "not all hosts are there: run ./setup.sh node python");
        println!("skipped: not all hosts are there: run ./setup.sh node python");
        return None;
    }
    let in_node = (Command::new("node"), node.join(program).with_extension("mjs"));
    let in_python = (Command::new(interpreter), python.join(program).with_extension("py"));
    Some([in_node, in_python].map(|(mut command, file)| {
        command.arg(file);
        command
    }))
}

/// Waits until a candidate that is not ours has printed so many lines: it prints one when it
/// leads.
async fn prints(other: &Running, lines: usize) {
    let what = format!("it leads, and prints line {lines}");
    until(&what, async || other.stdout.line_count() >= lines).await;
}
