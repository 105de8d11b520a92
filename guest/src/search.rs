//! The search for one candidate among the keys below an election's name.
//!
//! Other data may lie there, and a lot of it. So the search first reads only as many keys as it needs
//! where there are no other data. If one of them is no candidate's, it reads all keys page by page,
//! without their values. The pages may be of
//! different revisions, because nobody comes in front of a candidate later: a predecessor was
//! there before our key, and can only leave.

use alloc::vec::Vec;

use crate::layout::{Layout, point};
use crate::types::{Entry, Failure, Revision, Selection};

/// How many keys the first page has at most.
pub const PAGE: u32 = 1_000;
/// And a later one. Large pages are cheaper, because etcd counts all keys behind each page.
const LARGEST_PAGE: u32 = 8 * PAGE;

/// How many keys the first read before a revision asks for: the one that was created then, the newest two
/// before it, and one that shows whether these are all.
const FIRST: u32 = 4;

/// How many candidates a search by pages keeps: as many as the first read shows before a revision.
const BEST: usize = 3;

/// What the search reads next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// The one key that is a candidate's, unless other data lie there.
    First,
    /// The keys that are not below this one.
    Page { from: Vec<u8>, limit: u32, largest: u32, best: Vec<Entry> },
    /// The value of the candidate that was found.
    Value(Entry),
}

/// What a read of the search has shown.
pub enum Found {
    /// The candidate. In a search before a revision, also the keys in front of it, the newest first: two
    /// at most, and fewer only if there are no more.
    One(Entry, Vec<Entry>),
    Nobody,
    /// The search has to read again.
    Unfinished,
}

impl Search {
    /// What to read. With a revision it looks for the newest candidate before it, and at first
    /// finds what was created at that revision as well; else for the leader.
    pub fn selection(&self, layout: &Layout, before: Option<Revision>) -> Selection {
        match (self, before) {
            (Search::First, Some(before)) => layout.newest_until(before, FIRST),
            (Search::First, None) => layout.oldest(),
            (Search::Page { from, limit, .. }, _) => layout.page(from.clone(), *limit),
            (Search::Value(entry), _) => point(entry.key.clone()),
        }
    }

    /// Takes what that read found.
    pub fn take(&mut self, layout: &Layout, before: Option<Revision>, found: Vec<Entry>) -> Found {
        match self {
            Search::First => match first_and_rest(found) {
                Some((entry, in_front))
                    if layout.counts(&entry)
                        && before.is_none_or(|before| entry.created < before) =>
                {
                    Found::One(entry, in_front)
                }
                None => Found::Nobody,
                // Other data.
                Some(_) => {
                    self.turn_pages(layout);
                    Found::Unfinished
                }
            },
            Search::Value(leader) => match found.into_iter().next() {
                Some(entry) if entry.created == leader.created && layout.counts(&entry) => {
                    Found::One(entry, Vec::new())
                }
                // The leader has gone since.
                Some(_) | None => {
                    self.turn_pages(layout);
                    Found::Unfinished
                }
            },
            Search::Page { from, limit, largest, best } => {
                let last = found.last().filter(|_| found.len() >= *limit as usize);
                let next = last.map(|last| layout.after(&last.key));
                *limit = (*limit * 2).min(*largest);
                let wanted = |entry: &Entry| {
                    layout.counts(entry) && before.is_none_or(|before| entry.created < before)
                };
                // The newest ones before a revision, or the oldest ones of all.
                for entry in found.into_iter().filter(wanted) {
                    let is_better = |it: &Entry| (it.created < entry.created) == before.is_some();
                    let place = best.iter().position(is_better).unwrap_or(best.len());
                    best.insert(place, entry);
                    best.truncate(BEST);
                }
                if let Some(next) = next {
                    *from = next;
                    return Found::Unfinished;
                }
                match (first_and_rest(core::mem::take(best)), before) {
                    (None, _) => Found::Nobody,
                    (Some((entry, in_front)), Some(_)) => Found::One(entry, in_front),
                    (Some((entry, _)), None) => {
                        *self = Search::Value(entry);
                        Found::Unfinished
                    }
                }
            }
        }
    }

    /// Goes on with the first page.
    pub fn turn_pages(&mut self, layout: &Layout) {
        let from = layout.followed().0;
        *self = Search::Page { from, limit: PAGE, largest: LARGEST_PAGE, best: Vec::new() };
    }

    /// A read failed, perhaps because the answer was too large. No later page is larger than the
    /// next one, because the keys that follow may be as long.
    pub fn failed(&mut self, failure: &Failure) {
        if let Search::Page { limit, largest, .. } = self {
            let reduced = smaller(*limit, failure);
            if reduced < *limit {
                (*limit, *largest) = (reduced, reduced);
            }
        }
    }

    /// Whether other data lie below the name.
    pub fn met_other_data(&self) -> bool {
        !matches!(self, Search::First)
    }
}

fn first_and_rest(mut found: Vec<Entry>) -> Option<(Entry, Vec<Entry>)> {
    (!found.is_empty()).then(|| (found.remove(0), found))
}

/// How many keys, or values, the next read asks for after a failure.
pub fn smaller(limit: u32, failure: &Failure) -> u32 {
    let too_large = matches!(failure, Failure::Other(_));
    if too_large { (limit / 4).max(1) } else { limit }
}
