//! Campaigns, and works while it leads. Start it twice, and stop the first.
//!
//! ```text
//! INCUMBENT_STORE=local cargo run --example leader -- my-service worker-1
//! ```
//!
//! `INCUMBENT_STORE` names the store; the default is `etcd://127.0.0.1:2379`.

use std::time::Duration;

use incumbent::{Fence, Options, Session};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "my-service".into());
    let identity = arguments.next().unwrap_or_default();
    let store = std::env::var("INCUMBENT_STORE");
    let store = store.unwrap_or_else(|_| "etcd://127.0.0.1:2379".into());

    let session = Session::connect(&store, Options { identity, ..Options::default() }).await?;
    let election = session.election(&name);
    println!("waiting to lead {name}");
    let leadership = election.campaign().await?;
    println!("leading {name} in epoch {}", leadership.epoch());

    tokio::select! {
        // The work's future is dropped right here: it has stopped.
        reason = leadership.lost() => println!("demoted: {reason}"),
        done = work(&name, leadership.fence()) => {
            println!("the work ended: {done:?}");
            leadership.resign().await?;
        }
        _ = tokio::signal::ctrl_c() => {
            println!("resigning");
            leadership.resign().await?;
        }
    }
    session.close().await?;
    Ok(())
}

/// Counts, in a key that only the leader of this very term can write.
async fn work(name: &str, fence: Fence) -> Result<(), incumbent::WriteError> {
    for step in 1_u64.. {
        let line = format!("step {step} of epoch {}", fence.epoch());
        fence.put(format!("{name}-progress"), line.as_str()).await?;
        println!("{line}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
