//! What waits goes together, and comes to what it would have come to alone.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::*;

on_each_version! {
    what_waits_goes_together,
    candidates_of_one_queue_have_revisions_of_their_own,
    what_fails_fails_alone,
    what_is_denied_is_denied_alone,
    etcds_limits_are_learned,
    no_answer_is_given_for_what_kept_silent,
    what_is_done_is_not_done_again_for_want_of_space,
    large_answers_come_one_by_one,
    many_writes_of_one_key_hold_up_nothing,
    waiting_operations_pass_requests_that_hang,
    an_operation_that_was_given_up_is_not_sent,
}

#[test]
fn what_waits_ends_with_its_runtime() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut calls = runtime.block_on(async {
            let store = connect(&etcd.url()).await;
            let epoch = leader(&store, "k", 7).await;
            etcd.pause();
            let entry = Entry {
                key: b"k".into(),
                value: Vec::new(),
                lease: 7,
                created: epoch,
                modified: epoch,
            };
            let write = operations::guarded(&entry, vec![operations::put("one", "v")]);
            let calls = (0..10_000).map(|_| store.call(write.clone(), LIMIT));
            calls.map(tokio::spawn).collect::<Vec<_>>()
        });
        drop(runtime);
        assert!(calls.iter_mut().all(|call| call.is_finished()));
        etcd.resume();
    }
}

/// Asks all of them at once, in this order.
async fn all_at_once(store: &EtcdStore, operations: Vec<Operation>) -> Vec<Answer> {
    let calls = operations.into_iter().map(|operation| store.call(operation, LIMIT));
    soon("all are answered", join_all(calls)).await
}

/// How many transactions etcd was asked for.
fn transactions(etcd: &Etcd) -> u64 {
    let metrics = etcd.metrics();
    let figure = metrics
        .lines()
        .find(|line| line.starts_with("grpc_server_started_total") && line.contains("\"Txn\""));
    figure.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

fn claims(many: usize, lease: i64) -> Vec<Operation> {
    (0..many).map(|number| operations::claim(&format!("{number}/{lease:x}"), lease)).collect()
}

fn created(answer: &Answer) -> i64 {
    match answer {
        Ok(Response::Claimed(claimed)) => claimed.entry.created,
        other => panic!("{other:?}"),
    }
}

async fn what_waits_goes_together(version: Version) {
    let (etcd, store) = started(version).await;
    grant(&store, 7, 60).await.unwrap();
    let before = transactions(&etcd);
    let answers = all_at_once(&store, claims(1_000, 7)).await;
    let claimed = transactions(&etcd) - before;
    assert!(claimed <= 20, "{claimed} transactions for 1,000 claims");
    let keys: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Response::Claimed(Claimed { entry, at })) => {
                assert_eq!((entry.created, entry.modified, entry.lease), (*at, *at, 7));
                entry.clone()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    // They are there as they were told, and reads go together as well.
    let reads = keys.iter().map(|entry| {
        let key = String::from_utf8(entry.key.clone()).unwrap();
        let queue = key.split_once('/').unwrap().0.to_owned() + "/";
        Operation::Read(vec![one(&key), Selection { limit: 1, ..all(&queue) }])
    });
    let before = transactions(&etcd);
    let answers = all_at_once(&store, reads.collect()).await;
    let read = transactions(&etcd) - before;
    assert!(read <= 40, "{read} transactions for 1,000 reads");
    for (entry, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(Response::Snapshot(Snapshot { at, found })) => {
                assert_eq!(found, [[entry.clone()], [entry.clone()]]);
                assert!(at >= entry.created);
            }
            other => panic!("{other:?}"),
        }
    }
    let writes = keys
        .iter()
        .map(|entry| operations::guarded(entry, vec![Mutation::Delete(entry.key.clone())]));
    let answers = all_at_once(&store, writes.collect()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Response::Applied(_)))), "{answers:?}");
    assert_eq!(snapshot(&store, vec![all("")]).await.found, [[]; 1]);
}

async fn candidates_of_one_queue_have_revisions_of_their_own(version: Version) {
    let (_etcd, store) = started(version).await;
    for lease in 1..=40 {
        grant(&store, lease, 60).await.unwrap();
    }
    let claims = (1..=40).map(|lease| operations::claim(&format!("jobs/night/{lease:x}"), lease));
    let answers = all_at_once(&store, claims.collect()).await;
    let revisions: BTreeSet<i64> = answers.iter().map(created).collect();
    assert_eq!(revisions.len(), 40, "no two of them are the first");
}

