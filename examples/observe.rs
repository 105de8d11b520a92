//! Prints the leader of an election, and each change. It also prints when nobody leads.
//!
//! ```text
//! INCUMBENT_STORE=local cargo run --example observe -- my-service
//! ```
//!
//! `INCUMBENT_STORE` names the store; the default is `etcd://127.0.0.1:2379`.

use futures_util::StreamExt;
use incumbent::{Options, Session};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "my-service".into());
    let store = std::env::var("INCUMBENT_STORE");
    let store = store.unwrap_or_else(|_| "etcd://127.0.0.1:2379".into());

    let session = Session::connect(&store, Options::default()).await?;
    let mut leaders = session.election(&name).observe();
    while let Some(leader) = leaders.next().await {
        match leader? {
            Some(leader) => {
                println!("{} leads in epoch {}", leader.value.escape_ascii(), leader.epoch);
            }
            None => println!("nobody leads"),
        }
    }
    Ok(())
}
