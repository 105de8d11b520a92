//! One of several processes that share the work of many elections: it leads its fair part of them,
//! and no more than so many. Start it several times, and stop one.
//!
//! ```text
//! INCUMBENT_STORE=local cargo run --example shards -- 100 --at-most-lead 60
//! ```
//!
//! `INCUMBENT_STORE` names the store; the default is `etcd://127.0.0.1:2379`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use incumbent::{Leadership, Limit, Options, Session};
use tokio::time::interval;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (shards, limit) = match arguments.as_slice() {
        [shards] => (number(shards)?, Limit::fair()),
        [shards, "--at-most-lead", terms] => {
            (number(shards)?, Limit::fair().or_at_most(number(terms)?))
        }
        _ => anyhow::bail!("usage: shards SHARDS [--at-most-lead TERMS]"),
    };
    let store = std::env::var("INCUMBENT_STORE");
    let store = store.unwrap_or_else(|_| "etcd://127.0.0.1:2379".into());

    let session = Session::connect(&store, Options::default()).await?;
    session.limit(limit);
    let led = Arc::new(AtomicU32::new(0));
    for shard in 0..shards {
        let election = session.election(format!("shards/{shard}"));
        let led = Arc::clone(&led);
        tokio::spawn(async move { election.lead(|term| work(term, Led::one_more(&led))).await });
    }

    let (mut printed, mut look) = (None, interval(Duration::from_millis(100)));
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            _ = look.tick() => {}
            _ = &mut interrupted => break,
        }
        let now = led.load(Ordering::Relaxed);
        if printed.replace(now) != Some(now) {
            println!("leading {now} of {shards}");
        }
    }
    session.close().await?;
    Ok(())
}

fn number(given: &str) -> anyhow::Result<u32> {
    let number = given.parse().ok().filter(|number| *number > 0);
    number.with_context(|| format!("`{given}` has to be a whole number from 1 on, as in 100"))
}

/// The work of one shard. Here it only waits, and is dropped when the term ends.
async fn work(_term: Leadership, _led: Led) {
    std::future::pending().await
}

/// Counts one shard that is led, until it is dropped.
struct Led(Arc<AtomicU32>);

impl Led {
    fn one_more(all: &Arc<AtomicU32>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
