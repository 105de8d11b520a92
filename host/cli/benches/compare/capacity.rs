//! What an etcd of three members carries: how many requests a second, how many handovers follow
//! from that, and how many it carries indeed.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use incumbent_tests::cluster::Cluster;
use incumbent_tests::etcd::{SYNCED, Version};

use crate::peers::{Peer, Programs, Side};
use crate::rates::{Rates, processor};
use crate::requests::Requests;

pub const VERSION: Version = Version::V3_5;
/// The part of what etcd carries that is planned with. The rest is for what comes at once.
pub const PLANNED: f64 = 0.5;

const MEMBERS: usize = 3;
/// Processes that hand elections over, and how many elections each has: few, because those of one
/// process share requests.
pub const CARRIERS: usize = 16;
pub const ELECTIONS_EACH: usize = 4;
pub const TIME: Duration = Duration::from_secs(6);
const TTL: Duration = Duration::from_secs(10);

/// What was measured of the cluster.
pub struct Capacity {
    pub rates: Rates,
    /// Handovers a second at which nothing of it is left, and what one costs in seconds of the
    /// members' processors, by the formula.
    pub predicted: f64,
    pub processor: f64,
    /// As many as planned, and as many as it takes.
    pub points: [Point; 2],
}

/// Handovers that were offered, and what became of them.
pub struct Point {
    /// How many a second.
    pub carried: f64,
    pub times: Vec<Duration>,
    /// What it was asked for each.
    pub asked: Requests,
    /// How long the members computed for each, in seconds.
    pub processor: f64,
}

/// Measures a new cluster, with what etcd is asked for one handover.
pub async fn measure(programs: &Programs, handover: &Requests) -> Result<Capacity> {
    let cluster = Cluster::start_with(VERSION, MEMBERS, SYNCED).await;
    let rates = Rates::measure(&cluster).await?;
    let (predicted, processor) = (1.0 / rates.load(handover), rates.processor(handover));
    let mut carriers = Vec::new();
    for first in 0..CARRIERS {
        let url = cluster.url_from(first % MEMBERS);
        carriers.push(programs.start(Side::Ours, &url, TTL)?);
    }
    let points = [
        carry(&cluster, &mut carriers, predicted * PLANNED)?,
        carry(&cluster, &mut carriers, predicted * 4.0)?,
    ];
    Ok(Capacity { rates, predicted, processor, points })
}

fn carry(cluster: &Cluster, carriers: &mut [Peer], offered: f64) -> Result<Point> {
    let (before, computed) = (requests(cluster), processor(cluster));
    let period = Duration::from_secs_f64((CARRIERS * ELECTIONS_EACH) as f64 / offered);
    // So many whole periods.
    let time = period * TIME.div_duration_f64(period).round().max(1.0) as u32;
    let times = thread::scope(|scope| {
        let carrying: Vec<_> = carriers
            .iter_mut()
            .enumerate()
            .map(|(number, carrier)| {
                let name = format!("carried-{offered:.0}-{number}");
                scope.spawn(move || carrier.carry((&name, ELECTIONS_EACH), period, time))
            })
            .collect();
        let times = carrying.into_iter().map(|it| it.join().map_err(|_| anyhow!("a panic"))?);
        times.collect::<Result<Vec<_>>>()
    })?
    .concat();
    let count = times.len() as f64;
    Ok(Point {
        carried: count / time.as_secs_f64(),
        asked: requests(cluster).since(&before).each(count),
        processor: (processor(cluster) - computed) / count,
        times,
    })
}

fn requests(cluster: &Cluster) -> Requests {
    let metrics: Vec<_> = (0..MEMBERS).map(|member| cluster.metrics(member)).collect();
    Requests::read(&metrics)
}
