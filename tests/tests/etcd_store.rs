//! The store on a real etcd, beyond what is asked of every store (`conformance.rs`):
//! etcd's limits, the prefix, late renewals, the repair of watches, users, TLS, and what
//! is said where there is no etcd.

use std::future::poll_fn;
use std::io::Write as _;
use std::time::{Duration, Instant};

use incumbent::admin;
use incumbent::store::etcd::{ConnectError, Credentials, EtcdStore};
use incumbent::store::url::EtcdUrl;
use incumbent::store::{Store, Watches};
use incumbent::types::{
    Change, Claim, Claimed, Entry, Expectation, Failure, Grant, Guard, Guarded, Mutation,
    Operation, Order, Put, Response, Selection, Snapshot, Watch, Watched,
};
use incumbent_tests::certificates::Certificates;
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::relay::Relay;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);
const SECOND: u64 = 1_000_000_000;
/// How often a watch stream was opened, in etcd's figures.
const WATCH_STREAMS: &str = "grpc_server_started_total{grpc_method=\"Watch\",\
     grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"}";

on_each_version! {
    a_lease_is_granted_for_whole_seconds,
    a_write_beyond_the_limits_is_invalid,
    large_values_of_others_are_carried,
    an_answer_without_measure_fails_alone,
    pages_stay_below_the_prefix,
    a_read_is_at_one_revision_while_history_is_forgotten,
    reads_that_are_given_up_are_no_harm,
    an_etcd_without_space_says_so,
    keys_have_the_prefix_in_etcd_and_nowhere_else,
    more_calls_than_etcd_takes_at_once_are_answered,
    a_claim_that_was_given_up_is_committed_late,
    a_late_renewal_still_counts,
    renewals_under_way_side_by_side_are_all_answered,
    a_renewal_outlives_a_broken_connection,
    a_renewal_is_asked_of_two_members,
    a_stream_ends_with_its_lease,
    a_lost_connection_is_unavailable,
    many_watches_share_a_stream,
    watches_resume_over_a_broken_connection,
    a_watch_that_was_not_started_is_asked_again,
    a_watch_outlives_a_restart_of_etcd,
    a_watch_that_resumes_too_late_says_so,
    a_stalled_watch_is_opened_again,
    what_is_forbidden_is_denied,
    logins_are_renewed,
    a_user_is_no_harm_where_nobody_logs_in,
    a_wrong_password_is_refused,
    a_missing_user_is_refused,
    tls_lets_in_whom_it_knows,
    tls_and_plain_are_told_apart,
    the_next_member_is_asked_where_one_is_down,
    the_next_member_is_asked_beside_one_that_is_silent,
    a_refusal_is_told_rather_than_a_member_that_is_down,
    an_etcd_that_does_not_answer_is_unreachable,
}

// Leases.

async fn a_lease_is_granted_for_whole_seconds(version: Version) {
    let (_etcd, store) = started(version).await;
    let ask = |lease, ttl| call(&store, Operation::Grant(Grant { lease, ttl }));
    assert_eq!(ask(1, 3 * SECOND + 1).await, Ok(Response::Granted(4 * SECOND)));
    // etcd's shortest.
    assert_eq!(ask(2, 1).await, Ok(Response::Granted(2 * SECOND)));
    assert_eq!(ask(3, 0).await, Ok(Response::Granted(2 * SECOND)));
}

// Reads.

/// Row 36.
async fn large_values_of_others_are_carried(version: Version) {
    const LARGE: usize = 10_000_000;
    let etcd = Etcd::start_with(version, &["--max-request-bytes", "20000000"]);
    let store = connect(&etcd.url()).await;
    grant(&store, 7, 30).await.unwrap();
    let mut watches = store.watches();
    watches.open(watch(1, "k", false));
    started_at(&mut watches, 1).await;
    let mut client = client(&etcd).await;
    client.put("k", vec![b'v'; LARGE], None).await.unwrap();
    assert_eq!(next_put(&mut watches).await.value.len(), LARGE);
    match claim(&store, "k", 7).await {
        Ok(Response::Taken(taken)) => assert_eq!(taken.entry.value.len(), LARGE),
        other => panic!("{other:?}"),
    }
    let found = snapshot(&store, vec![all("k"), one("k")]).await;
    assert_eq!(found.found.concat().len(), 2);
    let got = store.peek(b"k".into(), PATIENCE).await.unwrap().unwrap();
    assert_eq!(got.value.len(), LARGE);
}

async fn an_answer_without_measure_fails_alone(version: Version) {
    const LARGE: usize = 9_000_000;
    let etcd = Etcd::start_with(version, &["--max-request-bytes", "20000000"]);
    let store = connect(&etcd.url()).await;
    let mut client = client(&etcd).await;
    for key in ["k/1", "k/2"] {
        client.put(key, vec![b'v'; LARGE], None).await.unwrap();
    }
    let mut watches = store.watches();
    watches.open(watch(1, "k", false));
    started_at(&mut watches, 1).await;
    let slow = tokio::spawn({
        let store = store.clone();
        async move { call(&store, Operation::Read(vec![one("k/1"), one("k/2")])).await }
    });
    match call(&store, Operation::Read(vec![all("k/")])).await {
        Err(Failure::Other(text)) => {
            assert!(text.contains("18000") && text.contains("16777216"), "{text}");
        }
        other => panic!("{:?}", other.map(|_| "an answer")),
    }
    // Each of them is within the bound, and so are the keys alone.
    let both = slow.await.unwrap();
    assert!(matches!(both, Ok(Response::Snapshot(of)) if of.found.concat().len() == 2));
    let keys = Selection { keys_only: true, ..all("k/") };
    assert_eq!(names(&snapshot(&store, vec![keys]).await), ["k/1 k/2"]);
    put(&etcd, "k").await;
    assert_eq!(next_put(&mut watches).await.key, b"k");
}

