//! A candidate that leads.

use alloc::vec::Vec;

use super::common::{
    CandidateContext, Check, Inputs, Next, OwnKey, Proclamation, Reading, WENT_BACK, other,
};
use super::place::{self, Place};
use crate::context::{Answer, Context, snapshot, unfit};
use crate::layout::point_of_key;
use crate::search::Search;
use crate::session::Validity;
use crate::timers::SECOND;
use crate::types::{
    Change, Contest, Duration, Entry, Epoch, Guard, Leadership, Mark, Notice, Reason, Revision,
    Selection, Snapshot, Term,
};
use crate::wish::Wish;

/// For how long a leader looks whether the candidate that should lead next comes next.
const LOOK: Duration = SECOND / 10;
/// How long it waits before it looks once more.
const LOOK_AGAIN: Duration = SECOND / 1_000;

/// Leads until the lease's deadline. The term's epoch is the key's create revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leading {
    own: OwnKey,
    /// The stretch in which the lease is valid. The term ends with it, even if the lease becomes
    /// valid again.
    stretch: u32,
    /// The last danger of the lease that the application was told of.
    danger: Option<u32>,
    /// Of our key, and of who is in front.
    check: Check,
    search: Search,
    /// The candidate that an operator wants next.
    target: Revision,
    /// Until when it looks whether that one comes next.
    looks_until: Mark,
    /// The candidate for whose own wish the application was told to hand over.
    preempted_by: Revision,
}

impl Leading {
    /// Begins a term. Our key was there at the revision `seen`. Unless a read has shown that nobody is
    /// in front, one does now, beside the work: somebody may have removed a key by hand.
    pub fn enter(
        cx: &mut CandidateContext<'_>,
        own: OwnKey,
        validity: Validity,
        seen: Revision,
        is_read: bool,
    ) -> Leading {
        let Validity { lease, until, stretch, .. } = validity;
        cx.common.failed = 0;
        cx.common.priority.preempts_after = None;
        let Context { leaders, candidacies, share, announced, .. } = &mut *cx.context;
        *leaders += 1;
        if *leaders == 1 {
            *announced = (lease, until);
        }
        if cx.common.layout.contest == Contest::Queue {
            let may_go = !share.has_handed_on(cx.common.layout.hash);
            share.gain(cx.common.election, may_go, *leaders, *candidacies);
        }
        let (check, search) = (Check::new(seen), Search::First);
        let (danger, target, looks_until, preempted_by) = (None, 0, 0, 0);
        let mut leading =
            Leading { own, stretch, danger, check, search, target, looks_until, preempted_by };
        cx.context.notify(Notice::Elected(leading.leadership(cx, until)));
        // Renewals may fail already.
        leading.tell_danger(cx, validity);
        if cx.common.is_named(cx.context.now) {
            leading.show(cx);
        }
        let _stay = if is_read { leading.cover(cx) } else { leading.check(cx) };
        leading
    }

    /// The guard of a write in the term of this epoch, if it is the present one.
    pub fn guard(&self, epoch: Epoch) -> Option<Guard> {
        (self.own.created == epoch).then(|| self.own.guard())
    }

    /// Whether this key was created after ours.
    pub fn is_before(&self, entry: &Entry) -> bool {
        self.own.created < entry.created
    }

    /// Writes our value again, which shows that this candidate knows that it leads.
    fn show(&self, cx: &mut CandidateContext<'_>) {
        if cx.common.proclamations.is_empty() {
            let value = cx.common.value.clone();
            cx.common.proclamations.push_back(Proclamation { ticket: None, value });
        }
        cx.proclaim_into(&self.own);
    }

    fn tell_to_hand_over(&self, cx: &mut CandidateContext<'_>) {
        let term = Term { election: cx.common.election, epoch: self.own.created };
        cx.context.notify(Notice::HandOver(term));
    }

    /// Ends the term of this epoch, if it is the present one.
    fn end_epoch(&mut self, cx: &mut CandidateContext<'_>, epoch: Epoch, reason: Reason) -> Next {
        if self.own.created == epoch { self.end(cx, reason, true) } else { Next::Stay }
    }

