//! What a recording costs: a handover on etcd with it and without, in turns; and a guarded write on
//! the store in memory, which is nothing but steps, beside ever more elections.
//!
//! `cargo bench -p incumbent-tests --features etcd --bench recording [-- ROUNDS]`

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;
use incumbent::recording::Recording;
use incumbent::{Election, Leadership, MemoryStore, Options, Session};
use incumbent_tests::etcd::{Etcd, SYNCED, Version};
use tokio::time::sleep;

/// How long a successor has been in line when its predecessor resigns.
const IN_LINE: Duration = Duration::from_millis(30);
const WRITES: u32 = 2_000;

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let runtime = tokio::runtime::Runtime::new()?;
    let dir = tempfile::tempdir()?;
    for version in Version::ALL {
        runtime.block_on(handovers(version, rounds.unwrap_or(500), dir.path()))?;
    }
    for many in [10, 100, 1_000, 10_000] {
        runtime.block_on(steps(many, dir.path()))?;
    }
    Ok(())
}

fn options(recorded: Option<&Path>) -> Options {
    let recording = recorded.map(|dir| Recording::new(dir, || "2026-01-02T03:04:05Z".into()));
    Options { recording, ttl: Duration::from_secs(60), ..Options::default() }
}

async fn handovers(version: Version, rounds: usize, dir: &Path) -> Result<()> {
    let etcd = Etcd::start_with(version, SYNCED);
    let url = etcd.url();
    let mut pairs = Vec::new();
    for recorded in [None, Some(dir)] {
        let name = format!("job-{}", recorded.is_some());
        let mut elections = Vec::new();
        for _ in 0..2 {
            let session = Session::connect(&url, options(recorded)).await?;
            elections.push(session.election(name.as_str()));
        }
        let leads = elections[0].campaign().await?;
        pairs.push((elections, Some(leads), Vec::new()));
    }
    for round in 1..=rounds {
        // First the one, then the other.
        for turn in 0..2 {
            let (elections, held, took) = &mut pairs[(round + turn) % 2];
            let next = elections[round % 2].clone();
            let (leads, time) = handover(held.take().expect("somebody leads"), next).await?;
            *held = Some(leads);
            took.push(time);
        }
    }
    let [plain, recorded] = [0, 1].map(|pair| {
        let took: &mut Vec<Duration> = &mut pairs[pair].2;
        took.sort();
        took[took.len() / 2]
    });
    println!(
        "etcd {version:?}, {rounds} handovers each, medians: {plain:?}, recorded {recorded:?}: {:.3}",
        recorded.as_secs_f64() / plain.as_secs_f64()
    );
    Ok(())
}

async fn handover(leads: Leadership, next: Election) -> Result<(Leadership, Duration)> {
    let follows = tokio::spawn(async move {
        let elected = next.campaign().await;
        (elected, Instant::now())
    });
    sleep(IN_LINE).await;
    let began = Instant::now();
    leads.resign().await?;
    let (elected, at) = follows.await?;
    Ok((elected?, at - began))
}

/// A write is two steps.
async fn steps(many: usize, dir: &Path) -> Result<()> {
    let mut took = Vec::new();
    for recorded in [None, Some(dir), None, Some(dir)] {
        let session = Session::open(MemoryStore::default(), options(recorded)).await?;
        let campaign = async |number| session.election(format!("job-{number}")).campaign().await;
        let leads = try_join_all((0..many).map(campaign)).await?;
        let began = Instant::now();
        for number in 0..WRITES {
            leads[number as usize % many].fence().put("/key", number.to_string()).await?;
        }
        took.push(began.elapsed() / WRITES);
        drop(leads);
        session.close().await?;
    }
    let [plain, recorded] = [0, 1].map(|first| took[first].min(took[first + 2]));
    println!("{many} elections: a write takes {plain:?}, recorded {recorded:?}");
    Ok(())
}
