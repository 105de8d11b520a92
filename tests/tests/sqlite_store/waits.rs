//! Calls that wait: for the disk, for a lock, for one another; and for time to pass.

use super::*;

#[tokio::test]
async fn what_waits_together_is_one_commit() {
    let (place, store) = Place::with_lease().await;
    let before = place.commits();
    let claims = (0..50).map(|number| claim(&format!("key/{number}"), 1));
    let mut revisions = BTreeSet::new();
    for claimed in asked_together(&place, &store, claims).await {
        match claimed.expect("an answer") {
            Response::Claimed(claimed) => revisions.insert(claimed.entry.created),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(revisions.len(), 50, "each has a revision of its own");
    let commits = place.commits() - before;
    assert!(commits <= 2, "{commits} commits");
}

#[tokio::test]
async fn no_commit_is_of_more_than_four_mebibytes() {
    let (place, store) = Place::with_lease().await;
    let guard = claimed(&store, "guard", 1).await;
    let value = "v".repeat(1_000_000);
    let puts = (0..15).map(|number| put_under(&guard, &number.to_string(), &value));
    for put in asked_together(&place, &store, puts).await {
        put.expect("an answer");
    }
    // All changes of one commit have the same time.
    let commits = place.number("SELECT count(DISTINCT at) FROM history") - 1;
    assert!((3..15).contains(&commits), "{commits} commits");
}

#[tokio::test]
async fn what_was_given_up_before_it_began_never_happens() {
    let (place, store) = Place::with_lease().await;
    let lock = place.lock();
    let late = store.call(claim("late", 1), Duration::from_millis(50));
    assert_eq!(late.await, Err(Failure::Timeout));
    let renewal = store.call(Operation::KeepAlive(1), Duration::from_millis(50));
    assert_eq!(renewal.await, Err(Failure::Timeout));
    let dropped = timeout(Duration::from_millis(50), store.call(claim("dropped", 1), LIMIT));
    assert!(dropped.await.is_err());
    let patient = tokio::spawn(store.call(claim("patient", 1), LIMIT));
    drop(lock);
    patient.expect_soon("no panic").await.expect("an answer");
    assert_eq!(keys(&store).await, ["patient"]);
}

/// The store asks for the lock again, as long as the caller waits.
#[tokio::test]
async fn a_lock_that_is_held_for_long_is_waited_for() {
    let (place, store) = Place::with_lease().await;
    let lock = place.lock();
    let patient = tokio::spawn(store.call(claim("patient", 1), LIMIT));
    // Longer than the store waits at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!patient.is_finished());
    drop(lock);
    let claimed = patient.expect_soon("no panic").await;
    assert!(matches!(claimed, Ok(Response::Claimed(_))), "{claimed:?}");
}

#[tokio::test]
async fn reads_wait_for_no_writer() {
    let (place, store) = Place::with_lease().await;
    claimed(&store, "key", 1).await;
    let lock = place.lock();
    assert_eq!(keys(&store).await, ["key"]);
    drop(lock);
}

// Time.

#[tokio::test]
async fn a_lease_lives_for_exactly_what_was_granted() {
    let place = Place::new();
    let clock = ManualClock::default();
    let store = place.open_at(&clock, "boot").await;
    // A second at least.
    assert_eq!(ask(&store, grant(1, 5)).await, Response::Granted(SECOND));
    assert_eq!(ask(&store, grant(2, SECOND + 1)).await, Response::Granted(SECOND + 1));
    claimed(&store, "one", 1).await;
    claimed(&store, "two", 2).await;
    clock.advance(Duration::from_nanos(SECOND - 1));
    assert_eq!(keys(&store).await, ["one", "two"]);
    assert_eq!(ask(&store, Operation::KeepAlive(2)).await, Response::Renewed(SECOND + 1));
    // A read alone ends what is over.
    clock.advance(Duration::from_nanos(1));
    assert_eq!(keys(&store).await, ["two"]);
    assert_eq!(ask(&store, claim("one", 1)).await, Response::Expired);
    clock.advance(Duration::from_nanos(SECOND));
    assert_eq!(ask(&store, Operation::Revoke(2)).await, Response::Expired);
    assert_eq!(keys(&store).await, [""; 0]);
}

#[tokio::test]
async fn who_watches_ends_the_leases_of_others() {
    let place = Place::new();
    let clock = ManualClock::default();
    let store = place.open_at(&clock, "boot").await;
    ask(&store, grant(2, SECOND)).await;
    ask(&store, grant(1, 2 * SECOND)).await;
    claimed(&store, "b", 1).await;
    claimed(&store, "a", 1).await;
    let guard = claimed(&store, "c", 2).await;
    let other = place.open_at(&clock, "boot").await;
    let mut watches = started(&other).await;
    drop(store);
    clock.advance(Duration::from_secs(5));
    // Lease by lease, in the order of their ends, each in a revision of its own.
    let at = guard.created;
    assert_eq!(seen(&mut watches).await, (at + 1, "c".into()));
    assert_eq!(seen(&mut watches).await, (at + 2, "a".into()));
    assert_eq!(seen(&mut watches).await, (at + 2, "b".into()));
}

#[tokio::test]
async fn no_lease_outlives_the_machines_next_start() {
    let place = Place::new();
    let clock = ManualClock::default();
    clock.advance(HOUR);
    let store = place.open_at(&clock, "first boot").await;
    ask(&store, grant(1, 600 * SECOND)).await;
    let guard = claimed(&store, "leased", 1).await;
    ask(&store, put_under(&guard, "kept", "value")).await;
    drop(store);
    // A clock that has just begun.
    let store = place.open_at(&ManualClock::default(), "second boot").await;
    assert_eq!(keys(&store).await, ["kept"]);
    assert_eq!(ask(&store, Operation::KeepAlive(1)).await, Response::Expired);
    // Epochs go on, and nobody is told half of what happened.
    assert_eq!(ask(&store, grant(1, SECOND)).await, Response::Granted(SECOND));
    assert!(claimed(&store, "leased", 1).await.created > guard.created + 1);
    let mut watches = watch(&store, Some(guard.created));
    assert!(matches!(next(&mut watches).await, Change::Started(_)));
    let over = next(&mut watches).await;
    assert!(
        matches!(over, Change::Ended(Failure::Compacted(oldest)) if oldest == guard.created + 2),
        "{over:?}"
    );
}

#[tokio::test]
async fn history_is_kept_for_an_hour() {
    let place = Place::new();
    let clock = ManualClock::default();
    let store = place.open_at(&clock, "boot").await;
    ask(&store, grant(1, 100_000 * SECOND)).await;
    // More than what is forgotten at once.
    let guard = claimed(&store, "guard", 1).await;
    let writes: Vec<_> = (0..1_500)
        .map(|number| {
            let put = put_under(&guard, "key", &number.to_string());
            tokio::spawn(store.call(put, LIMIT))
        })
        .collect();
    for write in writes {
        write.expect_soon("no panic").await.expect("an answer");
    }
    clock.advance(HOUR - Duration::from_secs(1));
    let kept = claimed(&store, "kept", 1).await.created;
    assert_eq!(place.number("SELECT count(*) FROM history"), 1_502);
    clock.advance(Duration::from_secs(61));
    for key in ["later", "even later"] {
        claimed(&store, key, 1).await;
    }
    assert_eq!(place.number("SELECT count(*) FROM history"), 3);
    assert_eq!(place.number("SELECT compacted FROM meta"), kept);
    let mut watches = watch(&store, Some(kept));
    assert_eq!(next(&mut watches).await, Change::Started(kept - 1));
    assert_eq!(seen(&mut watches).await, (kept, "kept".into()));
    let mut watches = watch(&store, Some(kept - 1));
    assert_eq!(next(&mut watches).await, Change::Started(kept - 2));
    let over = next(&mut watches).await;
    assert_eq!(over, Change::Ended(Failure::Compacted(kept)));
    // Also where nothing is changed besides. The last change stays.
    clock.advance(2 * HOUR);
    ask(&store, Operation::KeepAlive(1)).await;
    assert_eq!(place.number("SELECT count(*) FROM history"), 1);
    let size = place.number("SELECT sum(64 + length(key) + length(value)) FROM history");
    assert_eq!(place.number("SELECT history FROM meta"), size);
}

/// Watches that begin together, each from a revision of its own.
#[tokio::test]
async fn a_watch_from_now_on_is_not_told_what_was() {
    let (_place, store) = Place::with_lease().await;
    let last = claimed(&store, "key", 1).await.created;
    for _ in 0..50 {
        let mut watches = watch(&store, None);
        watches.open(Watch { id: 2, key: Vec::new(), prefix: true, since: Some(last) });
        let mut told = Vec::new();
        while told.len() < 3 {
            let next = poll_fn(|context| watches.poll_next(context));
            let watched = soon("a watch tells", next).await;
            told.push((watched.id, matches!(watched.change, Change::Started(_))));
        }
        told.sort_unstable();
        assert_eq!(told, [(1, true), (2, false), (2, true)]);
    }
}

/// A watch ends only if it was not told yet what another process has made the store forget.
#[tokio::test]
async fn what_is_forgotten_ends_those_who_missed_it() {
    let place = Place::new();
    let store = place.open().await;
    let mut watches = started(&store).await;
    // Another process commits, and forgets what was before.
    let commit = |revision: i64, compacted: i64| {
        place
            .database()
            .execute_batch(&format!(
                "BEGIN IMMEDIATE;
                 UPDATE meta SET revision = {revision}, compacted = {compacted};
                 DELETE FROM history;
                 INSERT INTO history VALUES ({revision}, 0, 0, x'61', x'', 0, {revision});
                 COMMIT;"
            ))
            .expect("a change");
    };
    commit(2, 2);
    assert_eq!(seen(&mut watches).await, (2, "a".into()));
    commit(3, 2);
    assert_eq!(seen(&mut watches).await, (3, "a".into()));
    commit(5, 5);
    assert_eq!(next(&mut watches).await, Change::Ended(Failure::Compacted(5)));
}