    /// Ends the term.
    fn end(&mut self, cx: &mut CandidateContext<'_>, reason: Reason, key_remains: bool) -> Next {
        let own = self.own.take();
        cx.context.forget(self.check.call.take());
        (cx.common.newest, cx.common.newest_is_of_name) = (own.created, true);
        cx.context.leaders -= 1;
        cx.context.share.leaving -= u32::from(cx.common.hands_over);
        cx.context.newest = cx.context.newest.max(own.created);
        if key_remains {
            cx.context.unwatch(own.watch);
        } else {
            cx.handed_over();
            cx.await_landings(Some(own.watch));
        }
        let until = match cx.validity {
            // Time that a later renewal brought is not this term's.
            Some(validity) if validity.lease == own.lease && validity.stretch != self.stretch => {
                cx.context.now
            }
            Some(_) | None => cx.session.deadline_of(own.lease),
        };
        Next::Ended { own, key_remains, until, reason }
    }

    fn displaced(&mut self, cx: &mut CandidateContext<'_>, entry: Option<&Entry>) -> Next {
        self.end(cx, Reason::Deposed, entry.is_some())
    }

    /// Tells the application, once, that renewals fail and less than half of the time is left.
    fn tell_danger(&mut self, cx: &mut CandidateContext<'_>, validity: Validity) {
        if self.is_in_new_danger(cx.context.now, validity) {
            self.danger = validity.danger;
            cx.context.notify(Notice::Endangered(self.leadership(cx, validity.until)));
        }
    }

    fn is_in_new_danger(&self, now: Mark, validity: Validity) -> bool {
        let Validity { danger, until, .. } = validity;
        danger.is_some() && self.danger != danger && until > now
    }

    /// Whether the term is over by this validity, or in a danger of which nobody was told.
    pub fn is_behind(&self, now: Mark, validity: Validity) -> bool {
        self.stretch != validity.stretch || self.is_in_new_danger(now, validity)
    }

    fn leadership(&self, cx: &CandidateContext<'_>, valid_until: Mark) -> Leadership {
        let OwnKey { key, lease, created, .. } = &self.own;
        let term = Term { election: cx.common.election, epoch: *created };
        Leadership { term, key: key.clone(), lease: *lease, valid_until }
    }

    /// Reads our key if its watch may have missed a change.
    fn cover(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        if self.check.is_due(cx, &[self.own.watch]) { self.check(cx) } else { Next::Stay }
    }

    /// Reads our key, and whom a restored backup may have put in front of it.
    fn check(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let mut selections = place::selections(&cx.common.layout, &self.own, &self.search);
        if cx.context.now < self.looks_until {
            selections.push(cx.common.layout.newest_until(self.target, 2));
        }
        self.check.start(cx, selections)
    }

    fn take_check(&mut self, cx: &mut CandidateContext<'_>, snapshot: Snapshot) -> Next {
        let Snapshot { at, found } = snapshot;
        let mut found = found.into_iter();
        let place = Place::take(&cx.common.layout, &self.own, &mut self.search, &mut found);
        self.check.seen = self.check.seen.max(at);
        match place {
            Some(Place::First) => {
                self.search = Search::First;
                if let Some(behind) = found.next() {
                    self.look_behind(cx, &behind);
                }
                self.cover(cx)
            }
            Some(Place::Behind(..)) => {
                let sentence = "a restored backup has put somebody in front of the leader";
                cx.record_failure(other(sentence));
                self.end(cx, Reason::Deposed, true)
            }
            Some(Place::Displaced(entry)) => self.displaced(cx, entry.as_ref()),
            Some(Place::Unfinished) => self.check(cx),
            None => cx.try_later(unfit("read")),
        }
    }

    /// Hands over if nobody is left between this candidate and the target, of the newest two keys up
    /// to the target's. Otherwise it looks again soon.
    fn look_behind(&self, cx: &mut CandidateContext<'_>, newest_two: &[Entry]) {
        if let [newest, next] = newest_two
            && (newest.created, next.created) == (self.target, self.own.created)
        {
            self.tell_to_hand_over(cx);
        } else {
            cx.context.set_timer(cx.timer(), LOOK_AGAIN);
        }
    }
}

