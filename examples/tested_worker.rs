//! A worker that publishes a report while it leads, and its tests. They take the leadership
//! away at different lines of the worker, and check what it does.
//!
//! ```text
//! cargo run --example tested_worker --features testing
//! cargo test --example tested_worker --features testing
//! ```
//!
//! `INCUMBENT_STORE` names the store; the default is `memory:`.

use incumbent::{Election, Options, Reason, Session, WriteError};

/// How the publication ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Published,
    Stopped(Reason),
    Refused,
}

/// Leads, and writes one page after the other through the fence of its term.
async fn publish(
    election: &Election,
    mut page: impl AsyncFnMut(u32) -> String,
) -> anyhow::Result<Outcome> {
    let leadership = election.campaign().await?;
    let fence = leadership.fence();
    let pages = async {
        for number in 1..=3 {
            let text = page(number).await;
            fence.put(format!("report/{number}"), text).await?;
        }
        Ok(())
    };
    let published = tokio::select! {
        reason = leadership.lost() => return Ok(Outcome::Stopped(reason)),
        published = pages => published,
    };
    match published {
        Ok(()) => leadership.resign().await?,
        Err(WriteError::Stale) => return Ok(Outcome::Refused),
        Err(error) => return Err(error.into()),
    }
    Ok(Outcome::Published)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = std::env::var("INCUMBENT_STORE").unwrap_or_else(|_| "memory:".into());
    let session = Session::connect(&store, Options::default()).await?;
    let page = async |number| {
        println!("writing page {number}");
        format!("page {number}")
    };
    println!("{:?}", publish(&session.election("publisher"), page).await?);
    session.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use incumbent::testing::World;

    use super::*;

    type Tested = anyhow::Result<()>;

    const LEASE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_leader_publishes_the_report() -> Tested {
        let world = World::new();
        let worker = world.process("worker").await?;

        let outcome = publish(&worker.session().election("publisher"), text).await?;

        assert_eq!(outcome, Outcome::Published);
        assert_eq!(world.get("report/3").await, Some(b"page 3".into()));
        assert_eq!(world.leader("publisher").await, None);
        Ok(())
    }

    #[tokio::test]
    async fn a_deposed_leader_stops_in_the_middle_of_a_page() -> Tested {
        let world = World::new();
        let worker = world.process("worker").await?;
        let page = async |number| {
            if number == 2 {
                world.depose("publisher").await;
                // Whatever a page takes: it is dropped right here.
                pending().await
            }
            text(number).await
        };

        let outcome = publish(&worker.session().election("publisher"), page).await?;

        assert_eq!(outcome, Outcome::Stopped(Reason::Deposed));
        assert_eq!(world.get("report/2").await, None);
        Ok(())
    }

    #[tokio::test]
    async fn a_leader_that_sleeps_too_long_is_refused() -> Tested {
        let world = World::new();
        let worker = world.process("worker").await?;
        let rival = world.process("rival").await?;
        let page = async |number| {
            if number == 2 {
                worker.pause().await;
                world.pass(2 * LEASE).await;
                // Nobody woke the worker: it believes, if it believes a flag.
                let successor = rival.session().election("publisher").campaign().await.unwrap();
                successor.fence().put("report/2", "by the rival").await.unwrap();
            }
            text(number).await
        };

        let outcome = publish(&worker.session().election("publisher"), page).await?;

        assert_eq!(outcome, Outcome::Refused);
        assert_eq!(world.get("report/2").await, Some(b"by the rival".into()));
        Ok(())
    }

    #[tokio::test]
    async fn a_page_that_arrives_late_is_refused_by_the_store() -> Tested {
        let world = World::new();
        let worker = world.process("worker").await?;
        let rival = world.process("rival").await?;
        worker.delay_writes().await;
        let election = worker.session().election("publisher");

        let (outcome, rivals) = tokio::join!(publish(&election, text), async {
            // The first page is on its way: its leader leads no more when it arrives.
            world.settle().await;
            world.depose("publisher").await;
            let successor = rival.session().election("publisher").campaign().await?;
            successor.fence().put("report/1", "by the rival").await?;
            worker.deliver_writes().await;
            anyhow::Ok(successor)
        });

        assert_eq!(outcome?, Outcome::Stopped(Reason::Deposed));
        assert!(rivals?.is_valid());
        assert_eq!(world.get("report/1").await, Some(b"by the rival".into()));
        Ok(())
    }

    #[tokio::test]
    async fn without_the_store_it_goes_on_until_its_deadline() -> Tested {
        let world = World::new();
        let worker = world.process("worker").await?;
        let mut written = Vec::new();
        let page = async |number| {
            if number == 2 {
                worker.cut().await;
                world.pass(LEASE / 2).await;
            }
            written.push(number);
            text(number).await
        };

        let election = worker.session().election("publisher");
        let (outcome, ()) = tokio::join!(publish(&election, page), world.pass(2 * LEASE));

        assert_eq!(outcome?, Outcome::Stopped(Reason::Expired));
        assert_eq!(written, [1, 2]);
        Ok(())
    }

    async fn text(number: u32) -> String {
        format!("page {number}")
    }
}
