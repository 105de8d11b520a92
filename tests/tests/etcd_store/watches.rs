//! Watches, and their repair.

use futures_util::future::join_all;
use tokio::time::sleep;

use super::*;

on_each_version! {
    many_watches_share_a_stream,
    watches_resume_over_a_broken_connection,
    a_watch_that_was_not_started_is_asked_again,
    a_watch_outlives_a_restart_of_etcd,
    a_watch_that_resumes_too_late_says_so,
    a_stalled_watch_is_opened_again,
    watches_go_on_where_answers_are_late,
}

async fn many_watches_share_a_stream(version: Version) {
    const MANY: u64 = 2_000;
    let (etcd, store) = started(version).await;
    let mut watches = store.watches();
    for id in 0..MANY {
        watches.open(watch(id, &format!("k{id}")));
    }
    for _ in 0..MANY {
        assert!(matches!(next(&mut watches).await, Change::Started(_)));
    }
    for id in [0, MANY / 2, MANY - 1] {
        put(&etcd, &format!("k{id}")).await;
        assert_eq!(next_watched(&mut watches).await.id, id);
    }
    let watchers = || metric(&etcd.metrics(), "etcd_debugging_mvcc_watcher_total");
    assert_eq!(metric(&etcd.metrics(), "etcd_debugging_mvcc_watch_stream_total"), 1);
    assert_eq!(watchers(), MANY);
    // One that is closed ends in etcd as well, and no other one does.
    watches.close(0);
    let until = Instant::now() + LIMIT;
    while watchers() == MANY {
        assert!(Instant::now() < until, "etcd still has it");
        // Nothing happens while nobody listens.
        let told = timeout(Duration::from_millis(10), next_watched(&mut watches)).await;
        assert!(told.is_err(), "{told:?}");
    }
    assert_eq!(watchers(), MANY - 1);
    put(&etcd, "k0").await;
    put(&etcd, "k1").await;
    assert_eq!(next_watched(&mut watches).await.id, 1);
}

/// All watches together take longer than one may. A client that gave up then would ask for the
/// first ones again, for ever.
#[tokio::test]
async fn a_slow_etcd_gets_to_all_watches() {
    const MANY: u64 = 2_500;
    let (etcd, store) = started(Version::V3_5).await;
    let mut watches = store.watches();
    let start = Instant::now();
    for id in 0..MANY {
        watches.open(watch(id, &format!("{id:0>1000}")));
    }
    let slow = async {
        loop {
            etcd.pause();
            sleep(Duration::from_secs(1)).await;
            etcd.resume();
            sleep(Duration::from_millis(5)).await;
        }
    };
    let all = async {
        for _ in 0..MANY {
            assert!(matches!(next(&mut watches).await, Change::Started(_)));
        }
    };
    tokio::select! {
        () = slow => {}
        () = all => {}
    }
    etcd.resume();
    assert!(start.elapsed() > Duration::from_secs(5), "etcd was not slow");
    // On a busy machine etcd may have seemed dead, and have been given another stream.
    until("there is one stream", async || metric(&etcd.metrics(), WATCH_STREAMS) == 1).await;
}

async fn watches_resume_over_a_broken_connection(etcd: Etcd) {
    let (relay, store) = relayed(&etcd).await;
    let mut watches = store.watches();
    watches.open(watch(1, "a"));
    watches.open(Watch { prefix: true, ..watch(2, "b/") });
    for _ in 0..2 {
        assert!(matches!(next(&mut watches).await, Change::Started(_)));
    }
    let mut written = vec![put(&etcd, "a").await, put(&etcd, "b/0").await];
    let mut told =
        vec![next_put(&mut watches).await.modified, next_put(&mut watches).await.modified];
    // Breaks at all moments, with changes before, after and while it is broken.
    for round in 0..10 {
        written.push(put(&etcd, "a").await);
        if round % 2 == 0 {
            relay.cut();
        } else {
            relay.refuse();
        }
        written.push(put(&etcd, &format!("b/{round}")).await);
        written.push(put(&etcd, "a").await);
        relay.accept();
        while told.len() < written.len() {
            told.push(next_put(&mut watches).await.modified);
        }
    }
    told.sort_unstable();
    assert_eq!(told, written);
}

async fn a_watch_that_was_not_started_is_asked_again(etcd: Etcd) {
    let (relay, store) = relayed(&etcd).await;
    let mut watches = store.watches();
    relay.stall_replies();
    watches.open(watch(1, "k"));
    // Polled without an answer.
    assert!(timeout(Duration::from_millis(200), next(&mut watches)).await.is_err());
    let missed = put(&etcd, "k").await;
    relay.cut();
    relay.flow();
    // Where the answer has slipped through, the change is told.
    if started_at(&mut watches, 1).await < missed {
        assert_eq!(next_put(&mut watches).await.modified, missed);
    }
    let seen = put(&etcd, "k").await;
    assert_eq!(next_put(&mut watches).await.modified, seen);
}