impl Inputs for Leading {
    fn wished(&mut self, cx: &mut CandidateContext<'_>, wish: &Wish<'_>) -> Next {
        let is_of_term = wish.epoch == self.own.created;
        if wish.now && is_of_term && cx.common.priority.hands_over(wish) {
            // A candidate's own wish stands for as long as it waits, and is read again and again.
            let is_told = wish.priority.is_some() && self.preempted_by == wish.target;
            if !is_told {
                self.preempted_by = wish.target;
                self.tell_to_hand_over(cx);
            }
        } else if is_of_term && wish.priority.is_none() {
            self.target = wish.target;
            self.looks_until = cx.context.now.saturating_add(LOOK);
            return self.check(cx);
        } else if wish.now && wish.target == self.own.created && wish.priority.is_none() {
            self.show(cx);
        }
        Next::Stay
    }

    fn hand_over(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        if !core::mem::replace(&mut cx.common.hands_over, true) {
            cx.context.share.hand_on(cx.common.layout.hash, cx.context.now);
        }
        self.tell_to_hand_over(cx);
        Next::Stay
    }

    fn resign(&mut self, cx: &mut CandidateContext<'_>, epoch: Epoch) -> Next {
        self.end_epoch(cx, epoch, Reason::Resigned)
    }

    fn leave(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.end(cx, Reason::Resigned, true)
    }

    fn proclaim_next(&mut self, cx: &mut CandidateContext<'_>) {
        cx.proclaim_into(&self.own);
    }

    fn lease_lost(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.end(cx, Reason::LeaseLost, false)
    }

    fn validity_changed(&mut self, cx: &mut CandidateContext<'_>, validity: Validity) -> Next {
        if self.stretch != validity.stretch {
            return self.end(cx, Reason::Expired, true);
        }
        self.tell_danger(cx, validity);
        Next::Stay
    }

    fn due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.check(cx)
    }

    fn checked(&mut self, cx: &mut CandidateContext<'_>, outcome: Answer) -> Next {
        self.check.call = None;
        match snapshot(outcome) {
            // The read was sent when our key was there.
            Ok(snapshot) if snapshot.at < self.own.created => {
                cx.record_failure(other(WENT_BACK));
                let mut found = snapshot.found.iter().flatten();
                let at_own = found.find(|entry| entry.key == self.own.key).cloned();
                self.displaced(cx, at_own.as_ref())
            }
            Ok(snapshot) => {
                cx.common.failed = 0;
                self.take_check(cx, snapshot)
            }
            Err(failure) => {
                self.search.failed(&failure);
                cx.try_later(failure)
            }
        }
    }

    fn examine(&mut self, cx: &mut CandidateContext<'_>, reading: Reading) -> Next {
        if reading.at < self.check.seen {
            return self.check(cx);
        }
        match reading.entry(&self.own.key) {
            Some(own) if !self.own.is_intact(own.as_ref()) => self.displaced(cx, own.as_ref()),
            Some(_) => {
                self.check.seen = self.check.seen.max(reading.at);
                self.cover(cx)
            }
            None => Next::Stay,
        }
    }

    fn fenced(&mut self, cx: &mut CandidateContext<'_>, epoch: Epoch) -> Next {
        self.end_epoch(cx, epoch, Reason::Fenced)
    }

    fn own_key_changed(&mut self, cx: &mut CandidateContext<'_>, change: Change) -> Next {
        if self.own.watch.note(&change) {
            // A restored store looks like a watch that cannot go on where it was.
            if let Change::Ended(_) = change {
                self.check.seen = 0;
            }
            return self.cover(cx);
        }
        match self.own.taken_by(change) {
            Some(entry) => self.displaced(cx, entry.as_ref()),
            None => Next::Stay,
        }
    }

    fn selections(&mut self) -> Vec<Selection> {
        [point_of_key(self.own.key.clone())].into()
    }
}
