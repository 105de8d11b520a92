//! The watches of a store that keeps its history in tables, by what each of them has been told.
//!
//! The store reads the history, hands over all changes after a revision, and each watch is told its own.

use std::collections::BTreeMap;

use tokio::sync::mpsc::UnboundedSender;

use crate::types::{Change, Failure, RequestId, Watch, Watched};

/// A request of a set of watches.
#[derive(Debug)]
pub(crate) enum WatchRequest {
    Open { set: u64, watch: Watch, tell: UnboundedSender<Watched> },
    Close { set: u64, id: RequestId },
    Leave { set: u64 },
}

impl WatchRequest {
    /// Nobody can serve it.
    pub(crate) fn refuse(self, reason: &str) {
        match self {
            Self::Open { watch, tell, .. } => {
                let change = Change::Ended(Failure::Other(reason.into()));
                // The set may be gone.
                let _ = tell.send(Watched { id: watch.id, change });
            }
            Self::Close { .. } | Self::Leave { .. } => {}
        }
    }
}

/// A watch of a set.
type Name = (u64, RequestId);

/// All watches of all sets.
#[derive(Debug, Default)]
pub(crate) struct Following {
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

#[derive(Debug)]
struct Followed {
    key: Vec<u8>,
    prefix: bool,
    tell: UnboundedSender<Watched>,
    /// Everything up to this revision has been told.
    told: i64,
}

impl Following {
    pub(crate) fn take(&mut self, request: WatchRequest) {
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

    #[cfg(any(test, feature = "sqlite"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.opening.is_empty()
    }

    /// Whether nothing has to be read at this revision of the store.
    pub(crate) fn is_told(&self, revision: i64) -> bool {
        self.opening.is_empty() && revision == self.seen
    }

    /// The first revision whose changes are wanted, if any are.
    pub(crate) fn wanted(&self) -> Option<i64> {
        let asked = self.opening.iter().filter_map(|(.., since)| *since);
        let followed = (!self.watches.is_empty()).then_some(self.seen + 1);
        asked.chain(followed).min()
    }

    /// All changes since the wanted revision, up to the last one.
    pub(crate) fn hear(&mut self, revision: i64, compacted: i64, changes: &[(i64, Change)]) {
        if revision < self.seen {
            // An older state was put in its place.
            self.end_where(|_| true, &Failure::Unavailable);
        }
        // A process that was stopped for long may have missed changes that are compacted now.
        let forgotten = Failure::Compacted(compacted);
        self.end_where(|watch| watch.told + 1 < compacted, &forgotten);
        for (at, change) in changes {
            self.tell(*at, change);
        }
        for watch in self.watches.values_mut() {
            watch.told = watch.told.max(revision);
        }
        for (name, mut watch, since) in std::mem::take(&mut self.opening) {
            let told = since.map_or(revision, |since| since.max(1) - 1);
            watch.hear(name, Change::Started(told));
            if told + 1 < compacted {
                watch.hear(name, Change::Ended(forgotten.clone()));
                continue;
            }
            for (at, change) in changes {
                if told < *at && watch.concerns(key_of(change)) {
                    watch.hear(name, change.clone());
                }
            }
            watch.told = told.max(revision);
            self.add(name, watch);
        }
        self.seen = revision;
    }

    /// The store is another one now.
    pub(crate) fn end(&mut self, failure: &Failure) {
        self.end_where(|_| true, failure);
        self.seen = 0;
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

    fn followed(key: &str, prefix: bool) -> Followed {
        Followed { key: key.into(), prefix, tell: unbounded_channel().0, told: 0 }
    }

    #[test]
    fn nothing_is_kept_of_a_watch_that_is_closed() {
        let mut all = Following::default();
        all.add((1, 1), followed("a", false));
        all.add((1, 2), followed("a", true));
        all.add((2, 1), followed("a", false));
        all.add((2, 2), followed("b", true));
        all.opening.push(((1, 3), followed("c", false), None));
        all.opening.push(((2, 3), followed("c", false), None));
        all.take(WatchRequest::Close { set: 1, id: 1 });
        assert_eq!(all.by_key[&b"a"[..]], [(2, 1)]);
        assert_eq!(all.prefixes, [(1, 2), (2, 2)]);
        all.take(WatchRequest::Leave { set: 1 });
        assert_eq!(all.prefixes, [(2, 2)]);
        assert!(all.watches.keys().eq(&[(2, 1), (2, 2)]));
        assert!(all.opening.iter().map(|(name, ..)| name).eq(&[(2, 3)]));
        for id in 1..=3 {
            all.take(WatchRequest::Close { set: 2, id });
        }
        assert!(all.is_empty());
        assert!(all.by_key.is_empty() && all.prefixes.is_empty());
    }

    #[test]
    fn a_watch_that_nobody_can_serve_ends() {
        let (tell, mut told) = unbounded_channel();
        let watch = Watch { id: 7, key: b"key".to_vec(), prefix: false, since: None };
        WatchRequest::Open { set: 1, watch, tell }.refuse("why");
        let change = Change::Ended(Failure::Other("why".into()));
        assert_eq!(told.try_recv(), Ok(Watched { id: 7, change }));
    }
}
