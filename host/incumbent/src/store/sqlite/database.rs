//! The open file, its tables, and whether it is a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OpenFlags, Transaction, TransactionBehavior};

use super::error::{SqliteError, is_busy};
use super::place::{self, Identity, MEMORY, beside};
use crate::store::time::Time;

/// "Incu", in the head of the file.
const APPLICATION_ID: i64 = 0x496e_6375;
/// The format of the tables.
const VERSION: i64 = 2;
/// The format before history was counted.
const UNCOUNTED: i64 = 1;

const TABLES: &str = "
    -- One row. Leases and history are by the clock of this start of the machine.
    CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        revision INTEGER NOT NULL,
        compacted INTEGER NOT NULL,
        boot TEXT NOT NULL,
        -- How many bytes history takes, as writing.rs counts them.
        history INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    -- Times are nanoseconds.
    CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl INTEGER NOT NULL, ends INTEGER NOT NULL) STRICT;
    CREATE INDEX leases_by_end ON leases (ends);
    CREATE TABLE keys (
        key BLOB PRIMARY KEY,
        value BLOB NOT NULL,
        lease INTEGER NOT NULL,
        created INTEGER NOT NULL,
        modified INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX keys_by_lease ON keys (lease) WHERE lease <> 0;
    -- Without a value: the key was deleted.
    CREATE TABLE history (
        revision INTEGER NOT NULL,
        part INTEGER NOT NULL,
        at INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB,
        lease INTEGER NOT NULL,
        created INTEGER NOT NULL,
        PRIMARY KEY (revision, part)
    ) STRICT, WITHOUT ROWID;
";
/// History starts anew, with a count: watches learn that they have missed something.
const COUNT: &str = "
    ALTER TABLE meta ADD COLUMN history INTEGER NOT NULL DEFAULT 0;
    DELETE FROM history;
    UPDATE meta SET compacted = revision + 1;
";

/// How long to wait for the lock while a file is opened.
const OPENING: Duration = Duration::from_secs(5);
/// A larger one is not read through when it is opened.
const READ_THROUGH: u64 = 4 << 20;
/// How large SQLite leaves its log between two uses.
const LOG_LIMIT: i64 = 4 << 20;
/// More than there are.
const STATEMENTS: usize = 64;
/// Waiting for the lock is not fair: a process that polls often gets it soon. After so many
/// polls, another process holds it for long.
const POLL: Duration = Duration::from_micros(500);
const POLLS: i32 = 400;
const SLOW_POLL: Duration = Duration::from_millis(5);

/// Held while the file is made and opened: closing the made file would release the locks of
/// another store of this process that has opened it meanwhile.
static MAKING: Mutex<()> = Mutex::new(());

/// A connection to a file.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) path: PathBuf,
    identity: Identity,
    /// The shared memory of all processes that use the file.
    memory: Option<Identity>,
    pub(super) connection: Connection,
    /// How long to wait for the lock.
    lock_until: Arc<Mutex<Instant>>,
}

impl Database {
    /// Opens the file, and makes it if it is not there.
    pub(super) fn open(path: &Path, time: &Time) -> Result<Self, SqliteError> {
        let path = place::resolve(path)?;
        let opened = Self::connect(&path).and_then(|mut database| {
            database.prepare(time)?;
            database.memory = Identity::of(&beside(&database.path, MEMORY)).ok();
            Ok(database)
        });
        opened.map_err(|objection| match objection {
            Objection::Sqlite(error) => SqliteError::new(&path, error),
            Objection::Ours(error) => error,
        })
    }

    /// The file that is in its place now. It fails if the shared memory is still that of the old
    /// file: to open and close that once more would release the locks of this process.
    pub(super) fn successor(&self, time: &Time) -> Result<Self, SqliteError> {
        if self.memory.is_some() && Identity::of(&beside(&self.path, MEMORY)).ok() == self.memory {
            return Err(SqliteError::Remnants(self.path.clone()));
        }
        Self::open(&self.path, time)
    }

