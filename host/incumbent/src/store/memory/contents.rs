//! The contents of a store, without I/O: leases, keys, revisions, transactions and history,
//! as on etcd. `tests/tests/fidelity` compares them with etcd answer by answer.
//!
//! It answers at once, and time is an argument. The simulation includes this very file as its
//! model of etcd, with the guest's types: hence `super::types`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};

use super::types::{
    Change, Claim, Claimed, Deletion, Duration, Entry, Failure, Grant, Guarded, Mark, Mutation,
    Operation, Order, Put, Response, Selection, Snapshot,
};

/// The longest lease.
const LONGEST_LEASE: Duration = 9_000_000_000_000_000_000;
/// A key that ends in so many hexadecimal digits is taken for that of a candidate in a queue.
const LEASE_DIGITS: usize = 8;

/// What a store holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contents {
    pub(super) rules: Rules,
    pub(super) revision: i64,
    /// Changes before this revision are forgotten.
    pub(super) compacted: i64,
    pub(super) keys: BTreeMap<Vec<u8>, Entry>,
    pub(super) leases: BTreeMap<i64, Lease>,
    /// When each lease ends, the first one first.
    ends: BTreeSet<(Mark, i64)>,
    /// The changes, in order, but for the oldest ones.
    pub(super) log: Vec<(i64, Change)>,
    /// How many changes are no longer in the log.
    pub(super) dropped: usize,
    /// The revision of what goes together.
    joint: Option<i64>,
    /// No space is left: grants, claims and an operator's puts fail.
    pub full: bool,
}

/// How stores differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The shortest lease.
    pub shortest: Duration,
    /// Leases are rounded up to a multiple of this.
    pub unit: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) ttl: Duration,
    pub(super) ends: Mark,
}

