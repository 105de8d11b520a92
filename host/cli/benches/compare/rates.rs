//! How many requests a second an etcd of three members answers, one kind at a time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::Client;
use incumbent_tests::cluster::Cluster;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::capacity::{CARRIERS, ELECTIONS_EACH};
use crate::requests::Requests;

/// How long each kind is asked for.
const TIME: Duration = Duration::from_secs(2);
/// Until then, all callers are ready, and all members know of what they have made.
const READY: Duration = Duration::from_millis(500);

/// How many of one kind a second, and what one costs.
pub struct Rate {
    pub each_second: f64,
    /// Of all members, in seconds.
    pub processor: f64,
}

/// Of each kind.
pub struct Rates {
    pub writes: Rate,
    pub reads: Rate,
    pub watches: Rate,
    pub keep_alives: Rate,
}

impl Rates {
    /// Asks for one kind after the other.
    pub async fn measure(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            writes: rate(cluster, Kind::Write).await?,
            reads: rate(cluster, Kind::Read).await?,
            watches: rate(cluster, Kind::Watch).await?,
            keep_alives: rate(cluster, Kind::KeepAlive).await?,
        })
    }

    /// Which part of what the cluster answers in a second these requests are.
    pub fn load(&self, requests: &Requests) -> f64 {
        self.sum(requests, |rate| 1.0 / rate.each_second)
    }

    /// How long the members compute for these requests, in seconds.
    pub fn processor(&self, requests: &Requests) -> f64 {
        self.sum(requests, |rate| rate.processor)
    }

    fn sum(&self, requests: &Requests, cost: impl Fn(&Rate) -> f64) -> f64 {
        requests.writes * cost(&self.writes)
            + requests.reads() * cost(&self.reads)
            + requests.watches() * cost(&self.watches)
            + requests.keep_alives() * cost(&self.keep_alives)
    }
}

/// How long all members have computed so far, in seconds.
pub fn processor(cluster: &Cluster) -> f64 {
    let seconds = |member| {
        let metrics = cluster.metrics(member);
        let line = metrics.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        line.and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or_default()
    };
    (0..cluster.members()).map(seconds).sum()
}

#[derive(Clone, Copy)]
enum Kind {
    Write,
    /// A linearizable one, as all of ours are.
    Read,
    Watch,
    KeepAlive,
}

/// With as many connections and callers as the check of the plan has.
async fn rate(cluster: &Cluster, kind: Kind) -> Result<Rate> {
    let members: Vec<_> =
        (0..cluster.members()).map(|at| cluster.address(at).to_string()).collect();
    let mut callers = JoinSet::new();
    let since = Instant::now() + READY;
    for connection in 0..CARRIERS {
        let client = Client::connect(&members, None).await?;
        for caller in 0..ELECTIONS_EACH {
            let key = format!("rate-{connection}-{caller}");
            callers.spawn(calls(client.clone(), kind, key, since));
        }
    }
    sleep_until(since).await;
    let before = processor(cluster);
    let counts = callers.join_all().await.into_iter().collect::<Result<Vec<usize>>>()?;
    let count = counts.into_iter().sum::<usize>() as f64;
    Ok(Rate {
        each_second: count / since.elapsed().as_secs_f64(),
        processor: (processor(cluster) - before) / count,
    })
}

/// Asks again and again, and tells how often.
async fn calls(mut client: Client, kind: Kind, key: String, since: Instant) -> Result<usize> {
    let until = since + TIME;
    let mut count = 0;
    match kind {
        Kind::Write => {
            sleep_until(since).await;
            while Instant::now() < until {
                client.put(key.clone(), "as long as the value of a candidate is", None).await?;
                count += 1;
            }
        }
        Kind::Read => {
            sleep_until(since).await;
            while Instant::now() < until {
                client.get(key.clone(), None).await?;
                count += 1;
            }
        }
        Kind::Watch => {
            let mut watches = client.watch(key.clone(), None).await?;
            let first = watches.message().await?.context("the watch is open")?;
            let mut id = first.watch_id();
            sleep_until(since).await;
            while Instant::now() < until {
                watches.cancel(id).await?;
                watches.message().await?.context("it is closed")?;
                watches.watch(key.clone(), None).await?;
                id = watches.message().await?.context("it is open again")?.watch_id();
                count += 2;
            }
        }
        Kind::KeepAlive => {
            let lease = client.lease_grant(60, None).await?.id();
            sleep_until(since).await;
            let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
            while Instant::now() < until {
                keeper.keep_alive().await?;
                answers.message().await?.context("an answer")?;
                count += 1;
            }
        }
    }
    Ok(count)
}
