//! The thread that serves the watches, and has leases swept that are over.
//!
//! It has a connection of its own, and reads the store when this or another process notifies
//! of a commit, when the next lease is over, and from time to time. It reads the history from the
//! last revision on, so that no commit is missed or told twice, with a notification or without.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rusqlite::{Transaction, TransactionBehavior};
use tokio::sync::mpsc::UnboundedSender;

use super::Shared;
use super::database::Database;
use super::error::SqliteError;
use super::hub::{Hub, WatchRequest};
use super::notification::Listener;
use super::reading::{Head, changes_since, head};
use super::time::Time;
use super::writer::WriterRequest;
use crate::types::{Change, Failure, RequestId, Watch, Watched};

/// How often to poll without a notification: a process that was killed after its commit sent
/// none.
const POLL: Duration = Duration::from_millis(250);
/// How often to poll where no notifications can be received.
const POLL_DEAF: Duration = Duration::from_millis(10);
/// How long to wait for a process that recovers the file.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// A watch of a set.
type Name = (u64, RequestId);

pub(super) struct Watcher {
    path: PathBuf,
    time: Time,
    writer: mpsc::Sender<WriterRequest>,
    hub: Arc<Hub>,
    listener: Listener,
    database: Option<Database>,
    /// Requested, and not started yet.
    opening: Vec<(Name, Followed, Option<i64>)>,
    watches: BTreeMap<Name, Followed>,
    /// The watches of each key.
    by_key: BTreeMap<Vec<u8>, Vec<Name>>,
    /// The watches of prefixes.
    prefixes: Vec<Name>,
    /// The last revision that was read.
    seen: i64,
}

struct Followed {
    key: Vec<u8>,
    prefix: bool,
    tell: UnboundedSender<Watched>,
    /// Everything up to this revision has been told.
    told: i64,
}