impl Contents {
    /// Nothing yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            ends: BTreeSet::new(),
            log: Vec::new(),
            dropped: 0,
            joint: None,
            full: false,
        }
    }

    /// The revision of the last change.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// This key and all after it, in their order.
    pub fn keys_from(&self, first: &[u8]) -> impl Iterator<Item = &Entry> {
        self.keys.range::<[u8], _>((Included(first), Unbounded)).map(|(_, entry)| entry)
    }

    /// When the next lease runs out.
    pub fn next_end(&self) -> Option<Mark> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// Every change after the first `told` ones.
    pub fn changes_after(&self, told: usize) -> &[(i64, Change)] {
        self.log.get(told.saturating_sub(self.dropped)..).unwrap_or_default()
    }

    /// How many changes there were.
    pub fn changes(&self) -> usize {
        self.dropped + self.log.len()
    }

    /// How many changes came before a revision; or, if they are forgotten, the
    /// oldest revision that is not.
    ///
    /// # Errors
    ///
    /// [`Failure::Compacted`].
    pub fn changes_before(&self, revision: i64) -> Result<usize, Failure> {
        // Before 1 there was nothing to forget.
        if revision.max(1) < self.compacted {
            return Err(Failure::Compacted(self.compacted));
        }
        Ok(self.dropped + self.log.partition_point(|&(at, _)| at < revision))
    }

    // The operations.

    /// Does an operation, at the time `now`.
    ///
    /// # Errors
    ///
    /// If etcd refuses it.
    pub fn perform(&mut self, now: Mark, operation: &Operation) -> Result<Response, Failure> {
        check_keys(operation)?;
        match operation {
            Operation::Grant(grant) => self.grant(now, grant),
            Operation::KeepAlive(lease) => Ok(self.keep_alive(now, *lease)),
            Operation::Revoke(lease) => {
                Ok(if self.end_lease(*lease) { Response::Revoked } else { Response::Expired })
            }
            Operation::Claim(claim) => self.claim(claim),
            Operation::Read(selections) => Ok(Response::Snapshot(Snapshot {
                at: self.revision,
                found: selections.iter().map(|selection| self.select(selection)).collect(),
            })),
            Operation::Guarded(guarded) => self.guarded(guarded),
        }
    }

    /// Does operations that [go together](Together), in one revision.
    pub fn perform_together<'a>(
        &mut self,
        now: Mark,
        operations: impl IntoIterator<Item = &'a Operation>,
    ) -> Vec<Result<Response, Failure>> {
        self.joint = Some(self.revision + 1);
        let outcomes =
            operations.into_iter().map(|operation| self.perform(now, operation)).collect();
        self.joint = None;
        outcomes
    }

    fn grant(&mut self, now: Mark, grant: &Grant) -> Result<Response, Failure> {
        self.check_space()?;
        if grant.ttl > LONGEST_LEASE {
            return Err(Failure::Invalid("etcdserver: too large lease TTL".into()));
        }
        if self.leases.contains_key(&grant.lease) {
            return Ok(Response::Exists);
        }
        let ttl = (grant.ttl.div_ceil(self.rules.unit) * self.rules.unit).max(self.rules.shortest);
        self.leases.insert(grant.lease, Lease { ttl, ends: 0 });
        self.set_end(grant.lease, now.saturating_add(ttl));
        Ok(Response::Granted(ttl))
    }

    fn keep_alive(&mut self, now: Mark, lease: i64) -> Response {
        match self.leases.get(&lease) {
            // A lease that is over stays until the next tick, but is not renewed.
            Some(&Lease { ttl, ends }) if ends > now => {
                self.set_end(lease, now.saturating_add(ttl));
                Response::Renewed(ttl)
            }
            Some(_) | None => Response::Expired,
        }
    }

    /// Has a lease end then, if it is there.
    pub(super) fn set_end(&mut self, lease: i64, ends: Mark) {
        if let Some(it) = self.leases.get_mut(&lease) {
            self.ends.remove(&(it.ends, lease));
            it.ends = ends;
            self.ends.insert((ends, lease));
        }
    }

    fn claim(&mut self, claim: &Claim) -> Result<Response, Failure> {
        // Even one that would change nothing.
        self.check_space()?;
        if let Some(entry) = self.keys.get(&claim.key) {
            return Ok(Response::Taken(Claimed { entry: entry.clone(), at: self.revision }));
        }
        let put = self.put(claim.key.clone(), claim.value.clone(), claim.lease)?;
        Ok(put.map_or(Response::Expired, |entry| {
            Response::Claimed(Claimed { entry, at: self.revision })
        }))
    }

    fn select(&self, selection: &Selection) -> Vec<Entry> {
        let Selection { key, prefix, from, created_before, order, limit, keys_only } = selection;
        let first = from.as_ref().map_or(key, |from| from.max(key));
        let limit = if *limit == 0 { usize::MAX } else { *limit as usize };
        let there = self
            .keys_from(first)
            .take_while(|entry| match prefix {
                true => entry.key.starts_with(key),
                false => entry.key == *key,
            })
            .filter(|entry| created_before.is_none_or(|before| entry.created < before));
        // What one revision made stays in the order of its keys, either way.
        let found: Vec<&Entry> = match order {
            Order::OldestFirst => sorted(there, |entry| entry.created),
            Order::NewestFirst => sorted(there, |entry| Reverse(entry.created)),
            // In the order of the map, which is read no further than the limit.
            Order::ByKey => there.take(limit).collect(),
        };
        let told = |entry: &Entry| match keys_only {
            true => Entry { key: entry.key.clone(), value: Vec::new(), ..*entry },
            false => entry.clone(),
        };
        found.into_iter().take(limit).map(told).collect()
    }

    fn guarded(&mut self, guarded: &Guarded) -> Result<Response, Failure> {
        let guard = &guarded.guard;
        let lease = match self.keys.get(&guard.key) {
            Some(entry)
                if entry.created == guard.epoch
                    && guard.lease.is_none_or(|lease| entry.lease == lease) =>
            {
                entry.lease
            }
            Some(_) | None => return Ok(Response::Stale),
        };
        let holds = guarded.expect.iter().all(|expect| {
            self.keys.get(&expect.key).map_or(0, |entry| entry.modified) == expect.modified
        });
        if !holds {
            return Ok(Response::Conflict);
        }
        // Without a check of space: etcd does not count the puts of a nested transaction.
        self.change(|changes| {
            for mutation in &guarded.mutations {
                match mutation {
                    Mutation::Put(put) => changes.put(put.key.clone(), put.value.clone(), 0),
                    Mutation::Proclaim(value) => {
                        changes.put(guard.key.clone(), value.clone(), lease);
                    }
                    Mutation::Delete(key) => changes.delete(key),
                }
            }
        });
        Ok(Response::Applied(self.revision))
    }

    fn check_space(&self) -> Result<(), Failure> {
        if self.full {
            return Err(Failure::Other("etcdserver: mvcc: database space exceeded".into()));
        }
        Ok(())
    }

    // An operator's commands.

    /// Writes a key, also one of another client, under a lease unless that is 0. Writes
    /// nothing if the lease does not exist.
    ///
    /// # Errors
    ///
    /// If no space is left.
    pub fn put(
        &mut self,
        key: Vec<u8>,
        value: Vec<u8>,
        lease: i64,
    ) -> Result<Option<Entry>, Failure> {
        self.check_space()?;
        if lease != 0 && !self.leases.contains_key(&lease) {
            return Ok(None);
        }
        self.change(|changes| changes.put(key.clone(), value, lease));
        Ok(self.keys.get(&key).cloned())
    }

    /// Deletes a key, if it exists.
    pub fn delete(&mut self, key: &[u8]) {
        self.change(|changes| changes.delete(key));
    }

    /// Ends a lease, and deletes its keys. False if there is none.
    pub fn end_lease(&mut self, lease: i64) -> bool {
        let found = self.leases.remove(&lease);
        if let Some(Lease { ends, .. }) = found {
            self.ends.remove(&(ends, lease));
            let attached = self.keys.values().filter(|entry| entry.lease == lease);
            let keys: Vec<Vec<u8>> = attached.map(|entry| entry.key.clone()).collect();
            self.change(|changes| keys.iter().for_each(|key| changes.delete(key)));
        }
        found.is_some()
    }

    /// Forgets the changes before a revision. False if they are forgotten already, or the
    /// revision does not exist yet.
    pub fn compact(&mut self, revision: i64) -> bool {
        let possible = self.compacted < revision && revision <= self.revision;
        if possible {
            self.compacted = revision;
        }
        possible
    }

    // The effects of time.

    /// Ends the leases whose time is over.
    pub fn tick(&mut self, now: Mark) {
        while let Some((ends, lease)) = self.ends.first().copied()
            && ends <= now
        {
            self.end_lease(lease);
        }
    }

    // Changes.

    /// Makes changes in one revision; in none if nothing changed.
    fn change(&mut self, make: impl FnOnce(&mut Changes<'_>)) {
        let at = self.joint.unwrap_or(self.revision + 1);
        let before = self.log.len();
        make(&mut Changes { at, keys: &mut self.keys, log: &mut self.log });
        if self.log.len() > before {
            self.revision = at;
        }
    }
}