async fn pages_stay_below_the_prefix(version: Version) {
    let etcd = Etcd::start(version);
    for key in ["a", "my", "my/a/1", "my/a/2", "my/a0", "my/b", "my0", "z"] {
        put(&etcd, key).await;
    }
    let mut client = client(&etcd).await;
    client.put([0xff, 0xff], "v", None).await.unwrap();
    let pages = async |store: &EtcdStore, prefix: &str, from: &[u8]| {
        let first = Selection { order: Order::ByKey, from: Some(from.into()), ..all(prefix) };
        let mut keys = Vec::new();
        for limit in [1, 2, 0] {
            let mut page = Selection { limit, ..first.clone() };
            keys.clear();
            loop {
                let found = snapshot(store, vec![page.clone()]).await.found.concat();
                let Some(last) = found.last() else { break };
                page.from = Some([last.key.as_slice(), &[0]].concat());
                keys.extend(found);
            }
        }
        keys.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect()
    };
    let everything = connect(&etcd.url()).await;
    let below = connect(&format!("{}/my", etcd.url())).await;
    for (store, prefix, from, expected) in [
        (&everything, "", "", "a my my/a/1 my/a/2 my/a0 my/b my0 z \u{fffd}\u{fffd}"),
        (&everything, "", "my/b", "my/b my0 z \u{fffd}\u{fffd}"),
        (&everything, "my/a/", "my/a/2", "my/a/2"),
        (&everything, "my/a/", "my/a0", ""),
        (&below, "", "", "a/1 a/2 a0 b"),
        (&below, "", "a/2", "a/2 a0 b"),
        (&below, "", "zz", ""),
        (&below, "a/", "a", "a/1 a/2"),
        (&below, "a/", "a0", ""),
    ] {
        let found: Vec<String> = pages(store, prefix, from.as_bytes()).await;
        assert_eq!(found.join(" "), expected, "{prefix:?} from {from:?}");
    }
    // 0xff ends the prefix of nobody, and is behind all that begins with letters.
    let found: Vec<String> = pages(&everything, "", &[0xff, 0xff, 0]).await;
    assert!(found.is_empty(), "{found:?}");
    let found: Vec<String> = pages(&below, "", &[0xff]).await;
    assert!(found.is_empty(), "{found:?}");

    // Whoever may read a list may read every page of it, and what is behind the last one.
    etcd.enable_users("root's", "me", "mine", "my/a/");
    let store = connect_as(&format!("{}/my", etcd.url()), "me", "mine").await.unwrap();
    for (from, expected) in [("", "a/1 a/2"), ("a/2", "a/2"), ("a/3", ""), ("b", "")] {
        let found: Vec<String> = pages(&store, "a/", from.as_bytes()).await;
        assert_eq!(found.join(" "), expected, "from {from:?}");
    }
}

async fn a_read_is_at_one_revision_while_history_is_forgotten(version: Version) {
    const READS: usize = 300;
    let (etcd, store) = started(version).await;
    let mut client = client(&etcd).await;
    let forgetful = tokio::spawn(async move {
        loop {
            let both = ["k/1", "k/2"].map(|key| etcd_client::TxnOp::put(key, "v", None));
            let written = client.txn(etcd_client::Txn::new().and_then(both)).await.unwrap();
            let at = written.header().unwrap().revision();
            client.compact(at, None).await.unwrap();
        }
    });
    for _ in 0..READS {
        let found = snapshot(&store, vec![one("k/1"), one("k/2"), all("k/")]).await.found.concat();
        let alike = found.iter().all(|entry| entry.modified == found[0].modified);
        assert!(alike && matches!(found.len(), 0 | 4), "{found:?}");
    }
    assert!(!forgetful.is_finished());
    forgetful.abort();
}

