//! Handovers of one election: between two processes, and in a queue of many sessions.

use std::mem::swap;
use std::time::Duration;

use anyhow::Result;
use etcd_client::Client;
use incumbent_tests::cluster::Cluster;
use incumbent_tests::etcd::Etcd;
use incumbent_tests::floor::Floor;
use tokio::time::sleep;

use crate::peers::{LONG, Peer, Side};
use crate::requests::Work;
use crate::rounds::{Bench, OnEtcd};
use crate::store::{Store, in_line};

/// How long a successor has been in line when its predecessor resigns.
pub const SETTLED: Duration = Duration::from_millis(300);
const FRESH: Duration = Duration::from_millis(20);
/// In a queue, between two handovers.
const BREATH: Duration = Duration::from_millis(10);
/// In so many blocks, the peers take turns.
const BLOCKS: usize = 4;

/// Between two processes: quiet, fresh, and without a rest.
pub async fn between_two(
    bench: &Bench<'_>,
    etcd: &Etcd,
    store: &mut Store<'_>,
    measured: &mut OnEtcd,
) -> Result<()> {
    let mut floor = Floor::connect(etcd).await?;
    let mut pairs = Vec::new();
    for side in Side::ALL {
        pairs.push(Pair::start(bench, side, "handover")?);
    }
    for _ in 0..bench.extent.handovers {
        floor.prepare().await?;
        for pair in &mut pairs {
            pair.join(store).await?;
        }
        sleep(SETTLED).await;
        measured.floor.push(floor.hand_over().await?.iter().sum());
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
    let rounds = bench.extent.handovers.div_ceil(BLOCKS);
    for _ in 0..BLOCKS {
        for pair in &mut pairs {
            let before = store.requests();
            for _ in 0..rounds {
                pair.join(store).await?;
                measured.of(pair.side).churn.push(pair.hand_over()?);
            }
            store.at_rest().await;
            measured.of(pair.side).count(Work::Pair, store, &before, rounds as f64);
        }
    }
    Ok(())
}

/// Quiet ones on several members, a majority of which has to agree to each write and each read. This
/// member is the first of the peers' URL.
pub async fn on_a_cluster(
    bench: &Bench<'_>,
    cluster: &Cluster,
    first: usize,
    measured: &mut OnEtcd,
) -> Result<()> {
    let mut client = Client::connect([cluster.address(first).to_string()], None).await?;
    let mut pairs = Vec::new();
    for side in Side::ALL {
        pairs.push(Pair::start(bench, side, &format!("handover-{first}"))?);
    }
    for _ in 0..bench.extent.handovers.div_ceil(cluster.members()) {
        for pair in &mut pairs {
            pair.successor.campaign(&pair.name, 1)?;
            in_line(&mut client, &pair.name, 2).await?;
        }
        sleep(SETTLED).await;
        for pair in &mut pairs {
            measured.of(pair.side).on_three.push(pair.hand_over()?);
        }
        pairs.reverse();
    }
    Ok(())
}

/// From one session to the next, in a queue of many.
pub async fn in_a_queue(
    bench: &Bench<'_>,
    store: &mut Store<'_>,
    measured: &mut OnEtcd,
) -> Result<()> {
    let sessions = bench.extent.sessions;
    let rounds = bench.extent.handovers.div_ceil(BLOCKS).min(sessions / BLOCKS - 1);
    let mut peers = Vec::new();
    for side in Side::ALL {
        let mut peer = bench.start(side, LONG)?;
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
            measured.of(*side).count(Work::Queue, store, &before, rounds as f64);
        }
    }
    Ok(())
}

/// Two processes, between which an election goes to and fro.
struct Pair {
    side: Side,
    name: String,
    leader: Peer,
    successor: Peer,
}

impl Pair {
    fn start(bench: &Bench<'_>, side: Side, name: &str) -> Result<Self> {
        let name = format!("{name}-{side:?}");
        let mut leader = bench.start(side, LONG)?;
        let began = leader.campaign(&name, 1)?;
        leader.elected(1, began)?;
        Ok(Self { side, name, leader, successor: bench.start(side, LONG)? })
    }

    async fn join(&mut self, store: &mut Store<'_>) -> Result<()> {
        self.successor.campaign(&self.name, 1)?;
        store.in_line(&self.name, 2).await
    }

    fn hand_over(&mut self) -> Result<Duration> {
        let began = self.leader.resign()?;
        let took = self.successor.elected(1, began)?;
        swap(&mut self.leader, &mut self.successor);
        Ok(took.into_iter().sum())
    }
}
