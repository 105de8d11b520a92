//! The changes of role. Each has its function, and happens nowhere else.

use alloc::vec::Vec;

use super::{
    Candidate, Claiming, Ended, Front, Hands, InLine, Leading, Outrun, Place, Stand, State,
    WENT_BACK, other, tell_written,
};
use crate::context::{Lookout, Purpose, Watcher};
use crate::look::Look;
use crate::session::Tenure;
use crate::timers::{MILLISECOND, Timer};
use crate::types::{
    Claim, Contest, Demotion, Entry, Failure, LeaseId, Notice, Operation, Reason, Revision, Term,
    Withdrawal, WriteOutcome,
};

/// In a race, those who saw the key go do not all claim it at one instant.
const RACE_JITTER: u64 = 10 * MILLISECOND;

impl Candidate {
    /// Has no key any more, or not yet: claims one when the step is settled, or
    /// after a pause.
    pub(super) fn stay_outside(&mut self, hands: &mut Hands<'_>, pause: bool) {
        self.state = State::Outside;
        let timer = Timer::Election(self.election);
        if pause {
            hands.context.retry(timer, self.failed);
        } else {
            hands.context.timers.cancel(timer);
            hands.context.touch(self.election);
        }
    }

    /// Asks for the key, for the first time or again.
    pub(super) fn claim(&mut self, hands: &mut Hands<'_>, mut claiming: Claiming) {
        let purpose = Purpose::Claim { election: self.election, lease: claiming.lease };
        let operation = Operation::Claim(Claim {
            key: claiming.key.clone(),
            value: self.value.clone(),
            lease: claiming.lease,
        });
        claiming.call = Some(hands.context.call(purpose, operation));
        self.state = State::Claiming(claiming);
    }

    /// The key is ours. Whether it leads, a survey has to show.
    pub(super) fn take_place(&mut self, hands: &mut Hands<'_>, claiming: Claiming, entry: &Entry) {
        let Claiming { key, lease, lookout, .. } = claiming;
        if entry.created <= self.newest {
            self.stumble(hands, other(WENT_BACK));
            return self.clear(hands, key, lease, &lookout, entry);
        }
        self.announce(hands, &key, entry.created);
        let place = Place { key, lease, created: entry.created, lookout };
        self.state = State::InLine(InLine { place, stand: Stand::Overdue });
        self.survey(hands);
        self.proclaim_next(hands);
    }

    /// Somebody else has the one key.
    pub(super) fn be_outrun(
        &mut self,
        hands: &mut Hands<'_>,
        claiming: Claiming,
        rival: &Entry,
        seen: Revision,
    ) {
        let Claiming { key, lookout, .. } = claiming;
        self.failed = 0;
        self.announce(hands, &key, 0);
        self.state = State::Outrun(Outrun { key, lookout, seen, call: None });
        self.tell_leader(hands, Some(rival.clone()));
        self.keep_proclaimed(hands);
        self.cover(hands);
    }

    pub(super) fn stand_behind(&mut self, hands: &mut Hands<'_>, entry: &Entry, seen: Revision) {
        let State::InLine(line) = &mut self.state else {
            return;
        };
        let watcher = Watcher::Front(self.election);
        line.stand = Stand::Behind(Front {
            key: entry.key.clone(),
            created: entry.created,
            lookout: hands.context.watch(watcher, entry.key.clone(), false),
            seen,
            call: None,
        });
        self.cover(hands);
    }

    /// Nobody is in front: leads, if there is time left to lead.
    pub(super) fn stand_first(&mut self, hands: &mut Hands<'_>, seen: Revision) {
        let now = hands.context.now;
        let State::InLine(line) = &mut self.state else {
            return;
        };
        match hands.tenure {
            Some(tenure) if tenure.valid_until > now => {
                let place = line.place.clone();
                self.become_leader(hands, place, tenure, seen);
            }
            Some(_) | None => {
                line.stand = Stand::Overdue;
                hands.context.overdue.push(self.election);
            }
        }
    }

    fn become_leader(
        &mut self,
        hands: &mut Hands<'_>,
        place: Place,
        tenure: Tenure,
        seen: Revision,
    ) {
        self.failed = 0;
        let Tenure { lease, valid_until, era } = tenure;
        let context = &mut *hands.context;
        context.leaders += 1;
        if context.leaders == 1 {
            context.announced = (lease, valid_until);
        }
        context.notify(Notice::Elected(self.leadership(&place, valid_until)));
        let look = Look::First;
        self.state = State::Leading(Leading { place, era, danger: None, seen, look, call: None });
        // Renewals may fail already.
        self.catch_up(hands);
        self.cover(hands);
    }

    /// Ends the term, if there is one.
    pub(super) fn demote(&mut self, hands: &mut Hands<'_>, reason: Reason, remains: bool) {
        let leading = match core::mem::replace(&mut self.state, State::Outside) {
            State::Leading(leading) => leading,
            state @ (State::Outside
            | State::Claiming(_)
            | State::Outrun(_)
            | State::InLine(_)
            | State::Ended(_)
            | State::Over) => {
                self.state = state;
                return;
            }
        };
        let Leading { place: Place { key, lease, created, lookout }, era, call, .. } = leading;
        hands.context.forget(call);
        self.newest = created;
        hands.context.leaders -= 1;
        hands.context.newest = hands.context.newest.max(created);
        if remains {
            hands.context.unwatch(&lookout);
        } else {
            self.await_landings(hands, Some(lookout));
        }
        let now = hands.context.now;
        let until = match hands.tenure {
            // What came after its deadline is no time of its own.
            Some(tenure) if tenure.lease == lease && tenure.era != era => now,
            Some(_) | None => hands.session.deadline_of(lease),
        };
        self.state = State::Ended(Ended { key, lease, epoch: created, remains, until });
        let term = Term { election: self.election, epoch: created };
        hands.context.notify(Notice::Demoted(Demotion { term, reason }));
        if until <= now {
            self.release(hands);
        } else {
            hands.context.timers.set(Timer::Election(self.election), until);
        }
    }