/// What one revision changes.
struct Changes<'a> {
    at: i64,
    keys: &'a mut BTreeMap<Vec<u8>, Entry>,
    log: &'a mut Vec<(i64, Change)>,
}

impl Changes<'_> {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>, lease: i64) {
        let created = self.keys.get(&key).map_or(self.at, |entry| entry.created);
        let entry = Entry { key: key.clone(), value, lease, created, modified: self.at };
        self.keys.insert(key, entry.clone());
        self.log.push((self.at, Change::Put(entry)));
    }

    fn delete(&mut self, key: &[u8]) {
        if self.keys.remove(key).is_some() {
            let deletion = Deletion { key: key.into(), at: self.at };
            self.log.push((self.at, Change::Deleted(deletion)));
        }
    }
}

/// Which operations may be done in one transaction, and so in one revision, and still mean what
/// they mean one after the other.
#[derive(Debug, Default)]
pub struct Together {
    changed: BTreeSet<Vec<u8>>,
    compared: BTreeSet<Vec<u8>>,
}

impl Together {
    /// Whether an operation may be done with all before it: none changes what another one changes
    /// or compares, and no two candidates join one queue, because the revisions of their keys
    /// are their order.
    ///
    /// It counts from now on as one of them. Where it is left out, what would conflict with it is
    /// left out behind it.
    pub fn admits(&mut self, operation: &Operation) -> bool {
        let (changed, compared) = touched(operation);
        let is_changed = |place: &&[u8]| self.changed.contains(*place);
        let is_compared = |place: &&[u8]| self.compared.contains(*place);
        let conflicts = changed.iter().any(|it| is_changed(it) || is_compared(it))
            || compared.iter().any(is_changed);
        self.changed.extend(changed.into_iter().map(Into::into));
        self.compared.extend(compared.into_iter().map(Into::into));
        !conflicts
    }
}

