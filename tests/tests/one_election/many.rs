//! A thousand elections, in each of which a host in Rust, one in Node.js and one in Python stand in
//! line: one process and one lease for each host. They lead all of the elections in turn. Their logs
//! are judged like the logs of a soak, election by election.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_client::GetOptions;
use incumbent::{Options, Reason, Session};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_an_etcd;
use incumbent_tests::program::Running;
use incumbent_tests::soak::host::reason_name;
use incumbent_tests::soak::log::{self, Event, Log, Settings, TermState};
use incumbent_tests::soak::terms;
use incumbent_tests::wait::{ExpectSoon, until};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinSet;

const ELECTIONS: usize = 1_000;
/// What the names of the elections begin with.
const PREFIX: &str = "many-";
const TTL: Duration = Duration::from_secs(10);

const STORE: &str = "INCUMBENT_MANY_STORE";
const PROCESS: &str = "INCUMBENT_MANY_PROCESS";
const LOGS: &str = "INCUMBENT_MANY_LOGS";

// The hosts' own tests lead as many elections on each version.
on_an_etcd!(each_host_leads_a_thousand_elections_in_turn);

async fn each_host_leads_a_thousand_elections_in_turn(version: Version) {
    let Some([node, python]) = super::other_hosts("many") else { return };
    let world = World::start(version);
    let began = Instant::now();
    let rust = world.joins("rust.1", |name| world.in_rust(name), 1).await;
    rust.process.prints("leads");
    println!("{}: led {:.1?} after its start, {}", rust.name, began.elapsed(), rust.memory());
    let node = world.joins("node.1", |name| world.with_arguments(node, name), 2).await;
    let python = world.joins("python.1", |name| world.with_arguments(python, name), 3).await;
    world.log.write(Event::Ready);
    rust.hands_over_to(&node);
    let rust = world.joins("rust.2", |name| world.in_rust(name), 3).await;
    node.hands_over_to(&python);
    python.hands_over_to(&rust);
    world.log.write(Event::Ended);
    rust.process.stop();
    assert_eq!(world.candidates().await, 0, "nothing is left");
    world.judge(&["rust.1", "node.1", "python.1", "rust.2"]);
}

/// An etcd, and what the hosts write down.
struct World {
    etcd: Etcd,
    logs: TempDir,
    log: Log,
}

/// A host that is in line in every election, or leads.
struct Host {
    name: &'static str,
    process: Running,
}

impl World {
    fn start(version: Version) -> Self {
        let logs = TempDir::with_prefix("incumbent-many-").expect("a folder");
        let log = Log::of_soak(logs.path(), Settings::new(version, TTL, 0)).expect("a new log");
        Self { etcd: Etcd::start(version), logs, log }
    }

    /// This test's program again, where it is only a host.
    fn in_rust(&self, process: &str) -> Command {
        let mut command = Command::new(env::current_exe().expect("a program"));
        command
            .args(["--exact", "many::a_host_in_rust", "--nocapture"])
            .env(STORE, self.etcd.url())
            .env(PROCESS, process)
            .env(LOGS, self.logs.path());
        command
    }

    /// A host in another language, with the arguments that it takes.
    fn with_arguments(&self, mut command: Command, process: &str) -> Command {
        command
            .args(["--store", &self.etcd.url(), "--process", process])
            .args(["--elections", &ELECTIONS.to_string(), "--logs"])
            .arg(self.logs.path());
        command
    }

    /// Starts a host, and waits until it is the last of so many candidates in every election.
    async fn joins(
        &self,
        name: &'static str,
        command: impl FnOnce(&str) -> Command,
        place: usize,
    ) -> Host {
        let began = Instant::now();
        let process = Running::start(command(name));
        let what = format!("{name} is in line");
        until(&what, async || self.candidates().await == place * ELECTIONS).await;
        println!("{name}: in line {:.1?} after its start", began.elapsed());
        Host { name, process }
    }

