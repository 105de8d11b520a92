//! The search for one candidate among the keys below an election's name.
//!
//! Other data may lie there, and a lot of it. So the search first reads one key. If that is not a
//! candidate's, it reads the keys page by page, without their values. The pages may be of
//! different revisions, because nobody comes in front of a candidate later: a predecessor was
//! there before our key, and can only leave.

use alloc::vec::Vec;

use crate::layout::{Layout, point};
use crate::types::{Entry, Failure, Revision, Selection};

/// How many keys the first page has at most.
pub const PAGE: u32 = 1_000;
/// And a later one. Large pages are cheaper, because etcd counts all keys behind each page.
const LARGEST_PAGE: u32 = 8 * PAGE;

/// What the search reads next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// The one key that is a candidate's, unless other data lie there.
    First,
    /// The keys that are not below this one.
    Page { from: Vec<u8>, limit: u32, largest: u32, best: Option<Entry> },
    /// The value of the candidate that was found.
    Value(Entry),
}

/// What a read of the search has shown.
pub enum Found {
    One(Entry),
    Nobody,
    /// The search has to read again.
    Unfinished,
}

impl Search {
    /// What to read. With a revision it looks for the newest candidate before it, and at first
    /// finds what was created at that revision as well; else for the leader.
    pub fn selection(&self, layout: &Layout, before: Option<Revision>) -> Selection {
        match (self, before) {
            (Search::First, Some(before)) => layout.newest_two(before),
            (Search::First, None) => layout.oldest(),
            (Search::Page { from, limit, .. }, _) => layout.page(from.clone(), *limit),
            (Search::Value(entry), _) => point(entry.key.clone()),
        }
    }

    /// Takes what that read found.
    pub fn take(&mut self, layout: &Layout, before: Option<Revision>, found: Vec<Entry>) -> Found {
        match self {
            Search::First => match found.into_iter().next() {
                Some(entry)
                    if layout.counts(&entry.key)
                        && before.is_none_or(|before| entry.created < before) =>
                {
                    Found::One(entry)
                }
                None => Found::Nobody,
                // Other data.
                Some(_) => {
                    self.turn_pages(layout);
                    Found::Unfinished
                }
            },
            Search::Value(leader) => match found.into_iter().next() {
                Some(entry) if entry.created == leader.created => Found::One(entry),
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
                    layout.counts(&entry.key) && before.is_none_or(|before| entry.created < before)
                };
                // The newest one before a revision, or the oldest of all.
                for entry in found.into_iter().filter(wanted) {
                    let newer = best.as_ref().is_none_or(|best| best.created < entry.created);
                    if best.is_none() || newer == before.is_some() {
                        *best = Some(entry);
                    }
                }
                match (next, best.take(), before) {
                    (Some(next), so_far, _) => {
                        (*from, *best) = (next, so_far);
                        Found::Unfinished
                    }
                    (None, None, _) => Found::Nobody,
                    (None, Some(entry), Some(_)) => Found::One(entry),
                    (None, Some(entry), None) => {
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
        *self = Search::Page { from, limit: PAGE, largest: LARGEST_PAGE, best: None };
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

/// How many keys, or values, the next read asks for after a failure.
pub fn smaller(limit: u32, failure: &Failure) -> u32 {
    let too_large = matches!(failure, Failure::Other(_));
    if too_large { (limit / 4).max(1) } else { limit }
}
