//! Shows that a late write is refused. The first of two leaders sleeps until its lease is
//! over, as a stopped process would, and writes after the second one has led.
//!
//! ```text
//! INCUMBENT_STORE=local cargo run --example fenced_write
//! ```
//!
//! `INCUMBENT_STORE` names the store; the default is `etcd://127.0.0.1:2379`.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use incumbent::types::{Guard, Guarded, Mutation, Operation, Put, Response};
use incumbent::{Epoch, Leadership, Options, Session, Store, WriteError};

const NAME: &str = "fenced-write-example";
const RESULT: &str = "fenced-write-example-result";

fn main() -> Result<()> {
    let store = std::env::var("INCUMBENT_STORE");
    let store = store.unwrap_or_else(|_| "etcd://127.0.0.1:2379".into());
    let (address, other) = (store.clone(), store.clone());

    // A runtime of one thread, which a pause stops as a whole: the keep-alives, the
    // watches, and the work.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (session, leadership) = runtime.block_on(async {
        let session = Session::connect(&store, options("sleeper")).await?;
        let leadership = session.election(NAME).campaign().await?;
        println!("sleeper leads in epoch {}", leadership.epoch());
        leadership.fence().put(RESULT, "by the sleeper").await?;
        println!("sleeper wrote the result, and falls asleep");
        anyhow::Ok((session, leadership))
    })?;
    let epoch = leadership.epoch();

    // Asleep: nothing runs on the sleeper's runtime until the successor has led.
    let successor = std::thread::spawn(move || succeed(&other, epoch));
    successor.join().map_err(|_| anyhow!("the successor panicked"))??;

    println!("sleeper wakes up: is_valid() is {}", leadership.is_valid());
    runtime.block_on(async {
        let late = leadership.fence().put(RESULT, "by the sleeper, too late").await;
        if late != Err(WriteError::Stale) {
            bail!("the late write was not refused: {late:?}");
        }
        println!("the fence refuses the sleeper's late write: stale");
        // A write that was on its way when the sleeper fell asleep asks no clock.
        let late = send_late(&address, &leadership).await?;
        if late != Response::Stale {
            bail!("the late write was not refused: {late:?}");
        }
        println!("the store refuses it as well, by its guard: stale");
        println!("sleeper was demoted: {}", leadership.lost().await);
        drop(leadership);
        session.close().await?;
        Ok(())
    })
}

/// Leads after the sleeper, writes, and resigns.
fn succeed(store: &str, before: Epoch) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let session = Session::connect(store, options("successor")).await?;
        let leadership = session.election(NAME).campaign().await?;
        println!("successor leads in epoch {}, above {before}", leadership.epoch());
        leadership.fence().put(RESULT, "by the successor").await?;
        println!("successor wrote the result");
        leadership.resign().await?;
        session.close().await?;
        Ok(())
    })
}

/// What a fence sends, without the fence: a write under the term's guard.
async fn send_late(store: &str, leadership: &Leadership) -> Result<Response> {
    let store = incumbent::connect(&store.parse()?, &Options::default()).await?;
    let put = Put { key: RESULT.into(), value: b"by the sleeper, much too late".to_vec() };
    let guard = Guard {
        key: leadership.key().to_vec(),
        epoch: leadership.epoch().into(),
        lease: Some(leadership.lease().into()),
    };
    let mutations = vec![Mutation::Put(put)];
    let write = Guarded { guard, expect: Vec::new(), mutations };
    Ok(store.call(Operation::Guarded(write), Duration::from_secs(5)).await?)
}

fn options(identity: &str) -> Options {
    Options { identity: identity.into(), ttl: Duration::from_secs(2), ..Options::default() }
}