/// etcd 3.5.0 to 3.5.4 panic when a transaction that reads is given up while it is served
/// (etcd#14110).
async fn reads_that_are_given_up_are_no_harm(version: Version) {
    const KEYS: usize = 1_000;
    const READS: u64 = 600;
    let (etcd, store) = started(version).await;
    let mut client = client(&etcd).await;
    for some in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let puts: Vec<_> = some
            .iter()
            .map(|key| etcd_client::TxnOp::put(format!("k/{key:04}"), "v", None))
            .collect();
        client.txn(etcd_client::Txn::new().and_then(puts)).await.unwrap();
    }
    let newest = Selection { order: Order::NewestFirst, limit: 1, ..all("k/") };
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (store, newest) = (store.clone(), newest.clone());
        callers.spawn(async move {
            let mut answered = 0;
            for read in 0..READS {
                // Sooner and later than etcd answers.
                let within = Duration::from_micros(read * 50 % 10_000);
                let read = Operation::Read(vec![newest.clone(), one("k/0500")]);
                if timeout(within, call(&store, read)).await.is_ok() {
                    answered += 1;
                }
            }
            answered
        });
    }
    let answered: u64 = callers.join_all().await.into_iter().sum();
    println!("{version:?}: {answered} of {} were waited for", 16 * READS);
    let log = etcd.log();
    assert!(!log.contains("panic"), "{}", log.lines().last().unwrap_or_default());
    let found = snapshot(&store, vec![newest, one("k/0500")]).await;
    assert_eq!(found.found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

/// Row 26: leases live on, and claims fail with etcd's words.
async fn an_etcd_without_space_says_so(version: Version) {
    let etcd = Etcd::start_with(version, &["--quota-backend-bytes", "1000000"]);
    let store = connect(&etcd.url()).await;
    grant(&store, 7, 30).await.unwrap();
    let mut client = client(&etcd).await;
    while client.put("k", vec![b'v'; 400_000], None).await.is_ok() {}
    match claim(&store, "l", 7).await {
        Err(Failure::Other(text)) => assert!(text.contains("space exceeded"), "{text}"),
        other => panic!("{other:?}"),
    }
    let renewed = call(&store, Operation::KeepAlive(7)).await;
    assert_eq!(renewed, Ok(Response::Renewed(30 * SECOND)));
    assert_eq!(call(&store, Operation::Revoke(7)).await, Ok(Response::Revoked));
}

// Guarded writes.

async fn a_write_beyond_the_limits_is_invalid(version: Version) {
    let (_etcd, store) = started(version).await;
    let epoch = leader(&store, "lead", 7).await;
    let write = |mutations| {
        let guard = Guard { key: b"lead".to_vec(), epoch, lease: None };
        call(&store, Operation::Guarded(Guarded { guard, expect: vec![], mutations }))
    };
    let put = |value| Mutation::Put(Put { key: b"k".to_vec(), value });
    for impossible in [
        // Beyond etcd's own limit, and beyond its gRPC server's; and too many.
        write(vec![put(vec![0; 1_600_000])]).await,
        write(vec![put(vec![0; 10_000_000])]).await,
        write((0..200).map(|n| set(&n.to_string(), "")).collect()).await,
    ] {
        assert!(matches!(impossible, Err(Failure::Invalid(_))), "{impossible:?}");
    }
    assert_eq!(admin::get(&store, b"k", PATIENCE).await, Ok(None));
}

// The prefix.

async fn keys_have_the_prefix_in_etcd_and_nowhere_else(version: Version) {
    let etcd = Etcd::start(version);
    let store = connect(&format!("{}/team/a", etcd.url())).await;
    put(&etcd, "team/b/k").await;
    put(&etcd, "team/a").await;

    let mut watches = store.watches();
    watches.open(watch(1, "", true));
    started_at(&mut watches, 1).await;

    let epoch = leader(&store, "lead", 7).await;
    assert!(
        matches!(claim(&store, "lead", 7).await, Ok(Response::Taken(of)) if of.entry.key == b"lead")
    );
    let guarded = Operation::Guarded(Guarded {
        guard: Guard { key: b"lead".to_vec(), epoch, lease: Some(7) },
        expect: vec![Expectation { key: b"k".to_vec(), modified: 0 }],
        mutations: vec![set("k", "v"), Mutation::Proclaim(b"p".to_vec())],
    });
    assert!(matches!(call(&store, guarded).await, Ok(Response::Applied(_))));
    assert_eq!(names(&snapshot(&store, vec![all(""), one("k")]).await), ["lead k", "k"]);
    let listed = etcd.etcdctl(&["get", "--prefix", "--keys-only", ""]);
    let listed: Vec<_> = listed.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(listed, ["team/a", "team/a/k", "team/a/lead", "team/b/k"]);

    assert_eq!(next_put(&mut watches).await.key, b"lead");
    let mut both = [next_put(&mut watches).await.key, next_put(&mut watches).await.key];
    both.sort();
    assert_eq!(both, [b"k".to_vec(), b"lead".to_vec()]);
    call(&store, Operation::Revoke(7)).await.unwrap();
    match next(&mut watches).await {
        Change::Deleted(deletion) => assert_eq!(deletion.key, b"lead"),
        other => panic!("{other:?}"),
    }
}

// Time.

async fn more_calls_than_etcd_takes_at_once_are_answered(version: Version) {
    let (_etcd, store) = started(version).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..3_000 {
        let store = store.clone();
        calls.spawn(async move { call(&store, Operation::Read(vec![one(&n.to_string())])).await });
    }
    for answer in calls.join_all().await {
        assert!(matches!(answer, Ok(Response::Snapshot(_))), "{answer:?}");
    }
}

/// Row 37: the request has arrived, and its reply has not.
async fn a_claim_that_was_given_up_is_committed_late(version: Version) {
    let (etcd, direct) = started(version).await;
    let relay = Relay::start(etcd.address()).await;
    let store = connect(&relay.url()).await;
    grant(&direct, 7, 30).await.unwrap();
    relay.stall_replies();
    let operation = claim_operation("k", 7);
    let answer = store.call(operation, Duration::from_millis(200)).await;
    assert_eq!(answer, Err(Failure::Timeout));
    let entry = timeout(PATIENCE, async {
        loop {
            if let Some(entry) = admin::get(&direct, b"k", PATIENCE).await.unwrap() {
                return entry;
            }
        }
    });
    assert_eq!(entry.await.unwrap().lease, 7);
    relay.flow();
    assert!(matches!(claim(&store, "k", 7).await, Ok(Response::Taken(of)) if of.entry.lease == 7));
}

// Renewals.

async fn a_late_renewal_still_counts(version: Version) {
    let (etcd, store) = started(version).await;
    grant(&store, 7, 60).await.unwrap();
    for _ in 0..2 {
        // First while the stream is opened, then on an open one.
        etcd.pause();
        let within = Duration::from_millis(100);
        let since = Instant::now();
        let mut renewal = tokio::spawn(store.call(Operation::KeepAlive(7), within));
        let in_time = timeout(within * 3, &mut renewal).await;
        assert!(in_time.is_err(), "{in_time:?}");
        etcd.resume();
        let answer = timeout(PATIENCE, renewal).await.unwrap().unwrap();
        assert_eq!(answer, Ok(Response::Renewed(60 * SECOND)));
        assert!(since.elapsed() > within);
    }
}

/// Row 38.
async fn renewals_under_way_side_by_side_are_all_answered(version: Version) {
    let (etcd, store) = started(version).await;
    grant(&store, 7, 60).await.unwrap();
    call(&store, Operation::KeepAlive(7)).await.unwrap();
    etcd.pause();
    let within = Duration::from_millis(50);
    let mut renewals = tokio::task::JoinSet::new();
    for _ in 0..3 {
        renewals.spawn(store.call(Operation::KeepAlive(7), within));
    }
    etcd.resume();
    for answer in timeout(PATIENCE, renewals.join_all()).await.unwrap() {
        assert_eq!(answer, Ok(Response::Renewed(60 * SECOND)));
    }
    // One stream is left, and the others closed.
    assert_eq!(call(&store, Operation::KeepAlive(7)).await, Ok(Response::Renewed(60 * SECOND)));
}

async fn a_renewal_outlives_a_broken_connection(version: Version) {
    let (etcd, direct) = started(version).await;
    let relay = Relay::start(etcd.address()).await;
    let store = connect(&relay.url()).await;
    grant(&direct, 7, 60).await.unwrap();
    call(&store, Operation::KeepAlive(7)).await.unwrap();
    // Broken while it was idle: the next attempt does not notice.
    relay.cut();
    let renewed = timeout(PATIENCE, async {
        loop {
            match call(&store, Operation::KeepAlive(7)).await {
                Err(Failure::Unavailable) => {}
                answer => return answer,
            }
        }
    });
    assert_eq!(renewed.await.unwrap(), Ok(Response::Renewed(60 * SECOND)));
    // Broken while one is under way: an answer can no longer come.
    relay.stall_replies();
    let within = Duration::from_millis(50);
    let mut renewal = tokio::spawn(store.call(Operation::KeepAlive(7), within));
    assert!(timeout(within * 3, &mut renewal).await.is_err());
    relay.refuse();
    let answer = timeout(PATIENCE, renewal).await.unwrap().unwrap();
    assert_eq!(answer, Err(Failure::Unavailable));
}

/// A second one is asked where the first keeps silent or fails. The first answer counts.
async fn a_renewal_is_asked_of_two_members(version: Version) {
    let (etcd, direct) = started(version).await;
    let (silent, patient) = (Duration::from_millis(200), PATIENCE * 2);
    type End = fn(first: &Relay, second: &Relay);
    let cases: [(&str, Duration, u64, End); 5] = [
        ("the first answers late", silent, 2, |first, _| first.flow()),
        ("the second answers", silent, 2, |_, second| second.flow()),
        ("the first fails at last", silent, 2, |first, second| {
            first.refuse();
            second.flow();
        }),
        ("the second fails", silent, 2, |first, second| {
            second.refuse();
            first.flow();
        }),
        ("the first fails", patient, 1, |first, second| {
            second.flow();
            first.refuse();
        }),
    ];
    for ((case, within, asked, end), lease) in cases.into_iter().zip(7..) {
        let second = Relay::start(etcd.address()).await;
        let first = Relay::start(etcd.address()).await;
        let url = format!("etcd://{},{}", second.address(), first.address());
        let store = connect(&url).await;
        // It is connected to both, and asks the one that did not fail.
        second.refuse();
        let moved = timeout(PATIENCE, async {
            while call(&store, Operation::Read(vec![one("k")])).await.is_err() {}
        });
        moved.await.expect("the other is asked");
        second.accept();
        grant(&direct, lease, 60).await.unwrap();

        first.stall_replies();
        second.stall_replies();
        let before = renewal_streams(&etcd, "started");
        let renewal = tokio::spawn(store.call(Operation::KeepAlive(lease), within));
        let is_asked = timeout(PATIENCE, async {
            while renewal_streams(&etcd, "started") < before + asked {
                sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(is_asked.await.is_ok(), "{case}");
        end(&first, &second);
        let answer = timeout(PATIENCE, renewal).await.expect(case).unwrap();
        assert_eq!(answer, Ok(Response::Renewed(60 * SECOND)), "{case}");
    }
}

async fn a_stream_ends_with_its_lease(version: Version) {
    let (etcd, store) = started(version).await;
    let open = || renewal_streams(&etcd, "started") - renewal_streams(&etcd, "handled");
    let none_is_open = async || {
        let closed = timeout(PATIENCE, async {
            while open() > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(closed.await.is_ok(), "{} streams are open", open());
    };
    // One that runs out, and nobody asks for it any more.
    grant(&store, 7, 2).await.unwrap();
    for _ in 0..3 {
        call(&store, Operation::KeepAlive(7)).await.unwrap();
    }
    assert_eq!((open(), renewal_streams(&etcd, "started")), (1, 1), "the renewals share one");
    none_is_open().await;

    // One that is given back, while a renewal is under way too.
    grant(&store, 8, 600).await.unwrap();
    call(&store, Operation::KeepAlive(8)).await.unwrap();
    call(&store, Operation::Revoke(8)).await.unwrap();
    none_is_open().await;
    for lease in 9..15 {
        grant(&store, lease, 600).await.unwrap();
        call(&store, Operation::KeepAlive(lease)).await.unwrap();
        etcd.pause();
        let mut renewal = tokio::spawn(store.call(Operation::KeepAlive(lease), PATIENCE));
        assert!(timeout(Duration::from_millis(20), &mut renewal).await.is_err());
        let revocation = tokio::spawn(store.call(Operation::Revoke(lease), PATIENCE));
        etcd.resume();
        assert_eq!(revocation.await.unwrap(), Ok(Response::Revoked));
        renewal.await.unwrap().unwrap();
    }
    none_is_open().await;
}

async fn a_lost_connection_is_unavailable(version: Version) {
    let etcd = Etcd::start(version);
    let relay = Relay::start(etcd.address()).await;
    let store = connect(&relay.url()).await;
    relay.refuse();
    for operation in [
        Operation::Read(vec![one("k")]),
        Operation::Grant(Grant { lease: 1, ttl: SECOND }),
        Operation::KeepAlive(1),
        Operation::Revoke(1),
        claim_operation("k", 1),
    ] {
        assert_eq!(call(&store, operation).await, Err(Failure::Unavailable));
    }
    relay.accept();
    let mended = timeout(PATIENCE, async {
        while call(&store, Operation::Read(vec![one("k")])).await.is_err() {}
    });
    mended.await.unwrap();
}

// Watches.

async fn many_watches_share_a_stream(version: Version) {
    const MANY: u64 = 2_000;
    let (etcd, store) = started(version).await;
    let mut watches = store.watches();
    for id in 0..MANY {
        watches.open(watch(id, &format!("k{id}"), false));
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
    let until = Instant::now() + PATIENCE;
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
        watches.open(watch(id, &format!("{id:0>1000}"), false));
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
    assert_eq!(metric(&etcd.metrics(), WATCH_STREAMS), 1);
}

async fn watches_resume_over_a_broken_connection(version: Version) {
    let etcd = Etcd::start(version);
    let relay = Relay::start(etcd.address()).await;
    let store = connect(&relay.url()).await;
    let mut watches = store.watches();
    watches.open(watch(1, "a", false));
    watches.open(watch(2, "b/", true));
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

async fn a_watch_that_was_not_started_is_asked_again(version: Version) {
    let etcd = Etcd::start(version);
    let relay = Relay::start(etcd.address()).await;
    let store = connect(&relay.url()).await;
    let mut watches = store.watches();
    relay.stall_replies();
    watches.open(watch(1, "k", false));
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
    let mut watches = store.watches();
    watches.open(watch(1, "k", false));
    started_at(&mut watches, 1).await;
    etcd.restart();
    let revision = put(&etcd, "k").await;
    assert_eq!(next_put(&mut watches).await.modified, revision);
}

/// Row 18.
async fn a_watch_that_resumes_too_late_says_so(version: Version) {
    let etcd = Etcd::start(version);
    let relay = Relay::start(etcd.address()).await;
    let store = connect(&relay.url()).await;
    let mut watches = store.watches();
    watches.open(watch(1, "k", false));
    started_at(&mut watches, 1).await;
    relay.refuse();
    put(&etcd, "k").await;
    let oldest = put(&etcd, "k").await;
    etcd.etcdctl(&["compact", &oldest.to_string()]);
    relay.accept();
    assert_eq!(next(&mut watches).await, Change::Ended(Failure::Compacted(oldest)));
}

async fn a_stalled_watch_is_opened_again(version: Version) {
    let etcd = Etcd::start(version);
    let on = async || {
        let relay = Relay::start(etcd.address()).await;
        let store = connect(&relay.url()).await;
        let mut watches = store.watches();
        watches.open(watch(1, "k", false));
        started_at(&mut watches, 1).await;
        (relay, store, watches)
    };
    let (silent, _store, mut idle) = on().await;
    let (owing, _other_store, mut asking) = on().await;
    let streams = || metric(&etcd.metrics(), WATCH_STREAMS);
    let before = streams();
    silent.freeze();
    owing.freeze();
    asking.open(watch(2, "l", false));
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

// Users.

async fn what_is_forbidden_is_denied(version: Version) {
    let etcd = Etcd::start(version);
    etcd.enable_users("root's", "me", "mine", "my/");
    // Of all keys, this user may not read the one that `connect` asks for.
    let store = connect_as(&etcd.url(), "me", "mine").await.unwrap();
    for operation in [Operation::Read(vec![all("your/")]), claim_operation("your/k", 7)] {
        if let Operation::Claim(_) = operation {
            grant(&store, 7, 10).await.unwrap();
        }
        let answer = call(&store, operation).await;
        assert!(matches!(answer, Err(Failure::Denied(_))), "{answer:?}");
    }
    let mut watches = store.watches();
    watches.open(watch(1, "my/k", false));
    started_at(&mut watches, 1).await;
    watches.open(watch(2, "your/k", false));
    let watched = next_watched(&mut watches).await;
    assert_eq!(watched.id, 2);
    assert!(matches!(watched.change, Change::Ended(Failure::Denied(_))), "{watched:?}");
    // The other watch goes on.
    assert!(matches!(claim(&store, "my/k", 7).await, Ok(Response::Claimed(_))));
    assert_eq!(next_put(&mut watches).await.key, b"my/k");
}

async fn logins_are_renewed(version: Version) {
    let etcd = Etcd::start(version);
    etcd.enable_users("root's", "me", "mine", "my/");
    let relay = Relay::start(etcd.address()).await;
    let url = format!("{}/my", relay.url());
    let store = connect_as(&url, "me", "mine").await.unwrap();
    grant(&store, 7, 60).await.unwrap();
    call(&store, Operation::KeepAlive(7)).await.unwrap();
    let mut watches = store.watches();
    watches.open(watch(1, "k", false));
    started_at(&mut watches, 1).await;
    // A user that is made anew has to log in anew. (etcd remembers logins over a
    // restart: they are in its log.)
    let forget = || {
        for arguments in
            [&["delete", "me"][..], &["add", "me:mine"], &["grant-role", "me", "of-the-prefix"]]
        {
            etcd.etcdctl(&[&["--user", "root:root's", "user"], arguments].concat());
        }
    };

    // The watch comes back without the help of any call.
    forget();
    relay.cut();
    etcd.etcdctl(&["--user", "me:mine", "put", "my/k", "v"]);
    assert_eq!(next_put(&mut watches).await.key, b"k");

    forget();
    let renewed = call(&store, Operation::KeepAlive(7)).await;
    assert_eq!(renewed, Ok(Response::Renewed(60 * SECOND)));

    forget();
    let answer = claim(&store, "l", 7).await;
    assert!(matches!(answer, Ok(Response::Claimed(_))), "{answer:?}");

    // Where the password is another one, that is the end.
    etcd.etcdctl(&["--user", "root:root's", "user", "delete", "me"]);
    etcd.etcdctl(&["--user", "root:root's", "user", "add", "me:changed"]);
    let answer = claim(&store, "m", 7).await;
    assert!(matches!(answer, Err(Failure::Denied(_))), "{answer:?}");
    relay.cut();
    let change = next(&mut watches).await;
    assert!(matches!(change, Change::Ended(Failure::Denied(_))), "{change:?}");
}

async fn a_user_is_no_harm_where_nobody_logs_in(version: Version) {
    let etcd = Etcd::start(version);
    let store = connect_as(&etcd.url(), "me", "mine").await.unwrap();
    leader(&store, "k", 7).await;
}

async fn a_wrong_password_is_refused(version: Version) {
    let etcd = Etcd::start(version);
    etcd.enable_users("root's", "me", "mine", "my/");
    for (name, password) in [("me", "not-mine"), ("you", "yours")] {
        let error = connect_as(&etcd.url(), name, password).await.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
        says(&error, &["--password-file", &etcd.address().to_string()]);
        assert!(!format!("{error} {error:?}").contains("not-mine"));
    }
}

async fn a_missing_user_is_refused(version: Version) {
    let etcd = Etcd::start(version);
    etcd.enable_users("root's", "me", "mine", "my/");
    let error = try_connect(&etcd.url(), &Credentials::default()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    says(&error, &["--user"]);
}

// TLS.

async fn tls_lets_in_whom_it_knows(version: Version) {
    let directory = TempDir::new().unwrap();
    let known = Certificates::make(directory.path());
    let etcd = Etcd::start_tls(version, &known);
    let store = try_connect(&etcd.url(), &credentials(&known)).await.unwrap();
    leader(&store, "k", 7).await;
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "k"]), "by 7\n");

    // Without the CA, with another CA, without a certificate, with another one.
    let directory = TempDir::new().unwrap();
    let unknown = Certificates::make(directory.path());
    let mut without_ca = credentials(&known);
    without_ca.ca = None;
    let mut other_ca = credentials(&known);
    other_ca.ca = Some(unknown.ca.clone());
    for (credentials, flag) in [(without_ca, "--cacert"), (other_ca, "--cacert")] {
        let error = try_connect(&etcd.url(), &credentials).await.unwrap_err();
        // Unless this machine has no authorities at all.
        if !error.is_configuration() {
            assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
        }
        says(&error, &[flag]);
    }
    let mut without_cert = credentials(&known);
    (without_cert.cert, without_cert.key) = (None, None);
    let mut other_cert = credentials(&known);
    other_cert.cert = Some(unknown.client_cert.clone());
    other_cert.key = Some(unknown.client_key.clone());
    for credentials in [without_cert, other_cert] {
        let error = try_connect(&etcd.url(), &credentials).await.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
        says(&error, &["--cert", "--key"]);
    }
}

async fn tls_and_plain_are_told_apart(version: Version) {
    let directory = TempDir::new().unwrap();
    let certificates = Certificates::make(directory.path());
    let secret = Etcd::start_tls(version, &certificates);
    let plain = Etcd::start(version);
    let url = format!("etcd://{}", secret.address());
    let error = try_connect(&url, &Credentials::default()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    says(&error, &["etcds://"]);
    let url = format!("etcds://{}", plain.address());
    let error = try_connect(&url, &credentials(&certificates)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    says(&error, &["does not speak TLS"]);
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_named() {
    let directory = TempDir::new().unwrap();
    let good = Certificates::make(directory.path());
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        Some(path)
    };
    let missing = Some(directory.path().join("missing.pem"));
    let empty = file("empty.pem", "");
    let torn = file("torn.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
    let not_a_key =
        file("torn.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let wrong = |change: &dyn Fn(&mut Credentials)| {
        let mut wrong = credentials(&good);
        change(&mut wrong);
        wrong
    };
    for (credentials, parts) in [
        (wrong(&|c| c.ca = missing.clone()), ["--cacert", "missing.pem"]),
        (wrong(&|c| c.cert = missing.clone()), ["--cert", "missing.pem"]),
        (wrong(&|c| c.key = missing.clone()), ["--key", "missing.pem"]),
        (wrong(&|c| c.ca = empty.clone()), ["--cacert", "empty.pem"]),
        (wrong(&|c| c.ca = torn.clone()), ["--cacert", "torn.pem"]),
        (wrong(&|c| c.cert = torn.clone()), ["--cert", "torn.pem"]),
        (wrong(&|c| c.key = not_a_key.clone()), ["--key", "torn.key"]),
        (wrong(&|c| c.key = Some(good.server_key.clone())), ["--key", "server.key"]),
        (wrong(&|c| c.cert = None), ["--cert", "both"]),
        (wrong(&|c| c.user = Some("u".into())), ["--user", "both"]),
    ] {
        let error = try_connect("etcds://127.0.0.1:1", &credentials).await.unwrap_err();
        assert!(error.is_configuration(), "{error:?}");
        says(&error, &parts);
    }
    let error = try_connect("etcd://127.0.0.1:1", &credentials(&good)).await.unwrap_err();
    assert!(error.is_configuration(), "{error:?}");
    says(&error, &["etcds://"]);
}

// Who answers.

async fn the_next_member_is_asked_where_one_is_down(version: Version) {
    let etcd = Etcd::start(version);
    let relay = Relay::start(etcd.address()).await;
    let url = format!("etcd://127.0.0.1:1,{},{}", relay.address(), etcd.address());
    let store = connect(&url).await;
    grant(&store, 7, 60).await.unwrap();
    call(&store, Operation::KeepAlive(7)).await.unwrap();
    let mut watches = store.watches();
    watches.open(watch(1, "k", false));
    started_at(&mut watches, 1).await;
    relay.refuse();
    let moved = timeout(PATIENCE, async {
        loop {
            match claim(&store, "k", 7).await {
                Err(Failure::Unavailable) => {}
                answer => return answer,
            }
        }
    });
    // A try whose answer was cut off may have made it.
    match moved.await.unwrap() {
        Ok(Response::Claimed(claimed) | Response::Taken(claimed)) => {
            assert_eq!(claimed.entry.lease, 7);
        }
        answer => panic!("{answer:?}"),
    }
    assert_eq!(next_put(&mut watches).await.key, b"k");
    assert_eq!(call(&store, Operation::KeepAlive(7)).await, Ok(Response::Renewed(60 * SECOND)));
}

async fn the_next_member_is_asked_beside_one_that_is_silent(version: Version) {
    let etcd = Etcd::start(version);
    let (first, silent) = (Relay::start(etcd.address()).await, Relay::start(etcd.address()).await);
    let url = format!("etcd://{},{},{}", first.address(), silent.address(), etcd.address());
    let store = connect(&url).await;
    grant(&store, 7, 60).await.unwrap();
    silent.black_hole();
    first.refuse();
    // The silent one may take as long as all of this test may.
    let asked = timeout(PATIENCE / 2, async {
        while claim(&store, "k", 7).await == Err(Failure::Unavailable) {}
    });
    asked.await.expect("the third one is asked");
}

async fn a_refusal_is_told_rather_than_a_member_that_is_down(version: Version) {
    let etcd = Etcd::start(version);
    etcd.enable_users("root's", "me", "mine", "my/");
    for silent_is_first in [true, false] {
        let (silent, other) =
            (Relay::start(etcd.address()).await, Relay::start(etcd.address()).await);
        let (one, two) = if silent_is_first { (&silent, &other) } else { (&other, &silent) };
        other.refuse();
        let url = format!("etcd://{},{}/my", one.address(), two.address());
        let store = connect_as(&url, "me", "mine").await.unwrap();
        other.accept();
        etcd.etcdctl(&["--user", "root:root's", "user", "delete", "me"]);
        // Its connection is given up.
        silent.black_hole();
        let read = store.call(Operation::Read(vec![self::one("k")]), Duration::from_millis(100));
        assert_eq!(read.await, Err(Failure::Timeout));
        silent.refuse();
        let answer = claim(&store, "k", 7).await;
        assert!(matches!(answer, Err(Failure::Denied(_))), "{answer:?}");
        etcd.etcdctl(&["--user", "root:root's", "user", "add", "me:mine"]);
        etcd.etcdctl(&["--user", "root:root's", "user", "grant-role", "me", "of-the-prefix"]);
    }
}

#[tokio::test]
async fn nothing_there_is_unreachable() {
    for url in ["etcd://127.0.0.1:1", "etcd://localhost:1", "etcds://127.0.0.1:1"] {
        let error = try_connect(url, &Credentials::default()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
        says(&error, &["no etcd answers at", "refused"]);
    }
    let error = try_connect("etcd://no-such-host.invalid", &Credentials::default()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    says(&error, &["no-such-host.invalid:2379"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_is_no_etcd() {
    for answer in
        ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "", "220 mail.example ESMTP\r\n"]
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("etcd://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.writable().await;
                let _ = stream.try_write(answer.as_bytes());
            }
        });
        let error = try_connect(&url, &Credentials::default()).await.unwrap_err();
        assert!(matches!(error, ConnectError::NotAnEtcd { .. }), "{error:?}");
        says(&error, &["no etcd", "--store"]);
        server.abort();
    }
}

async fn an_etcd_that_does_not_answer_is_unreachable(version: Version) {
    let etcd = Etcd::start(version);
    etcd.pause();
    let url: EtcdUrl = etcd.url().parse().unwrap();
    let within = Duration::from_millis(300);
    let error = EtcdStore::connect(&url, &Credentials::default(), within).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    says(&error, &["300.0ms"]);
    etcd.resume();
}

// What the tests share.

async fn started(version: Version) -> (Etcd, EtcdStore) {
    let etcd = Etcd::start(version);
    let store = connect(&etcd.url()).await;
    (etcd, store)
}

async fn connect(url: &str) -> EtcdStore {
    try_connect(url, &Credentials::default()).await.unwrap()
}

async fn connect_as(url: &str, name: &str, password: &str) -> Result<EtcdStore, ConnectError> {
    let mut credentials = Credentials::default();
    credentials.user = Some(name.into());
    credentials.password = Some(password.into());
    try_connect(url, &credentials).await
}

async fn try_connect(url: &str, credentials: &Credentials) -> Result<EtcdStore, ConnectError> {
    EtcdStore::connect(&url.parse().unwrap(), credentials, PATIENCE).await
}

fn credentials(certificates: &Certificates) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.ca = Some(certificates.ca.clone());
    credentials.cert = Some(certificates.client_cert.clone());
    credentials.key = Some(certificates.client_key.clone());
    credentials
}

async fn call(store: &EtcdStore, operation: Operation) -> Result<Response, Failure> {
    store.call(operation, PATIENCE).await
}

async fn grant(store: &EtcdStore, lease: i64, seconds: u64) -> Result<Response, Failure> {
    let ttl = seconds * SECOND;
    call(store, Operation::Grant(Grant { lease, ttl })).await
}

fn claim_operation(key: &str, lease: i64) -> Operation {
    Operation::Claim(Claim { key: key.into(), value: format!("by {lease}").into(), lease })
}

async fn claim(store: &EtcdStore, key: &str, lease: i64) -> Result<Response, Failure> {
    call(store, claim_operation(key, lease)).await
}

fn claimed(answer: Result<Response, Failure>) -> Claimed {
    match answer {
        Ok(Response::Claimed(claimed)) => claimed,
        other => panic!("{other:?}"),
    }
}

/// Claims the key under a new lease, and gives its create revision.
async fn leader(store: &EtcdStore, key: &str, lease: i64) -> i64 {
    grant(store, lease, 30).await.unwrap();
    claimed(claim(store, key, lease).await).entry.created
}

/// Puts `v` past the store, and gives the revision.
async fn put(etcd: &Etcd, key: &str) -> i64 {
    let mut client = client(etcd).await;
    let put = client.put(key, "v", None).await.unwrap();
    put.header().unwrap().revision()
}

async fn client(etcd: &Etcd) -> etcd_client::Client {
    etcd_client::Client::connect([etcd.address().to_string()], None).await.unwrap()
}

fn set(key: &str, value: &str) -> Mutation {
    Mutation::Put(Put { key: key.into(), value: value.into() })
}

fn one(key: &str) -> Selection {
    Selection {
        key: key.into(),
        prefix: false,
        from: None,
        created_before: None,
        order: Order::OldestFirst,
        limit: 0,
        keys_only: false,
    }
}

fn all(prefix: &str) -> Selection {
    Selection { prefix: true, ..one(prefix) }
}

async fn snapshot(store: &EtcdStore, selections: Vec<Selection>) -> Snapshot {
    match call(store, Operation::Read(selections)).await {
        Ok(Response::Snapshot(snapshot)) => snapshot,
        other => panic!("{other:?}"),
    }
}

/// The keys that each selection found.
fn names(snapshot: &Snapshot) -> Vec<String> {
    let name = |entry: &Entry| String::from_utf8(entry.key.clone()).unwrap();
    let names = |found: &Vec<Entry>| found.iter().map(name).collect::<Vec<_>>().join(" ");
    snapshot.found.iter().map(names).collect()
}

fn watch(id: u64, key: &str, prefix: bool) -> Watch {
    Watch { id, key: key.into(), prefix, since: None }
}

async fn next_watched(watches: &mut Box<dyn Watches>) -> Watched {
    timeout(PATIENCE, poll_fn(|context| watches.poll_next(context)))
        .await
        .expect("a watch tells something")
}

async fn next(watches: &mut Box<dyn Watches>) -> Change {
    next_watched(watches).await.change
}

async fn next_put(watches: &mut Box<dyn Watches>) -> Entry {
    match next(watches).await {
        Change::Put(entry) => entry,
        other => panic!("{other:?}"),
    }
}

async fn started_at(watches: &mut Box<dyn Watches>, id: u64) -> i64 {
    let watched = next_watched(watches).await;
    match watched.change {
        Change::Started(revision) if watched.id == id => revision,
        _ => panic!("{watched:?}"),
    }
}

/// How many streams of renewals etcd has `started`, or `handled` to their end.
fn renewal_streams(etcd: &Etcd, what: &str) -> u64 {
    let metrics = etcd.metrics();
    let name = format!("grpc_server_{what}_total");
    let figures = metrics.lines().filter(|line| line.starts_with(&name));
    let streams = figures.filter(|line| line.contains("\"LeaseKeepAlive\""));
    streams.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// A figure of etcd's, as a whole number.
fn metric(metrics: &str, name: &str) -> u64 {
    let line = metrics
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")))
        .unwrap_or_else(|| panic!("{name} is no figure of etcd's"));
    line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64
}

/// That the sentence holds all of these parts, and is one.
fn says(error: &ConnectError, parts: &[&str]) {
    let sentence = error.to_string();
    for part in parts {
        assert!(sentence.contains(part), "{part:?} is not in: {sentence}");
    }
    assert!(!sentence.contains('\n'), "{sentence}");
}
