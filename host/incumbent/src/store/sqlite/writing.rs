//! The operations, inside of one transaction that writes.
//!
//! They mean what they mean on etcd: `store/memory/contents.rs` has the same in memory.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, params};

use super::quota::Quota;
use super::reading::{entry, head, read};
use crate::store::limits;
use crate::store::time::Time;
use crate::types::{Answer, Claim, Claimed, Entry, Grant, Guarded, Mutation, Operation, Response};

/// The shortest lease, in nanoseconds.
const SHORTEST_LEASE: u64 = SECOND;
/// How long history is kept, in nanoseconds.
const KEPT: i64 = 3_600 * SECOND as i64;
/// How often history is compacted, and how many revisions are removed at once.
const COMPACTION_INTERVAL: i64 = 60 * SECOND as i64;
const AT_ONCE: i64 = 1_000;

/// What a change takes in history besides its key and value, in bytes: with a page of its own
/// where these are too long for the page of others.
const CHANGE: i64 = 64;
const LONG: i64 = 900;
const PAGE: i64 = 4_096;

const SECOND: u64 = 1_000_000_000;

/// The operations of one transaction.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    connection: &'a Connection,
    quota: &'a Quota,
    now: i64,
    /// The last revision before this transaction, and now.
    before: i64,
    revision: i64,
    /// How many bytes of history there were, and are.
    history_before: i64,
    history: i64,
    /// How many bytes were put.
    put: usize,
}

impl<'a> Writing<'a> {
    /// Ends the leases that are over, now that no other process writes.
    pub(super) fn begin(connection: &'a Connection, time: &Time, quota: &'a Quota) -> Result<Self> {
        let now = time.now();
        let head = head(connection, &time.boot)?;
        let revision = head.revision;
        let mut writing = Self {
            connection,
            quota,
            now,
            before: revision,
            revision,
            history_before: head.history,
            history: head.history,
            put: 0,
        };
        if !head.this_boot {
            writing.begin_anew(&time.boot)?;
        } else if head.is_due(now) {
            writing.sweep(now)?;
        }
        Ok(writing)
    }

    /// Does an operation. The answer is true once the transaction is committed.
    pub(super) fn perform(&mut self, operation: &Operation) -> Result<Answer> {
        let response = match operation {
            Operation::Grant(grant) => return self.with_room(operation, |it| it.grant(grant)),
            Operation::KeepAlive(lease) => self.keep_alive(*lease)?,
            Operation::Revoke(lease) => {
                if self.end_lease(*lease)? {
                    Response::Revoked
                } else {
                    Response::Expired
                }
            }
            // A lost race is answered as such, whether there is room or not.
            Operation::Claim(claim) => match self.lost(claim)? {
                Some(lost) => lost,
                None => return self.with_room(operation, |it| it.claim(claim)),
            },
            Operation::Read(selections) => read(self.connection, self.revision, selections)?,
            Operation::Guarded(guarded) => match self.refused(guarded)? {
                Err(refused) => refused,
                Ok(lease) => {
                    return self.with_room(operation, |it| it.guarded(guarded, lease));
                }
            },
        };
        Ok(Ok(response))
    }

    /// Right before the commit. Whether watches have something to tell.
    pub(super) fn finish(mut self) -> Result<bool> {
        let changed = self.revision > self.before;
        if changed {
            self.forget_beyond(self.quota.history())?;
        }
        if changed || self.history != self.history_before {
            self.prepare("UPDATE meta SET revision = ?1, history = ?2")?
                .execute([self.revision, self.history])?;
        }
        Ok(changed)
    }

    /// Does an operation that puts something into the store, if there is room for it.
    fn with_room(
        &mut self,
        operation: &Operation,
        perform: impl FnOnce(&mut Self) -> Result<Response>,
    ) -> Result<Answer> {
        if let Some(bytes) = limits::put(operation) {
            let put = self.put + bytes;
            if let Err(full) = self.quota.check(self.connection, put as u64)? {
                return Ok(Err(full));
            }
            self.put = put;
        }
        perform(self).map(Ok)
    }

    // The operations.

