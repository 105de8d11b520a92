//! How long nobody leads when `incumbent run`, or a part of it, is killed with -9:
//! from the kill to the moment at which the next candidate says that it leads.
//!
//! `just bench killed [ROUNDS]`

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use incumbent::{Credentials, EtcdStore, admin};
use incumbent_tests::etcd::{Etcd, SYNCED, Version};
use incumbent_tests::postgres::Postgres;
use incumbent_tests::program::parent;
use rustix::process::{Pid, Signal, kill_process};

/// How long a successor has been in line when its predecessor is killed.
const SETTLED: Duration = Duration::from_millis(300);

/// The lease where it has to run out, and etcd's look at its leases.
const LEASE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(500);

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Supervisor,
    Guard,
    Worker,
    /// Supervisor, guard and worker, one right after the other.
    All,
}

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(20);
    for version in Version::ALL {
        let etcd = Etcd::start_with(version, SYNCED);
        println!("etcd {version:?}, {rounds} rounds each");
        let crash = LEASE + TICK + 3 * round_trip(&etcd)?;
        measure(&etcd.url(), Duration::from_millis(250), crash, rounds)?;
    }
    let postgres = Postgres::start_with(&["fsync=on"]);
    println!("PostgreSQL, {rounds} rounds each");
    let crash = LEASE + Duration::from_secs(1);
    measure(&postgres.url(), Duration::from_millis(50), crash, rounds)
}

/// With a store that promises a next leader within these times: where a part of `run` is killed, and
/// where all of it is.
fn measure(store: &str, part: Duration, all: Duration, rounds: usize) -> Result<()> {
    for (victim, promised) in [
        (Victim::Supervisor, part),
        (Victim::Guard, part),
        (Victim::Worker, Duration::from_millis(50)),
        (Victim::All, all),
    ] {
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(round(store, victim)?);
        }
        print(victim, &mut times, promised);
    }
    Ok(())
}

/// From the kill to the next leader.
fn round(store: &str, victim: Victim) -> Result<Duration> {
    let script = ["sh", "-c", "echo $$; exec sleep 1000"];
    let ttl = match victim {
        Victim::All => "2s",
        // None that could run out meanwhile.
        Victim::Supervisor | Victim::Guard | Victim::Worker => "1m",
    };
    let run = ["run", "killed", "--ttl", ttl, "--restart-delay", "1m", "--"];
    let mut leader = Program::start(store, &[&run[..], &script].concat())?;
    let worker: i32 = leader.line()?.parse()?;
    let guard = parent(worker);

    let mut successor = Program::start(store, &["campaign", "killed", "-o", "json"])?;
    while !successor.line()?.contains("\"joined\"") {}
    sleep(SETTLED);
    let victims = match victim {
        Victim::Supervisor => vec![leader.pid()?],
        Victim::Guard => vec![guard],
        Victim::Worker => vec![worker],
        Victim::All => vec![guard, leader.pid()?, worker],
    };
    let began = Instant::now();
    for victim in victims {
        // The kernel may have been quicker.
        let _ = kill_process(Pid::from_raw(victim).context("a process id")?, Signal::KILL);
    }
    while !successor.line()?.contains("\"elected\"") {}
    Ok(began.elapsed())
}

fn round_trip(etcd: &Etcd) -> Result<Duration> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let url = etcd.url().parse()?;
        let store =
            EtcdStore::connect(&url, &Credentials::default(), Duration::from_secs(5)).await?;
        let mut times = Vec::new();
        for _ in 0..21 {
            let began = Instant::now();
            admin::get(&store, "absent", Duration::from_secs(5)).await?;
            times.push(began.elapsed());
        }
        Ok(median(&mut times))
    })
}

/// The program under test, killed at the end of the round.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(store: &str, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_incumbent"))
            .args(arguments)
            .env("INCUMBENT_STORE", store)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Self { child, lines })
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("the program has ended")??)
    }

    fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }
}

impl Drop for Program {
    /// In order, so that the next round finds nobody.
    fn drop(&mut self) {
        // Perhaps it has been killed.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn print(victim: Victim, times: &mut [Duration], promised: Duration) {
    let median = median(times);
    let worst = times.last().copied().unwrap_or_default();
    let judged = if victim == Victim::All { worst } else { median };
    println!(
        "  {victim:?} killed: median {:.1} ms, worst {:.1} ms; promised {:.1} ms: {}",
        milliseconds(median),
        milliseconds(worst),
        milliseconds(promised),
        if judged <= promised { "kept" } else { "BROKEN" }
    );
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