async fn a_watch_outlives_a_restart_of_etcd(version: Version) {
    let (mut etcd, store) = started(version).await;
    let mut watches = watching(&store, "k").await;
    etcd.restart();
    let revision = put(&etcd, "k").await;
    assert_eq!(next_put(&mut watches).await.modified, revision);
}

/// Row 18.
async fn a_watch_that_resumes_too_late_says_so(etcd: Etcd) {
    let (relay, store) = relayed(&etcd).await;
    let mut watches = watching(&store, "k").await;
    relay.refuse();
    put(&etcd, "k").await;
    let oldest = put(&etcd, "k").await;
    etcd.etcdctl(&["compact", &oldest.to_string()]);
    relay.accept();
    assert_eq!(next(&mut watches).await, Change::Ended(Failure::Compacted(oldest)));
}

async fn a_stalled_watch_is_opened_again(etcd: Etcd) {
    let on = async || {
        let (relay, store) = relayed(&etcd).await;
        let watches = watching(&store, "k").await;
        (relay, store, watches)
    };
    let (silent, _store, mut idle) = on().await;
    let (owing, _other_store, mut asking) = on().await;
    let streams = || metric(&etcd.metrics(), WATCH_STREAMS);
    let before = streams();
    silent.freeze();
    owing.freeze();
    asking.open(watch(2, "l"));
    let seen = put(&etcd, "k").await;
    // Nobody asks for anything: the stream has to be asked whether it lives. That
    // is sooner than pings of the connection notice anything, after 15 s.
    let idle = async {
        let told = timeout(Duration::from_secs(10), next_put(&mut idle)).await;
        assert_eq!(told.unwrap().modified, seen);
    };
    // An answer that is owed for too long: the one to a new watch.
    let asking = async {
        let mut told = [next_watched(&mut asking).await, next_watched(&mut asking).await];
        told.sort_by_key(|watched| watched.id);
        let [first, second] = told;
        assert!(matches!(first.change, Change::Put(entry) if entry.modified == seen));
        assert!(matches!(second.change, Change::Started(_)), "{second:?}");
        let seen = put(&etcd, "l").await;
        assert_eq!(next_put(&mut asking).await.modified, seen);
    };
    tokio::join!(idle, asking);
    assert_eq!(streams(), before + 2);
}

/// Requests are given up, and their connections as well. To open all watches on each new one would
/// make a slow etcd slower, and they would never hear anything.
async fn watches_go_on_where_answers_are_late(etcd: Etcd) {
    let (relay, store) = relayed(&etcd).await;
    let mut watches = store.watches();
    for id in 0..200 {
        watches.open(watch(id, &format!("k{id}")));
    }
    for _ in 0..200 {
        assert!(matches!(next(&mut watches).await, Change::Started(_)));
    }
    let before = metric(&etcd.metrics(), WATCH_STREAMS);
    relay.slow(Duration::from_millis(300), Duration::ZERO);
    let given_up = async {
        loop {
            let read = store.call(Operation::Read(vec![one("k")]), Duration::from_millis(100));
            assert_eq!(read.await, Err(Failure::Timeout));
        }
    };
    let told = async {
        for _ in 0..3 {
            let seen = put(&etcd, "k0").await;
            assert_eq!(next_put(&mut watches).await.modified, seen);
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = given_up => {}
        () = told => {}
    }
    assert_eq!(metric(&etcd.metrics(), WATCH_STREAMS), before);
}

/// The further ones would wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn etcd_may_limit_the_streams_of_a_connection() {
    const SESSIONS: i64 = 250;
    let etcd = Etcd::start_with(Version::V3_4, &["--max-concurrent-streams", "100"]);
    let store = connect(&etcd.url()).await;
    let sessions = (1..=SESSIONS).map(async |lease| {
        grant(&store, lease, 60).await.unwrap();
        call(&store, Operation::KeepAlive(lease)).await.unwrap();
        let mut watches = store.watches();
        watches.open(watch(lease.unsigned_abs(), "key"));
        assert!(matches!(next(&mut watches).await, Change::Started(_)));
        watches
    });
    let watches = soon("all are watching", join_all(sessions)).await;
    // They stay, and each lease is renewed on.
    let renewals = (1..=SESSIONS).map(|lease| call(&store, Operation::KeepAlive(lease)));
    let renewed = soon("all are renewed", join_all(renewals)).await;
    assert!(renewed.iter().all(|answer| matches!(answer, Ok(Response::Renewed(_)))));
    drop(watches);
}