    /// How many candidates there are in all of the elections.
    async fn candidates(&self) -> usize {
        let count = GetOptions::new().with_prefix().with_count_only();
        let mut client = self.etcd.client().await;
        let found = client.get(PREFIX, Some(count)).await.expect("etcd answers");
        usize::try_from(found.count()).expect("a count")
    }

    /// In every election these had one term each, in this order, and all that a soak is judged by
    /// holds.
    fn judge(mut self, order: &[&str]) {
        let lines = log::read(self.logs.path()).expect("logs");
        let mut leaders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in &lines {
            if let Event::Elected(term) = &line.event {
                leaders.entry(&term.election).or_default().push(&line.process);
            }
        }
        let strays: Vec<_> = leaders.iter().filter(|(_, terms)| *terms != order).collect();
        let report = terms::judge(&lines);
        if !report.is_good() || leaders.len() != ELECTIONS || !strays.is_empty() {
            self.logs.disable_cleanup(true);
            let logs = self.logs.path().display();
            panic!("{report}\nin another order: {strays:?}\nthe logs are in {logs}");
        }
        println!("{report}");
    }
}

impl Host {
    /// It leads, and ends in order. The next host then leads all of the elections.
    fn hands_over_to(mut self, next: &Self) {
        let began = Instant::now();
        self.process.signal(Signal::TERM);
        next.process.prints("leads");
        println!("{}: took over in {:.1?}, {}", next.name, began.elapsed(), next.memory());
        assert_eq!(self.process.wait(), 0, "{} ends in order", self.name);
    }

    /// The most memory that it has had, as Linux tells it.
    fn memory(&self) -> String {
        let path = Path::new("/proc").join(self.process.pid().to_string()).join("status");
        let status = fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        format!("{:.0} MiB at most", kibibytes.expect("in kB") / 1_024.0)
    }
}

/// A host, as examples/node/many.mjs and examples/python/many.py are: the test above runs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_in_rust() {
    let (Ok(store), Ok(process), Some(logs)) =
        (env::var(STORE), env::var(PROCESS), env::var_os(LOGS))
    else {
        return;
    };
    let mut term = signal(SignalKind::terminate()).expect("a signal");
    let log = Log::create(Path::new(&logs), &process).expect("a new log");
    let options = Options { identity: process, ttl: TTL, ..Options::default() };
    let session = Session::connect(&store, options).expect_soon("connects").await;
    let (ends, over) = watch::channel(false);
    let (leads, mut leading) = watch::channel(0);
    let mut hosts = JoinSet::new();
    for number in 0..ELECTIONS {
        let (session, over, log, leads) =
            (session.clone(), over.clone(), log.clone(), leads.clone());
        hosts.spawn(async move {
            let name = format!("{PREFIX}{number:06}");
            let leads = || leads.send_modify(|count| *count += 1);
            lead(&session, &name, leads, over, &log).await;
        });
    }
    leading.wait_for(|count| *count == ELECTIONS).await.expect("we hold a sender");
    println!("\nleads");
    term.recv().await;
    ends.send_replace(true);
    hosts.join_all().await;
    session.close().expect_soon("closes").await;
}

/// One term, until the host ends or loses it.
async fn lead(
    session: &Session,
    name: &str,
    leads: impl FnOnce(),
    mut over: Receiver<bool>,
    log: &Log,
) {
    let leadership = session.election(name).campaign().await.expect("nothing ends a candidacy");
    let term = || TermState {
        election: name.into(),
        epoch: leadership.epoch().into(),
        valid_until: leadership.valid_until(),
    };
    log.write(Event::Elected(term()));
    leads();
    tokio::select! {
        _ = leadership.lost() => {}
        _ = over.wait_for(|over| *over) => {}
    }
    let is_valid = leadership.is_valid();
    let reason = if is_valid { Reason::Resigned } else { leadership.lost().await };
    log.write(Event::Demoted { term: term(), reason: reason_name(&reason).to_owned() });
    // A term that was lost cannot be resigned.
    let _ = leadership.resign().await;
}
