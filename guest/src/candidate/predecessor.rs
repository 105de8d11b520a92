//! Whom a waiting candidate follows: its predecessor, and the candidate in front of that one.

use alloc::vec::Vec;

use super::common::{CandidateContext, Check};
use crate::context::{Context, WatchHandle, Watcher};
use crate::layout::Layout;
use crate::types::{Change, Entry, Revision};

/// The key of a candidate in front, which is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Followed {
    pub key: Vec<u8>,
    pub created: Revision,
    pub watch: WatchHandle,
}

/// The candidate in front of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Predecessor {
    pub followed: Followed,
    pub front: Front,
    /// Of all keys that this candidate follows, and its own.
    pub check: Check,
}

/// Who is in front of the predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Front {
    /// Nobody, by a read that was sent in this stretch of the lease's time. New keys come behind, so once
    /// the predecessor goes in the same stretch, this candidate is first in line.
    Nobody(Option<u32>),
    Candidate(Farther),
    /// Other data lie there.
    Unknown,
}

/// The candidate in front of the predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Farther {
    pub followed: Followed,
    /// By a read that was sent in this stretch of the lease's time, nobody is in front of this one. None if
    /// somebody may be.
    pub is_first_in: Option<u32>,
}

/// The predecessor of before, while a read shows who it is now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Former {
    pub followed: Followed,
    /// When it was deleted, as its watch told meanwhile. The read may have been answered before.
    pub deleted: Option<Revision>,
}

impl Followed {
    pub fn enter(context: &mut Context, watcher: Watcher, entry: Entry) -> Followed {
        let watch = context.watch(watcher, entry.key.clone(), false);
        Followed { key: entry.key, created: entry.created, watch }
    }

    /// Whether this is its key.
    pub fn is(&self, entry: &Entry) -> bool {
        self.key == entry.key && self.created == entry.created
    }

    /// Whether this is still its key, and counts.
    pub fn is_intact(&self, layout: &Layout, entry: &Entry) -> bool {
        entry.created == self.created && layout.counts(entry)
    }
}

impl Predecessor {
    /// A read shows who is in front now. Until then only the watch of this key goes on.
    pub fn leave(self, context: &mut Context) -> Former {
        let Predecessor { followed, front, check } = self;
        context.forget(check.call);
        if let Some(watch) = front.watch() {
            context.unwatch(watch);
        }
        Former { followed, deleted: None }
    }
}

impl Front {
    /// By a read that was sent in this stretch of the lease's time, these are in front of the predecessor.
    pub fn enter(
        cx: &mut CandidateContext<'_>,
        in_front: Vec<Entry>,
        stretch: Option<u32>,
    ) -> Front {
        let is_alone = in_front.len() == 1;
        match in_front.into_iter().next() {
            None => Front::Nobody(stretch),
            Some(entry) if cx.common.layout.counts(&entry) => {
                let watcher = Watcher::Farther(cx.common.election);
                let followed = Followed::enter(cx.context, watcher, entry);
                Front::Candidate(Farther { followed, is_first_in: stretch.filter(|_| is_alone) })
            }
            Some(_) => Front::Unknown,
        }
    }

    pub fn watch(&self) -> Option<WatchHandle> {
        match self {
            Front::Candidate(farther) => Some(farther.followed.watch),
            Front::Nobody(_) | Front::Unknown => None,
        }
    }
}

impl Former {
    /// Notes what its watch tells.
    pub fn note(&mut self, layout: &Layout, change: &Change) {
        match change {
            Change::Deleted(deletion) if deletion.key == self.followed.key => {
                self.deleted = self.deleted.max(Some(deletion.at));
            }
            // It lost its lease, or another key is in its place: what the read shows may be older.
            Change::Put(entry) if !self.followed.is_intact(layout, entry) => {
                self.followed.watch.miss(entry.modified);
            }
            Change::Put(_) | Change::Deleted(_) => {}
            Change::Started(_) | Change::Ended(_) => {
                self.followed.watch.note(change);
            }
        }
    }
}
