//! Every store passes the suite that the library has for stores.
//!
//! The simulation's model of etcd is not among them by itself: it is the very source of
//! what the store in memory holds and does (`host/incumbent/src/store/memory/contents.rs`), and
//! `tests/tests/fidelity` compares it with etcd answer by answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use incumbent::{
    Clock as _, Credentials, EtcdStore, ManualClock, Mark, MemoryStore, PostgresStore, Revision,
    SqliteStore, Store,
};
use incumbent_conformance::{Place, Report};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::postgres::Postgres;
use parking_lot::Mutex;
use tempfile::TempDir;

on_each_version!(etcd);

/// A prefix of its own in one etcd.
struct Prefix {
    etcd: Arc<Etcd>,
    number: u32,
}

impl Place for Prefix {
    async fn open(&self) -> Arc<dyn Store> {
        let url = format!("{}/{}", self.etcd.url(), self.number).parse().unwrap();
        let store = EtcdStore::connect(&url, &Credentials::default(), self.timeout()).await;
        Arc::new(store.unwrap())
    }

    async fn compact(&self, revision: Revision) -> bool {
        self.etcd.etcdctl(&["compact", &revision.to_string()]);
        true
    }

    async fn stall(&self, stalled: bool) -> bool {
        if stalled {
            self.etcd.pause();
        } else {
            self.etcd.resume();
        }
        true
    }
}

async fn etcd(version: Version) {
    let etcd = Arc::new(Etcd::start(version));
    let places = AtomicU32::new(0);
    let report = incumbent_conformance::check(|| {
        let (etcd, number) = (Arc::clone(&etcd), places.fetch_add(1, Ordering::Relaxed));
        async move { Prefix { etcd, number } }
    });
    let report = report.await;
    if !report.conforms() {
        // Whether it is etcd that failed.
        println!("{}", etcd.log());
    }
    conforms(&report, &[]);
}

/// A schema of its own in one PostgreSQL.
struct Schema {
    postgres: Arc<Postgres>,
    name: String,
    /// What has the locks in our place.
    lock: Mutex<Option<tokio_postgres::Client>>,
}

impl Place for Schema {
    async fn open(&self) -> Arc<dyn Store> {
        let url = format!("{}?schema={}", self.postgres.url(), self.name).parse().unwrap();
        let store = PostgresStore::connect(&url, &Credentials::default(), self.timeout()).await;
        Arc::new(store.unwrap())
    }

    async fn compact(&self, revision: Revision) -> bool {
        let name = &self.name;
        self.postgres.sql(&format!(
            "BEGIN; SELECT FROM {name}.meta FOR UPDATE;
             DELETE FROM {name}.history WHERE revision < {revision};
             UPDATE {name}.meta SET compacted = {revision};
             COMMIT"
        ));
        true
    }

    async fn stall(&self, stalled: bool) -> bool {
        if !stalled {
            self.lock.lock().take();
            return true;
        }
        let (client, connection) =
            tokio_postgres::connect(&self.postgres.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let tables = ["meta", "leases", "keys", "history"].map(|it| format!("{}.{it}", self.name));
        let lock = format!("BEGIN; LOCK {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
        client.batch_execute(&lock).await.unwrap();
        *self.lock.lock() = Some(client);
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres() {
    let postgres = Arc::new(Postgres::start());
    let places = AtomicU32::new(0);
    let report = incumbent_conformance::check(|| {
        let name = format!("place_{}", places.fetch_add(1, Ordering::Relaxed));
        let postgres = Arc::clone(&postgres);
        async move { Schema { postgres, name, lock: Mutex::default() } }
    });
    let report = report.await;
    if !report.conforms() {
        println!("{}", postgres.log());
    }
    conforms(&report, &[]);
}

/// A file of its own.
struct File {
    folder: TempDir,
    /// What has the lock in our place.
    lock: Mutex<Option<rusqlite::Connection>>,
}

impl File {
    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    /// As SQLite has it, past the store.
    fn database(&self) -> rusqlite::Connection {
        let database = rusqlite::Connection::open(self.path()).unwrap();
        database.busy_timeout(self.timeout()).unwrap();
        database
    }
}

impl Place for File {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.path()).await.unwrap())
    }

    async fn compact(&self, revision: Revision) -> bool {
        let forget = format!(
            "BEGIN IMMEDIATE;
             DELETE FROM history WHERE revision < {revision};
             UPDATE meta SET compacted = {revision};
             COMMIT"
        );
        self.database().execute_batch(&forget).unwrap();
        true
    }

    async fn stall(&self, stalled: bool) -> bool {
        let taken = stalled.then(|| self.database());
        if let Some(database) = &taken {
            database.execute_batch("BEGIN IMMEDIATE").unwrap();
        }
        *self.lock.lock() = taken;
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite() {
    let place = || async { File { folder: TempDir::new().unwrap(), lock: Mutex::default() } };
    let report = incumbent_conformance::check(place).await;
    conforms(&report, &[]);
}

/// The memory of this process, where time passes when it is told to.
struct Memory {
    clock: ManualClock,
    store: MemoryStore,
}

impl Place for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn now(&self) -> Mark {
        self.clock.now()
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    async fn compact(&self, revision: Revision) -> bool {
        self.store.compact(revision)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory() {
    let report = incumbent_conformance::check(|| async {
        let clock = ManualClock::default();
        Memory { store: MemoryStore::new(Arc::new(clock.clone())), clock }
    });
    let report = report.await;
    conforms(&report, &["a_stalled_call_gives_up_and_can_be_asked_again"]);
}

/// Also where the runtime has no threads, and by the machine's clock.
#[tokio::test]
async fn memory_in_ten_lines() {
    struct Memory(MemoryStore);

    impl Place for Memory {
        async fn open(&self) -> Arc<dyn Store> {
            Arc::new(self.0.clone())
        }
    }

    let report = incumbent_conformance::check(|| async { Memory(MemoryStore::default()) }).await;
    let skipped = ["what_is_forgotten_is_told", "a_stalled_call_gives_up_and_can_be_asked_again"];
    conforms(&report, &skipped);
}

/// That nothing has failed, and only this could not be checked.
fn conforms(report: &Report, skipped: &[&str]) {
    println!("{report}");
    assert!(report.conforms());
    // A machine that is busy enough may be too slow to keep a short lease alive.
    let renewals = "a_renewed_lease_lives_on";
    let really: Vec<_> =
        report.skipped().map(|(check, _)| check).filter(|check| *check != renewals).collect();
    assert_eq!(really, skipped);
}
