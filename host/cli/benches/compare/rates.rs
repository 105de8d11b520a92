//! How many requests a second an etcd of three members answers, one kind at a time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::requests::Requests;

/// How long each kind is asked for.
const TIME: Duration = Duration::from_secs(2);
/// Until then, all callers are ready, and all members know of what they have made.
const READY: Duration = Duration::from_millis(500);
/// As many connections as tasks would cost etcd more than the requests.
const CONNECTIONS: usize = 8;
const CALLERS_EACH: usize = 16;

/// How many of each kind a second.
pub struct Rates {
    pub writes: f64,
    pub reads: f64,
    pub watches: f64,
    pub keep_alives: f64,
}

impl Rates {
    /// Asks for one kind after the other.
    pub async fn measure(members: &[String]) -> Result<Self> {
        Ok(Self {
            writes: rate(members, Kind::Write).await?,
            reads: rate(members, Kind::Read).await?,
            watches: rate(members, Kind::Watch).await?,
            keep_alives: rate(members, Kind::KeepAlive).await?,
        })
    }

    /// Which part of a second of etcd's time so much takes.
    pub fn load(&self, requests: &Requests) -> f64 {
        requests.writes / self.writes
            + requests.reads() / self.reads
            + requests.watches() / self.watches
            + requests.keep_alives() / self.keep_alives
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Write,
    /// A linearizable one, as all of ours are.
    Read,
    Watch,
    KeepAlive,
}

async fn rate(members: &[String], kind: Kind) -> Result<f64> {
    let mut callers = JoinSet::new();
    let since = Instant::now() + READY;
    for connection in 0..CONNECTIONS {
        let client = Client::connect(members, None).await?;
        for caller in 0..CALLERS_EACH {
            let key = format!("rate-{connection}-{caller}");
            callers.spawn(calls(client.clone(), kind, key, since));
        }
    }
    let counts = callers.join_all().await.into_iter().collect::<Result<Vec<usize>>>()?;
    Ok(counts.into_iter().sum::<usize>() as f64 / since.elapsed().as_secs_f64())
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