async fn what_fails_fails_alone(version: Version) {
    let (etcd, store) = started(version).await;
    let epoch = leader(&store, "leader", 7).await;
    put(&etcd, "taken").await;
    let leader_key = |epoch| Entry {
        key: b"leader".into(),
        value: Vec::new(),
        lease: 7,
        created: epoch,
        modified: epoch,
    };
    let expecting = |modified| {
        let Operation::Guarded(write) =
            operations::guarded(&leader_key(epoch), vec![operations::put("conflict", "v")])
        else {
            unreachable!()
        };
        let expect = vec![Expectation { key: b"taken".into(), modified }];
        Operation::Guarded(Guarded { expect, ..write })
    };
    let write =
        |epoch, key: &str| operations::guarded(&leader_key(epoch), vec![operations::put(key, "v")]);
    // The first ones are under way by themselves while the others gather.
    for round in 0..2 {
        let mut asked = claims(10, 7);
        asked.iter_mut().for_each(|operation| {
            if let Operation::Claim(claim) = operation {
                claim.key.extend(format!("-{round}").bytes());
            }
        });
        asked.extend([
            operations::claim("taken", 7),
            write(epoch + 1, "stale"),
            write(epoch, "written"),
            expecting(1),
            write(epoch, if round == 0 { "" } else { "x" }),
        ]);
        if round > 0 {
            asked.push(operations::claim("without", 99));
        }
        let answers = all_at_once(&store, asked).await;
        assert!(answers[..10].iter().all(|answer| created(answer) > epoch), "{answers:?}");
        let taken = &answers[10];
        assert!(matches!(taken, Ok(Response::Taken(it)) if it.entry.value == b"v"), "{taken:?}");
        assert_eq!(answers[11], Ok(Response::Stale));
        assert!(matches!(answers[12], Ok(Response::Applied(_))), "{answers:?}");
        assert_eq!(answers[13], Ok(Response::Conflict));
        match round {
            0 => assert!(matches!(answers[14], Err(Failure::Invalid(_))), "{answers:?}"),
            _ => {
                assert!(matches!(answers[14], Ok(Response::Applied(_))), "{answers:?}");
                assert_eq!(answers[15], Ok(Response::Expired));
            }
        }
    }
    let found = snapshot(&store, vec![one("stale"), one("written"), one("conflict")]).await;
    assert_eq!(names(&found), ["", "written", ""]);
}

async fn what_is_denied_is_denied_alone(etcd: Etcd) {
    etcd.enable_users("me", "mine", "my/");
    let store = connect_as(&etcd.url(), "me", "mine").await.unwrap();
    grant(&store, 7, 60).await.unwrap();
    let claims = (0..20).map(|number| {
        let owner = if number % 4 == 3 { "your" } else { "my" };
        operations::claim(&format!("{owner}/{number}/7"), 7)
    });
    let reads = (0..20)
        .map(|number| Operation::Read(vec![one(if number % 4 == 3 { "your/k" } else { "my/k" })]));
    for asked in [claims.collect::<Vec<_>>(), reads.collect()] {
        for (number, answer) in all_at_once(&store, asked).await.into_iter().enumerate() {
            match number % 4 {
                3 => assert!(matches!(answer, Err(Failure::Denied(_))), "{answer:?}"),
                _ => assert!(answer.is_ok(), "{answer:?}"),
            }
        }
    }
}

async fn etcds_limits_are_learned(version: Version) {
    let limits = ["--max-txn-ops", "10", "--max-request-bytes", "20000"];
    let etcd = Etcd::start_with(version, &limits);
    let store = connect(&etcd.url()).await;
    grant(&store, 7, 60).await.unwrap();
    all_at_once(&store, claims(200, 7)).await.iter().for_each(|answer| _ = created(answer));
    let large = |number: usize| {
        let value = vec![b'v'; 5_000];
        Operation::Claim(Claim { key: format!("large/{number}").into(), value, lease: 7 })
    };
    let answers = all_at_once(&store, (0..50).map(large).collect()).await;
    answers.iter().for_each(|answer| _ = created(answer));
    // From now on it is not refused any more.
    let more = (0..200).map(|number| operations::claim(&format!("more/{number}/7"), 7)).collect();
    let more_large = (50..100).map(large).collect();
    for (operations, most) in [(more, 100), (more_large, 40)] {
        let before = transactions(&etcd);
        let answers = all_at_once(&store, operations).await;
        answers.iter().for_each(|answer| _ = created(answer));
        let asked = transactions(&etcd) - before;
        assert!(asked <= most, "{asked} transactions");
    }
}

async fn no_answer_is_given_for_what_kept_silent(version: Version) {
    let (etcd, store) = started(version).await;
    grant(&store, 7, 60).await.unwrap();
    etcd.pause();
    let within = Duration::from_millis(500);
    let calls = claims(100, 7).into_iter().map(|operation| store.call(operation, within));
    let answers = soon("all are given up", join_all(calls)).await;
    assert!(answers.iter().all(|answer| *answer == Err(Failure::Timeout)), "{answers:?}");
    etcd.resume();
    // Each may have happened, and none is made twice: a caller that asks again learns which.
    for answer in all_at_once(&store, claims(100, 7)).await {
        let (Ok(Response::Claimed(claimed)) | Ok(Response::Taken(claimed))) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(claimed.entry.lease, 7);
    }
}

