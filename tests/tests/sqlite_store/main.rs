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

use incumbent::types::*;
use incumbent::{Failure, ManualClock, SharedWith, SqliteStore, Store, Watches};
use incumbent_tests::operations::{SECOND, all, claim, grant, guarded, put};
use incumbent_tests::stores::{next, watch};
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::time::timeout;

mod file;
mod model;
mod processes;
mod refusals;
mod space;
mod waits;

const HOUR: Duration = Duration::from_secs(3_600);

/// Puts something at a path that may lead to a victim's file.
type Plant = fn(victim: &Path, path: &Path);

/// What is not a file of the store's own, in the words of its refusal.
const FOREIGN: [(&str, Plant); 3] = [
    ("a symbolic link", |victim, path| symlink(victim, path).expect("a link")),
    ("a file that has another name as well (a hard link)", |victim, path| {
        std::fs::hard_link(victim, path).expect("a link");
    }),
    ("a named pipe", |_, path| {
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    }),
];

/// A place for a store.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    /// A place and a store there, which has granted lease 1.
    async fn with_lease() -> (Self, SqliteStore) {
        let place = Self::new();
        let store = place.open().await;
        ask(&store, grant(1, 60 * SECOND)).await;
        (place, store)
    }

    /// The same, another store there, and a watch of that one.
    async fn with_two() -> (Self, SqliteStore, SqliteStore, Box<dyn Watches>) {
        let (place, one) = Self::with_lease().await;
        let other = place.open().await;
        let watches = started(&other).await;
        (place, one, other, watches)
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

    /// Dropping it gives the lock back.
    fn lock(&self) -> rusqlite::Connection {
        let database = self.database();
        database.execute_batch("BEGIN IMMEDIATE").expect("the lock");
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

fn put_under(guard: &Entry, key: &str, value: &str) -> Operation {
    guarded(guard, vec![put(key, value)])
}

/// Asks for all of this while the file is locked, so that it waits together.
async fn asked_together(
    place: &Place,
    store: &SqliteStore,
    operations: impl Iterator<Item = Operation>,
) -> Vec<Answer> {
    let lock = place.lock();
    let asked: Vec<_> =
        operations.map(|operation| tokio::spawn(store.call(operation, LIMIT))).collect();
    tokio::task::yield_now().await;
    drop(lock);
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.expect_soon("no panic").await);
    }
    answers
}

async fn keys(store: &SqliteStore) -> Vec<String> {
    match ask(store, Operation::Read(vec![all("")])).await {
        Response::Snapshot(snapshot) => {
            let found = snapshot.found.concat();
            found.into_iter().map(|entry| String::from_utf8(entry.key).expect("text")).collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn claimed(store: &SqliteStore, key: &str, lease: i64) -> Entry {
    match ask(store, claim(key, lease)).await {
        Response::Claimed(claimed) => claimed.entry,
        other => panic!("{other:?}"),
    }
}

/// The revision and the key of the next change.
async fn seen(watches: &mut Box<dyn Watches>) -> (i64, String) {
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

#[tokio::test]
async fn what_etcd_would_refuse_is_refused() {
    let (_place, store) = Place::with_lease().await;
    let guard = claimed(&store, "guard", 1).await;
    let guarded = |mutations| guarded(&guard, mutations);
    let put = |key: &str, bytes| put(key, vec![0; bytes]);
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
