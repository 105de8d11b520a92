//! The thread that does the operations: all that wait, in one commit.
//!
//! Each commit waits for the disk, and a thousand claims must not wait for it a thousand times. An
//! operation is answered once it is committed, and once the watches are notified.

use std::iter::repeat;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rusqlite::{Result, Transaction, TransactionBehavior};

use super::database::Database;
use super::error::{failure, is_busy};
use super::hub::Hub;
use super::notification::Notifier;
use super::quota::Quota;
use super::reading;
use super::writing::Writing;
use crate::store::job::{Job, TOGETHER, TOGETHER_BYTES};
use crate::store::time::Time;
use crate::types::{Answer, Failure, Operation};

/// How long to wait for the readers of SQLite's log, so that it can be restarted, while all
/// writers wait; and how long to pause before that is tried again.
const LOG_TIMEOUT: Duration = Duration::from_millis(50);
const LOG_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for the lock before looking which operations wait now.
const TURN: Duration = Duration::from_millis(250);

/// A request to the writer.
#[derive(Debug)]
pub(super) enum WriterRequest {
    Perform(Job),
    /// Leases may be over.
    Sweep,
}

#[derive(Debug)]
pub(super) struct Writer {
    database: Database,
    time: Time,
    requests: Receiver<WriterRequest>,
    hub: Arc<Hub>,
    notifier: Notifier,
    quota: Quota,
    /// When to compact history.
    compaction: i64,
    /// When to try again to restart a long log.
    restart_log: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        database: Database,
        time: Time,
        requests: Receiver<WriterRequest>,
        hub: Arc<Hub>,
        quota: u64,
    ) -> Self {
        let notifier = Notifier::new(&database.path);
        let quota = Quota::new(&database.path, quota);
        let compaction = i64::MIN;
        Self { database, time, requests, hub, notifier, quota, compaction, restart_log: None }
    }

    /// Until the store and all its watches are dropped.
    pub(super) fn run(mut self) {
        let mut waiting = Waiting::default();
        while waiting.gather(&self.requests) {
            waiting.give_up();
            if waiting.is_empty() {
                continue;
            }
            if let Err(failure) = self.follow_file() {
                waiting.answer(repeat(Err(failure)));
                continue;
            }
            match self.perform(&waiting) {
                Ok(answers) => {
                    waiting.answer(answers);
                    self.restart_long_log();
                }
                // Once more, together with the operations that have come meanwhile.
                Err(error) if is_busy(&error) => waiting.sweep = false,
                Err(error) => {
                    tracing::debug!(%error, "the store's file fails");
                    waiting.answer(repeat(Err(failure(&self.database.path, error))));
                }
            }
        }
    }

    /// If the file was removed or replaced, the file that has its name now is the store.
    fn follow_file(&mut self) -> std::result::Result<(), Failure> {
        if self.database.is_in_place() {
            return Ok(());
        }
        tracing::warn!(path = %self.database.path.display(), "the store's file was replaced");
        match self.database.successor(&self.time) {
            Ok(database) => {
                self.database = database;
                self.hub.notify();
                Ok(())
            }
            Err(error) => Err(Failure::Other(error.to_string())),
        }
    }

    /// SQLite restarts its log only at a moment at which nobody reads in it. If there is no such
    /// moment for long, this waits for the readers.
    fn restart_long_log(&mut self) {
        let now = Instant::now();
        if self.restart_log.is_some_and(|again| now < again) || self.quota.log_beyond() == 0 {
            return;
        }
        self.restart_log = Some(now + LOG_PAUSE);
        self.database.wait_until(now + LOG_TIMEOUT);
        let connection = &self.database.connection;
        let restarted =
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        match restarted {
            Ok(0_i64) => {}
            Ok(_) => tracing::debug!("the store's log is being read, and grows"),
            Err(error) => tracing::debug!(%error, "the store's log cannot be restarted"),
        }
    }

    fn perform(&mut self, waiting: &Waiting) -> Result<Vec<Answer>> {
        self.database.wait_until(waiting.lock_timeout());
        let reads = waiting.jobs.iter().all(|job| matches!(job.operation, Operation::Read(_)));
        // Also if only a sweep is wanted: another process may have done it.
        if reads && let Some(answers) = self.read(&waiting.jobs)? {
            return Ok(answers);
        }
        self.write(&waiting.jobs)
    }

    /// None if a lease is over: it has to be ended first.
    fn read(&self, jobs: &[Job]) -> Result<Option<Vec<Answer>>> {
        let connection = &self.database.connection;
        let _reading = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
        let head = reading::head(connection, &self.time.boot)?;
        if head.is_due(self.time.now()) {
            return Ok(None);
        }
        let answers = jobs.iter().map(|job| match &job.operation {
            Operation::Read(selections) => {
                reading::read(connection, head.revision, selections).map(Ok)
            }
            Operation::Grant(_)
            | Operation::KeepAlive(_)
            | Operation::Revoke(_)
            | Operation::Claim(_)
            | Operation::Guarded(_) => Ok(Err(Failure::Unavailable)),
        });
        answers.collect::<Result<_>>().map(Some)
    }

    /// All of them, or none.
    fn write(&mut self, jobs: &[Job]) -> Result<Vec<Answer>> {
        let connection = &self.database.connection;
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        let mut writing = Writing::begin(connection, &self.time, &self.quota)?;
        // Getting the lock took its time.
        let begun = Instant::now();
        let answers = jobs
            .iter()
            .map(|job| match job.is_given_up(begun) {
                true => Ok(Err(Failure::Timeout)),
                false => writing.perform(&job.operation),
            })
            .collect::<Result<Vec<_>>>()?;
        if self.compaction <= self.time.now() {
            self.compaction = writing.compact()?;
        }
        let changed = writing.finish()?;
        transaction.commit()?;
        if changed {
            self.hub.notify();
            self.notifier.notify();
        }
        Ok(answers)
    }
}

/// The operations that wait for an answer.
#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// How many bytes they put.
    bytes: usize,
    sweep: bool,
}

impl Waiting {
    /// Takes in all requests that have come, or the first that comes. False when none can come.
    fn gather(&mut self, requests: &Receiver<WriterRequest>) -> bool {
        if self.is_empty() {
            match requests.recv() {
                Ok(request) => self.take(request),
                Err(_) => return false,
            }
        }
        while self.jobs.len() < TOGETHER && self.bytes < TOGETHER_BYTES {
            match requests.try_recv() {
                Ok(request) => self.take(request),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        true
    }

    fn take(&mut self, request: WriterRequest) {
        match request {
            WriterRequest::Perform(job) => {
                self.bytes += job.bytes();
                self.jobs.push(job);
            }
            WriterRequest::Sweep => self.sweep = true,
        }
    }

    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && !self.sweep
    }

    /// Drops the operations for which no caller waits any more.
    fn give_up(&mut self) {
        let now = Instant::now();
        for job in self.jobs.extract_if(.., |job| job.is_given_up(now)) {
            self.bytes -= job.bytes();
            job.answer(Err(Failure::Timeout));
        }
    }

    /// Until when to wait for the lock: as long as any of them waits, and no longer than a turn.
    fn lock_timeout(&self) -> Instant {
        let turn = Instant::now() + TURN;
        let longest = self.jobs.iter().map(|job| job.give_up.unwrap_or(turn)).max();
        longest.unwrap_or(turn).min(turn)
    }

    fn answer(&mut self, answers: impl IntoIterator<Item = Answer>) {
        self.sweep = false;
        self.bytes = 0;
        for (job, answer) in self.jobs.drain(..).zip(answers) {
            job.answer(answer);
        }
    }
}
