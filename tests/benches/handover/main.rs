//! How long the next leader takes, against the floor: one delete, one watch event
//! and one linearizable read with etcd-client alone, in turns with it. And how long it takes
//! the hosts in Node.js and Python, in turns with this one. And where the time goes.
//!
//! `cargo bench -p incumbent-tests --features etcd --bench handover [-- ROUNDS]`

mod hosts;
mod trace;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use incumbent::{Election, Leadership, Options, Session};
use incumbent_tests::etcd::{Etcd, SYNCED, Version};
use incumbent_tests::floor::Floor;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::trace::Trace;

/// How long a successor has been in line when its predecessor resigns.
const IN_LINE: Duration = Duration::from_millis(300);
const FRESH: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let runtime = tokio::runtime::Runtime::new()?;
    for version in Version::ALL {
        runtime.block_on(measure(version, rounds.unwrap_or(200)))?;
    }
    // Last, because what is logged takes time.
    let trace = Trace::start()?;
    for version in Version::ALL {
        let etcd = Etcd::start_with(version, SYNCED);
        println!("etcd {version:?}");
        runtime.block_on(trace.print(&etcd, rounds.unwrap_or(200)))?;
    }
    Ok(())
}

async fn measure(version: Version, rounds: usize) -> Result<()> {
    let etcd = Etcd::start_with(version, SYNCED);
    println!("etcd {version:?}, {rounds} rounds each");
    start(&etcd, rounds.min(50)).await?;
    handover(&etcd, rounds, "quiet, 300 ms in line", IN_LINE).await?;
    handover(&etcd, rounds, "20 ms in line", FRESH).await?;
    let mut writers = load(&etcd).await;
    handover(&etcd, rounds, "1,000 writes a second", IN_LINE).await?;
    writers.shutdown().await;
    other_hosts(&etcd, rounds.min(100)).await
}

/// From nothing to a leadership, without a rival.
async fn start(etcd: &Etcd, rounds: usize) -> Result<()> {
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        let mut client = etcd.client().await;
        client.get("absent", None).await?;
        for _ in 0..3 {
            client.get("absent", None).await?;
        }
        floor.push(began.elapsed());

        let began = Instant::now();
        let session = session(etcd).await?;
        let leadership = session.election("start").campaign().await?;
        ours.push(began.elapsed());
        leadership.resign().await?;
        session.close().await?;
    }
    // The first start of a process compiles the component.
    let (first, later) = ours.split_first_mut().context("there are rounds")?;
    println!("  first start to elected in a process: {:.2} ms", milliseconds(*first));
    println!("  start to elected; floor: connect and 3 round trips");
    print(("floor", &mut floor), ("incumbent", later));
    Ok(())
}

async fn handover(etcd: &Etcd, rounds: usize, what: &str, in_line: Duration) -> Result<()> {
    let mut floor = Floor::connect(etcd).await?;
    let (mut ours, floors) = in_turns(etcd, rounds, in_line, async || {
        floor.prepare().await?;
        sleep(in_line).await;
        Ok(vec![floor.hand_over().await?.iter().sum()])
    })
    .await?;
    println!("  {what}");
    print(("floor", &mut floors.concat()), ("incumbent", &mut ours));
    Ok(())
}

async fn other_hosts(etcd: &Etcd, rounds: usize) -> Result<()> {
    println!("  one host after the other, quiet, 300 ms in line");
    let mut others = hosts::all(&etcd.url())?;
    if others.len() < 2 {
        println!("    not all of them are here: ./setup.sh node python");
    }
    let (mut ours, theirs) =
        in_turns(etcd, rounds, IN_LINE, async || others.iter_mut().map(hosts::hand_over).collect())
            .await?;
    for (at, host) in others.iter().enumerate() {
        let mut times: Vec<_> = theirs.iter().map(|round| round[at]).collect();
        print(("Rust", &mut ours), (host.name(), &mut times));
    }
    Ok(())
}

/// Hands an election over, in turns with others: how long it took here, and there.
async fn in_turns(
    etcd: &Etcd,
    rounds: usize,
    in_line: Duration,
    mut others: impl AsyncFnMut() -> Result<Vec<Duration>>,
) -> Result<(Vec<Duration>, Vec<Vec<Duration>>)> {
    let sessions = [session(etcd).await?, session(etcd).await?];
    let mut leader = sessions[0].election("handover").campaign().await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        theirs.push(others().await?);
        let successor = sessions[(round + 1) % 2].election("handover");
        let (next, [began, elected]) = hand_over(leader, &successor, in_line).await?;
        leader = next;
        ours.push(elected - began);
    }
    leader.resign().await?;
    for session in sessions {
        session.close().await?;
    }
    Ok((ours, theirs))
}

/// The leader resigns when the successor has been in line for a while. Tells when it did, and
/// when the successor was elected.
async fn hand_over(
    leader: Leadership,
    successor: &Election,
    in_line: Duration,
) -> Result<(Leadership, [Instant; 2])> {
    let campaigning = successor.clone();
    let campaign = tokio::spawn(async move {
        let leadership = campaigning.campaign().await;
        (leadership, Instant::now())
    });
    while successor.candidates().await?.len() < 2 {}
    sleep(in_line).await;
    let began = Instant::now();
    leader.resign().await?;
    let (next, elected) = campaign.await?;
    Ok((next?, [began, elected]))
}

/// Other people's writes, a thousand a second.
async fn load(etcd: &Etcd) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for writer in 0..10 {
        let mut client = etcd.client().await;
        writers.spawn(async move {
            let mut beat = tokio::time::interval(Duration::from_millis(10));
            loop {
                beat.tick().await;
                // A write that fails is one less.
                let _ = client.put(format!("load-{writer}"), "value", None).await;
            }
        });
    }
    writers
}

async fn session(etcd: &Etcd) -> Result<Session> {
    Ok(Session::connect(&etcd.url(), Options::default()).await?)
}

fn print(reference: (&str, &mut [Duration]), measured: (&str, &mut [Duration])) {
    reference.1.sort_unstable();
    measured.1.sort_unstable();
    let at = |times: &[Duration], percent: usize| {
        let index = (times.len() * percent / 100).min(times.len() - 1);
        milliseconds(times[index])
    };
    for percent in [50, 99] {
        let (least, ours) = (at(reference.1, percent), at(measured.1, percent));
        println!(
            "    p{percent}: {} {least:7.2} ms, {} {ours:7.2} ms, ratio {:5.2}",
            reference.0,
            measured.0,
            ours / least
        );
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