impl Watcher {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            path: shared.path.clone(),
            time: shared.time.clone(),
            writer: shared.writer.clone(),
            hub: Arc::clone(&shared.hub),
            listener: Listener::new(&shared.path, Arc::clone(&shared.hub)),
            database: None,
            opening: Vec::new(),
            watches: BTreeMap::new(),
            by_key: BTreeMap::new(),
            prefixes: Vec::new(),
            seen: 0,
        }
    }

    /// Until no set is left.
    pub(super) fn run(mut self) {
        let mut at_most = None;
        while let Some(requests) = self.hub.wait(at_most) {
            for request in requests {
                self.take(request);
            }
            if self.watches.is_empty() && self.opening.is_empty() {
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

    fn take(&mut self, request: WatchRequest) {
        match request {
            WatchRequest::Open { set, watch: Watch { id, key, prefix, since }, tell } => {
                let followed = Followed { key, prefix, tell, told: 0 };
                self.opening.push(((set, id), followed, since));
            }
            WatchRequest::Close { set, id } => self.drop_watch((set, id)),
            WatchRequest::Leave { set } => {
                self.opening.retain(|((other, _), ..)| *other != set);
                let left: Vec<Name> =
                    self.watches.keys().copied().filter(|(other, _)| *other == set).collect();
                for name in left {
                    self.drop_watch(name);
                }
            }
        }
    }

    /// Tells what has happened, and returns when to read again at the latest.
    fn read(&mut self) -> Result<Duration, SqliteError> {
        let database = match self.database.take() {
            Some(database) if database.is_in_place() => database,
            Some(replaced) => {
                self.end_where(|_| true, &Failure::Unavailable);
                self.seen = 0;
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
        if self.opening.is_empty() {
            // In most cases nothing is new.
            let head = head(connection, &self.time.boot)?;
            if head.revision == self.seen {
                return Ok(self.until(&head));
            }
        }
        let reading = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
        let head = head(connection, &self.time.boot)?;
        // Everything is read before any of it is told, so that a failure leaves nothing half
        // told.
        let mut changes = Vec::new();
        let asked = self.opening.iter().filter_map(|(.., since)| *since);
        let followed = (!self.watches.is_empty()).then_some(self.seen + 1);
        if let Some(first) = asked.chain(followed).min()
            && first <= head.revision
        {
            changes_since(connection, first, |at, change| changes.push((at, change)))?;
        }
        reading.finish()?;

        if head.revision < self.seen {
            // An older state was put in its place.
            self.end_where(|_| true, &Failure::Unavailable);
        }
        // A process that was stopped for long may have missed changes that are compacted now.
        let forgotten = Failure::Compacted(head.compacted);
        self.end_where(|watch| watch.told + 1 < head.compacted, &forgotten);
        for (at, change) in &changes {
            self.tell(*at, change);
        }
        for watch in self.watches.values_mut() {
            watch.told = watch.told.max(head.revision);
        }
        for (name, mut watch, since) in std::mem::take(&mut self.opening) {
            let told = since.map_or(head.revision, |since| since.max(1) - 1);
            watch.hear(name, Change::Started(told));
            if told + 1 < head.compacted {
                watch.hear(name, Change::Ended(forgotten.clone()));
                continue;
            }
            for (at, change) in &changes {
                if told < *at && watch.concerns(key_of(change)) {
                    watch.hear(name, change.clone());
                }
            }
            watch.told = told.max(head.revision);
            self.add(name, watch);
        }
        self.seen = head.revision;
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

    fn tell(&self, at: i64, change: &Change) {
        let key = key_of(change);
        let exactly = self.by_key.get(key).into_iter().flatten();
        for name in exactly.chain(&self.prefixes) {
            if let Some(watch) = self.watches.get(name)
                && watch.told < at
                && watch.concerns(key)
            {
                watch.hear(*name, change.clone());
            }
        }
    }

    fn add(&mut self, name: Name, watch: Followed) {
        if watch.prefix {
            self.prefixes.push(name);
        } else {
            self.by_key.entry(watch.key.clone()).or_default().push(name);
        }
        self.watches.insert(name, watch);
    }

    fn drop_watch(&mut self, name: Name) {
        self.opening.retain(|(other, ..)| *other != name);
        let Some(watch) = self.watches.remove(&name) else { return };
        if watch.prefix {
            self.prefixes.retain(|other| *other != name);
        } else if let Some(names) = self.by_key.get_mut(&watch.key) {
            names.retain(|other| *other != name);
            if names.is_empty() {
                self.by_key.remove(&watch.key);
            }
        }
    }

    fn end_where(&mut self, ends: impl Fn(&Followed) -> bool, failure: &Failure) {
        let ending = self.watches.iter().filter(|(_, watch)| ends(watch));
        let names: Vec<Name> = ending.map(|(name, _)| *name).collect();
        for name in names {
            if let Some(watch) = self.watches.get(&name) {
                watch.hear(name, Change::Ended(failure.clone()));
            }
            self.drop_watch(name);
        }
    }
}

impl Followed {
    fn concerns(&self, key: &[u8]) -> bool {
        if self.prefix { key.starts_with(&self.key) } else { key == self.key }
    }

    fn hear(&self, (_, id): Name, change: Change) {
        // The set may have been dropped.
        let _ = self.tell.send(Watched { id, change });
    }
}

fn key_of(change: &Change) -> &[u8] {
    match change {
        Change::Put(entry) => &entry.key,
        Change::Deleted(deletion) => &deletion.key,
        Change::Started(_) | Change::Ended(_) => &[],
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::clock::ManualClock;

    fn watcher() -> Watcher {
        let (writer, _) = mpsc::channel();
        let hub = Arc::new(Hub::new().unwrap());
        let time = Time::new(Arc::new(ManualClock::default()), "boot");
        Watcher::new(&Shared { path: "/nowhere".into(), identity: None, time, writer, hub })
    }

    fn followed(key: &str, prefix: bool) -> Followed {
        Followed { key: key.into(), prefix, tell: unbounded_channel().0, told: 0 }
    }

    #[test]
    fn nothing_is_kept_of_a_watch_that_is_closed() {
        let mut watcher = watcher();
        watcher.add((1, 1), followed("a", false));
        watcher.add((1, 2), followed("a", true));
        watcher.add((2, 1), followed("a", false));
        watcher.add((2, 2), followed("b", true));
        watcher.opening.push(((1, 3), followed("c", false), None));
        watcher.opening.push(((2, 3), followed("c", false), None));
        watcher.take(WatchRequest::Close { set: 1, id: 1 });
        assert_eq!(watcher.by_key[&b"a"[..]], [(2, 1)]);
        assert_eq!(watcher.prefixes, [(1, 2), (2, 2)]);
        watcher.take(WatchRequest::Leave { set: 1 });
        assert_eq!(watcher.prefixes, [(2, 2)]);
        assert!(watcher.watches.keys().eq(&[(2, 1), (2, 2)]));
        assert!(watcher.opening.iter().map(|(name, ..)| name).eq(&[(2, 3)]));
        for id in 1..=3 {
            watcher.take(WatchRequest::Close { set: 2, id });
        }
        assert!(watcher.opening.is_empty() && watcher.watches.is_empty());
        assert!(watcher.by_key.is_empty() && watcher.prefixes.is_empty());
    }
}
