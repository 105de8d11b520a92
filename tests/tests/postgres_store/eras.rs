//! Another server becomes the primary, or a backup is restored: epochs do not go back, and nobody leads
//! whose predecessor may still lead.

use super::*;

/// The standby does not follow for a while: what the primary acknowledges meanwhile is lost with it.
async fn stop_following(standby: &Postgres) {
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    until("the standby stops to follow", async || {
        standby.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0"
    })
    .await;
}

async fn follows(primary: &Postgres, standby: &Postgres) {
    until("the standby has all", async || {
        let place = primary.sql("SELECT pg_current_wal_lsn()");
        standby.sql(&format!("SELECT pg_last_wal_replay_lsn() >= '{place}'")) == "t"
    })
    .await;
}

#[tokio::test]
async fn what_a_lost_primary_acknowledged_holds_for_a_lease_time() {
    let mut primary = Postgres::start();
    let standby = primary.standby(&[]);
    let url = format!("postgres://owner@{},{}/postgres", primary.address(), standby.address());
    let (mine, theirs) = (ManualClock::default(), ManualClock::default());
    let holder = open_at(&url, &mine, "mine").await;
    let waiter = open_at(&url, &theirs, "theirs").await;
    let kept = campaign(&holder, "kept", 1, 10 * SECOND).await;
    follows(&primary, &standby).await;
    stop_following(&standby).await;
    // Acknowledged, and lost: two claims, and a renewal.
    let lost = campaign(&holder, "lost", 2, 10 * SECOND).await;
    assert!(campaign(&holder, "more", 3, 10 * SECOND).await > lost);
    mine.advance(Duration::from_secs(6));
    assert_eq!(renew(&holder, 1).await, Response::Renewed(10 * SECOND));
    let mut watches = watch(&waiter, None);
    assert!(matches!(next(&mut watches).await, Change::Started(_)));
    primary.kill();
    standby.promote();

    // The holder goes on leading with what is there.
    assert_eq!(renew(&holder, 1).await, Response::Renewed(10 * SECOND));
    assert_eq!(renew(&holder, 2).await, Response::Expired);
    assert_eq!(read(&waiter, "").await.1, ["kept"]);
    assert!(matches!(next(&mut watches).await, Change::Ended(_)));
    // The lost key is free, and its holder may lead for 10 s more: nobody gets in line.
    assert_eq!(ask(&waiter, grant(4, 10 * SECOND)).await, Response::Granted(10 * SECOND));
    for _ in 0..5 {
        let answer = waiter.call(claim("lost", 4), LIMIT).await;
        assert!(is_later(&answer), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    has_looked(&waiter).await;
    theirs.advance(Duration::from_millis(9_999));
    assert!(is_later(&waiter.call(claim("lost", 4), LIMIT).await));
    assert_eq!(renew(&waiter, 4).await, Response::Renewed(10 * SECOND));
    assert_eq!(renew(&holder, 1).await, Response::Renewed(10 * SECOND));
    theirs.advance(Duration::from_millis(1));
    let Response::Claimed(claimed) = ask(&waiter, claim("lost", 4)).await else {
        panic!("not claimed");
    };
    assert!(claimed.at > lost + 1 && claimed.at >> 40 > kept >> 40, "{lost}, {}", claimed.at);
}

/// A renewal that is lost leaves an older one behind, by which the lease would be over too early.
/// What the store acknowledges is on both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_that_is_promoted_has_all() {
    let mut primary = Postgres::start();
    let standby = primary.standby(&[]);
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    until("the standby is waited for", async || primary.sql(sync) == "1").await;
    let url = format!("postgres://owner@{},{}/postgres", primary.address(), standby.address());
    let store = open(&url).await;
    campaign(&store, "first", 1, 600 * SECOND).await;
    standby.pause();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { campaign(&store, "second", 2, 600 * SECOND).await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("a commit waits for the standby", async || primary.sql(waits) != "0").await;
    assert!(!waiting.is_finished());
    standby.resume();
    waiting.await.unwrap();
    primary.kill();
    standby.promote();
    assert_eq!(read(&store, "").await.1, ["first", "second"]);
    for lease in [1, 2] {
        assert_eq!(renew(&store, lease).await, Response::Renewed(600 * SECOND));
    }
}

#[tokio::test]
async fn a_lease_whose_last_renewal_is_lost_lives_on() {
    let mut primary = Postgres::start();
    let standby = primary.standby(&[]);
    let url = format!("postgres://owner@{},{}/postgres", primary.address(), standby.address());
    let clock = ManualClock::default();
    let holder = open_at(&url, &clock, "mine").await;
    let neighbour = open_at(&url, &clock, "mine").await;
    campaign(&holder, "held", 1, 10 * SECOND).await;
    follows(&primary, &standby).await;
    stop_following(&standby).await;
    clock.advance(Duration::from_secs(8));
    assert_eq!(renew(&holder, 1).await, Response::Renewed(10 * SECOND));
    primary.kill();
    standby.promote();
    // By the renewal that the standby knows, it was over a second ago; by the lost one it is not.
    clock.advance(Duration::from_secs(3));
    for _ in 0..10 {
        assert_eq!(read(&neighbour, "").await.1, ["held"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(renew(&holder, 1).await, Response::Renewed(10 * SECOND));
}

#[tokio::test]
async fn a_dump_that_is_restored_elsewhere_is_a_new_era() {
    let (old, new) = (Postgres::start(), Postgres::start());
    let store = open(&old.url()).await;
    let before = campaign(&store, "held", 1, 600 * SECOND).await;
    let dump = old.dump();
    let lost = campaign(&store, "lost", 2, 600 * SECOND).await;
    new.sql(&dump);
    let clock = ManualClock::default();
    let store = open_at(&new.url(), &clock, "theirs").await;
    assert_eq!(ask(&store, grant(3, 600 * SECOND)).await, Response::Granted(600 * SECOND));
    assert!(is_later(&store.call(claim("lost", 3), LIMIT).await));
    has_looked(&store).await;
    clock.advance(Duration::from_secs(600));
    let after = campaign(&store, "lost", 4, 600 * SECOND).await;
    assert!(after > lost && lost > before, "{before}, {lost}, {after}");
}
