//! The search for one candidate among the keys below an election's name.
//!
//! Other data may lie there, and a lot of it. So the first look reads one key. If that is no
//! candidate's, the keys are read page by page, without their values. The pages may be of
//! different revisions: a candidate in front of ours was there before ours, and can only leave.

use alloc::vec::Vec;

use crate::layout::{Layout, point};
use crate::types::{Entry, Failure, Revision, Selection};

/// How many keys the first page has at most.
pub const PAGE: u32 = 1_000;
/// And a later one: etcd counts all keys behind a page, so the fewer pages the better.
const LARGEST_PAGE: u32 = 8 * PAGE;

/// How far the search is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// At the one key that is a candidate's, unless others' data lie there.
    First,
    /// At the keys that are not below this one.
    Page { from: Vec<u8>, limit: u32, largest: u32, best: Option<Entry> },
    /// At the one candidate, whose value is to be told.
    Value(Entry),
}

/// What a look has shown.
pub enum Looked {
    Found(Entry),
    Nobody,
    /// Another look has to follow.
    Unfinished,
}

impl Look {
    /// What to read. With a revision the nearest candidate before it is looked for, else the
    /// leader.
    pub fn selection(&self, layout: &Layout, before: Option<Revision>) -> Selection {
        match (self, before) {
            (Look::First, Some(before)) => layout.in_front(before),
            (Look::First, None) => layout.oldest(),
            (Look::Page { from, limit, .. }, _) => layout.page(from.clone(), *limit),
            (Look::Value(entry), _) => point(entry.key.clone()),
        }
    }

    /// Takes what that has found.
    pub fn take(&mut self, layout: &Layout, before: Option<Revision>, found: Vec<Entry>) -> Looked {
        match self {
            Look::First => match found.into_iter().next() {
                Some(entry) if layout.counts(&entry.key) => Looked::Found(entry),
                None => Looked::Nobody,
                // Others' data.
                Some(_) => self.look_through(layout),
            },
            Look::Value(leader) => match found.into_iter().next() {
                Some(entry) if entry.created == leader.created => Looked::Found(entry),
                // It has gone since.
                Some(_) | None => self.look_through(layout),
            },
            Look::Page { from, limit, largest, best } => {
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
                        Looked::Unfinished
                    }
                    (None, None, _) => Looked::Nobody,
                    (None, Some(entry), Some(_)) => Looked::Found(entry),
                    (None, Some(entry), None) => {
                        *self = Look::Value(entry);
                        Looked::Unfinished
                    }
                }
            }
        }
    }

    /// Goes on with the first page.
    fn look_through(&mut self, layout: &Layout) -> Looked {
        let from = layout.followed().0;
        *self = Look::Page { from, limit: PAGE, largest: LARGEST_PAGE, best: None };
        Looked::Unfinished
    }

    /// There was no answer, perhaps because it would be too large. The keys that follow may be
    /// as long, so no later page is larger either.
    pub fn failed(&mut self, failure: &Failure) {
        if let Look::Page { limit, largest, .. } = self {
            let reduced = smaller(*limit, failure);
            if reduced < *limit {
                (*limit, *largest) = (reduced, reduced);
            }
        }
    }

    /// Whether others' data lie there.
    pub fn is_crowded(&self) -> bool {
        !matches!(self, Look::First)
    }
}

/// How many keys, or values, are asked for after a failure.
pub fn smaller(limit: u32, failure: &Failure) -> u32 {
    match failure {
        Failure::Other(_) => (limit / 4).max(1),
        Failure::Timeout
        | Failure::Unavailable
        | Failure::Compacted(_)
        | Failure::Denied(_)
        | Failure::Invalid(_) => limit,
    }
}
