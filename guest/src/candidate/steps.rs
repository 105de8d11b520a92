//! What a candidate does without changing its role: it looks, writes and tells.

use alloc::vec::Vec;

use super::{
    Candidate, Claiming, Front, Hands, InLine, Leading, Outrun, Place, Proclamation, Stand, State,
    tell_written,
};
use crate::context::{Lookout, Purpose};
use crate::farewell::Remains;
use crate::layout::point_of_key;
use crate::look::Look;
use crate::timers::Timer;
use crate::types::{
    Contest, Entry, Failure, Guarded, Joined, Leadership, LeaseId, Mark, Mutation, Notice,
    Operation, Revision, Sighting, Term, WriteOutcome,
};

impl Candidate {
    /// Looks who is in front, and whether our key is what it was.
    pub(super) fn survey(&mut self, hands: &mut Hands<'_>) {
        self.look(hands, Look::First);
    }

    /// Takes the next look of a survey, at our key as well.
    pub(super) fn look(&mut self, hands: &mut Hands<'_>, look: Look) {
        let State::InLine(line) = &mut self.state else {
            return;
        };
        line.stand.quit(hands.context);
        hands.context.timers.cancel(Timer::Election(self.election));
        let created = line.place.created;
        let mut selections = Vec::new();
        if self.layout.contest() == Contest::Queue {
            selections.push(look.selection(&self.layout, Some(created)));
        }
        selections.push(point_of_key(line.place.key.clone()));
        if !self.layouts_compared {
            selections.push(self.layout.other_layout());
        }
        let purpose = Purpose::Survey(self.election);
        let call = Some(hands.context.call(purpose, Operation::Read(selections)));
        line.stand = Stand::Surveying { look, call };
    }

    /// Looks at the keys on which our standing rests; a leader also at what a backup
    /// may have brought back in front of it.
    pub(super) fn check(&mut self, hands: &mut Hands<'_>) {
        let mut selections = self.selections();
        if let State::Leading(Leading { place, look, .. }) = &self.state
            && self.layout.contest() == Contest::Queue
        {
            selections.push(look.selection(&self.layout, Some(place.created)));
        }
        match &mut self.state {
            State::InLine(InLine { stand: Stand::Behind(Front { call, .. }), .. })
            | State::Leading(Leading { call, .. })
            | State::Outrun(Outrun { call, .. })
                if call.is_none() =>
            {
                hands.context.timers.cancel(Timer::Election(self.election));
                let purpose = Purpose::Check(self.election);
                *call = Some(hands.context.call(purpose, Operation::Read(selections)));
            }
            State::Outside
            | State::Claiming(_)
            | State::Outrun(_)
            | State::InLine(_)
            | State::Leading(_)
            | State::Ended(_)
            | State::Over => {}
        }
    }

    /// Checks what happened between a read and the beginning of the watches, once
    /// they are on.
    pub(super) fn cover(&mut self, hands: &mut Hands<'_>) {
        let (lookouts, seen) = match &self.state {
            State::InLine(InLine { place, stand: Stand::Behind(front) }) => {
                ([&place.lookout, &front.lookout], front.seen)
            }
            State::Leading(leading) => ([&leading.place.lookout; 2], leading.seen),
            State::Outrun(outrun) => ([&outrun.lookout; 2], outrun.seen),
            State::Outside
            | State::Claiming(_)
            | State::InLine(_)
            | State::Ended(_)
            | State::Over => return,
        };
        if lookouts.iter().any(|lookout| lookout.started.is_none()) {
            return;
        }
        if lookouts.iter().all(|lookout| lookout.covers(seen)) {
            self.failed = 0;
        } else {
            self.check(hands);
        }
    }

    pub(super) fn claim_failed(
        &mut self,
        hands: &mut Hands<'_>,
        mut claiming: Claiming,
        failure: Failure,
    ) {
        self.given_up = self.given_up.saturating_add(1);
        claiming.call = None;
        self.state = State::Claiming(claiming);
        self.look_failed(hands, failure);
    }

