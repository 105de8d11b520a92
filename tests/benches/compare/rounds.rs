//! What is measured, in turns: first the one peer, then the other.

use std::time::Duration;

use anyhow::Result;
use incumbent_tests::etcd::{Etcd, SYNCED, Version};
use incumbent_tests::floor::Floor;
use tokio::time::sleep;

use crate::peers::{Peer, Programs, Side};
use crate::store::{self, Requests, Store};

/// Elections in one process.
pub const SERIES: [usize; 4] = [10, 100, 1_000, 10_000];
/// How long a successor has been in line when its predecessor resigns.
const SETTLED: Duration = Duration::from_millis(300);
const FRESH: Duration = Duration::from_millis(20);
/// In a queue, between two handovers.
const BREATH: Duration = Duration::from_millis(10);

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Handovers of each kind.
    pub handovers: usize,
    /// How often each number of elections is won and taken over.
    pub repeats: usize,
    /// The most elections in one process.
    pub elections: usize,
    /// Sessions in one queue.
    pub sessions: usize,
}

/// What one number of elections took, once.
pub struct Shift {
    pub count: usize,
    /// Until all were won by one process.
    pub won: Duration,
    /// Resident memory of that process then, in bytes.
    pub resident: f64,
    /// When each was led again after that process had closed.
    pub taken_over: Vec<Duration>,
}

/// What was measured of one peer.
#[derive(Default)]
pub struct Measured {
    pub shifts: Vec<Shift>,
    pub quiet: Vec<Duration>,
    pub fresh: Vec<Duration>,
    pub herd: Vec<Duration>,
    /// Resident memory for each session of a queue, in bytes.
    pub session: f64,
    /// What etcd was asked for each handover in the queue.
    pub requests: Requests,
}

/// What was measured on one etcd.
pub struct OnEtcd {
    pub version: Version,
    pub go: Measured,
    pub ours: Measured,
    /// A handover's least, with etcd-client alone.
    pub floor: Vec<Duration>,
}

impl OnEtcd {
    fn of(&mut self, side: Side) -> &mut Measured {
        match side {
            Side::Go => &mut self.go,
            Side::Ours => &mut self.ours,
        }
    }
}

/// Everything, on a new etcd of this version.
pub async fn measure(programs: &Programs, version: Version, extent: Extent) -> Result<OnEtcd> {
    let etcd = Etcd::start_with(version, SYNCED);
    let bench = Bench { programs, url: etcd.url(), extent };
    let mut store = Store::connect(&etcd).await?;
    let mut measured =
        OnEtcd { version, go: Measured::default(), ours: Measured::default(), floor: Vec::new() };
    bench.handovers(&etcd, &mut store, &mut measured).await?;
    bench.queue(&mut store, &mut measured).await?;
    for count in SERIES.into_iter().filter(|count| *count <= extent.elections) {
        for repeat in 0..extent.repeats {
            for side in Side::ALL {
                let name = format!("shift-{count}-{repeat}-{side:?}");
                let shift = bench.shift(side, &mut store, &name, count).await?;
                measured.of(side).shifts.push(shift);
            }
        }
    }
    Ok(measured)
}

struct Bench<'a> {
    programs: &'a Programs,
    url: String,
    extent: Extent,
}

impl Bench<'_> {
    fn start(&self, side: Side) -> Result<Peer> {
        self.programs.start(side, &self.url)
    }

    /// Between two processes, quiet and fresh.
    async fn handovers(
        &self,
        etcd: &Etcd,
        store: &mut Store<'_>,
        measured: &mut OnEtcd,
    ) -> Result<()> {
        let mut floor = Floor::connect(etcd).await?;
        let mut pairs = Vec::new();
        for side in Side::ALL {
            pairs.push(Pair::start(self, side)?);
        }
        for _ in 0..self.extent.handovers {
            floor.prepare().await?;
            for pair in &mut pairs {
                pair.join(store).await?;
            }
            sleep(SETTLED).await;
            measured.floor.push(floor.hand_over().await?);
            for pair in &mut pairs {
                measured.of(pair.side).quiet.push(pair.hand_over()?);
            }
            for pair in &mut pairs {
                pair.join(store).await?;
                sleep(FRESH).await;
                measured.of(pair.side).fresh.push(pair.hand_over()?);
            }
            // Nobody goes always first.
            pairs.reverse();
        }
        Ok(())
    }

    /// From one session to the next, in a queue of many.
    async fn queue(&self, store: &mut Store<'_>, measured: &mut OnEtcd) -> Result<()> {
        const BLOCKS: usize = 4;
        let sessions = self.extent.sessions;
        let rounds = self.extent.handovers.div_ceil(BLOCKS).min(sessions / BLOCKS - 1);
        let mut peers = Vec::new();
        for side in Side::ALL {
            let mut peer = self.start(side)?;
            let before = peer.resident()?;
            let name = format!("queue-{side:?}");
            let began = peer.queue(&name, sessions)?;
            peer.elected(1, began)?;
            store.in_line(&name, sessions).await?;
            store.at_rest().await;
            measured.of(side).session = (peer.resident()? - before) / sessions as f64;
            peers.push((side, peer));
        }
        for _ in 0..BLOCKS {
            for (side, peer) in &mut peers {
                let before = store.requests();
                for _ in 0..rounds {
                    let began = peer.resign()?;
                    measured.of(*side).herd.extend(peer.elected(1, began)?);
                    sleep(BREATH).await;
                }
                store.at_rest().await;
                let asked = store::each(&before, &store.requests(), rounds * BLOCKS);
                for (method, count) in asked {
                    *measured.of(*side).requests.entry(method).or_default() += count;
                }
            }
        }
        Ok(())
    }

    /// One process wins the elections and closes, and another takes over.
    async fn shift(
        &self,
        side: Side,
        store: &mut Store<'_>,
        name: &str,
        count: usize,
    ) -> Result<Shift> {
        let (mut leader, mut successor) = (self.start(side)?, self.start(side)?);
        let began = leader.campaign(name, count)?;
        let won = leader.elected(count, began)?.into_iter().max().unwrap_or_default();
        store.at_rest().await;
        let resident = leader.resident()?;
        successor.campaign(name, count)?;
        store.in_line(name, 2 * count).await?;
        store.at_rest().await;
        let began = leader.close()?;
        let taken_over = successor.elected(count, began)?;
        successor.close()?;
        Ok(Shift { count, won, resident, taken_over })
    }
}

/// Two processes, between which an election goes to and fro.
struct Pair {
    side: Side,
    name: String,
    leader: Peer,
    successor: Peer,
}

impl Pair {
    fn start(bench: &Bench<'_>, side: Side) -> Result<Self> {
        let name = format!("handover-{side:?}");
        let mut leader = bench.start(side)?;
        let began = leader.campaign(&name, 1)?;
        leader.elected(1, began)?;
        Ok(Self { side, name, leader, successor: bench.start(side)? })
    }

    async fn join(&mut self, store: &mut Store<'_>) -> Result<()> {
        self.successor.campaign(&self.name, 1)?;
        store.in_line(&self.name, 2).await
    }

    fn hand_over(&mut self) -> Result<Duration> {
        let began = self.leader.resign()?;
        let took = self.successor.elected(1, began)?;
        std::mem::swap(&mut self.leader, &mut self.successor);
        Ok(took.into_iter().sum())
    }
}
