//! What etcd itself says meanwhile: who is in line, and what it was asked.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use etcd_client::{Client, GetOptions};
use incumbent_tests::etcd::Etcd;
use tokio::time::sleep;

/// How often the rest is looked at.
const WINDOW: Duration = Duration::from_millis(300);
/// In one window: 10,000 candidates of ours in line check their place a hundred times.
const AT_REST: f64 = 200.0;

pub struct Store<'a> {
    etcd: &'a Etcd,
    client: Client,
}

/// How many messages etcd was sent, by method.
pub type Requests = BTreeMap<String, f64>;

impl<'a> Store<'a> {
    pub async fn connect(etcd: &'a Etcd) -> Result<Self> {
        let client = Client::connect([etcd.address().to_string()], None).await?;
        Ok(Self { etcd, client })
    }

    /// Waits until there are so many candidates in the elections that begin with this name.
    pub async fn in_line(&mut self, name: &str, count: usize) -> Result<()> {
        let options = GetOptions::new().with_prefix().with_count_only();
        while self.client.get(format!("{name}-"), Some(options.clone())).await?.count()
            < count as i64
        {
            // A thousand elections take long, and should be held up by nobody.
            if count > 10 {
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Waits until hardly anything is asked of etcd.
    pub async fn at_rest(&self) {
        let mut before = self.asked();
        loop {
            sleep(WINDOW).await;
            let now = self.asked();
            if now - before < AT_REST {
                return;
            }
            before = now;
        }
    }

    fn asked(&self) -> f64 {
        self.requests().values().sum()
    }

    /// Everything so far. A stream counts with each of its messages: keep-alives, and watches
    /// that are opened and closed.
    pub fn requests(&self) -> Requests {
        let metrics = self.etcd.metrics();
        let counters = metrics.lines().filter_map(|line| {
            let (labels, count) =
                line.strip_prefix("grpc_server_msg_received_total{")?.split_once("} ")?;
            let (_, method) = labels.split_once("grpc_method=\"")?;
            let (method, _) = method.split_once('"')?;
            Some((method.to_owned(), count.parse::<f64>().ok()?))
        });
        counters.collect()
    }
}

/// What came in between, divided by so many rounds.
pub fn each(before: &Requests, after: &Requests, rounds: usize) -> Requests {
    let count = |(method, after): (&String, &f64)| {
        let before = before.get(method).unwrap_or(&0.0);
        (method.clone(), (after - before) / rounds as f64)
    };
    after.iter().map(count).filter(|(_, count)| *count > 0.0).collect()
}
