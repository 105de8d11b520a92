//! What has to be shown to an elector before it says `elected`: by a read, or by the news that all
//! candidates in front have gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use incumbent_guest::types::*;

/// So many answers to reads of a candidate's place are remembered.
const ANSWERS: usize = 4;

/// What one elector was shown.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Reads that were answered in this step.
    reads: Vec<(Vec<Selection>, Snapshot)>,
    /// Keys of which this step told that an older one is gone.
    deleted: BTreeSet<Vec<u8>>,
    /// When each key was gone at the latest, as was told.
    deletions: BTreeMap<Vec<u8>, Revision>,
    /// By a candidate's key and its create revision: what the last reads have shown.
    in_front: BTreeMap<(Vec<u8>, Epoch), VecDeque<InFront>>,
    /// Of which keys this step has told that.
    answered: Vec<(Vec<u8>, Epoch)>,
    /// By a candidate's key.
    pages: BTreeMap<Vec<u8>, Pages>,
}

/// All who were in front of a candidate.
#[derive(Debug)]
struct InFront {
    keys: Vec<Vec<u8>>,
    /// When the first of the pages that showed them was read.
    read: Revision,
    /// It was told in this step.
    is_new: bool,
}

/// Who is in front of a candidate, as pages have shown so far.
#[derive(Debug, Default)]
struct Pages {
    in_front: BTreeMap<Revision, Vec<u8>>,
    /// When the first of them was read.
    first: Revision,
}

impl Evidence {
    /// Notes an answer to a read.
    pub fn read(&mut self, selections: Vec<Selection>, snapshot: Snapshot) {
        for (selection, found) in selections.iter().zip(&snapshot.found) {
            if !selection.prefix {
                // An older key is gone where there is none, or since before a newer one was made.
                let since = found.first().map_or(snapshot.at, |entry| entry.created);
                self.note_deletion(&selection.key, since);
            }
        }
        self.note_places(&selections, &snapshot);
        self.reads.push((selections, snapshot));
    }

    /// Notes what a watch tells.
    pub fn told(&mut self, change: &Change) {
        if let Change::Deleted(Deletion { key, at }) = change {
            self.note_deletion(key, *at);
        }
    }

    fn note_deletion(&mut self, key: &[u8], at: Revision) {
        self.deleted.insert(key.into());
        let last = self.deletions.entry(key.into()).or_default();
        *last = at.max(*last);
    }

    /// The step is over.
    pub fn end_step(&mut self) {
        self.reads.clear();
        self.deleted.clear();
        for key in std::mem::take(&mut self.answered) {
            let answers = self.in_front.get_mut(&key);
            answers.into_iter().flatten().for_each(|it| it.is_new = false);
        }
    }

    /// Whether this term may begin in this step.
    pub fn shows(&self, name: &str, leadership: &Leadership) -> bool {
        let by_news = || {
            let in_front = self.in_front.get(&(leadership.key.clone(), leadership.term.epoch));
            in_front.into_iter().flatten().any(|InFront { keys, read, is_new }| {
                let is_gone = |key| self.deletions.get(key).is_some_and(|gone| gone > read);
                // The answer may come after the news.
                keys.iter().all(is_gone)
                    && (*is_new || keys.iter().any(|key| self.deleted.contains(key)))
            })
        };
        self.reads.iter().any(|(selections, found)| shows(name, leadership, selections, found))
            || by_news()
    }

    fn note_places(&mut self, selections: &[Selection], Snapshot { at, found }: &Snapshot) {
        let all = || selections.iter().zip(found);
        for (selection, found) in all().filter(|(selection, _)| selection.prefix) {
            let Some(name) = name_of(&selection.key) else { continue };
            if let Some(own) = selection.created_before.map(|before| before.saturating_sub(1)) {
                let is_own = |entry: &&Entry| counts(name, entry) && entry.created == own;
                let Some(at_own) = found.iter().find(is_own) else { continue };
                let at_own = (at_own.key.clone(), own);
                let in_front: Vec<&Entry> = found.iter().filter(|it| it.created < own).collect();
                // Nobody comes in front later: this holds for good.
                if in_front.iter().all(|it| counts(name, it))
                    && found.len() < selection.limit as usize
                {
                    let keys = in_front.into_iter().map(|it| it.key.clone()).collect();
                    self.note_in_front(at_own, InFront { keys, read: *at, is_new: true });
                }
            } else if selection.order == Order::ByKey
                && let Some(own) =
                    all().find_map(|(it, found)| found.first().filter(|_| !it.prefix))
                && counts(name, own)
            {
                self.note_page(name, selection, found, own, *at);
            }
        }
    }