    pub(super) fn look_failed(&mut self, hands: &mut Hands<'_>, failure: Failure) {
        if let State::InLine(InLine { stand: Stand::Surveying { look, .. }, .. })
        | State::Leading(Leading { look, .. }) = &mut self.state
        {
            look.failed(&failure);
        }
        self.stumble(hands, failure);
        hands.context.retry(Timer::Election(self.election), self.failed);
    }

    /// Counts a failure, and says it if it is the first in a row.
    pub(super) fn stumble(&mut self, hands: &mut Hands<'_>, failure: Failure) {
        self.failed = self.failed.saturating_add(1);
        if self.failed == 1 {
            hands.context.trouble(Some(self.election), failure);
        }
    }

    pub(super) fn rival_changed(&mut self, hands: &mut Hands<'_>, entry: &Entry) {
        // A claim of ours that was given up has landed.
        if hands.tenure.is_some_and(|tenure| tenure.lease == entry.lease) {
            return self.vacated(hands);
        }
        if let State::Outrun(_) = self.state {
            self.tell_leader(hands, Some(entry.clone()));
        }
    }

    /// Sends the next value to proclaim, if there is a key to put it into.
    pub(super) fn proclaim_next(&mut self, hands: &mut Hands<'_>) {
        if self.proclaiming {
            return;
        }
        let (State::InLine(InLine { place, .. }) | State::Leading(Leading { place, .. })) =
            &self.state
        else {
            return;
        };
        if let Some(Proclamation { ticket, value }) = self.proclamations.pop_front() {
            self.value.clone_from(&value);
            let guarded = Guarded {
                guard: self.layout.guard(place.key.clone(), place.created, place.lease),
                expect: Vec::new(),
                mutations: [Mutation::Proclaim(value)].into(),
            };
            let purpose =
                Purpose::Proclaim { election: self.election, created: place.created, ticket };
            hands.context.call(purpose, Operation::Guarded(guarded));
            self.proclaiming = true;
        }
    }

    /// In a race, whoever has no key has nothing to change: the value is the next claim's.
    pub(super) fn keep_proclaimed(&mut self, hands: &mut Hands<'_>) {
        for Proclamation { ticket, value } in core::mem::take(&mut self.proclamations) {
            self.value = value;
            if let Some(ticket) = ticket {
                tell_written(hands, ticket, WriteOutcome::Applied(0));
            }
        }
    }

    /// Stops looking, and gives up what is in front.
    pub(super) fn quit_line(&mut self, hands: &mut Hands<'_>, mut line: InLine) -> Place {
        line.stand.quit(hands.context);
        line.place
    }

    pub(super) fn own_lookout(&mut self) -> Option<&mut Lookout> {
        match &mut self.state {
            State::Claiming(Claiming { lookout, .. })
            | State::Outrun(Outrun { lookout, .. })
            | State::InLine(InLine { place: Place { lookout, .. }, .. })
            | State::Leading(Leading { place: Place { lookout, .. }, .. }) => Some(lookout),
            State::Outside | State::Ended(_) | State::Over => None,
        }
    }

    /// What a farewell takes over.
    pub(super) fn remains(
        &mut self,
        key: Vec<u8>,
        lease: LeaseId,
        lookout: Option<Lookout>,
    ) -> Remains {
        Remains {
            layout: self.layout.clone(),
            key,
            lease,
            given_up: core::mem::take(&mut self.given_up),
            gone: self.newest,
            lookout,
            election: (!self.rejoin).then_some(self.election),
        }
    }

    pub(super) fn leadership(&self, place: &Place, valid_until: Mark) -> Leadership {
        Leadership {
            term: Term { election: self.election, epoch: place.created },
            key: place.key.clone(),
            lease: place.lease,
            valid_until,
        }
    }

    pub(super) fn announce(&mut self, hands: &mut Hands<'_>, key: &[u8], created: Revision) {
        if self.announced != Some(created) {
            self.announced = Some(created);
            let joined = Joined { election: self.election, key: key.into(), created };
            hands.context.notify(Notice::Joined(joined));
        }
    }

    pub(super) fn tell_leader(&mut self, hands: &mut Hands<'_>, leader: Option<Entry>) {
        self.newest = leader.as_ref().map_or(self.newest, |leader| self.newest.max(leader.created));
        let sighting = Sighting { election: self.election, leader };
        hands.context.notify(Notice::Leader(sighting));
    }
}
