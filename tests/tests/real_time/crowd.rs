//! Many candidates of one election, of which some go away in the middle of what they ask,
//! and processes that are killed: etcd bears it, and the queue goes on.

use std::process::Command;
use std::time::{Duration, Instant};

use incumbent::{Leadership, Options, Session};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::program::Running;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a handover may take: one after a killed leader takes a lease time.
const HANDOVER: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(20);
/// Of so many candidates, one is in a process that is killed.
const KILLED: usize = 20;
const STORE: &str = "INCUMBENT_CROWD_STORE";
const CANDIDATES: &str = "INCUMBENT_CROWD_CANDIDATES";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_outlives_candidates_that_go_away() {
    etcd_outlives(300, 12).await;
}

mod long {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: `just test-all` runs it"]
    async fn etcd_outlives_candidates_that_go_away() {
        super::etcd_outlives(1_000, 60).await;
    }
}

async fn etcd_outlives(candidates: usize, handovers: usize) {
    let etcd = Etcd::start(Version::V3_5);
    let (elected, mut leaders) = channel(1);
    let begin = |number| tokio::spawn(campaign(etcd.url(), number, elected.clone()));
    let processes = (candidates / KILLED).clamp(1, 10);
    let inside = candidates.saturating_sub(candidates / KILLED).max(1);
    let mut crowd: Vec<JoinHandle<()>> = (0..inside).map(begin).collect();
    let in_each = (candidates / KILLED / processes).max(1);
    let mut killed: Vec<_> = (0..processes).map(|_| process(&etcd, in_each)).collect();
    let since = Instant::now();
    for handover in 0..handovers {
        let (session, leader): (Session, Leadership) = tokio::select! {
            next = leaders.recv() => next.expect("there are candidates"),
            () = sleep(HANDOVER) => panic!("nobody leads: {}\n{}", first(&etcd), tail(&etcd)),
            () = panics(&etcd) => panic!("etcd is dead: {}", tail(&etcd)),
        };
        // Some are gone while they ask, and others come.
        for at in 0..3 {
            let place = (handover * 31 + at * 7) % crowd.len();
            crowd[place].abort();
            crowd[place] = begin(inside + handover * 3 + at);
        }
        if handover % 4 == 3 {
            let place = handover / 4 % killed.len();
            killed[place] = process(&etcd, in_each);
        }
        match handover % 3 {
            0 => drop(leader),
            _ => leader.resign().await.expect("resigns"),
        }
        if handover % 2 == 0 {
            session.close().await.expect("closes");
        }
    }
    println!("{handovers} handovers among {candidates} in {:.1?}", since.elapsed());
    for one in crowd {
        one.abort();
    }
    drop(killed);
    etcd.etcdctl(&["put", "alive", "yes"]);
    assert!(!etcd.log().contains("panic"), "{}", tail(&etcd));
}

/// A process of such candidates, which is run by the test above, to be killed.
#[tokio::test]
async fn candidates_to_be_killed() {
    let (Ok(store), Ok(candidates)) = (std::env::var(STORE), std::env::var(CANDIDATES)) else {
        return;
    };
    let (elected, mut leaders) = channel(1);
    for number in 0..candidates.parse().expect("how many") {
        tokio::spawn(campaign(store.clone(), number, elected.clone()));
    }
    while let Some((_session, leader)) = leaders.recv().await {
        let _ = leader.resign().await;
    }
}

/// Leads again and again. Some give their campaigns up and begin them anew, as callers do that
/// have something else to look after.
async fn campaign(store: String, number: usize, elected: Sender<(Session, Leadership)>) {
    for round in 0.. {
        let options = Options { ttl: TTL, dial_timeout: HANDOVER, ..Options::default() };
        let gives_up = match number % 16 {
            0 => Duration::from_millis(100 + (number * 37 + round * 1_000) as u64 % 20_000),
            _ => HANDOVER * 60,
        };
        if let Ok(session) = Session::connect(&store, options).await {
            let election = session.election("crowd");
            let campaign = timeout(gives_up, election.campaign());
            if let Ok(Ok(leader)) = campaign.await {
                let _ = elected.send((session, leader)).await;
            }
        }
    }
}

/// A process of such candidates, which is killed (SIGKILL) when it is dropped.
fn process(etcd: &Etcd, candidates: usize) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command
        .args(["--exact", "crowd::candidates_to_be_killed", "--nocapture"])
        .env(STORE, etcd.url())
        .env(CANDIDATES, candidates.to_string());
    Running::start(command)
}

/// Ends where etcd does.
async fn panics(etcd: &Etcd) {
    while !etcd.log().contains("panic") {
        sleep(Duration::from_millis(200)).await;
    }
}

/// The first candidate in line, and how long its lease has left.
fn first(etcd: &Etcd) -> String {
    let oldest =
        ["get", "--prefix", "crowd/", "--sort-by", "CREATE", "--limit", "1", "--keys-only"];
    let key = etcd.etcdctl(&oldest);
    let lease = key.trim().rsplit('/').next().unwrap_or_default().to_owned();
    format!("{} {}", key.trim(), etcd.etcdctl(&["lease", "timetolive", &lease]))
}

/// What etcd said last.
fn tail(etcd: &Etcd) -> String {
    let log = etcd.log();
    let lines: Vec<_> = log.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
