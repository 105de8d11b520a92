//! Renewals that are late, lost, or asked of two members.

use super::*;

on_each_version! {
    a_late_renewal_still_counts,
    renewals_under_way_side_by_side_are_all_answered,
    a_renewal_outlives_a_broken_connection,
    a_renewal_is_asked_of_two_members,
    a_stream_ends_with_its_lease,
    a_lost_connection_is_unavailable,
}

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
        let answer = renewal.expect_soon("the renewal is answered").await;
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
    for answer in soon("all are answered", renewals.join_all()).await {
        assert_eq!(answer, Ok(Response::Renewed(60 * SECOND)));
    }
    // One stream is left, and the others closed.
    assert_eq!(call(&store, Operation::KeepAlive(7)).await, Ok(Response::Renewed(60 * SECOND)));
}

async fn a_renewal_outlives_a_broken_connection(version: Version) {
    let (etcd, direct) = started(version).await;
    let (relay, store) = relayed(&etcd).await;
    grant(&direct, 7, 60).await.unwrap();
    call(&store, Operation::KeepAlive(7)).await.unwrap();
    // Broken while it was idle: the next attempt does not notice.
    relay.cut();
    let renewed = call_again(&store, Operation::KeepAlive(7));
    assert_eq!(soon("the renewal outlives it", renewed).await, Ok(Response::Renewed(60 * SECOND)));
    // Broken while one is under way: an answer can no longer come.
    relay.stall_replies();
    let within = Duration::from_millis(50);
    let mut renewal = tokio::spawn(store.call(Operation::KeepAlive(7), within));
    assert!(timeout(within * 3, &mut renewal).await.is_err());
    relay.refuse();
    let answer = renewal.expect_soon("the renewal is answered").await;
    assert_eq!(answer, Err(Failure::Unavailable));
}

/// A second one is asked where the first keeps silent or fails. The first answer counts.
async fn a_renewal_is_asked_of_two_members(version: Version) {
    let (etcd, direct) = started(version).await;
    let (silent, patient) = (Duration::from_millis(200), LIMIT * 2);
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
        until("the other is asked", async || is_up(&store).await).await;
        second.accept();
        grant(&direct, lease, 60).await.unwrap();

        first.stall_replies();
        second.stall_replies();
        let before = renewal_streams(&etcd, "started");
        let renewal = tokio::spawn(store.call(Operation::KeepAlive(lease), within));
        until(case, async || renewal_streams(&etcd, "started") >= before + asked).await;
        end(&first, &second);
        let answer = renewal.expect_soon(case).await;
        assert_eq!(answer, Ok(Response::Renewed(60 * SECOND)), "{case}");
    }
}

async fn a_stream_ends_with_its_lease(version: Version) {
    let (etcd, store) = started(version).await;
    let open = || renewal_streams(&etcd, "started") - renewal_streams(&etcd, "handled");
    let none_is_open = async || until("no stream is open", async || open() == 0).await;
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
        let mut renewal = tokio::spawn(store.call(Operation::KeepAlive(lease), LIMIT));
        assert!(timeout(Duration::from_millis(20), &mut renewal).await.is_err());
        let revocation = tokio::spawn(store.call(Operation::Revoke(lease), LIMIT));
        etcd.resume();
        assert_eq!(revocation.await.unwrap(), Ok(Response::Revoked));
        renewal.await.unwrap().unwrap();
    }
    none_is_open().await;
}

async fn a_lost_connection_is_unavailable(etcd: Etcd) {
    let (relay, store) = relayed(&etcd).await;
    relay.refuse();
    for operation in [
        Operation::Read(vec![one("k")]),
        operations::grant(1, SECOND),
        Operation::KeepAlive(1),
        Operation::Revoke(1),
        operations::claim("k", 1),
    ] {
        assert_eq!(call(&store, operation).await, Err(Failure::Unavailable));
    }
    relay.accept();
    until("the connection is mended", async || is_up(&store).await).await;
}
