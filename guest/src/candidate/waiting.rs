//! A candidate that has a key and does not lead.

use alloc::vec::Vec;

use super::common::{
    CandidateContext, Check, Inputs, Next, OwnKey, Pause, Reading, WENT_BACK, other,
};
use super::place::{self, Place};
use crate::context::{Answer, Context, Purpose, WatchHandle, Watcher, snapshot, unfit};
use crate::layout::{point_of_key, wishes_of};
use crate::search::Search;
use crate::timers::{SECOND, Timer};
use crate::types::{
    Change, Contest, Duration, Entry, Epoch, Mark, Operation, RequestId, Revision, Selection,
    Snapshot,
};
use crate::wish::Wish;

/// For how long a candidate that an operator named keeps its place in front of preferred ones. The
/// wish is repeated each second.
const NAMED: Duration = 2 * SECOND;

/// Waits in the queue, or has won a race and does not lead yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    own: OwnKey,
    position: Position,
    /// No watch told that the predecessor has gone: nobody may have led for long.
    is_late: bool,
}

/// What is known of the position in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Position {
    /// A predecessor check is under way.
    Unknown {
        search: Search,
        /// The revision of the oldest of the pages that it has read.
        since: Option<Revision>,
        /// None while the next try waits for its timer.
        call: Option<RequestId>,
        /// The stretch of the lease's time in which it was asked.
        stretch: Option<u32>,
    },
    Behind(Predecessor),
    /// Nobody is in front, but the lease's deadline has passed: checks again once the lease is
    /// renewed.
    Overdue,
}

/// The key in front of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Predecessor {
    key: Vec<u8>,
    created: Revision,
    /// When it was first seen.
    since: Mark,
    watch: WatchHandle,
    /// Of this key and of ours.
    check: Check,
}

impl Waiting {
    pub fn enter(cx: &mut CandidateContext<'_>, own: OwnKey) -> Waiting {
        cx.announce(&own.key, own.created);
        if cx.context.share.is_drained() {
            cx.context.touch(cx.common.election);
        }
        if cx.common.layout.contest == Contest::Queue {
            cx.context.hear_wishes();
        }
        cx.prefer(&own, 0);
        let mut waiting = Waiting { own, position: Position::Overdue, is_late: false };
        let _stay = waiting.check_predecessor(cx);
        waiting.proclaim_next(cx);
        waiting
    }

    /// Whether it is first in line, and waits for the lease to be renewed.
    pub fn is_overdue(&self) -> bool {
        matches!(self.position, Position::Overdue)
    }

    /// Reads who is in front, and whether our key is still there.
    fn check_predecessor(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.read_place(cx, Search::First, None)
    }

    fn read_place(
        &mut self,
        cx: &mut CandidateContext<'_>,
        search: Search,
        since: Option<Revision>,
    ) -> Next {
        self.position.release(cx.context);
        cx.context.timers.cancel(cx.timer());
        let layout = &cx.common.layout;
        let mut selections = place::selections(layout, &self.own, &search);
        selections.extend(layout.newest().filter(|_| cx.common.round.is_open()));
        if !cx.common.layouts_compared {
            selections.push(layout.other_layout());
        }
        if layout.contest == Contest::Queue && cx.context.missed_wishes_since(self.own.created) {
            selections.push(wishes_of(&layout.name));
        }
        let purpose = Purpose::Check(cx.common.election);
        let call = Some(cx.context.call(purpose, Operation::Read(selections)));
        self.position = Position::Unknown { search, since, call, stretch: cx.stretch() };
        Next::Stay
    }

    fn wait_behind(&mut self, cx: &mut CandidateContext<'_>, entry: Entry, seen: Revision) -> Next {
        let watcher = Watcher::Predecessor(cx.common.election);
        self.is_late = false;
        self.position = Position::Behind(Predecessor {
            watch: cx.context.watch(watcher, entry.key.clone(), false),
            key: entry.key,
            created: entry.created,
            since: cx.context.now,
            check: Check::new(seen),
        });
        self.preempt(cx);
        self.cover(cx)
    }

    /// Nobody is in front: leads if the lease is valid, and has been since that was asked.
    fn come_first(
        &mut self,
        cx: &mut CandidateContext<'_>,
        seen: Revision,
        is_fresh: bool,
    ) -> Next {
        match cx.validity {
            Some(validity) if validity.until > cx.context.now && !is_fresh => {
                self.check_predecessor(cx)
            }
            Some(validity) if validity.until > cx.context.now => {
                let now = cx.context.now;
                if cx.context.share.is_drained()
                    || !cx.common.is_named(now)
                        && !self.is_late
                        && (cx.gives_way() || cx.common.priority.gives_way(now, validity))
                {
                    return self.make_room(cx, Pause::None);
                }
                Next::Leading { own: self.own.take(), validity, seen }
            }
            Some(_) | None => {
                self.position = Position::Overdue;
                cx.context.overdue.push(cx.common.election);
                Next::Stay
            }
        }
    }

