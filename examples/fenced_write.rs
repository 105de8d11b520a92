//! A paused leader's late write is refused: two leaders of one election, the
//! first of which sleeps through its lease, as a stopped process would.
//!
//! ```text
//! cargo run --example fenced_write
//! ```
//!
//! The store is at `INCUMBENT_STORE`, or `etcd://127.0.0.1:2379`.

use std::error::Error;
use std::time::Duration;

use incumbent::{Options, Session, WriteError};

const NAME: &str = "fenced-write-example";
const RESULT: &str = "fenced-write-example-result";

fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::var("INCUMBENT_STORE");
    let store = store.unwrap_or_else(|_| "etcd://127.0.0.1:2379".into());
    let other = store.clone();

    // A runtime of one thread, which a pause stops as a whole: the keep-alives, the
    // watches, and the work.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (session, leadership) = runtime.block_on(async {
        let session = Session::connect(&store, options("sleeper")).await?;
        let leadership = session.election(NAME).campaign().await?;
        println!("sleeper leads in epoch {}", leadership.epoch());
        leadership.fence().put(RESULT, "by the sleeper").await?;
        println!("sleeper wrote the result, and falls asleep");
        Ok::<_, Box<dyn Error>>((session, leadership))
    })?;
    let epoch = leadership.epoch();

    // Asleep: nothing runs on the sleeper's runtime until the successor has led.
    std::thread::spawn(move || succeed(&other, epoch).map_err(|error| error.to_string()))
        .join()
        .map_err(|_| "the successor failed")??;

    println!("sleeper wakes up: is_valid() is {}", leadership.is_valid());
    runtime.block_on(async {
        // Whoever does not ask is stopped by the fence.
        match leadership.fence().put(RESULT, "by the sleeper, too late").await {
            Err(WriteError::Stale) => println!("sleeper's late write was refused: stale"),
            outcome => return Err(format!("the late write was not refused: {outcome:?}").into()),
        }
        println!("sleeper was demoted: {}", leadership.lost().await);
        drop(leadership);
        session.close().await?;
        Ok(())
    })
}

/// Leads after the sleeper, writes, and resigns.
fn succeed(store: &str, before: i64) -> Result<(), Box<dyn Error>> {
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

fn options(identity: &str) -> Options {
    Options { identity: identity.into(), ttl: Duration::from_secs(2), ..Options::default() }
}