/// What an operation changes, and what it compares: keys, and the names of the queues that they
/// are in.
fn touched<'a>(operation: &'a Operation) -> (Vec<&'a [u8]>, Vec<&'a [u8]>) {
    match operation {
        Operation::Claim(Claim { key, lease, .. }) => {
            let own = format!("/{lease:x}");
            (vec![key, key.strip_suffix(own.as_bytes()).unwrap_or(key)], Vec::new())
        }
        Operation::Guarded(Guarded { guard, expect, mutations }) => {
            let changed = mutations.iter().map(|mutation| match mutation {
                Mutation::Put(Put { key, .. }) | Mutation::Delete(key) => key,
                Mutation::Proclaim(_) => &guard.key,
            });
            let compared = expect.iter().map(|expect| &expect.key).chain([&guard.key]);
            let places = |key: &'a Vec<u8>| [&**key, queue_or_key(key)];
            (changed.flat_map(places).collect(), compared.flat_map(places).collect())
        }
        Operation::Read(_)
        | Operation::Grant(_)
        | Operation::KeepAlive(_)
        | Operation::Revoke(_) => (Vec::new(), Vec::new()),
    }
}

/// The name of the queue that a key is in, if it ends in a lease as candidates' keys do.
fn queue_or_key(key: &[u8]) -> &[u8] {
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let name = key.len().saturating_sub(digits + 1);
    match key.get(name) {
        Some(b'/') if digits >= LEASE_DIGITS => key.get(..name).unwrap_or(key),
        _ => key,
    }
}

/// All of them, the least first; equals keep their order.
fn sorted<'a, K: Ord>(
    entries: impl Iterator<Item = &'a Entry>,
    by: impl Fn(&Entry) -> K,
) -> Vec<&'a Entry> {
    let mut sorted: Vec<_> = entries.collect();
    sorted.sort_by_key(|entry| by(entry));
    sorted
}

/// Refuses keys that etcd never takes, or never takes together.
fn check_keys(operation: &Operation) -> Result<(), Failure> {
    let (keys, twice) = keys_of(operation);
    if keys.iter().any(|key| key.is_empty()) {
        return Err(Failure::Invalid("etcdserver: key is not provided".into()));
    }
    if twice {
        return Err(Failure::Invalid("etcdserver: duplicate key given in txn request".into()));
    }
    Ok(())
}

/// The keys that an operation names, prefixes aside, and whether it changes one of them twice:
/// that is allowed for deletions only.
pub fn keys_of(operation: &Operation) -> (Vec<&[u8]>, bool) {
    let mut keys: Vec<&[u8]> = Vec::new();
    let (mut put, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    let mut twice = false;
    match operation {
        Operation::Grant(_) | Operation::KeepAlive(_) | Operation::Revoke(_) => {}
        Operation::Claim(claim) => keys.push(&claim.key),
        Operation::Read(selections) => {
            let single = selections.iter().filter(|selection| !selection.prefix);
            keys.extend(single.map(|selection| &*selection.key));
        }
        Operation::Guarded(Guarded { guard, expect, mutations }) => {
            keys.push(&guard.key);
            keys.extend(expect.iter().map(|expect| &*expect.key));
            for mutation in mutations {
                let key = match mutation {
                    Mutation::Put(Put { key, .. }) | Mutation::Delete(key) => key,
                    Mutation::Proclaim(_) => &guard.key,
                };
                match mutation {
                    Mutation::Put(_) | Mutation::Proclaim(_) => twice |= !put.insert(key),
                    Mutation::Delete(_) => _ = deleted.insert(key),
                }
                keys.push(key);
            }
        }
    }
    (keys, twice || !put.is_disjoint(&deleted))
}