    /// The ended term's work has stopped, or its deadline has passed: its key goes,
    /// and with it a candidacy that is not to go on.
    pub(super) fn release(&mut self, hands: &mut Hands<'_>) {
        let State::Ended(ended) = &mut self.state else {
            return;
        };
        if core::mem::replace(&mut ended.remains, false) {
            let (key, lease, epoch) = (ended.key.clone(), ended.lease, ended.epoch);
            let remains = self.remains(key, lease, None);
            hands.farewells.remove(hands.context, remains, epoch);
            if !self.rejoin {
                self.finish(hands);
            }
        } else if !self.rejoin {
            self.conclude(hands, None);
        }
    }

    /// Ends a candidacy that the store does not allow.
    pub(super) fn withdraw(&mut self, hands: &mut Hands<'_>, cause: Failure) {
        let context = &mut *hands.context;
        match core::mem::replace(&mut self.state, State::Over) {
            State::Claiming(claiming) => {
                context.forget(claiming.call);
                context.unwatch(&claiming.lookout);
            }
            State::Outrun(outrun) => {
                context.forget(outrun.call);
                context.unwatch(&outrun.lookout);
            }
            // Who has a key is not refused one.
            state @ (State::InLine(_) | State::Leading(_) | State::Ended(_)) => {
                self.state = state;
                return;
            }
            State::Outside | State::Over => {}
        }
        let election = self.election;
        context.notify(Notice::Withdrawn(Withdrawal { election, cause: Some(cause) }));
        self.await_landings(hands, None);
        self.finish(hands);
    }

    /// Ends a candidacy that has no key.
    pub(super) fn conclude(&mut self, hands: &mut Hands<'_>, lookout: Option<Lookout>) {
        self.await_landings(hands, lookout);
        hands.farewells.conclude(hands.context, &self.layout, self.election);
        self.finish(hands);
    }

    /// Leaves it to a farewell to remove what claims that were given up may make.
    pub(super) fn await_landings(&mut self, hands: &mut Hands<'_>, lookout: Option<Lookout>) {
        match hands.tenure {
            Some(Tenure { lease, .. }) if self.given_up > 0 => {
                let mut remains = self.remains(self.layout.key(lease), lease, lookout);
                remains.election = None;
                hands.farewells.await_landing(hands.context, remains);
            }
            Some(_) | None => {
                if let Some(lookout) = lookout {
                    hands.context.unwatch(&lookout);
                }
            }
        }
    }

    pub(super) fn finish(&mut self, hands: &mut Hands<'_>) {
        self.state = State::Over;
        hands.context.timers.cancel(Timer::Election(self.election));
        hands.context.touch(self.election);
        for proclamation in core::mem::take(&mut self.proclamations) {
            if let Some(ticket) = proclamation.ticket {
                tell_written(hands, ticket, WriteOutcome::Stale);
            }
        }
    }

    /// Our key is gone, or not ours any more.
    pub(super) fn displaced(&mut self, hands: &mut Hands<'_>, entry: Option<Entry>) {
        if let State::Leading(_) = self.state {
            return self.demote(hands, Reason::Deposed, entry.is_some());
        }
        let Some(line) = self.take_line() else {
            return;
        };
        let Place { key, lease, lookout, .. } = self.quit_line(hands, line);
        self.stumble(hands, other("this candidate's key is gone: getting back in line"));
        match entry {
            Some(entry) if entry.lease != lease && self.layout.contest() == Contest::Queue => {
                self.clear(hands, key, lease, &lookout, &entry);
            }
            Some(_) | None => {
                hands.context.unwatch(&lookout);
                self.stay_outside(hands, self.failed > 1);
            }
        }
    }

    /// A key stands in our place that is not to lead: it goes, and ours is claimed
    /// again.
    pub(super) fn clear(
        &mut self,
        hands: &mut Hands<'_>,
        key: Vec<u8>,
        lease: LeaseId,
        lookout: &Lookout,
        entry: &Entry,
    ) {
        hands.context.unwatch(lookout);
        let mut remains = self.remains(key, lease, None);
        remains.election = None;
        hands.farewells.remove(hands.context, remains, entry.created);
        self.stay_outside(hands, self.failed > 1);
    }

    /// The one key is free, or was.
    pub(super) fn vacated(&mut self, hands: &mut Hands<'_>) {
        if let State::Outrun(outrun) = core::mem::replace(&mut self.state, State::Outside) {
            hands.context.forget(outrun.call);
            hands.context.unwatch(&outrun.lookout);
            self.tell_leader(hands, None);
            let pause = 1 + hands.context.random.below(RACE_JITTER);
            let due = hands.context.now.saturating_add(pause);
            hands.context.timers.set(Timer::Election(self.election), due);
        }
    }

    /// The place in line, to be left.
    pub(super) fn take_line(&mut self) -> Option<InLine> {
        match core::mem::replace(&mut self.state, State::Outside) {
            State::InLine(line) => Some(line),
            state @ (State::Outside
            | State::Claiming(_)
            | State::Outrun(_)
            | State::Leading(_)
            | State::Ended(_)
            | State::Over) => {
                self.state = state;
                None
            }
        }
    }
}
