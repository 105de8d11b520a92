//! What etcd itself says meanwhile: how many candidates are in line, and what it was asked.

use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::{Client, GetOptions};
use incumbent_tests::etcd::Etcd;
use tokio::time::sleep;

use crate::requests::Requests;

/// How often the rest is looked at.
const WINDOW: Duration = Duration::from_millis(300);
/// In one window. Candidates that wait check their places now and then.
const AT_REST: f64 = 200.0;

pub struct Store<'a> {
    etcd: &'a Etcd,
    client: Client,
    /// How often we have asked, which is no work of a peer.
    asked_by_us: f64,
}

impl<'a> Store<'a> {
    pub async fn connect(etcd: &'a Etcd) -> Result<Self> {
        let client = Client::connect([etcd.address().to_string()], None).await?;
        Ok(Self { etcd, client, asked_by_us: 0.0 })
    }

    /// Waits until there are so many candidates in the elections that begin with this name.
    pub async fn in_line(&mut self, name: &str, count: usize) -> Result<()> {
        self.asked_by_us += in_line(&mut self.client, name, count).await?;
        Ok(())
    }

    /// Waits until hardly anything is asked of etcd.
    pub async fn at_rest(&self) {
        let mut before = self.requests().total();
        loop {
            sleep(WINDOW).await;
            let now = self.requests().total();
            if now - before < AT_REST {
                return;
            }
            before = now;
        }
    }

    /// Everything that the peers have asked so far.
    pub fn requests(&self) -> Requests {
        let mut requests = Requests::read(&[self.etcd.metrics()]);
        *requests.methods.entry("Range".into()).or_default() -= self.asked_by_us;
        requests
    }

    /// How much is in use of etcd's data file, in bytes.
    pub fn data(&self) -> Result<f64> {
        let metrics = self.etcd.metrics();
        let name = "etcd_mvcc_db_total_size_in_use_in_bytes ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.context("etcd tells the size of its data")?.parse()?)
    }
}

/// Waits until there are so many candidates in the elections that begin with this name. Returns how often
/// it has asked.
pub async fn in_line(client: &mut Client, name: &str, count: usize) -> Result<f64> {
    let options = GetOptions::new().with_prefix().with_count_only();
    let mut asked = 0.0;
    loop {
        asked += 1.0;
        let found = client.get(name, Some(options.clone())).await?.count();
        if found >= count as i64 {
            return Ok(asked);
        }
        // A thousand elections take long, and should be held up by nobody.
        match count {
            0..=10 => {}
            11..=10_000 => sleep(Duration::from_millis(50)).await,
            _ => sleep(Duration::from_millis(500)).await,
        }
    }
}
