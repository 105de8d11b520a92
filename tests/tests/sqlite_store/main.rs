//! The store in a file: what is SQLite's and this machine's own about it.
//!
//! Two stores that are opened on one file share nothing but the file, also in one process.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::future::poll_fn;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent::store::sqlite::{SharedWith, shared_with};
use incumbent::types::*;
use incumbent::{ManualClock, SqliteStore, Store, Watches};
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::time::timeout;

mod model;
mod processes;
mod refusals;

const SECOND: u64 = 1_000_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// A place for a store.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.folder.path().join(format!("store.db{ending}"))
    }

    async fn open(&self) -> SqliteStore {
        open(&self.file()).await
    }

    async fn open_at(&self, clock: &ManualClock, boot: &str) -> SqliteStore {
        let opened = SqliteStore::open_at(self.file(), Arc::new(clock.clone()), boot).await;
        opened.expect("a store")
    }

    /// The file, as SQLite has it.
    fn database(&self) -> rusqlite::Connection {
        let database = rusqlite::Connection::open(self.file()).expect("a database");
        database.busy_timeout(LIMIT).expect("a time");
        database
    }

    fn number(&self, query: &str) -> i64 {
        self.database().query_row(query, [], |row| row.get(0)).expect("a number")
    }

    /// How often something was committed, as SQLite's log tells.
    fn commits(&self) -> usize {
        let log = std::fs::read(self.beside("-wal")).expect("a log");
        let page = 4_096;
        log[32..].chunks_exact(24 + page).filter(|frame| frame[4..8] != [0; 4]).count()
    }
}

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path).expect_soon("a store").await
}

async fn ask(store: &SqliteStore, operation: Operation) -> Response {
    store.call(operation, LIMIT).expect_soon("an answer").await
}

fn grant(lease: LeaseId, ttl: u64) -> Operation {
    Operation::Grant(Grant { lease, ttl })
}

fn claim(key: &str, lease: LeaseId) -> Operation {
    Operation::Claim(Claim { key: key.into(), value: b"value".into(), lease })
}

fn read(key: &str) -> Operation {
    Operation::Read(vec![Selection {
        key: key.into(),
        prefix: true,
        from: None,
        created_before: None,
        order: Order::OldestFirst,
        limit: 0,
        keys_only: false,
    }])
}

fn put_under(guard: &Entry, key: &str, value: &str) -> Operation {
    change_under(guard, Mutation::Put(Put { key: key.into(), value: value.into() }))
}

fn change_under(guard: &Entry, mutation: Mutation) -> Operation {
    Operation::Guarded(Guarded {
        guard: Guard { key: guard.key.clone(), epoch: guard.created, lease: None },
        expect: Vec::new(),
        mutations: vec![mutation],
    })
}

/// Asks for all of this while the file is locked, so that it waits together.
async fn asked_together(
    place: &Place,
    store: &SqliteStore,
    operations: impl Iterator<Item = Operation>,
) -> Vec<Result<Response, Failure>> {
    let lock = place.database();
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let asked: Vec<_> =
        operations.map(|operation| tokio::spawn(store.call(operation, LIMIT))).collect();
    tokio::task::yield_now().await;
    lock.execute_batch("ROLLBACK").expect("it is free");
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.expect_soon("no panic").await);
    }
    answers
}