    /// Notes who is in front of a key. An answer may be older than the last one.
    fn note_in_front(&mut self, own: (Vec<u8>, Epoch), in_front: InFront) {
        self.answered.push(own.clone());
        let known = self.in_front.entry(own).or_default();
        known.push_back(in_front);
        if known.len() > ANSWERS {
            known.pop_front();
        }
    }

    /// Notes a page of the keys below a name, which was read together with a candidate's own key.
    fn note_page(
        &mut self,
        name: &str,
        selection: &Selection,
        found: &[Entry],
        own: &Entry,
        at: Revision,
    ) {
        let pages = self.pages.entry(own.key.clone()).or_default();
        if selection.from.as_ref() == Some(&selection.key) {
            *pages = Pages { in_front: BTreeMap::new(), first: at };
        }
        let in_front = found.iter().filter(|it| it.created < own.created && counts(name, it));
        pages.in_front.extend(in_front.map(|entry| (entry.created, entry.key.clone())));
        if found.len() >= selection.limit as usize {
            return;
        }
        let own_key = (own.key.clone(), own.created);
        let keys = pages.in_front.values().cloned().collect();
        let in_front = InFront { keys, read: pages.first, is_new: true };
        self.note_in_front(own_key, in_front);
    }
}

/// The name of the queue whose keys a read selects.
fn name_of(prefix: &[u8]) -> Option<&str> {
    std::str::from_utf8(prefix).ok()?.strip_suffix('/')
}

/// Whether a key is a candidate's in the queue of this name.
pub fn counts(name: &str, entry: &Entry) -> bool {
    let Entry { key, lease, .. } = entry;
    let (sign, lease) = (if *lease < 0 { "-" } else { "" }, lease.unsigned_abs());
    let is = |key: &[u8], id: String| key == format!("{name}/{sign}{id}").as_bytes();
    lease != 0
        && (is(key, format!("{lease:x}"))
            || is(key, format!("{lease:016x}"))
            || is(key, format!("{lease}")))
}

/// Whether a read of its place shows the leader's own key.
pub fn shows_own(leadership: &Leadership, snapshot: &Snapshot) -> bool {
    let Leadership { term, key, lease, .. } = leadership;
    let is_own = |it: &Entry| it.key == *key && it.created == term.epoch && it.lease == *lease;
    snapshot.found.iter().flatten().any(is_own)
}

/// Whether a read shows the leader's own key, and nobody in front.
fn shows(
    name: &str,
    leadership: &Leadership,
    selections: &[Selection],
    snapshot: &Snapshot,
) -> bool {
    let Leadership { term, key, lease, .. } = leadership;
    let mut own = false;
    let mut free = key == name.as_bytes();
    for (selection, found) in selections.iter().zip(&snapshot.found) {
        let is_intact = |entry: &Entry| entry.created == term.epoch && entry.lease == *lease;
        if !selection.prefix && selection.key == *key {
            own = found.first().is_some_and(is_intact);
        } else if selection.created_before == Some(term.epoch.saturating_add(1)) {
            // Of the newest keys up to the leader's, only its own.
            own = found.iter().any(|entry| entry.key == *key && is_intact(entry));
            free = found.len() == 1 && selection.limit > 1;
        } else if selection.order == Order::ByKey && selection.key == format!("{name}/").as_bytes()
        {
            // The last page: `OneLeader` would find somebody in front on an earlier one.
            free = !found.iter().any(|entry| counts(name, entry) && entry.created < term.epoch)
                && found.len() < selection.limit as usize;
        }
    }
    own && free
}
