//! A candidate in a race whose one key a rival has.

use alloc::vec::Vec;

use super::common::{CandidateContext, Check, Inputs, Next, Pause, Proclamation, Reading};
use crate::context::{Answer, WatchHandle, snapshot};
use crate::layout::point;
use crate::types::{Change, Entry, Failure, Revision, Selection, WriteOutcome};

/// So many rivals a race may have. Nobody counts them.
const RIVALS: u64 = 16;

/// Lost the race, and waits for the rival's key to go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LostRace {
    key: Vec<u8>,
    watch: WatchHandle,
    /// Its revision is the one at which the rival was last seen.
    check: Check,
}

impl LostRace {
    pub fn enter(
        cx: &mut CandidateContext<'_>,
        key: Vec<u8>,
        watch: WatchHandle,
        rival: Entry,
        seen: Revision,
    ) -> LostRace {
        cx.common.failed = 0;
        if cx.common.round.is_open() {
            cx.common.round.set_end(cx.context.now, RIVALS);
        }
        cx.announce(&key, 0);
        cx.tell_leader(Some(rival));
        let mut lost = LostRace { key, watch, check: Check::new(seen) };
        lost.proclaim_next(cx);
        let _stay = lost.cover(cx);
        lost
    }

    /// Reads the key if the watch may have missed a change.
    fn cover(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        if self.check.is_due(cx, &[self.watch]) { self.check(cx) } else { Next::Stay }
    }

    fn check(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let selections = self.selections();
        self.check.start(cx, selections)
    }

    /// The key is free, or was.
    fn vacated(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.release(cx);
        cx.tell_leader(None);
        Next::Idle(Pause::Jitter)
    }

    fn release(&mut self, cx: &mut CandidateContext<'_>) {
        cx.context.forget(self.check.call.take());
        cx.context.unwatch(self.watch);
    }
}

impl Inputs for LostRace {
    fn leave(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        cx.context.forget(self.check.call.take());
        cx.conclude(Some(self.watch))
    }

    /// There is no key to write into: the next claim carries the value.
    fn proclaim_next(&mut self, cx: &mut CandidateContext<'_>) {
        for Proclamation { ticket, value } in core::mem::take(&mut cx.common.proclamations) {
            cx.common.value = value;
            if let Some(ticket) = ticket {
                cx.context.written(ticket, WriteOutcome::Applied(0));
            }
        }
    }

    fn refused(&mut self, cx: &mut CandidateContext<'_>, cause: Failure) -> Next {
        self.release(cx);
        cx.withdraw(cause)
    }

    fn due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.check(cx)
    }

    fn checked(&mut self, cx: &mut CandidateContext<'_>, outcome: Answer) -> Next {
        self.check.call = None;
        match snapshot(outcome) {
            Ok(snapshot) => {
                cx.common.failed = 0;
                let keys = [self.key.clone()].into();
                self.examine(cx, Reading::new(keys, snapshot.found, snapshot.at))
            }
            Err(failure) => cx.try_later(failure),
        }
    }

    fn examine(&mut self, cx: &mut CandidateContext<'_>, reading: Reading) -> Next {
        let seen = self.check.seen;
        if reading.at < seen {
            return Next::Stay;
        }
        match reading.entry(&self.key) {
            Some(Some(entry)) => {
                self.check.seen = reading.at;
                let changed = entry.modified > seen;
                if changed && self.watch.covers(seen) {
                    cx.context.renew_watch(&mut self.watch);
                }
                // An old key of ours is no rival, whether or not it changed.
                if cx.is_ours(&entry) {
                    return self.vacated(cx);
                }
                if changed {
                    cx.tell_leader(Some(entry));
                }
                self.cover(cx)
            }
            Some(None) => self.vacated(cx),
            None => Next::Stay,
        }
    }

    fn own_key_changed(&mut self, cx: &mut CandidateContext<'_>, change: Change) -> Next {
        if self.watch.note(&change) {
            return self.cover(cx);
        }
        match change {
            Change::Put(entry) if entry.modified > self.check.seen => {
                self.check.seen = entry.modified;
                // A claim of ours that was given up has landed.
                if cx.is_ours(&entry) {
                    return self.vacated(cx);
                }
                cx.tell_leader(Some(entry));
                Next::Stay
            }
            Change::Deleted(deletion) if deletion.at > self.check.seen => self.vacated(cx),
            Change::Put(_) | Change::Deleted(_) | Change::Started(_) | Change::Ended(_) => {
                Next::Stay
            }
        }
    }

    /// With the value, because the application is told of the rival.
    fn selections(&mut self) -> Vec<Selection> {
        [point(self.key.clone())].into()
    }
}