    /// Whether this is still the file of that name: other processes do not see changes of
    /// another one.
    pub(super) fn is_in_place(&self) -> bool {
        Identity::of(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// How long to wait for the lock from now on.
    pub(super) fn wait_until(&self, until: Instant) {
        *self.lock_until.lock() = until;
    }

    fn connect(path: &Path) -> Result<Self, Objection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = {
            let _making = MAKING.lock();
            place::make(path).map_err(|error| place::not_reached(path, error))?;
            Connection::open_with_flags(path, flags)?
        };
        let lock_until = Arc::new(Mutex::new(Instant::now() + OPENING));
        let until = Arc::clone(&lock_until);
        connection.busy_handler(Some(move |polls| wait_for_lock(*until.lock(), polls)))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let identity = Identity::of(path)
            .map_err(|error| SqliteError::Failed { path: path.into(), reason: error.into() })?;
        Ok(Self { path: path.into(), identity, memory: None, connection, lock_until })
    }

    /// Makes the file a store, unless it is one.
    fn prepare(&mut self, time: &Time) -> Result<(), Objection> {
        let until = Instant::now() + OPENING;
        loop {
            match self.try_prepare(time) {
                // SQLite does not always wait for another process that makes the file.
                Err(Objection::Sqlite(error)) if is_busy(&error) && Instant::now() < until => {
                    sleep(POLL);
                }
                done => return done,
            }
        }
    }

    fn try_prepare(&mut self, time: &Time) -> Result<(), Objection> {
        let Self { path, connection, .. } = self;
        let found = {
            let reading = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
            contents(path, &reading)?
        };
        // SQLite answers with the mode that it chose.
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            let reason = format!("its journal mode stays {mode}").into();
            return Err(SqliteError::Failed { path: path.clone(), reason }.into());
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        // On macOS, less than this may leave a commit in the drive's own memory.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        connection.pragma_update_and_check(None, "journal_size_limit", LOG_LIMIT, |_| Ok(()))?;
        if found != Contents::Store {
            let making = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            // Another process may have made it meanwhile.
            match contents(path, &making)? {
                Contents::Nothing => {
                    making.execute_batch(TABLES)?;
                    making.execute("INSERT INTO meta VALUES (1, 1, 0, ?1, 0)", [&*time.boot])?;
                    making.pragma_update(None, "application_id", APPLICATION_ID)?;
                }
                Contents::Uncounted => making.execute_batch(COUNT)?,
                Contents::Store => {}
            }
            making.pragma_update(None, "user_version", VERSION)?;
            making.commit()?;
        }
        self.read_through()
    }

    /// Finds damage before the file is used.
    fn read_through(&self) -> Result<(), Objection> {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.len() > READ_THROUGH) {
            return Ok(());
        }
        let found: String =
            self.connection.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        if found == "ok" {
            return Ok(());
        }
        Err(SqliteError::Damaged { path: self.path.clone(), reason: found.into() }.into())
    }
}

#[derive(PartialEq, Eq)]
enum Contents {
    Nothing,
    /// A store of an older version.
    Uncounted,
    Store,
}

/// What the file holds, if that is nothing or a store. Called inside of a transaction, so that
/// no other process changes it meanwhile.
fn contents(path: &Path, connection: &Connection) -> Result<Contents, Objection> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let application = number("application_id")?;
    let version = number("user_version")?;
    let path = path.to_owned();
    if application == APPLICATION_ID {
        return match version {
            VERSION => Ok(Contents::Store),
            UNCOUNTED => Ok(Contents::Uncounted),
            _ => Err(SqliteError::Newer { path, version }.into()),
        };
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == 0 && version == 0 && tables == 0 {
        return Ok(Contents::Nothing);
    }
    let reason = "it is the SQLite database of another application";
    Err(SqliteError::NotAStore { path, reason }.into())
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Objection {
    Sqlite(#[from] Error),
    Ours(#[from] SqliteError),
}

/// Sleeps until the lock is polled again. False when the time is over.
fn wait_for_lock(until: Instant, polls: i32) -> bool {
    let waits = Instant::now() < until;
    if waits {
        sleep(if polls < POLLS { POLL } else { SLOW_POLL });
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn every_connection_waits_for_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let time = Time::new(Arc::new(ManualClock::default()), "boot");
        // The one that makes the file, and one that finds it.
        for _ in 0..2 {
            let database = Database::open(&folder.path().join("store.db"), &time).expect("a store");
            let number = |name| {
                database.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            };
            assert_eq!(number("synchronous").expect("a level"), 2, "FULL");
        }
    }

    #[test]
    fn a_lock_is_waited_for_as_long_as_was_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let time = Time::new(Arc::new(ManualClock::default()), "boot");
        let open = || Database::open(&folder.path().join("store.db"), &time).expect("a store");
        let (one, other) = (open(), open());
        one.connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        let began = Instant::now();
        other.wait_until(began + Duration::from_millis(30));
        let error = other.connection.execute_batch("BEGIN IMMEDIATE").expect_err("it is held");
        assert!(is_busy(&error), "{error}");
        assert!(began.elapsed() >= Duration::from_millis(30));
    }
}
