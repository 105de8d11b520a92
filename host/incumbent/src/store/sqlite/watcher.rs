//! The thread that serves the watches, and has leases swept that are over.
//!
//! It has a connection of its own, and reads the store when this or another process notifies
//! of a commit, when the next lease is over, and from time to time. It reads the history from the
//! last revision on, so that no commit is missed or told twice, with a notification or without.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Transaction, TransactionBehavior};

use super::Shared;
use super::database::Database;
use super::error::SqliteError;
use super::hub::Hub;
use super::notification::Listener;
use super::reading::{Head, changes_since, head};
use super::writer::WriterRequest;
use crate::store::following::Following;
use crate::store::time::Time;
use crate::types::Failure;

/// How often to poll without a notification: a process that was killed after its commit sent
/// none.
const POLL: Duration = Duration::from_millis(250);
/// How often to poll where no notifications can be received.
const POLL_DEAF: Duration = Duration::from_millis(10);
/// How long to wait for a process that recovers the file.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) struct Watcher {
    path: PathBuf,
    time: Time,
    writer: mpsc::Sender<WriterRequest>,
    hub: Arc<Hub>,
    listener: Listener,
    database: Option<Database>,
    following: Following,
}

impl Watcher {
    /// In a thread of its own.
    pub(super) fn start(shared: &Shared) -> io::Result<()> {
        let watcher = Self {
            path: shared.path.clone(),
            time: shared.time.clone(),
            writer: shared.writer.clone(),
            hub: Arc::clone(&shared.hub),
            listener: Listener::new(&shared.path, Arc::clone(&shared.hub)),
            database: None,
            following: Following::default(),
        };
        thread::Builder::new().name("incumbent-watch".into()).spawn(|| watcher.run()).map(drop)
    }

    /// Until no set is left.
    fn run(mut self) {
        let mut at_most = None;
        while let Some(requests) = self.hub.wait(at_most) {
            for request in requests {
                self.following.take(request);
            }
            if self.following.is_empty() {
                at_most = None;
                continue;
            }
            // Before reading, so that no notification from here on is missed.
            let longest = if self.listener.listen() { POLL } else { POLL_DEAF };
            let next = self.read().unwrap_or_else(|error| {
                tracing::debug!(%error, "the store cannot be read for its watches");
                POLL
            });
            at_most = Some(longest.min(next));
        }
    }

    /// Tells what has happened, and returns when to read again at the latest.
    fn read(&mut self) -> Result<Duration, SqliteError> {
        let database = match self.database.take() {
            Some(database) if database.is_in_place() => database,
            Some(replaced) => {
                self.following.end(&Failure::Unavailable);
                replaced.successor(&self.time).inspect_err(|_| self.database = Some(replaced))?
            }
            None => Database::open(&self.path, &self.time)?,
        };
        let next = self.read_from(&database);
        let next = next.map_err(|error| SqliteError::new(&self.path, error));
        self.database = Some(database);
        next
    }

    fn read_from(&mut self, database: &Database) -> rusqlite::Result<Duration> {
        database.wait_until(Instant::now() + LOCK_TIMEOUT);
        let connection = &database.connection;
        // In most cases nothing is new.
        let head = head(connection, &self.time.boot)?;
        if self.following.is_told(head.revision) {
            return Ok(self.until(&head));
        }
        let reading = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
        let head = super::reading::head(connection, &self.time.boot)?;
        // Everything is read before any of it is told, so that a failure leaves nothing half
        // told.
        let mut changes = Vec::new();
        if let Some(first) = self.following.wanted()
            && first <= head.revision
        {
            changes_since(connection, first, |at, change| changes.push((at, change)))?;
        }
        reading.finish()?;
        self.following.hear(head.revision, head.compacted, &changes);
        Ok(self.until(&head))
    }

    /// How long the next lease lasts. If it is over, the writer is asked to end it.
    fn until(&self, head: &Head) -> Duration {
        let now = self.time.now();
        if head.is_due(now) {
            // The writer runs as long as there is a set.
            let _ = self.writer.send(WriterRequest::Sweep);
            return POLL;
        }
        head.next_end.map_or(POLL, |end| Duration::from_nanos(end.abs_diff(now)))
    }
}
