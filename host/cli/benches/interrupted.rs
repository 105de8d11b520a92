//! How soon a component stops when its time is over: from its limit, which lies 10 ms
//! before the end of its leadership, to the moment at which nothing of it runs.
//!
//! An instruction is completed, and one may fill all the memory that a component has: of
//! that nothing is promised but that it reaches nothing.
//!
//! `just bench interrupted [ROUNDS]`

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use incumbent_tests::etcd::{Etcd, SYNCED, Version};
use incumbent_tests::job;
use tempfile::TempDir;

/// What is promised of the median.
const PROMISED: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(10);
    let etcd = Etcd::start_with(Version::V3_5, SYNCED);
    for (name, deed, promised) in [
        ("an endless loop", job::LOOPS, Some(PROMISED)),
        ("a loop of host calls", job::CALLS, Some(PROMISED)),
        ("a sleep of 20 s", job::SLEEPS, Some(PROMISED)),
        ("a read that waits", job::READS, Some(PROMISED)),
        ("filling 1 GiB of memory", job::FILLS, None),
    ] {
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(round(&etcd, deed)?);
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).context("no rounds")?;
        let worst = times.last().context("no rounds")?;
        let verdict = match promised {
            None => "nothing is promised".into(),
            Some(promised) if *median <= promised => format!("as promised ({promised:?})"),
            Some(promised) => format!("LATER THAN PROMISED ({promised:?})"),
        };
        println!("{name}: median {median:.1?}, worst {worst:.1?}: {verdict}");
    }
    Ok(())
}

/// How late it stopped when its lease ran out.
fn round(etcd: &Etcd, deed: &str) -> Result<Duration> {
    let directory = TempDir::new()?;
    let file = directory.path().join("job.wasm");
    fs::write(&file, job::doing(deed))?;
    let mut run = Command::new(env!("CARGO_BIN_EXE_incumbent"))
        .args(["run", "my-service", "--once", "--ttl", "2s", "-v", "--store", &etcd.url()])
        .arg("--component")
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    let stdout = run.stdout.take().context("is piped")?;
    BufReader::new(stdout).read_line(&mut said)?;
    etcd.pause();
    let mut late = None;
    for line in BufReader::new(run.stderr.take().context("is piped")?).lines() {
        let line = line?;
        if let Some((_, rest)) = line.split_once("late_us=") {
            let micros = rest.split_whitespace().next().context("a number")?.parse()?;
            late = Some(Duration::from_micros(micros));
            etcd.resume();
        }
    }
    etcd.resume();
    run.wait()?;
    late.context("it was not interrupted")
}
