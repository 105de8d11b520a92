//! A candidate that has a key and does not lead.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::common::{
    CandidateContext, Check, Inputs, Next, OwnKey, Pause, Reading, WENT_BACK, other,
};
use super::place::{self, Place};
use super::predecessor::{Farther, Followed, Former, Front, Predecessor};
use super::round::Round;
use crate::context::{Answer, Context, Purpose, Watcher, snapshot, unfit};
use crate::layout::{point_of_key, wishes_of};
use crate::search::Search;
use crate::timers::{SECOND, Timer};
use crate::types::{
    Change, Contest, Duration, Entry, Epoch, Failure, Mark, Operation, RequestId, Revision,
    Selection, Snapshot,
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
    /// The create revision of the last predecessor's key.
    predecessor_created: Revision,
    /// When that key was first seen.
    predecessor_since: Mark,
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
        /// It asks for wishes as well.
        with_wishes: bool,
        former: Option<Box<Former>>,
    },
    Behind(Box<Predecessor>),
    /// Nobody is in front, but the lease's deadline has passed: checks again once the lease is
    /// renewed.
    Overdue,
}

impl Waiting {
    pub fn enter(cx: &mut CandidateContext<'_>, own: OwnKey) -> Waiting {
        cx.announce(&own.key, own.created);
        if cx.context.share.is_drained() {
            cx.context.touch(cx.common.election);
        }
        cx.common.wishes_known_at = own.created;
        if cx.common.layout.contest == Contest::Queue {
            cx.context.hear_wishes();
        }
        cx.prefer(&own, 0);
        let mut waiting = Waiting {
            own,
            position: Position::Overdue,
            is_late: false,
            predecessor_created: 0,
            predecessor_since: 0,
        };
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

    /// The predecessor is gone: reads who is in front now.
    fn forget_predecessor_and_check(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.position.release(cx.context);
        self.check_predecessor(cx)
    }

    fn read_place(
        &mut self,
        cx: &mut CandidateContext<'_>,
        search: Search,
        since: Option<Revision>,
    ) -> Next {
        let former = self.position.take_former(cx.context);
        cx.context.timers.cancel(cx.timer());
        let layout = &cx.common.layout;
        let mut selections = place::selections(layout, &self.own, &search);
        selections.extend(layout.newest().filter(|_| cx.common.round.is_open()));
        if !cx.common.layouts_compared {
            selections.push(layout.other_layout());
        }
        let with_wishes = cx.common.misses_wishes(cx.context);
        if with_wishes {
            selections.push(wishes_of(&layout.name));
        }
        let purpose = Purpose::Check(cx.common.election);
        let call = Some(cx.context.call(purpose, Operation::Read(selections)));
        let stretch = cx.stretch();
        self.position = Position::Unknown { search, since, call, stretch, with_wishes, former };
        Next::Stay
    }

    /// Waits behind this candidate, by a read that was sent in this stretch of the lease's time.
    fn wait_behind(
        &mut self,
        cx: &mut CandidateContext<'_>,
        entry: Entry,
        in_front: Vec<Entry>,
        stretch: Option<u32>,
        seen: Revision,
    ) -> Next {
        let former = self.position.take_former(cx.context);
        let mut gone = None;
        let followed = match former {
            Some(former) if former.followed.is(&entry) => {
                gone = former.deleted.filter(|deleted| *deleted > seen);
                if in_front.is_empty() {
                    cx.common.round.turn_is_over(cx.context.now);
                }
                former.followed
            }
            former => {
                if let Some(former) = former {
                    cx.context.unwatch(former.followed.watch);
                }
                let watcher = Watcher::Predecessor(cx.common.election);
                Followed::enter(cx.context, watcher, entry)
            }
        };
        let front = Front::enter(cx, in_front, stretch);
        let next = self.follow(cx, Predecessor { followed, front, check: Check::new(seen) });
        match gone {
            Some(at) => self.predecessor_gone(cx, at),
            None => next,
        }
    }

    fn follow(&mut self, cx: &mut CandidateContext<'_>, predecessor: Predecessor) -> Next {
        self.is_late = false;
        if self.predecessor_created != predecessor.followed.created {
            self.predecessor_created = predecessor.followed.created;
            self.predecessor_since = cx.context.now;
        }
        self.position = Position::Behind(Box::new(predecessor));
        self.preempt(cx);
        self.cover(cx)
    }

    /// The key in front was deleted at this revision: leads if no other one is there, follows the only
    /// other one, or reads who is there.
    fn predecessor_gone(&mut self, cx: &mut CandidateContext<'_>, at: Revision) -> Next {
        let Position::Behind(predecessor) = &mut self.position else { return Next::Stay };
        let Predecessor { check, front, .. } = &mut **predecessor;
        let seen = check.seen;
        // Or else it is old news of an earlier key of that name.
        let is_news = at > seen;
        if is_news && matches!(front, Front::Nobody(_)) {
            cx.common.round.turn_is_over(cx.context.now);
        }
        let is_open = cx.common.round.is_open();
        match core::mem::replace(front, Front::Unknown) {
            Front::Nobody(stretch) if is_news && Self::is_next(cx, stretch) => {
                self.position.release(cx.context);
                self.come_first(cx, seen, false)
            }
            Front::Candidate(Farther { followed, is_first_in: Some(stretch) })
                if is_news && !is_open =>
            {
                self.position.release(cx.context);
                let watcher = Watcher::Predecessor(cx.common.election);
                cx.context.hand_watch_over(followed.watch, watcher);
                let (front, check) = (Front::Nobody(Some(stretch)), Check::new(seen));
                self.follow(cx, Predecessor { followed, front, check })
            }
            front @ (Front::Nobody(_) | Front::Candidate(_) | Front::Unknown) => {
                if let Some(watch) = front.watch() {
                    cx.context.unwatch(watch);
                }
                self.forget_predecessor_and_check(cx)
            }
        }
    }

    /// The candidate in front of the predecessor is gone: nobody is there, or a read shows who.
    fn farther_gone(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        if let Position::Behind(predecessor) = &mut self.position
            && let Front::Candidate(Farther { followed, is_first_in: Some(stretch) }) =
                &predecessor.front
        {
            cx.context.unwatch(followed.watch);
            cx.common.round.turn_is_over(cx.context.now);
            predecessor.front = Front::Nobody(Some(*stretch));
            return self.cover(cx);
        }
        self.check_predecessor(cx)
    }

    /// Nobody is in front: leads if the lease is valid. Without a read that has shown it (`is_read`), the
    /// new leader reads once more.
    fn come_first(&mut self, cx: &mut CandidateContext<'_>, seen: Revision, is_read: bool) -> Next {
        match cx.validity {
            Some(validity) if validity.until > cx.context.now => {
                let now = cx.context.now;
                if cx.context.share.is_drained()
                    || !cx.common.is_named(now)
                        && !self.is_late
                        && (cx.gives_way() || cx.common.priority.gives_way(now, validity))
                {
                    return self.make_room(cx, Pause::None);
                }
                Next::Leading { own: self.own.take(), validity, seen, is_read }
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

    /// Reads the keys that it follows, and its own, if the watches may have missed a change.
    fn cover(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        if let Position::Behind(predecessor) = &self.position {
            let watch = predecessor.followed.watch;
            // What is farther ahead is not waited for.
            let farther = predecessor.front.watch().filter(|watch| watch.started.is_some());
            if predecessor.check.is_due(cx, &[self.own.watch, watch, farther.unwrap_or(watch)]) {
                return self.check(cx);
            }
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

    /// Whether it may lead without a read, now that all in front are gone, as a read in this stretch has
    /// shown them.
    fn is_next(cx: &CandidateContext<'_>, stretch: Option<u32>) -> bool {
        stretch == cx.stretch()
            && !cx.common.round.is_open()
            // At its limit it gets back in line. Without the read it would be quicker than the leader that
            // has just handed over to it, and stand in front of that one.
            && !cx.context.leads_enough()
            && !cx.common.misses_wishes(cx.context)
    }

    /// Ends a candidacy whose place the store does not let it read. Its key would block those behind it.
    fn refused_place(&mut self, cx: &mut CandidateContext<'_>, cause: Failure) -> Next {
        let OwnKey { key, lease, created, watch } = self.leave_queue(cx);
        cx.context.withdraw(cx.common.election, Some(cause));
        let _over = cx.clear(key, lease, watch, created);
        Next::Over
    }

    /// Whether one of these wishes, or of those that were kept, has this candidate make room.
    fn should_make_room(&self, cx: &mut CandidateContext<'_>, wishes: &[Entry]) -> bool {
        let kept = core::mem::take(&mut cx.common.pending_wishes);
        let wishes = wishes.iter().filter_map(Wish::of);
        let mut wishes = wishes.map(|wish| {
            let is_of_name = wish.name == cx.common.layout.name.as_bytes();
            is_of_name && cx.heeds(&wish, self.own.created)
        });
        wishes.any(|heeds| heeds) || kept.iter().any(|wish| cx.heeds(wish, self.own.created))
    }

    /// Decides whether this candidate leads.
    fn predecessor_read(&mut self, cx: &mut CandidateContext<'_>, outcome: Answer) -> Next {
        let Position::Unknown { search, since, call, stretch, with_wishes, .. } =
            &mut self.position
        else {
            return Next::Stay;
        };
        *call = None;
        let (layout, own) = (&cx.common.layout, &self.own);
        let mut strange = None;
        let read = snapshot(outcome).and_then(|Snapshot { at, found }| {
            let looks_like_a_candidate =
                |it: &&Entry| it.key != own.key && layout.looks_like_a_candidate(it);
            if let Some(entry) = found.iter().flatten().find(looks_like_a_candidate) {
                strange = Some(entry.key.clone());
            }
            let mut found = found.into_iter();
            let place =
                Place::take(layout, own, search, &mut found).ok_or_else(|| unfit("read"))?;
            Ok((at, place, found))
        });
        let (at, place, mut beside) = match read {
            Ok(read) => read,
            Err(failure) => {
                let is_refused = matches!(failure, Failure::Denied(_) | Failure::Invalid(_));
                let is_odd = matches!(failure, Failure::Other(_)) && cx.common.failed > 0;
                if *with_wishes && (is_refused || is_odd) {
                    // The wishes may be too large, or forbidden. The next try does without them.
                    cx.common.wishes_known_at = Revision::MAX;
                } else if is_refused {
                    return self.refused_place(cx, failure);
                }
                search.failed(&failure);
                return cx.try_later(failure);
            }
        };
        let since = since.map_or(at, |since| since.min(at));
        let (stretch, with_wishes) = (*stretch, *with_wishes);
        if let Some(key) = strange {
            report_foreign_key(cx, &key);
        }
        if cx.common.round.is_open() && cx.common.layout.contest == Contest::Queue {
            let in_line = beside.next().unwrap_or_default();
            if matches!(place, Place::Behind(..)) {
                let turns = Round::unseen_turns(in_line.len());
                cx.common.round.set_end(cx.context.now, turns);
            }
        }
        if !cx.common.layouts_compared {
            compare_layouts(cx, &beside.next().unwrap_or_default());
        }
        if let Place::Unfinished = place {
            let search = search.clone();
            return self.read_place(cx, search, Some(since));
        }
        // What was asked before the present stretch tells nothing of a key in it.
        if matches!(place, Place::First) && stretch != cx.stretch() && cx.is_valid() {
            return self.check_predecessor(cx);
        }
        if with_wishes {
            cx.common.wishes_known_at = at;
        }
        let makes_room = self.should_make_room(cx, &beside.next().unwrap_or_default());
        match place {
            Place::First if makes_room && !self.is_late => self.make_room(cx, Pause::None),
            Place::First => {
                self.position.release(cx.context);
                self.come_first(cx, at, true)
            }
            Place::Behind(_, _) if makes_room => self.make_room(cx, Pause::Room),
            Place::Behind(entry, in_front) => self.wait_behind(cx, entry, in_front, stretch, since),
            Place::Displaced(entry) => self.displaced(cx, entry),
            Place::Unfinished => Next::Stay,
        }
    }

    /// Compares what a read shows with what is known of the keys.
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
            && let Some(entry) = reading.entry(&predecessor.followed.key)
        {
            let layout = &cx.common.layout;
            if !entry.is_some_and(|it| predecessor.followed.is_intact(layout, &it)) {
                return self.forget_predecessor_and_check(cx);
            }
            // A regular check may have been asked before the farther key was followed.
            let is_complete = match &predecessor.front {
                Front::Candidate(farther) => reading.entry(&farther.followed.key).is_some(),
                Front::Nobody(_) | Front::Unknown => true,
            };
            if !is_complete {
                return self.cover(cx);
            }
            predecessor.check.seen = reading.at;
            let is_outdated = match &predecessor.front {
                Front::Nobody(stretch) => *stretch != cx.stretch(),
                Front::Candidate(Farther { followed, .. }) => match reading.entry(&followed.key) {
                    Some(Some(entry)) if entry.created == followed.created => {
                        !layout.counts(&entry)
                    }
                    Some(_) => return self.farther_gone(cx),
                    None => false,
                },
                Front::Unknown => false,
            };
            return if is_outdated { self.check_predecessor(cx) } else { self.cover(cx) };
        }
        Next::Stay
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::from([self.own.key.clone()]);
        if let Position::Behind(predecessor) = &self.position {
            keys.push(predecessor.followed.key.clone());
            if let Front::Candidate(farther) = &predecessor.front {
                keys.push(farther.followed.key.clone());
            }
        }
        keys
    }
}

impl Position {
    /// Takes the predecessor and its watch out.
    fn take_former(&mut self, context: &mut Context) -> Option<Box<Former>> {
        match core::mem::replace(self, Position::Overdue) {
            Position::Unknown { call, former, .. } => {
                context.forget(call);
                former
            }
            Position::Behind(predecessor) => Some(Box::new(predecessor.leave(context))),
            Position::Overdue => None,
        }
    }

    fn release(&mut self, context: &mut Context) {
        if let Some(former) = self.take_former(context) {
            context.unwatch(former.followed.watch);
        }
    }
}

impl Inputs for Waiting {
    /// Gets back in line behind the candidate that should lead next, while somebody else leads.
    fn wished(&mut self, cx: &mut CandidateContext<'_>, wish: &Wish<'_>) -> Next {
        if wish.target == self.own.created {
            // Its own wish says nothing new, and is read again and again.
            if wish.priority.is_some() {
                return Next::Stay;
            }
            cx.common.named_until = cx.context.now.saturating_add(NAMED);
            let is_asking = matches!(self.position, Position::Unknown { .. });
            if wish.now && !is_asking {
                look_soon(cx);
            }
        } else if !matches!(self.position, Position::Behind(_)) {
            cx.keep_wish(wish);
        } else if cx.heeds(wish, self.own.created) {
            return self.make_room(cx, Pause::Room);
        }
        Next::Stay
    }

    fn wishes_due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        // A read that is under way takes them.
        if matches!(self.position, Position::Behind(_)) && self.should_make_room(cx, &[]) {
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
            let since = if cx.context.leads_enough() { now } else { self.predecessor_since };
            let due = since.saturating_add(after);
            if due > now {
                cx.context.timers.set(Timer::Preempt(cx.common.election), due);
            } else {
                cx.prefer(&self.own, predecessor.followed.created);
                look_soon(cx);
            }
        }
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
        if cx.is_valid() && self.is_overdue() {
            return self.check_predecessor(cx);
        }
        Next::Stay
    }

    fn due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
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
        let is_gone = match &self.position {
            Position::Behind(predecessor) => {
                let followed = &predecessor.followed;
                let is_intact = |it: &Entry| followed.is_intact(&cx.common.layout, it);
                reading.entry(&followed.key).is_some_and(|it| !it.as_ref().is_some_and(is_intact))
            }
            Position::Unknown { .. } | Position::Overdue => false,
        };
        let next = self.compare(cx, reading);
        self.is_late |= is_gone && matches!(self.position, Position::Unknown { .. });
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
        let predecessor = match &mut self.position {
            Position::Behind(predecessor) => predecessor,
            Position::Unknown { former: Some(former), .. } => {
                former.note(&cx.common.layout, &change);
                return Next::Stay;
            }
            Position::Unknown { former: None, .. } | Position::Overdue => return Next::Stay,
        };
        let followed = &mut predecessor.followed;
        if followed.watch.note(&change) {
            return self.cover(cx);
        }
        match change {
            Change::Put(entry) if followed.is_intact(&cx.common.layout, &entry) => Next::Stay,
            Change::Deleted(deletion) if deletion.key == followed.key => {
                self.predecessor_gone(cx, deletion.at)
            }
            // That another key is in its place does not make us the leader: a read decides.
            Change::Put(_) | Change::Deleted(_) => self.forget_predecessor_and_check(cx),
            Change::Started(_) | Change::Ended(_) => Next::Stay,
        }
    }

    fn farther_changed(&mut self, cx: &mut CandidateContext<'_>, change: Change) -> Next {
        let Position::Behind(predecessor) = &mut self.position else { return Next::Stay };
        let Predecessor { check, front, .. } = &mut **predecessor;
        let Front::Candidate(Farther { followed, .. }) = front else { return Next::Stay };
        if followed.watch.note(&change) {
            return self.cover(cx);
        }
        match change {
            Change::Deleted(deletion)
                if deletion.key == followed.key && deletion.at > check.seen =>
            {
                self.farther_gone(cx)
            }
            Change::Put(entry) if !followed.is_intact(&cx.common.layout, &entry) => {
                self.check_predecessor(cx)
            }
            Change::Put(_) | Change::Deleted(_) => Next::Stay,
            Change::Started(_) | Change::Ended(_) => Next::Stay,
        }
    }

    fn selections(&mut self) -> Vec<Selection> {
        self.keys().into_iter().map(point_of_key).collect()
    }
}

/// The leader is about to go, and the watches may be silent.
fn look_soon(cx: &mut CandidateContext<'_>) {
    if !cx.context.timers.is_set(cx.timer()) {
        cx.context.set_timer(cx.timer(), SECOND);
    }
}

/// Tells the application, once, of a leased key below the name that is no candidate's.
fn report_foreign_key(cx: &mut CandidateContext<'_>, key: &[u8]) {
    if !core::mem::replace(&mut cx.common.reported_foreign_key, true) {
        let key = String::from_utf8_lossy(key);
        let parts = [
            "the key `",
            &*key,
            "` is under a lease directly below the election's name, and does not end in that lease's id, \
             so it is no candidate's here. If another program campaigns with it, both may lead: give that \
             election another name",
        ];
        cx.context.trouble(Some(cx.common.election), other(&parts.concat()));
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