async fn keys(store: &SqliteStore) -> Vec<String> {
    match ask(store, read("")).await {
        Response::Snapshot(snapshot) => {
            let found = snapshot.found.concat();
            found.into_iter().map(|entry| String::from_utf8(entry.key).expect("text")).collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn claimed(store: &SqliteStore, key: &str, lease: LeaseId) -> Entry {
    match ask(store, claim(key, lease)).await {
        Response::Claimed(claimed) => claimed.entry,
        other => panic!("{other:?}"),
    }
}

fn watch(store: &impl Store, since: Option<Revision>) -> Box<dyn Watches> {
    let mut watches = store.watches();
    watches.open(Watch { id: 1, key: Vec::new(), prefix: true, since });
    watches
}

async fn next(watches: &mut Box<dyn Watches>) -> Change {
    let told = poll_fn(|context| watches.poll_next(context));
    soon("a watch tells", told).await.change
}

/// The revision and the key of the next change.
async fn seen(watches: &mut Box<dyn Watches>) -> (Revision, String) {
    let (at, key) = match next(watches).await {
        Change::Put(entry) => (entry.modified, entry.key),
        Change::Deleted(deletion) => (deletion.at, deletion.key),
        other => panic!("{other:?}"),
    };
    (at, String::from_utf8(key).expect("text"))
}

async fn started(store: &SqliteStore) -> Box<dyn Watches> {
    let mut watches = watch(store, None);
    match next(&mut watches).await {
        Change::Started(_) => watches,
        other => panic!("{other:?}"),
    }
}

// The file.

#[tokio::test]
async fn the_file_is_a_store_and_says_so() {
    let place = Place::new();
    let _store = place.open().await;
    assert_eq!(place.number("PRAGMA application_id"), 0x496e_6375);
    assert_eq!(place.number("PRAGMA user_version"), 2);
    let mode: String =
        place.database().query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode");
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_link_leads_to_the_same_store() {
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
    let link = place.folder.path().join("link");
    symlink(place.file(), &link).expect("a link");
    let linked = open(&link).await;
    assert_eq!(ask(&linked, grant(1, 60 * SECOND)).await, Response::Exists);
    assert_eq!(linked.path(), store.path());
    assert!(!place.folder.path().join("link-wal").exists());
}

#[tokio::test]
async fn many_can_make_the_file_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        let opening: Vec<_> =
            (0..8).map(|_| tokio::spawn(SqliteStore::open(place.file()))).collect();
        for (lease, opened) in (1..).zip(opening) {
            let store = opened.expect_soon("no panic").await.expect("a store");
            assert_eq!(ask(&store, grant(lease, SECOND)).await, Response::Granted(SECOND));
        }
    }
}

#[tokio::test]
async fn what_is_put_in_the_place_of_the_file_is_the_store() {
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
    claimed(&store, "old", 1).await;
    let mut watches = started(&store).await;
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(place.beside(ending)).expect("it was there");
    }
    let other = place.open().await;
    ask(&other, grant(2, 60 * SECOND)).await;
    claimed(&other, "new", 2).await;
    assert_eq!(keys(&store).await, ["new"]);
    assert_eq!(ask(&store, Operation::KeepAlive(1)).await, Response::Expired);
    assert!(matches!(next(&mut watches).await, Change::Ended(Failure::Unavailable)));
    // Both are one store again, and what is in it stays when one of them goes.
    drop((store, watches));
    claimed(&other, "newer", 2).await;
    drop(other);
    assert_eq!(keys(&place.open().await).await, ["new", "newer"]);
}

// What waits.

#[tokio::test]
async fn what_waits_together_is_one_commit() {
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
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
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
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
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
    let lock = place.database();
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let late = store.call(claim("late", 1), Duration::from_millis(50));
    assert_eq!(late.await, Err(Failure::Timeout));
    let renewal = store.call(Operation::KeepAlive(1), Duration::from_millis(50));
    assert_eq!(renewal.await, Err(Failure::Timeout));
    let dropped = timeout(Duration::from_millis(50), store.call(claim("dropped", 1), LIMIT));
    assert!(dropped.await.is_err());
    let patient = tokio::spawn(store.call(claim("patient", 1), LIMIT));
    lock.execute_batch("ROLLBACK").expect("it is free");
    patient.expect_soon("no panic").await.expect("an answer");
    assert_eq!(keys(&store).await, ["patient"]);
}

/// The store asks for the lock again, as long as the caller waits.
#[tokio::test]
async fn a_lock_that_is_held_for_long_is_waited_for() {
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
    let lock = place.database();
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let patient = tokio::spawn(store.call(claim("patient", 1), LIMIT));
    // Longer than the store waits at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!patient.is_finished());
    lock.execute_batch("ROLLBACK").expect("it is free");
    let claimed = patient.expect_soon("no panic").await;
    assert!(matches!(claimed, Ok(Response::Claimed(_))), "{claimed:?}");
}

#[tokio::test]
async fn reads_wait_for_no_writer() {
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
    claimed(&store, "key", 1).await;
    let lock = place.database();
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
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
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
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

// Space.

const MIB: u64 = 1 << 20;

impl Place {
    async fn open_with_quota(&self, quota: u64) -> SqliteStore {
        SqliteStore::open_with_quota(self.file(), quota).expect_soon("a store").await
    }

    fn length(&self, ending: &str) -> u64 {
        std::fs::metadata(self.beside(ending)).map_or(0, |found| found.len())
    }
}

#[tokio::test]
async fn a_key_that_is_rewritten_takes_no_more_and_more_space() {
    const QUOTA: u64 = 16 * MIB;
    let place = Place::new();
    let store = place.open_with_quota(QUOTA).await;
    ask(&store, grant(1, 60 * SECOND)).await;
    let guard = claimed(&store, "guard", 1).await;
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
    let place = Place::new();
    let store = place.open_with_quota(8 * MIB).await;
    ask(&store, grant(1, 60 * SECOND)).await;
    ask(&store, grant(2, 60 * SECOND)).await;
    let guard = claimed(&store, "guard", 1).await;
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
    let proclaimed = change_under(&guard, Mutation::Proclaim(value.clone().into()));
    for refused in [large, proclaimed] {
        assert_eq!(store.call(refused, LIMIT).await, Err(Failure::Other(sentence.clone())));
    }
    // What only takes something away, or looks, goes on.
    assert_eq!(ask(&store, Operation::KeepAlive(1)).await, Response::Renewed(60 * SECOND));
    assert!(matches!(ask(&store, claim("guard", 2)).await, Response::Taken(_)));
    assert_eq!(ask(&store, Operation::Revoke(2)).await, Response::Revoked);
    assert_eq!(keys(&store).await.len(), made + 1);
    for number in 0..5 {
        let delete = change_under(&guard, Mutation::Delete(format!("key/{number}").into()));
        assert!(matches!(ask(&store, delete).await, Response::Applied(_)));
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
    let place = Place::new();
    let store = place.open_with_quota(QUOTA).await;
    ask(&store, grant(1, 60 * SECOND)).await;
    let guard = claimed(&store, "guard", 1).await;
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
    let began = std::time::Instant::now();
    while put().await.is_err() {
        assert!(began.elapsed() < LIMIT, "it stays full");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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

// The bell.

#[tokio::test]
async fn others_hear_the_bell() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let mut watches = started(&other).await;
    ask(&one, grant(1, 60 * SECOND)).await;
    let began = std::time::Instant::now();
    for number in 0..100 {
        let key = format!("key/{number}");
        let at = claimed(&one, &key, 1).await.created;
        assert_eq!(seen(&mut watches).await, (at, key));
    }
    // Whoever does not hear it looks every 250 ms.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(std::fs::read(place.beside("-bell")).expect("a bell"), b"!");
}

#[tokio::test]
async fn a_bell_that_was_removed_is_made_anew() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let mut watches = started(&other).await;
    ask(&one, grant(1, 60 * SECOND)).await;
    for number in 0..3 {
        std::fs::remove_file(place.beside("-bell")).expect("it is there");
        let key = format!("key/{number}");
        claimed(&one, &key, 1).await;
        assert_eq!(seen(&mut watches).await.1, key);
        // Whoever looks makes it.
        while !place.beside("-bell").exists() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn what_nobody_rang_for_is_seen() {
    let place = Place::new();
    let store = place.open().await;
    let mut watches = started(&store).await;
    // As if its writer were killed right after the commit.
    let database = place.database();
    database
        .execute_batch(
            "BEGIN IMMEDIATE;
             UPDATE meta SET revision = revision + 1;
             INSERT INTO keys VALUES (x'61', x'', 0, 2, 2);
             INSERT INTO history VALUES (2, 0, 0, x'61', x'', 0, 2);
             COMMIT;",
        )
        .expect("a change");
    assert_eq!(seen(&mut watches).await, (2, "a".into()));
}

/// Whoever may write the directory may put something else in its place at any time.
#[tokio::test]
async fn a_bell_that_is_not_ours_is_not_rung() {
    let place = Place::new();
    let victim = place.folder.path().join("victim");
    std::fs::write(&victim, "precious").expect("a file");
    std::fs::set_permissions(&victim, Permissions::from_mode(0o640)).expect("it is ours");
    let (one, other) = (place.open().await, place.open().await);
    let mut watches = started(&other).await;
    ask(&one, grant(1, 60 * SECOND)).await;
    type Put = fn(&Path, &Path);
    let kinds: [(&str, Put); 3] = [
        ("symbolic link", |victim, path| symlink(victim, path).expect("a link")),
        ("hard link", |victim, path| std::fs::hard_link(victim, path).expect("a link")),
        ("named pipe", |_, path| {
            mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        }),
    ];
    for (kind, put) in kinds {
        let planted = place.folder.path().join("planted");
        put(&victim, &planted);
        std::fs::rename(planted, place.beside("-bell")).expect("it is put there");
        soon("nobody waits at it", claimed(&one, kind, 1)).await;
        assert_eq!(seen(&mut watches).await.1, kind);
    }
    assert_eq!(std::fs::read(&victim).expect("a file"), b"precious");
    assert_eq!(std::fs::metadata(&victim).expect("a file").mode() & 0o777, 0o640);
}

// Who else may lock it.

#[tokio::test]
async fn who_else_may_lock_it() {
    let place = Place::new();
    let _store = place.open().await;
    let folder = place.folder.path();
    let mut group = std::fs::metadata(place.file()).expect("a file").gid();
    if rustix::process::geteuid().is_root() {
        group += 1;
        for file in [place.file(), place.beside("-shm")] {
            std::os::unix::fs::chown(file, None, Some(group)).expect("root may");
        }
    }
    for (directory, file, memory, shared) in [
        (0o755, 0o600, 0o600, None),
        (0o755, 0o640, 0o600, Some(SharedWith::Group(group))),
        (0o755, 0o604, 0o600, Some(SharedWith::All)),
        (0o755, 0o664, 0o600, Some(SharedWith::All)),
        // What SQLite made beside it before its permissions were taken away.
        (0o755, 0o600, 0o604, Some(SharedWith::All)),
        // Nobody else gets there.
        (0o700, 0o666, 0o666, None),
        (0o710, 0o666, 0o666, Some(SharedWith::Group(group))),
        // Whoever may write the directory may put files there.
        (0o757, 0o600, 0o600, Some(SharedWith::All)),
        (0o1777, 0o600, 0o600, Some(SharedWith::All)),
        (0o756, 0o600, 0o600, None),
    ] {
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
        };
        set(folder, directory);
        set(&place.file(), file);
        set(&place.beside("-shm"), memory);
        let told = shared_with(&place.file());
        assert_eq!(told, shared, "{directory:o} {file:o} {memory:o}");
    }
}

// What etcd would not take.

#[tokio::test]
async fn what_etcd_would_refuse_is_refused() {
    let place = Place::new();
    let store = place.open().await;
    ask(&store, grant(1, 60 * SECOND)).await;
    let guard = claimed(&store, "guard", 1).await;
    let guarded = |mutations| {
        Operation::Guarded(Guarded {
            guard: Guard { key: guard.key.clone(), epoch: guard.created, lease: None },
            expect: Vec::new(),
            mutations,
        })
    };
    let put = |key: &str, bytes| Mutation::Put(Put { key: key.into(), value: vec![0; bytes] });
    for refused in [
        grant(2, 9_000_000_000 * SECOND + 1),
        claim("", 1),
        guarded(vec![put("key", 1_500_000)]),
        guarded(vec![put("one", 700_000), put("two", 800_000)]),
        guarded(vec![put("one", 1), put("one", 1)]),
        guarded(vec![put("one", 1), Mutation::Delete(b"one".into())]),
        guarded(vec![Mutation::Proclaim(Vec::new()), Mutation::Delete(b"guard".into())]),
        guarded((0..129).map(|number| put(&number.to_string(), 1)).collect()),
    ] {
        let answer = store.call(refused, LIMIT).await;
        assert!(matches!(answer, Err(Failure::Invalid(_))), "{answer:?}");
    }
    ask(&store, guarded(vec![put("key", 1_400_000)])).await;
    ask(&store, guarded((0..128).map(|number| put(&number.to_string(), 1)).collect())).await;
    let longest = grant(2, 9_000_000_000 * SECOND);
    assert_eq!(ask(&store, longest).await, Response::Granted(9_000_000_000 * SECOND));
}
