//! What etcd answers, and its limits: leases, reads, guarded writes, the prefix.

use incumbent::{LeaseId, admin};

use super::*;

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
}

// Leases.

async fn a_lease_is_granted_for_whole_seconds(version: Version) {
    let (_etcd, store) = started(version).await;
    let ask = |lease, ttl| call(&store, operations::grant(lease, ttl));
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
    let mut watches = watching(&store, "k").await;
    let mut client = etcd.client().await;
    client.put("k", vec![b'v'; LARGE], None).await.unwrap();
    assert_eq!(next_put(&mut watches).await.value.len(), LARGE);
    match claim(&store, "k", 7).await {
        Ok(Response::Taken(taken)) => assert_eq!(taken.entry.value.len(), LARGE),
        other => panic!("{other:?}"),
    }
    let found = snapshot(&store, vec![all("k"), one("k")]).await;
    assert_eq!(found.found.concat().len(), 2);
    let got = store.peek(b"k".into(), LIMIT).await.unwrap().unwrap();
    assert_eq!(got.value.len(), LARGE);
}

async fn an_answer_without_measure_fails_alone(version: Version) {
    const LARGE: usize = 9_000_000;
    let etcd = Etcd::start_with(version, &["--max-request-bytes", "20000000"]);
    let store = connect(&etcd.url()).await;
    let mut client = etcd.client().await;
    for key in ["k/1", "k/2"] {
        client.put(key, vec![b'v'; LARGE], None).await.unwrap();
    }
    let mut watches = watching(&store, "k").await;
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

async fn pages_stay_below_the_prefix(etcd: Etcd) {
    for key in ["a", "my", "my/a/1", "my/a/2", "my/a0", "my/b", "my0", "z"] {
        put(&etcd, key).await;
    }
    let mut client = etcd.client().await;
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
        keys.iter().map(|entry| String::from_utf8_lossy(&entry.key)).collect::<Vec<_>>().join(" ")
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
        let found = pages(store, prefix, from.as_bytes()).await;
        assert_eq!(found, expected, "{prefix:?} from {from:?}");
    }
    // 0xff ends the prefix of nobody, and is behind all that begins with letters.
    assert_eq!(pages(&everything, "", &[0xff, 0xff, 0]).await, "");
    assert_eq!(pages(&below, "", &[0xff]).await, "");

    // A user who may read a list may read every page of it, and what is behind the last one.
    etcd.enable_users("me", "mine", "my/a/");
    let store = connect_as(&format!("{}/my", etcd.url()), "me", "mine").await.unwrap();
    for (from, expected) in [("", "a/1 a/2"), ("a/2", "a/2"), ("a/3", ""), ("b", "")] {
        assert_eq!(pages(&store, "a/", from.as_bytes()).await, expected, "from {from:?}");
    }
}

async fn a_read_is_at_one_revision_while_history_is_forgotten(version: Version) {
    const READS: usize = 300;
    let (etcd, store) = started(version).await;
    let mut client = etcd.client().await;
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

/// etcd 3.5.0 to 3.5.6 panic when a transaction that reads is given up while it is served
/// (etcd#14110).
async fn reads_that_are_given_up_are_no_harm(version: Version) {
    const KEYS: usize = 1_000;
    const READS: u64 = 600;
    let (etcd, store) = started(version).await;
    let mut client = etcd.client().await;
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
    let mut client = etcd.client().await;
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
        write((0..200).map(|n| operations::put(&n.to_string(), "")).collect()).await,
    ] {
        assert!(matches!(impossible, Err(Failure::Invalid(_))), "{impossible:?}");
    }
    assert_eq!(admin::get(&store, b"k", LIMIT).await, Ok(None));
}

// The prefix.

async fn keys_have_the_prefix_in_etcd_and_nowhere_else(etcd: Etcd) {
    let store = connect(&format!("{}/team/a", etcd.url())).await;
    put(&etcd, "team/b/k").await;
    put(&etcd, "team/a").await;

    let mut watches = store.watches();
    watches.open(Watch { prefix: true, ..watch(1, "") });
    started_at(&mut watches, 1).await;

    let epoch = leader(&store, "lead", 7).await;
    assert!(
        matches!(claim(&store, "lead", 7).await, Ok(Response::Taken(of)) if of.entry.key == b"lead")
    );
    let guarded = Operation::Guarded(Guarded {
        guard: Guard { key: b"lead".to_vec(), epoch, lease: Some(7) },
        expect: vec![Expectation { key: b"k".to_vec(), modified: 0 }],
        mutations: vec![operations::put("k", "v"), Mutation::Proclaim(b"p".to_vec())],
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
    let (relay, store) = relayed(&etcd).await;
    grant(&direct, 7, 30).await.unwrap();
    relay.stall_replies();
    let operation = operations::claim("k", 7);
    let answer = store.call(operation, Duration::from_millis(200)).await;
    assert_eq!(answer, Err(Failure::Timeout));
    let mut found = None;
    let committed = async || {
        found = admin::get(&direct, b"k", LIMIT).await.unwrap();
        found.is_some()
    };
    until("the claim is committed", committed).await;
    assert_eq!(found.unwrap().lease, LeaseId::from(7));
    relay.flow();
    assert!(matches!(claim(&store, "k", 7).await, Ok(Response::Taken(of)) if of.entry.lease == 7));
}