    /// Our key is gone, or not ours any more.
    fn displaced(&mut self, cx: &mut CandidateContext<'_>, entry: Option<Entry>) -> Next {
        let OwnKey { key, lease, watch, .. } = self.leave_queue(cx);
        cx.record_failure(other("this candidate's key is gone: getting back in line"));
        match entry {
            Some(entry) if entry.lease != lease && cx.common.layout.contest == Contest::Queue => {
                cx.clear(key, lease, watch, entry.created)
            }
            Some(_) | None => {
                cx.context.unwatch(watch);
                cx.start_over()
            }
        }
    }

    /// Gets back in line behind a candidate that should lead first.
    fn make_room(&mut self, cx: &mut CandidateContext<'_>, pause: Pause) -> Next {
        let OwnKey { key, lease, created, watch } = self.leave_queue(cx);
        let _at_once = cx.clear(key, lease, watch, created);
        Next::Idle(pause)
    }

    fn leave_queue(&mut self, cx: &mut CandidateContext<'_>) -> OwnKey {
        self.position.release(cx.context);
        self.own.take()
    }

    /// Reads both keys if the watches may have missed a change.
    fn cover(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        if let Position::Behind(predecessor) = &self.position
            && predecessor.check.is_due(cx, &[self.own.watch, predecessor.watch])
        {
            return self.check(cx);
        }
        Next::Stay
    }

    fn check(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let selections = self.selections();
        match &mut self.position {
            Position::Behind(predecessor) => predecessor.check.start(cx, selections),
            Position::Unknown { .. } | Position::Overdue => Next::Stay,
        }
    }

    /// Decides whether this candidate leads.
    fn predecessor_read(&mut self, cx: &mut CandidateContext<'_>, outcome: Answer) -> Next {
        let Position::Unknown { search, since, call, stretch } = &mut self.position else {
            return Next::Stay;
        };
        *call = None;
        let (layout, own) = (&cx.common.layout, &self.own);
        let read = snapshot(outcome).and_then(|Snapshot { at, found }| {
            let mut found = found.into_iter();
            let place =
                Place::take(layout, own, search, &mut found).ok_or_else(|| unfit("read"))?;
            Ok((at, place, found))
        });
        let (at, place, mut beside) = match read {
            Ok(read) => read,
            Err(failure) => {
                search.failed(&failure);
                return cx.try_later(failure);
            }
        };
        let since = since.map_or(at, |since| since.min(at));
        let is_fresh = *stretch == cx.stretch();
        if cx.common.round.is_open() && cx.common.layout.contest == Contest::Queue {
            let in_line = beside.next().unwrap_or_default();
            if matches!(place, Place::Behind(_)) {
                cx.common.round.set_end(cx.context.now, in_line.len());
            }
        }
        if !cx.common.layouts_compared {
            compare_layouts(cx, &beside.next().unwrap_or_default());
        }
        let wishes = beside.next().unwrap_or_default();
        let wishes = wishes.iter().filter_map(Wish::of);
        let makes_room = wishes
            .filter(|wish| wish.name == cx.common.layout.name.as_bytes())
            .any(|wish| cx.makes_room(&wish, self.own.created));
        match place {
            Place::First if makes_room && !self.is_late => self.make_room(cx, Pause::None),
            Place::First => self.come_first(cx, at, is_fresh),
            Place::Behind(entry) => self.wait_behind(cx, entry, since),
            Place::Displaced(entry) => self.displaced(cx, entry),
            Place::Unfinished => {
                let search = search.clone();
                self.read_place(cx, search, Some(since))
            }
        }
    }

    /// Compares what a read shows with what is known of both keys.
    fn compare(&mut self, cx: &mut CandidateContext<'_>, reading: Reading) -> Next {
        // The read may be older than our key, unless the store went back.
        if reading.at < self.own.created {
            return self.check(cx);
        }
        if let Some(own) = reading.entry(&self.own.key)
            && !self.own.is_intact(own.as_ref())
        {
            return self.displaced(cx, own);
        }
        if let Position::Behind(predecessor) = &mut self.position
            && reading.at >= predecessor.check.seen
            && let Some(entry) = reading.entry(&predecessor.key)
        {
            if entry.is_some_and(|entry| entry.created == predecessor.created) {
                predecessor.check.seen = reading.at;
                return self.cover(cx);
            }
            return self.check_predecessor(cx);
        }
        Next::Stay
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let own = self.own.key.clone();
        match &self.position {
            Position::Behind(predecessor) => [own, predecessor.key.clone()].into(),
            Position::Unknown { .. } | Position::Overdue => [own].into(),
        }
    }
}

impl Position {
    fn release(&mut self, context: &mut Context) {
        match self {
            Position::Unknown { call, .. } => context.forget(call.take()),
            Position::Behind(predecessor) => {
                context.forget(predecessor.check.call.take());
                context.unwatch(predecessor.watch);
            }
            Position::Overdue => {}
        }
    }
}

