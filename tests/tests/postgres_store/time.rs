//! Leases are counted by the clocks of those who wait, and never by the database's.

use super::*;

#[tokio::test]
async fn a_database_whose_clock_is_set_ends_no_lease_and_keeps_none() {
    let mut postgres = Postgres::start();
    let (mine, theirs) = (ManualClock::default(), ManualClock::default());
    let holder = open_at(&postgres.url(), &mine, "mine").await;
    let waiter = open_at(&postgres.url(), &theirs, "theirs").await;
    campaign(&holder, "held", 1, 10 * SECOND).await;
    campaign(&holder, "left", 2, 10 * SECOND).await;
    for ahead in ["+1d", "-1d", "+0s"] {
        postgres.restart_at(ahead);
        for _ in 0..3 {
            mine.advance(Duration::from_secs(3));
            assert_eq!(renew(&holder, 1).await, Response::Renewed(10 * SECOND), "{ahead}");
            // It sees the renewal, and counts from there on.
            let (_, keys) = read(&waiter, "held").await;
            assert_eq!(keys, ["held"], "{ahead}");
            has_looked(&waiter).await;
            theirs.advance(Duration::from_secs(3));
        }
    }
    until("the lease that is not renewed is over", async || read(&waiter, "").await.1 == ["held"])
        .await;
    theirs.advance(Duration::from_secs(11));
    until("the other one as well", async || read(&waiter, "").await.1.is_empty()).await;
    assert_eq!(renew(&holder, 1).await, Response::Expired);
}

#[tokio::test]
async fn nobody_waits_for_a_lease_that_all_clocks_say_is_over() {
    let postgres = Postgres::start();
    let clock = ManualClock::default();
    {
        let gone = open_at(&postgres.url(), &clock, "mine").await;
        campaign(&gone, "left", 1, 1_000_000_000).await;
    }
    // Its own machine's clock does not go on, and nobody looks at the lease meanwhile. It is two
    // seconds old by the two clocks that count.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let newcomer = open_at(&postgres.url(), &ManualClock::default(), "theirs").await;
    until("the lease is over", async || read(&newcomer, "").await.1.is_empty()).await;
}

#[tokio::test]
async fn a_lease_of_this_machine_is_over_to_the_moment() {
    let postgres = Postgres::start();
    let clock = ManualClock::default();
    let holder = open_at(&postgres.url(), &clock, "mine").await;
    let neighbour = open_at(&postgres.url(), &clock, "mine").await;
    campaign(&holder, "held", 1, 10 * SECOND).await;
    drop(holder);
    clock.advance(Duration::from_nanos(10 * SECOND - 1));
    has_looked(&neighbour).await;
    assert_eq!(read(&neighbour, "").await.1, ["held"]);
    clock.advance(Duration::from_nanos(1));
    until("the lease is over", async || read(&neighbour, "").await.1.is_empty()).await;
}

/// The renewal is not answered after that, also while its keys are still there.
#[tokio::test]
async fn a_lease_that_is_over_is_not_renewed() {
    let postgres = Postgres::start();
    let clock = ManualClock::default();
    let holder = open_at(&postgres.url(), &clock, "mine").await;
    campaign(&holder, "held", 1, 10 * SECOND).await;
    clock.advance(Duration::from_secs(10));
    assert_eq!(renew(&holder, 1).await, Response::Expired);
}
