//! Wishes: hands them to the candidates that they concern, and reads those that the watch has missed.

use alloc::vec::Vec;

use super::checks::{MOST_CHECKED, keys_of};
use super::{Elector, Participation};
use crate::candidate::{Next, delete_wish};
use crate::context::{Answer, Asker, Purpose, snapshot};
use crate::layout::{hash, point};
use crate::timers::{MILLISECOND, Timer};
use crate::types::{
    Change, Duration, ElectionId, Entry, LeaseId, Operation, Response, Revision, Selection,
    Snapshot,
};
use crate::wish::Wish;

/// How many wishes there may be in all elections, so that one read shows those that were missed.
const MOST_AT_ONCE: u32 = 1_000;
/// After a read that has found so many wishes, one regular check goes by without one, after twice as many two,
/// and so on: a thousand candidates with a wish each would read a million in each period.
const LEAVES_OUT_ONE: usize = 100;
/// For how many elections one read asks if there are more. It reads up to four keys for each.
const MOST_CAUGHT_UP: usize = MOST_CHECKED / 4;
/// The pause between two such reads.
const CATCH_UP_PAUSE: Duration = 10 * MILLISECOND;

impl Elector {
    /// Takes what the watch of wishes reports.
    pub(super) fn wished(&mut self, change: &Change) {
        match change {
            Change::Started(at) => {
                // The store may have gone back.
                if *at < self.context.wishes_known_at {
                    self.context.wishes_known_at = 0;
                }
                self.wishes_rest = 0;
                if self.next_that_misses(0).is_some() {
                    self.read_wishes();
                }
            }
            Change::Put(entry) => self.heard(entry),
            Change::Deleted(_) | Change::Ended(_) => {}
        }
    }

    /// Reads the wishes of all elections: those that the watch has missed, and with regular checks, because it
    /// may be silent.
    pub(super) fn read_wishes(&mut self) {
        let all = Selection { prefix: true, limit: MOST_AT_ONCE, ..point(Wish::keys()) };
        self.context.call(Purpose::Wishes, Operation::Read([all].into()));
    }

    /// The wishes of all elections. If there are too many, those of our own elections are read.
    pub(super) fn wishes_were_read(&mut self, outcome: Answer) {
        // The role may allow only those.
        if let Ok(Snapshot { at, found }) = snapshot(outcome) {
            let found: Vec<Entry> = found.into_iter().flatten().collect();
            self.wishes_rest = found.len() / LEAVES_OUT_ONE;
            if found.len() < MOST_AT_ONCE as usize {
                self.context.wishes_known_at = self.context.wishes_known_at.max(at);
                found.iter().for_each(|entry| self.heard(entry));
                return;
            }
            self.context.may_have_missed_wishes(at);
        }
        self.missed_from = 0;
        self.read_missed_wishes();
    }

    fn heard(&mut self, entry: &Entry) {
        let Some(wish) = Wish::of(entry) else { return };
        // A second candidacy of the name has not begun.
        let election = self.with_hash(hash(wish.name)).find(|election| {
            self.candidate(*election).is_some_and(|it| it.layout().name.as_bytes() == wish.name)
        });
        if let Some(election) = election {
            self.input(election, |state, cx| state.wished(cx, &wish));
        }
    }

    /// Reads the wishes that candidates may have missed while the watch of wishes was off, for up to
    /// `MOST_CAUGHT_UP` elections in one read.
    pub(super) fn read_missed_wishes(&mut self) {
        let (mut selections, mut asked) = (Vec::new(), Vec::new());
        while asked.len() < MOST_CAUGHT_UP {
            let Some(election) = self.next_that_misses(self.missed_from) else { break };
            self.missed_from = election.saturating_add(1);
            let selected = self.rechecks(Asker::Election(election));
            asked.push((Asker::Election(election), keys_of(&selected)));
            selections.extend(selected);
        }
        if !asked.is_empty() {
            self.context.call(Purpose::Recheck(asked), Operation::Read(selections));
            self.context.set_timer(Timer::MissedWishes, CATCH_UP_PAUSE);
        }
    }

    /// The first election from this one on whose candidate may have missed wishes.
    fn next_that_misses(&self, from: ElectionId) -> Option<ElectionId> {
        let misses = |it: &Participation| it.is_candidate(|it| it.misses_wishes(&self.context));
        self.elections.find(from, misses)
    }

    /// Tells a candidate the wishes that a read at the revision `at` has found.
    pub(super) fn found_wishes(&mut self, election: ElectionId, wishes: &[Entry], at: Revision) {
        self.input(election, |_, cx| {
            cx.common.wishes_known_at = cx.common.wishes_known_at.max(at);
            Next::Stay
        });
        for wish in wishes.iter().filter_map(Wish::of) {
            self.input(election, |state, cx| {
                if wish.name != cx.common.layout.name.as_bytes() {
                    return Next::Stay;
                }
                state.wished(cx, &wish)
            });
        }
    }

    /// Deletes a wish that was written when its candidacy was over, unless the next one of the name has
    /// taken it over.
    pub(super) fn wish_landed(&mut self, election: ElectionId, lease: LeaseId, outcome: Answer) {
        if let Ok(Response::Claimed(claimed) | Response::Taken(claimed)) = outcome
            && let entry = claimed.entry
            && entry.lease == lease
            && let Some(wish) = Wish::of(&entry)
            && self.with_hash(hash(wish.name)).next().is_none()
        {
            let (created, modified) = (entry.created, entry.modified);
            delete_wish(&mut self.context, election, lease, entry.key, created, Some(modified));
        }
    }
}
