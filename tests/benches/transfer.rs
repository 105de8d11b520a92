//! How long a transfer to a named candidate takes, and for how long nobody leads meanwhile, against a
//! plain handover in the same queue: with nobody between the leader and the candidate, and with ten.
//!
//! `cargo bench -p incumbent-tests --features etcd --bench transfer [-- ROUNDS]`

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use incumbent::admin::{Transfer, Transferred};
use incumbent::{Options, Session};
use incumbent_tests::etcd::{Etcd, SYNCED, Version};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

const NAME: &str = "transfer";
/// How long the queue stays as it is before a handover.
const REST: Duration = Duration::from_millis(100);

/// What a candidate reports.
#[derive(Debug)]
enum Report {
    Elected(Instant),
    /// Its work has stopped, and it resigns.
    Resigns(Instant),
}

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let runtime = tokio::runtime::Runtime::new()?;
    for version in Version::ALL {
        for between in [0, 10] {
            runtime.block_on(measure(version, rounds.unwrap_or(100), between))?;
        }
    }
    Ok(())
}

async fn measure(version: Version, rounds: usize, between: usize) -> Result<()> {
    let etcd = Etcd::start_with(version, SYNCED);
    println!("etcd {version:?}, {rounds} rounds, {between} candidates in between");
    let (report, mut reports) = mpsc::unbounded_channel();
    let (resign, asked) = watch::channel(0);
    let mut candidates = JoinSet::new();
    for number in 0..between + 2 {
        let session = session(&etcd, number).await?;
        candidates.spawn(take_part(session, report.clone(), asked.clone()));
    }
    let operator = session(&etcd, usize::MAX).await?;
    let election = operator.election(NAME);
    elected(&mut reports).await?;
    let [mut plain, mut plain_gap, mut transfers, mut gaps, mut answers] =
        [const { Vec::new() }; 5];
    for round in 1..=rounds {
        in_line(&election, between + 2).await?;
        let began = Instant::now();
        resign.send_replace(round);
        let stopped = resigns(&mut reports).await?;
        let at = elected(&mut reports).await?;
        plain.push(at - began);
        plain_gap.push(at - stopped);

        in_line(&election, between + 2).await?;
        let line = election.candidates().await?;
        let target = line.last().context("there are candidates")?.value.clone();
        let began = Instant::now();
        let transferred = election.transfer(Transfer::to(target)).await?;
        answers.push(began.elapsed());
        ensure!(matches!(transferred, Transferred::Done { .. }), "{transferred:?}");
        let stopped = resigns(&mut reports).await?;
        let at = elected(&mut reports).await?;
        transfers.push(at - began);
        gaps.push(at - stopped);
    }
    print("until the next one leads", ("handover", &mut plain), ("transfer", &mut transfers));
    print("until the answer", ("handover", &mut plain), ("transfer", &mut answers));
    print("nobody leads", ("handover", &mut plain_gap), ("transfer", &mut gaps));
    candidates.shutdown().await;
    operator.close().await?;
    Ok(())
}

/// A candidate that resigns as soon as it is asked to, by an operator or by the benchmark.
async fn take_part(
    session: Session,
    report: mpsc::UnboundedSender<Report>,
    mut asked: watch::Receiver<usize>,
) -> Result<()> {
    let mut candidate = session.election(NAME).join();
    loop {
        let leadership = candidate.elected().await?;
        asked.mark_unchanged();
        report.send(Report::Elected(Instant::now()))?;
        tokio::select! {
            () = leadership.asked_to_resign() => {}
            _ = asked.changed() => {}
        }
        report.send(Report::Resigns(Instant::now()))?;
        leadership.resign().await?;
    }
}

async fn elected(reports: &mut mpsc::UnboundedReceiver<Report>) -> Result<Instant> {
    match reports.recv().await {
        Some(Report::Elected(at)) => Ok(at),
        other => anyhow::bail!("nobody was elected: {other:?}"),
    }
}

async fn resigns(reports: &mut mpsc::UnboundedReceiver<Report>) -> Result<Instant> {
    match reports.recv().await {
        Some(Report::Resigns(at)) => Ok(at),
        other => anyhow::bail!("nobody resigned: {other:?}"),
    }
}

/// Waits until all are in line again, and then a moment.
async fn in_line(election: &incumbent::Election, all: usize) -> Result<()> {
    while election.candidates().await?.len() < all {
        sleep(Duration::from_millis(1)).await;
    }
    sleep(REST).await;
    Ok(())
}

async fn session(etcd: &Etcd, number: usize) -> Result<Session> {
    let identity = format!("candidate-{number}");
    Ok(Session::connect(&etcd.url(), Options { identity, ..Options::default() }).await?)
}

fn print(what: &str, reference: (&str, &mut [Duration]), measured: (&str, &mut [Duration])) {
    reference.1.sort_unstable();
    measured.1.sort_unstable();
    let at = |times: &[Duration], percent: usize| {
        let index = (times.len() * percent / 100).min(times.len() - 1);
        times[index].as_secs_f64() * 1_000.0
    };
    println!("  {what}");
    for percent in [50, 99] {
        let (reference_ms, ms) = (at(reference.1, percent), at(measured.1, percent));
        println!(
            "    p{percent}: {} {reference_ms:7.2} ms, {} {ms:7.2} ms, ratio {:5.2}",
            reference.0,
            measured.0,
            ms / reference_ms
        );
    }
}