    fn grant(&self, grant: &Grant) -> Result<Response> {
        let ttl = grant.ttl.max(SHORTEST_LEASE);
        let (time, ends) = self.span(ttl);
        let made = self
            .prepare(
                "INSERT INTO leases (id, ttl, ends) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute([grant.lease, time, ends])?;
        Ok(if made == 1 { Response::Granted(ttl) } else { Response::Exists })
    }

    fn keep_alive(&self, lease: i64) -> Result<Response> {
        let ttl: Option<i64> = self
            .prepare("SELECT ttl FROM leases WHERE id = ?1")?
            .query_row([lease], |row| row.get(0))
            .optional()?;
        let Some(ttl) = ttl.and_then(|ttl| u64::try_from(ttl).ok()) else {
            return Ok(Response::Expired);
        };
        let (_, ends) = self.span(ttl);
        self.prepare("UPDATE leases SET ends = ?2 WHERE id = ?1")?.execute([lease, ends])?;
        Ok(Response::Renewed(ttl))
    }

    /// Why the key cannot be claimed.
    fn lost(&self, claim: &Claim) -> Result<Option<Response>> {
        if let Some(entry) = self.entry(&claim.key)? {
            return Ok(Some(Response::Taken(Claimed { entry, at: self.revision })));
        }
        let mut lease = self.prepare("SELECT 1 FROM leases WHERE id = ?1")?;
        let is_over = claim.lease != 0 && !lease.exists([claim.lease])?;
        Ok(is_over.then_some(Response::Expired))
    }

    fn claim(&mut self, claim: &Claim) -> Result<Response> {
        self.change(|changes| changes.put(&claim.key, &claim.value, claim.lease))?;
        let entry = Entry {
            key: claim.key.clone(),
            value: claim.value.clone(),
            lease: claim.lease,
            created: self.revision,
            modified: self.revision,
        };
        Ok(Response::Claimed(Claimed { entry, at: self.revision }))
    }

    /// The lease of the guard, or why nothing is done.
    fn refused(&self, guarded: &Guarded) -> Result<std::result::Result<i64, Response>> {
        let guard = &guarded.guard;
        let lease = match self.standing(&guard.key)? {
            Some(key)
                if key.created == guard.epoch
                    && guard.lease.is_none_or(|lease| key.lease == lease) =>
            {
                key.lease
            }
            Some(_) | None => return Ok(Err(Response::Stale)),
        };
        for expect in &guarded.expect {
            let modified = self.standing(&expect.key)?.map_or(0, |key| key.modified);
            if modified != expect.modified {
                return Ok(Err(Response::Conflict));
            }
        }
        Ok(Ok(lease))
    }

    fn guarded(&mut self, guarded: &Guarded, lease: i64) -> Result<Response> {
        self.change(|changes| {
            for mutation in &guarded.mutations {
                match mutation {
                    Mutation::Put(put) => changes.put(&put.key, &put.value, 0)?,
                    Mutation::Proclaim(value) => changes.put(&guarded.guard.key, value, lease)?,
                    Mutation::Delete(key) => changes.delete(key)?,
                }
            }
            Ok(())
        })?;
        Ok(Response::Applied(self.revision))
    }

    // The effects of time.

    /// Ends the leases that are over by `now`, the first one first.
    fn sweep(&mut self, now: i64) -> Result<()> {
        let over: Vec<i64> = self
            .prepare("SELECT id FROM leases WHERE ends <= ?1 ORDER BY ends, id")?
            .query_map([now], |row| row.get(0))?
            .collect::<Result<_>>()?;
        for lease in over {
            self.end_lease(lease)?;
        }
        Ok(())
    }

    /// The machine was started anew: no lease is left, and no process that has seen the
    /// history.
    fn begin_anew(&mut self, boot: &str) -> Result<()> {
        let last = self.revision;
        self.prepare("DELETE FROM history")?.execute([])?;
        self.history = 0;
        self.prepare("UPDATE meta SET boot = ?1, compacted = ?2")?
            .execute(params![boot, last + 1])?;
        self.sweep(i64::MAX)
    }

    /// Forgets history older than an hour, and returns when to do so again.
    pub(super) fn compact(&mut self) -> Result<i64> {
        let oldest: Vec<(i64, i64)> = self
            .prepare(
                "SELECT revision, at FROM history GROUP BY revision ORDER BY revision LIMIT ?1",
            )?
            .query_map([AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_>>()?;
        let limit = self.now.saturating_sub(KEPT);
        let (all_old, kept) = match oldest.iter().find(|(_, at)| *at > limit) {
            Some((kept, _)) => (false, Some(*kept)),
            None => (true, oldest.last().map(|(last, _)| *last)),
        };
        if let Some(kept) = kept {
            self.forget_before(kept)?;
        }
        let more = all_old && oldest.len() > 1;
        Ok(if more { self.now } else { self.now.saturating_add(COMPACTION_INTERVAL) })
    }

    /// Forgets the oldest changes if history takes too many bytes; none of this commit, which
    /// no watch has seen.
    fn forget_beyond(&mut self, bytes: i64) -> Result<()> {
        let mut excess = self.history - bytes;
        if excess <= 0 {
            return Ok(());
        }
        let mut kept = 0;
        self.each_size(self.before, |revision, size| {
            kept = revision + 1;
            excess -= size;
            excess > 0
        })?;
        self.forget_before(kept)
    }

    fn forget_before(&mut self, kept: i64) -> Result<()> {
        let mut bytes = 0;
        self.each_size(kept - 1, |_, size| {
            bytes += size;
            true
        })?;
        let forgotten = self.prepare("DELETE FROM history WHERE revision < ?1")?.execute([kept])?;
        if forgotten > 0 {
            self.prepare("UPDATE meta SET compacted = ?1")?.execute([kept])?;
        }
        self.history = (self.history - bytes).max(0);
        Ok(())
    }

    /// Calls `tell` with the size of each change up to a revision, the oldest first, until it
    /// returns false.
    fn each_size(&self, last: i64, mut tell: impl FnMut(i64, i64) -> bool) -> Result<()> {
        let mut sizes = self.prepare(
            "SELECT revision, length(key) + ifnull(length(value), 0) FROM history
             WHERE revision <= ?1 ORDER BY revision, part",
        )?;
        let mut rows = sizes.query([last])?;
        while let Some(row) = rows.next()? {
            if !tell(row.get(0)?, size(row.get(1)?)) {
                break;
            }
        }
        Ok(())
    }

    /// False if there is none.
    fn end_lease(&mut self, lease: i64) -> Result<bool> {
        if self.prepare("DELETE FROM leases WHERE id = ?1")?.execute([lease])? == 0 {
            return Ok(false);
        }
        let keys: Vec<Vec<u8>> = self
            .prepare("SELECT key FROM keys WHERE lease = ?1 AND lease <> 0 ORDER BY key")?
            .query_map([lease], |row| row.get(0))?
            .collect::<Result<_>>()?;
        self.change(|changes| keys.iter().try_for_each(|key| changes.delete(key)))?;
        Ok(true)
    }

    // Queries.

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.prepare("SELECT key, value, lease, created, modified FROM keys WHERE key = ?1")?
            .query_row([key], entry)
            .optional()
    }

    fn standing(&self, key: &[u8]) -> Result<Option<Standing>> {
        self.prepare("SELECT lease, created, modified FROM keys WHERE key = ?1")?
            .query_row([key], |row| {
                Ok(Standing { lease: row.get(0)?, created: row.get(1)?, modified: row.get(2)? })
            })
            .optional()
    }

    /// A time to live as SQLite holds it, and when it is over.
    fn span(&self, ttl: u64) -> (i64, i64) {
        let ttl = i64::try_from(ttl).unwrap_or(i64::MAX);
        (ttl, self.now.saturating_add(ttl))
    }

    fn prepare(&self, statement: &str) -> Result<CachedStatement<'a>> {
        self.connection.prepare_cached(statement)
    }

    /// Makes changes in one revision; in none if nothing changed.
    fn change(&mut self, make: impl FnOnce(&mut Changes<'_>) -> Result<()>) -> Result<()> {
        let at = self.revision + 1;
        let mut changes =
            Changes { connection: self.connection, now: self.now, at, parts: 0, bytes: 0 };
        make(&mut changes)?;
        if changes.parts > 0 {
            self.revision = at;
            self.history += changes.bytes;
        }
        Ok(())
    }
}

/// A key without its value.
struct Standing {
    lease: i64,
    created: i64,
    modified: i64,
}

/// What one revision changes.
struct Changes<'a> {
    connection: &'a Connection,
    now: i64,
    at: i64,
    parts: i64,
    /// What it takes in history.
    bytes: i64,
}

/// What a change takes in history, by the length of its key and value.
fn size(length: i64) -> i64 {
    CHANGE + length + if length > LONG { PAGE } else { 0 }
}

impl Changes<'_> {
    fn put(&mut self, key: &[u8], value: &[u8], lease: i64) -> Result<()> {
        let created: i64 = self
            .connection
            .prepare_cached(
                "INSERT INTO keys (key, value, lease, created, modified)
                 VALUES (?1, ?2, ?3, ?4, ?4)
                 ON CONFLICT (key) DO UPDATE SET
                     value = excluded.value, lease = excluded.lease, modified = excluded.modified
                 RETURNING created",
            )?
            .query_row(params![key, value, lease, self.at], |row| row.get(0))?;
        self.record(key, Some(value), lease, created)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let deleted =
            self.connection.prepare_cached("DELETE FROM keys WHERE key = ?1")?.execute([key])?;
        if deleted == 1 { self.record(key, None, 0, 0) } else { Ok(()) }
    }

    fn record(&mut self, key: &[u8], value: Option<&[u8]>, lease: i64, created: i64) -> Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO history (revision, part, at, key, value, lease, created)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![self.at, self.parts, self.now, key, value, lease, created])?;
        self.parts += 1;
        let length = key.len() + value.map_or(0, <[u8]>::len);
        self.bytes += size(i64::try_from(length).unwrap_or(i64::MAX / 2));
        Ok(())
    }
}