async fn what_is_done_is_not_done_again_for_want_of_space(version: Version) {
    let etcd = Etcd::start_with(version, &["--quota-backend-bytes", "8000000"]);
    let store = connect(&etcd.url()).await;
    let epoch = leader(&store, "leader", 7).await;
    let write = |number: usize| {
        Operation::Guarded(Guarded {
            guard: Guard { key: b"leader".into(), epoch, lease: None },
            expect: vec![Expectation { key: format!("{number}").into(), modified: 0 }],
            mutations: vec![operations::put(&format!("{number}"), vec![b'v'; 4_000])],
        })
    };
    for round in 0..40 {
        let asked = (round * 100..(round + 1) * 100).map(write).collect();
        for (number, answer) in (round * 100..).zip(all_at_once(&store, asked).await) {
            // It is there once, or the caller does not know.
            match answer {
                Ok(Response::Applied(_)) | Err(Failure::Other(_)) => {}
                other => panic!("{number}: {other:?}"),
            }
        }
    }
    let keys = Selection { keys_only: true, ..all("") };
    let found = snapshot(&store, vec![keys]).await.found.concat();
    assert!(found.iter().all(|entry| entry.created == entry.modified), "each was written once");
    if version == Version::V3_5 {
        // It refuses deletions as well, also by themselves.
        return;
    }
    let delete = |entry: &Entry| Mutation::Delete(entry.key.clone());
    let leader_key = found.iter().find(|entry| entry.key == b"leader").unwrap();
    let others = found.iter().filter(|entry| entry.key != b"leader").take(200);
    let asked = others.map(|entry| operations::guarded(leader_key, vec![delete(entry)])).collect();
    for answer in all_at_once(&store, asked).await {
        assert!(matches!(answer, Ok(Response::Applied(_))), "{answer:?}");
    }
}

async fn large_answers_come_one_by_one(version: Version) {
    let (etcd, store) = started(version).await;
    let mut client = etcd.client().await;
    for number in 0..30 {
        client.put(format!("{number}"), vec![b'v'; 1_000_000], None).await.unwrap();
    }
    let reads = (0..30).map(|number| Operation::Read(vec![one(&format!("{number}"))]));
    for answer in all_at_once(&store, reads.collect()).await {
        match answer {
            Ok(Response::Snapshot(snapshot)) => {
                assert_eq!(snapshot.found.concat()[0].value.len(), 1_000_000);
            }
            other => panic!("{:?}", other.map(|_| "an answer")),
        }
    }
}

/// Renewals beside them are answered meanwhile.
async fn many_writes_of_one_key_hold_up_nothing(version: Version) {
    let (_etcd, store) = started(version).await;
    let epoch = leader(&store, "leader", 7).await;
    let write = Operation::Guarded(Guarded {
        guard: Guard { key: b"leader".into(), epoch, lease: None },
        expect: Vec::new(),
        mutations: vec![operations::put("one", "v")],
    });
    let writes = async {
        let answers = all_at_once(&store, vec![write; 2_000]).await;
        (answers, Instant::now())
    };
    let renewals = async {
        for _ in 0..20 {
            let renewed = store.call(Operation::KeepAlive(7), LIMIT).await;
            assert!(matches!(renewed, Ok(Response::Renewed(_))), "{renewed:?}");
        }
        Instant::now()
    };
    let ((answers, written), renewed) = tokio::join!(writes, renewals);
    assert!(renewed < written, "the renewals wait for the writes");
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Response::Applied(_)))));
}

async fn waiting_operations_pass_requests_that_hang(version: Version) {
    const HOUR: Duration = Duration::from_secs(3_600);
    let etcd = Etcd::start(version);
    let silent = Relay::start(etcd.address()).await;
    let other = Relay::start(etcd.address()).await;
    let url = format!("etcd://{},{}", silent.address(), other.address());
    let store = connect(&url).await;
    grant(&store, 7, 60).await.unwrap();
    silent.stall_replies();
    let ask = |claim| tokio::spawn(store.call(claim, HOUR));
    let mut first = claims(8, 7);
    let then = first.split_off(4);
    let hang: Vec<_> = first.into_iter().map(ask).collect();
    // It finds out that the first member keeps silent.
    store.peek(b"any".to_vec(), LIMIT).await.unwrap();
    let wait = then.into_iter().map(ask);
    for passes in soon("the waiting ones pass", join_all(wait)).await {
        created(&passes.unwrap());
    }
    assert!(hang.iter().all(|call| !call.is_finished()));
    hang.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn an_operation_that_was_given_up_is_not_sent(version: Version) {
    let (_etcd, store) = started(version).await;
    grant(&store, 7, 60).await.unwrap();
    let mut first: Vec<_> =
        claims(100, 7).into_iter().map(|claim| store.call(claim, LIMIT)).collect();
    // The first four would be sent at once; the others wait for them.
    drop(first.split_off(4));
    join_all(first).await.iter().for_each(|answer| _ = created(answer));
    let last = Operation::Claim(Claim { key: b"last".into(), value: Vec::new(), lease: 7 });
    created(&call(&store, last).await);
    let found = snapshot(&store, vec![all("")]).await.found.concat();
    assert_eq!(found.len(), 5);
}
