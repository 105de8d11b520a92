//! How long a drain takes that hands all terms of one session to another one, and a spread of them over
//! four sessions; and for how long and how many elections are without a leader meanwhile, against one
//! handover alone.
//!
//! `cargo bench -p incumbent-tests --features etcd --bench drain [-- ELECTIONS]`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use incumbent::{Election, Limit, Options, Session};
use incumbent_tests::etcd::{Etcd, SYNCED, Version};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How many single handovers are the reference.
const ROUNDS: usize = 50;
/// How long the lines stay as they are before a handover.
const REST: Duration = Duration::from_millis(200);

/// What a candidate reports of its election.
#[derive(Clone, Copy, Debug)]
enum Report {
    Elected(usize, Instant),
    /// Its work has stopped, and it resigns.
    Resigns(usize, Instant),
}

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let elections = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let sizes = elections.map_or_else(|| vec![10, 100, 1_000, 10_000], |elections| vec![elections]);
    let runtime = tokio::runtime::Runtime::new()?;
    for elections in sizes {
        runtime.block_on(measure(elections))?;
        for at_once in [8, 16, 32, 64] {
            runtime.block_on(spread(elections, at_once))?;
        }
    }
    Ok(())
}

async fn measure(elections: usize) -> Result<()> {
    let etcd = Etcd::start_with(Version::V3_5, SYNCED);
    let sessions = [session(&etcd, "one").await?, session(&etcd, "two").await?];
    let (report, mut reports) = mpsc::unbounded_channel();
    // For the leader of the first election.
    let resign = Arc::new(Notify::new());
    let mut candidates = JoinSet::new();
    for (session, all) in sessions.iter().zip([elections, 2 * elections]) {
        for number in 0..elections {
            let election = session.election(format!("drain-{number}"));
            candidates.spawn(take_part(election, number, report.clone(), Arc::clone(&resign)));
        }
        in_line(&etcd, all).await;
    }
    for _ in 0..elections {
        reports.recv().await;
    }
    let mut alone = Vec::new();
    for _ in 0..ROUNDS {
        resign.notify_one();
        alone.extend(handovers(&mut reports, 1).await?.gaps);
        in_line(&etcd, 2 * elections).await;
    }
    let alone = at(&mut alone, 50);
    println!("{elections} elections; one handover alone: nobody leads for {alone:.2} ms (p50)");
    let mut from = 0;
    for at_once in [1, 16, 64, 256] {
        let session = &sessions[from];
        let held = session.terms().await?;
        let began = Instant::now();
        session.drain(at_once);
        let Handovers { mut gaps, most } = handovers(&mut reports, held).await?;
        let took = began.elapsed().as_secs_f64() * 1_000.0;
        let gap = at(&mut gaps, 50);
        println!(
            "  {at_once:3} at once: {held} terms in {took:8.1} ms, {most:3} elections without a leader \
             at most, for {gap:6.2} ms (p50), ratio {:5.2}; {:6.2} ms (p99), {:6.2} ms at most",
            gap / alone,
            at(&mut gaps, 99),
            at(&mut gaps, 100)
        );
        session.undo_drain();
        in_line(&etcd, 2 * elections).await;
        from = 1 - from;
    }
    candidates.shutdown().await;
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}

async fn spread(elections: usize, at_once: u32) -> Result<()> {
    let etcd = Etcd::start_with(Version::V3_5, SYNCED);
    let mut sessions = Vec::new();
    for identity in ["one", "two", "three", "four"] {
        sessions.push(session(&etcd, identity).await?);
    }
    let (report, mut reports) = mpsc::unbounded_channel();
    let never = Arc::new(Notify::new());
    let mut candidates = JoinSet::new();
    for (before, session) in sessions.iter().enumerate() {
        for number in 0..elections {
            let election = session.election(format!("drain-{number}"));
            candidates.spawn(take_part(election, number, report.clone(), Arc::clone(&never)));
        }
        in_line(&etcd, (before + 1) * elections).await;
    }
    for _ in 0..elections {
        reports.recv().await;
    }
    let began = Instant::now();
    for session in &sessions {
        session.limit(Limit::fair().at_once(at_once));
    }
    let (mut gaps, mut leaderless) = (Vec::new(), BTreeMap::new());
    let (mut most, mut last) = (0, began);
    // Nothing has moved for some rounds.
    while let Ok(report) = timeout(Duration::from_secs(5), reports.recv()).await {
        match report.context("a candidate has ended")? {
            Report::Resigns(number, at) => {
                leaderless.insert(number, at);
                most = most.max(leaderless.len());
            }
            Report::Elected(number, at) => {
                gaps.push(at - leaderless.remove(&number).context("it had a leader")?);
                last = at;
            }
        }
    }
    let mut shares = Vec::new();
    for session in &sessions {
        shares.push(session.terms().await?);
    }
    println!(
        "  spread over four, {at_once:2} at once: {shares:?} after {:.1} ms and {} handovers, {most:3} elections without a \
         leader at most, for {:6.2} ms (p50); {:6.2} ms (p99), {:6.2} ms at most",
        (last - began).as_secs_f64() * 1_000.0,
        gaps.len(),
        at(&mut gaps, 50),
        at(&mut gaps, 99),
        at(&mut gaps, 100)
    );
    candidates.shutdown().await;
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}

/// What a number of handovers took.
struct Handovers {
    /// From each resignation to the election of the next one.
    gaps: Vec<Duration>,
    /// How many elections were without a leader at once.
    most: usize,
}

async fn handovers(reports: &mut mpsc::UnboundedReceiver<Report>, all: usize) -> Result<Handovers> {
    let (mut gaps, mut most) = (Vec::new(), 0);
    let mut leaderless = BTreeMap::new();
    while gaps.len() < all {
        match reports.recv().await.context("a candidate has ended")? {
            Report::Resigns(number, at) => {
                leaderless.insert(number, at);
                most = most.max(leaderless.len());
            }
            Report::Elected(number, at) => {
                let since = leaderless.remove(&number).context("it had a leader")?;
                gaps.push(at - since);
            }
        }
    }
    Ok(Handovers { gaps, most })
}

/// A candidate that resigns as soon as it is asked to, by a drain or by the benchmark.
async fn take_part(
    election: Election,
    number: usize,
    report: mpsc::UnboundedSender<Report>,
    resign: Arc<Notify>,
) -> Result<()> {
    let mut candidate = election.join();
    loop {
        let leadership = candidate.elected().await?;
        report.send(Report::Elected(number, Instant::now()))?;
        tokio::select! {
            () = leadership.asked_to_resign() => {}
            () = resign.notified(), if number == 0 => {}
        }
        report.send(Report::Resigns(number, Instant::now()))?;
        leadership.resign().await?;
    }
}

/// Waits until there are so many keys, and then until they have settled.
async fn in_line(etcd: &Etcd, keys: usize) {
    let listed = || etcd.etcdctl(&["get", "--prefix", "drain-", "--keys-only"]);
    while listed().lines().filter(|line| !line.is_empty()).count() < keys {
        sleep(REST).await;
    }
    sleep(REST).await;
}

async fn session(etcd: &Etcd, identity: &str) -> Result<Session> {
    let identity = identity.into();
    Ok(Session::connect(&etcd.url(), Options { identity, ..Options::default() }).await?)
}

/// In milliseconds.
fn at(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1_000.0
}
