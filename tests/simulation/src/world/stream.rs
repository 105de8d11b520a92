//! The watches of a process, and what each of them has yet to tell. There may be ten
//! thousand of them, and only those are looked at that have something to tell.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use incumbent_guest::types::*;

use crate::client::concerns;
use crate::store::Store;

/// The stream of all watches of a process.
#[derive(Default)]
pub struct Stream {
    pub number: u32,
    /// Nothing that was sent later arrives earlier.
    pub last_arrival: Mark,
    pub flushing: bool,
    pub supervised: bool,
    watches: BTreeMap<RequestId, Streamed>,
    /// The watches of single keys.
    keys: HashMap<Vec<u8>, BTreeSet<RequestId>>,
    /// The watches of prefixes.
    prefixes: BTreeSet<RequestId>,
    /// The watches that came on since the last flush, by how many changes they have told.
    begun: BTreeSet<(usize, RequestId)>,
    /// How many others are on. They have told as many changes as there were at the last flush.
    flushed: usize,
    told: usize,
}

struct Streamed {
    watch: Watch,
    told: Told,
    /// The last revision that arrived.
    heard: Option<Revision>,
    silent: bool,
}

/// How much of the store's history a watch has told.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    /// It is not on.
    Nothing,
    /// So many changes, when it came on after the last flush.
    Begun(usize),
    /// What there was at the last flush.
    Flushed,
}

impl Stream {
    /// The next stream. Nothing is left of this one but the time of what it has sent.
    pub fn next(&self) -> Stream {
        let (number, last_arrival) = (self.number + 1, self.last_arrival);
        Stream { number, last_arrival, ..Stream::default() }
    }

    /// A watch that is not on yet.
    pub fn insert(&mut self, watch: Watch) {
        if watch.prefix {
            self.prefixes.insert(watch.id);
        } else {
            self.keys.entry(watch.key.clone()).or_default().insert(watch.id);
        }
        let (id, told) = (watch.id, Told::Nothing);
        self.watches.insert(id, Streamed { watch, told, heard: None, silent: false });
    }

    pub fn contains(&self, id: RequestId) -> bool {
        self.watches.contains_key(&id)
    }

    pub fn remove(&mut self, id: RequestId) {
        self.set_told(id, Told::Nothing);
        let Some(Streamed { watch, .. }) = self.watches.remove(&id) else { return };
        self.prefixes.remove(&id);
        if let Some(ids) = self.keys.get_mut(&watch.key)
            && ids.remove(&id)
            && ids.is_empty()
        {
            self.keys.remove(&watch.key);
        }
    }

    /// Ends all watches, and returns them.
    pub fn remove_all(&mut self) -> Vec<RequestId> {
        let ended = self.watches.keys().copied().collect();
        *self = Stream {
            number: self.number,
            last_arrival: self.last_arrival,
            flushing: self.flushing,
            supervised: self.supervised,
            ..Stream::default()
        };
        ended
    }

    /// A watch is on, and tells what comes after so many changes.
    pub fn begin(&mut self, id: RequestId, told: usize) {
        self.set_told(id, Told::Begun(told));
    }

    /// No watch is on any more. Returns from which revision each has to go on.
    pub fn interrupt(&mut self) -> Vec<(RequestId, Option<Revision>)> {
        self.begun.clear();
        self.flushed = 0;
        let interrupted = self.watches.iter_mut().map(|(id, watch)| {
            watch.told = Told::Nothing;
            (*id, watch.heard.map(|heard| heard + 1))
        });
        interrupted.collect()
    }

    /// Notes what has arrived from a watch.
    pub fn heard(&mut self, watched: &Watched) {
        if let Some(watch) = self.watches.get_mut(&watched.id) {
            watch.heard = match &watched.change {
                Change::Started(at) => Some(*at),
                Change::Put(entry) => Some(entry.modified),
                Change::Deleted(deletion) => Some(deletion.at),
                Change::Ended(_) => None,
            };
        }
    }

    /// How many watches there are.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// Silences one of the watches; false if there is none.
    pub fn silence(&mut self, index: usize) -> bool {
        let Some(watch) = self.watches.values_mut().nth(index) else { return false };
        watch.silent = true;
        true
    }

    pub fn silence_all(&mut self) {
        self.watches.values_mut().for_each(|watch| watch.silent = true);
    }

    /// Whether a watch has not told all of so many changes.
    pub fn is_behind(&self, changes: usize) -> bool {
        self.flushed > 0 && self.told < changes
            || self.begun.first().is_some_and(|&(told, _)| told < changes)
    }

    /// What each watch has to tell, one after the other; silent ones tell nothing. They have told
    /// all then.
    pub fn flush(&mut self, store: &Store, by_key: &ChangesByKey) -> Vec<(RequestId, usize)> {
        let mut news = Vec::new();
        if self.flushed > 0 {
            for (at, (_, change)) in (self.told..).zip(store.changes_after(self.told)) {
                let watches = key_of(change).and_then(|key| self.keys.get(key));
                let flushed = |id: &&RequestId| self.watches[*id].told == Told::Flushed;
                news.extend(watches.into_iter().flatten().filter(flushed).map(|id| (*id, at)));
            }
        }
        for &(told, id) in &self.begun {
            let Watch { key, prefix, .. } = &self.watches[&id].watch;
            if !prefix {
                news.extend(by_key.after(key, told).map(|at| (id, at)));
            }
        }
        for id in &self.prefixes {
            let Streamed { watch, told, .. } = &self.watches[id];
            let told = match told {
                Told::Nothing => continue,
                Told::Begun(told) => *told,
                Told::Flushed => self.told,
            };
            let changes = (told..).zip(store.changes_after(told));
            let of_it = changes.filter(|(_, (_, change))| concerns(watch, change));
            news.extend(of_it.map(|(at, _)| (*id, at)));
        }
        news.retain(|(id, _)| !self.watches[id].silent);
        news.sort_unstable();
        for (_, id) in std::mem::take(&mut self.begun) {
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.told = Told::Flushed;
                self.flushed += 1;
            }
        }
        self.told = store.changes();
        news
    }

    fn set_told(&mut self, id: RequestId, told: Told) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        match std::mem::replace(&mut watch.told, told) {
            Told::Nothing => {}
            Told::Begun(told) => _ = self.begun.remove(&(told, id)),
            Told::Flushed => self.flushed -= 1,
        }
        if let Told::Begun(told) = told {
            self.begun.insert((told, id));
        }
    }
}

/// Where the changes of each key are among all changes of the store.
#[derive(Default)]
pub struct ChangesByKey {
    changes: usize,
    keys: HashMap<Vec<u8>, Vec<usize>>,
}

impl ChangesByKey {
    /// Notes what has changed since.
    pub fn catch_up(&mut self, store: &Store) {
        for (at, (_, change)) in (self.changes..).zip(store.changes_after(self.changes)) {
            let Some(key) = key_of(change) else { continue };
            match self.keys.get_mut(key) {
                Some(changes) => changes.push(at),
                None => _ = self.keys.insert(key.to_vec(), vec![at]),
            }
        }
        self.changes = store.changes();
    }

    /// The changes of a key after the first `told` ones of the store.
    fn after(&self, key: &[u8], told: usize) -> impl Iterator<Item = usize> {
        let all = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        all[all.partition_point(|at| *at < told)..].iter().copied()
    }
}

fn key_of(change: &Change) -> Option<&[u8]> {
    match change {
        Change::Put(entry) => Some(&entry.key),
        Change::Deleted(deletion) => Some(&deletion.key),
        Change::Started(_) | Change::Ended(_) => None,
    }
}