impl Inputs for Waiting {
    /// Gets back in line behind the candidate that should lead next, while somebody else leads.
    fn wished(&mut self, cx: &mut CandidateContext<'_>, wish: &Wish<'_>) -> Next {
        if wish.target == self.own.created {
            if wish.priority.is_none() {
                cx.common.named_until = cx.context.now.saturating_add(NAMED);
            }
            // The leader is about to go, and the watches may be silent.
            let is_asking = matches!(self.position, Position::Unknown { .. });
            if wish.now && !is_asking && !cx.context.timers.is_set(cx.timer()) {
                cx.context.set_timer(cx.timer(), SECOND);
            }
        } else if cx.makes_room(wish, self.own.created)
            && matches!(self.position, Position::Behind(_))
        {
            return self.make_room(cx, Pause::Room);
        }
        Next::Stay
    }

    fn preempt(&mut self, cx: &mut CandidateContext<'_>) {
        if let Position::Behind(predecessor) = &self.position
            && let Some(after) = cx.common.priority.preempts_after
        {
            let now = cx.context.now;
            // It would only give way.
            let since = if cx.context.leads_enough() { now } else { predecessor.since };
            let due = since.saturating_add(after);
            if due > now {
                cx.context.timers.set(Timer::Preempt(cx.common.election), due);
            } else {
                cx.prefer(&self.own, predecessor.created);
            }
        }
    }

    fn wish_later(&mut self, cx: &mut CandidateContext<'_>) {
        cx.retry();
    }

    fn leave(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let OwnKey { key, lease, created, watch } = self.leave_queue(cx);
        let abandoned = cx.abandon(key, lease, Some(watch));
        cx.cleanup.delete(cx.context, abandoned, created);
        Next::Over
    }

    fn proclaim_next(&mut self, cx: &mut CandidateContext<'_>) {
        cx.proclaim_into(&self.own);
    }

    fn lease_lost(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let own = self.leave_queue(cx);
        cx.context.unwatch(own.watch);
        Next::Idle(Pause::None)
    }

    fn reconcile(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        if cx.context.share.is_drained() {
            return self.make_room(cx, Pause::None);
        }
        let now = cx.context.now;
        let valid = cx.validity.is_some_and(|validity| validity.until > now);
        if valid && self.is_overdue() {
            return self.check_predecessor(cx);
        }
        Next::Stay
    }

    fn due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        cx.write_wish();
        match &self.position {
            Position::Unknown { search, since, .. } => {
                let (search, since) = (search.clone(), *since);
                self.read_place(cx, search, since)
            }
            Position::Behind(_) | Position::Overdue => self.check(cx),
        }
    }

    fn checked(&mut self, cx: &mut CandidateContext<'_>, outcome: Answer) -> Next {
        let Position::Behind(predecessor) = &mut self.position else {
            return self.predecessor_read(cx, outcome);
        };
        predecessor.check.call = None;
        match snapshot(outcome) {
            // The read was sent when our key was there.
            Ok(snapshot) if snapshot.at < self.own.created => {
                cx.record_failure(other(WENT_BACK));
                self.displaced(cx, snapshot.found.into_iter().flatten().next())
            }
            Ok(snapshot) => {
                cx.common.failed = 0;
                self.compare(cx, Reading::new(self.keys(), snapshot.found, snapshot.at))
            }
            Err(failure) => cx.try_later(failure),
        }
    }

    fn examine(&mut self, cx: &mut CandidateContext<'_>, reading: Reading) -> Next {
        let was_behind = matches!(self.position, Position::Behind(_));
        let next = self.compare(cx, reading);
        self.is_late |= was_behind && matches!(self.position, Position::Unknown { .. });
        next
    }

    /// A proclamation shows that our key is gone. The predecessor check shows how.
    fn fenced(&mut self, cx: &mut CandidateContext<'_>, epoch: Epoch) -> Next {
        if self.own.created == epoch && !matches!(self.position, Position::Unknown { .. }) {
            return self.check_predecessor(cx);
        }
        Next::Stay
    }

    fn own_key_changed(&mut self, cx: &mut CandidateContext<'_>, change: Change) -> Next {
        if self.own.watch.note(&change) {
            return self.cover(cx);
        }
        match self.own.taken_by(change) {
            Some(entry) => self.displaced(cx, entry),
            None => Next::Stay,
        }
    }

    fn predecessor_changed(&mut self, cx: &mut CandidateContext<'_>, change: Change) -> Next {
        let Position::Behind(predecessor) = &mut self.position else { return Next::Stay };
        if predecessor.watch.note(&change) {
            return self.cover(cx);
        }
        match change {
            Change::Put(entry) if entry.created == predecessor.created => Next::Stay,
            // That the predecessor has gone does not make us the leader: a read decides.
            Change::Put(_) | Change::Deleted(_) => self.check_predecessor(cx),
            Change::Started(_) | Change::Ended(_) => Next::Stay,
        }
    }

    fn selections(&mut self) -> Vec<Selection> {
        self.keys().into_iter().map(point_of_key).collect()
    }
}

/// Says if both layouts are used under this name.
fn compare_layouts(cx: &mut CandidateContext<'_>, other_layout: &[Entry]) {
    cx.common.layouts_compared = true;
    if cx.common.layout.is_mixed(other_layout) {
        let sentence = "a queue and a race are held under this name, and may have a leader \
                        each: let all candidates use one contest";
        cx.context.trouble(Some(cx.common.election), other(sentence));
    }
}
