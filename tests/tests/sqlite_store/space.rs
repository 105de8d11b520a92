//! How much the file may hold, and what happens when it is full.

use super::*;

const MIB: u64 = 1 << 20;

impl Place {
    /// A place, a store there with this quota, and a key to guard writes with.
    async fn with_quota(quota: u64) -> (Self, SqliteStore, Entry) {
        let place = Self::new();
        let store = SqliteStore::open_with_quota(place.file(), quota).expect_soon("a store").await;
        ask(&store, grant(1, 60 * SECOND)).await;
        let guard = claimed(&store, "guard", 1).await;
        (place, store, guard)
    }

    fn length(&self, ending: &str) -> u64 {
        std::fs::metadata(self.beside(ending)).map_or(0, |found| found.len())
    }
}

#[tokio::test]
async fn a_key_that_is_rewritten_takes_no_more_and_more_space() {
    const QUOTA: u64 = 16 * MIB;
    let (place, store, guard) = Place::with_quota(QUOTA).await;
    let mut watches = started(&store).await;
    let value = "v".repeat(100_000);
    for _ in 0..300 {
        ask(&store, put_under(&guard, "key", &value)).await;
        // Who listens misses nothing.
        assert_eq!(seen(&mut watches).await.1, "key");
    }
    let kept = place.number("SELECT sum(64 + length(key) + length(value) + 4096) FROM history");
    let most = i64::try_from(QUOTA / 4).expect("a number");
    assert!((most - 105_000..=most).contains(&kept), "{kept} bytes of history");
    assert_eq!(place.number("SELECT history FROM meta"), kept);
    let files = place.length("") + place.length("-wal");
    assert!(files < QUOTA, "{files} bytes");
    // A large change makes the store forget many small ones at once.
    ask(&store, put_under(&guard, "key", &"v".repeat(1_000_000))).await;
    assert!(place.number("SELECT history FROM meta") <= most);
    // Who is behind is told so.
    let oldest = place.number("SELECT min(revision) FROM history");
    let mut watches = watch(&store, Some(oldest));
    assert_eq!(next(&mut watches).await, Change::Started(oldest - 1));
    assert_eq!(seen(&mut watches).await, (oldest, "key".into()));
    let mut watches = watch(&store, Some(oldest - 1));
    assert_eq!(next(&mut watches).await, Change::Started(oldest - 2));
    assert_eq!(next(&mut watches).await, Change::Ended(Failure::Compacted(oldest)));
}

#[tokio::test]
async fn a_full_store_keeps_its_leaders() {
    let (place, store, guard) = Place::with_quota(8 * MIB).await;
    ask(&store, grant(2, 60 * SECOND)).await;
    claimed(&store, "other", 2).await;
    let value = "v".repeat(100_000);
    let mut made = 0;
    let refused = loop {
        let put = put_under(&guard, &format!("key/{made}"), &value);
        match store.call(put, LIMIT).await {
            Ok(_) => made += 1,
            Err(refused) => break refused,
        }
        assert!(made < 200, "there is no quota");
    };
    assert!(made > 20, "{made} keys fit");
    let file = place.file().canonicalize().expect("it is there");
    let sentence = format!(
        "{} is full: it holds the 8388608 bytes that its quota allows; delete keys, or open it \
         with a larger quota",
        file.display()
    );
    assert_eq!(refused, Failure::Other(sentence.clone()));
    let large =
        Operation::Claim(Claim { key: b"new".into(), value: value.clone().into(), lease: 1 });
    let proclaimed = guarded(&guard, vec![Mutation::Proclaim(value.clone().into())]);
    for refused in [large, proclaimed] {
        assert_eq!(store.call(refused, LIMIT).await, Err(Failure::Other(sentence.clone())));
    }
    // What only takes something away, or looks, goes on.
    assert_eq!(ask(&store, Operation::KeepAlive(1)).await, Response::Renewed(60 * SECOND));
    assert!(matches!(ask(&store, claim("guard", 2)).await, Response::Taken(_)));
    assert_eq!(ask(&store, Operation::Revoke(2)).await, Response::Revoked);
    assert_eq!(keys(&store).await.len(), made + 1);
    for number in 0..5 {
        let delete = Mutation::Delete(format!("key/{number}").into());
        let deleted = ask(&store, guarded(&guard, vec![delete])).await;
        assert!(matches!(deleted, Response::Applied(_)));
    }
    // And there is room again, for as much as that was, also where it is asked for together.
    let puts = (0..20).map(|number| put_under(&guard, &format!("key/{number}"), &value));
    let put = asked_together(&place, &store, puts).await;
    let fit = put.iter().filter(|put| put.is_ok()).count();
    assert!((1..=6).contains(&fit), "{fit} keys fit");
    // A larger quota is another way out.
    drop(store);
    let store = place.open().await;
    for number in 0..20 {
        ask(&store, put_under(&guard, &format!("more/{number}"), &value)).await;
    }
}

#[tokio::test]
async fn who_stops_in_the_middle_of_a_read_does_not_fill_the_disk() {
    const QUOTA: u64 = 8 * MIB;
    let (place, store, guard) = Place::with_quota(QUOTA).await;
    let reader = place.database();
    reader.execute_batch("BEGIN; SELECT * FROM meta").expect("a look");
    let value = "v".repeat(100_000);
    let put = || store.call(put_under(&guard, "key", &value), LIMIT);
    let mut puts = 0;
    let refused = loop {
        match put().await {
            Ok(_) => puts += 1,
            Err(refused) => break refused,
        }
        assert!(puts < 1_000, "the log grows without end");
    };
    let Failure::Other(sentence) = refused else { panic!("{refused:?}") };
    assert!(sentence.contains("some process is stopped while it reads the store"), "{sentence}");
    assert!(place.length("-wal") < QUOTA + 16 * MIB, "{} bytes", place.length("-wal"));
    assert_eq!(ask(&store, Operation::KeepAlive(1)).await, Response::Renewed(60 * SECOND));
    drop(reader);
    // It goes on by itself.
    until("there is room again", async || put().await.is_ok()).await;
    assert!(place.length("-wal") < 5 * MIB, "{} bytes", place.length("-wal"));
}

#[tokio::test]
async fn a_file_of_the_version_before_is_taken_over() {
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 3_600 * SECOND)).await;
    let guard = claimed(&store, "guard", 1).await;
    ask(&store, put_under(&guard, "key", "value")).await;
    drop(store);
    place
        .database()
        .execute_batch("ALTER TABLE meta DROP COLUMN history; PRAGMA user_version = 1")
        .expect("it is as it was");
    let store = place.open().await;
    assert_eq!(keys(&store).await, ["guard", "key"]);
    assert_eq!(place.number("PRAGMA user_version"), 2);
    ask(&store, put_under(&guard, "key", "other")).await;
    assert_eq!(place.number("SELECT history FROM meta"), 64 + 3 + 5);
    let mut watches = watch(&store, Some(guard.created));
    assert!(matches!(next(&mut watches).await, Change::Started(_)));
    let over = next(&mut watches).await;
    let oldest = place.number("SELECT compacted FROM meta");
    assert_eq!(over, Change::Ended(Failure::Compacted(oldest)));
}
