//! What the store answers, and what the watches see.

use alloc::vec::Vec;

use super::{
    Candidate, Claiming, Front, Hands, InLine, Leading, Outrun, Proclamation, Stand, State,
    WENT_BACK, other, tell_written, written,
};
use crate::layout::{point, point_of_key};
use crate::look::{Look, Looked};
use crate::session::unfit;
use crate::types::{
    Change, Contest, Entry, Epoch, Failure, Reason, Response, Revision, Selection, Snapshot,
    Ticket, WriteOutcome,
};

impl Candidate {
    // What the store answers.

    /// Takes the answer to a claim. That the lease is gone is the session's
    /// business.
    pub fn claimed(&mut self, hands: &mut Hands<'_>, outcome: Result<Response, Failure>) {
        let claiming = match core::mem::replace(&mut self.state, State::Outside) {
            State::Claiming(claiming) => claiming,
            state @ (State::Outside
            | State::Outrun(_)
            | State::InLine(_)
            | State::Leading(_)
            | State::Ended(_)
            | State::Over) => {
                self.state = state;
                return;
            }
        };
        match outcome {
            Ok(Response::Claimed(claimed)) if claimed.entry.lease == claiming.lease => {
                self.take_place(hands, claiming, &claimed.entry);
            }
            // An earlier try of ours made it.
            Ok(Response::Taken(claimed)) if claimed.entry.lease == claiming.lease => {
                self.given_up = self.given_up.saturating_sub(1);
                if claimed.entry.value != self.value {
                    let value = self.value.clone();
                    self.proclamations.push_front(Proclamation { ticket: None, value });
                }
                self.take_place(hands, claiming, &claimed.entry);
            }
            Ok(Response::Taken(claimed)) => match self.layout.contest() {
                Contest::Race => self.be_outrun(hands, claiming, &claimed.entry, claimed.at),
                Contest::Queue => {
                    self.stumble(hands, other("somebody took this candidate's key: it goes"));
                    let Claiming { key, lease, lookout, .. } = claiming;
                    self.clear(hands, key, lease, &lookout, &claimed.entry);
                }
            },
            Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => {
                self.state = State::Claiming(claiming);
                self.withdraw(hands, failure);
            }
            Ok(_) => self.claim_failed(hands, claiming, Failure::Other(unfit("claim"))),
            Err(failure) => self.claim_failed(hands, claiming, failure),
        }
    }

    /// Takes the answer to a survey, which decides.
    pub fn surveyed(&mut self, hands: &mut Hands<'_>, outcome: Result<Response, Failure>) {
        let State::InLine(InLine { place, stand: Stand::Surveying { look, call } }) =
            &mut self.state
        else {
            return;
        };
        *call = None;
        let snapshot = match outcome {
            Ok(Response::Snapshot(snapshot)) => snapshot,
            Ok(_) => return self.look_failed(hands, Failure::Other(unfit("read"))),
            Err(failure) => return self.look_failed(hands, failure),
        };
        let at = snapshot.at;
        let mut found = snapshot.found.into_iter();
        let in_front = match self.layout.contest() {
            Contest::Queue => found.next(),
            Contest::Race => Some(Vec::new()),
        };
        let (Some(in_front), Some(own)) = (in_front, found.next()) else {
            return self.look_failed(hands, Failure::Other(unfit("read")));
        };
        if !place.is_intact(own.first()) {
            return self.displaced(hands, own.into_iter().next());
        }
        let before = Some(place.created);
        let mut look = look.clone();
        if !self.layouts_compared {
            self.layouts_compared = true;
            if self.layout.is_mixed(&found.next().unwrap_or_default()) {
                hands.context.trouble(
                    Some(self.election),
                    Failure::Other(
                        "a queue and a race are held under this name, and may have a leader \
                         each: let all candidates use one contest"
                            .into(),
                    ),
                );
            }
        }
        match look.take(&self.layout, before, in_front) {
            Looked::Found(front) => self.stand_behind(hands, &front, at),
            Looked::Nobody => self.stand_first(hands, at),
            Looked::Unfinished => self.look(hands, look),
        }
    }

    /// Takes the answer to a check.
    pub fn checked(&mut self, hands: &mut Hands<'_>, outcome: Result<Response, Failure>) {
        match &mut self.state {
            State::InLine(InLine { stand: Stand::Behind(Front { call, .. }), .. })
            | State::Leading(Leading { call, .. })
            | State::Outrun(Outrun { call, .. }) => *call = None,
            State::Outside
            | State::Claiming(_)
            | State::InLine(_)
            | State::Ended(_)
            | State::Over => return,
        }
        match outcome {
            // It was asked for when our key was there.
            Ok(Response::Snapshot(snapshot)) if self.is_newer_than(snapshot.at) => {
                let own = snapshot.found.into_iter().next().unwrap_or_default();
                self.stumble(hands, other(WENT_BACK));
                self.displaced(hands, own.into_iter().next());
            }
            Ok(Response::Snapshot(snapshot)) => {
                self.failed = 0;
                if let State::Leading(_) = self.state {
                    self.leader_checked(hands, snapshot);
                } else {
                    let keys = self.points();
                    self.examine(hands, &keys, snapshot.found, snapshot.at);
                }
            }
            Ok(_) => self.look_failed(hands, Failure::Other(unfit("read"))),
            Err(failure) => self.look_failed(hands, failure),
        }
    }

    /// Nobody comes to stand in front of a leader, unless a backup brings them back.
    fn leader_checked(&mut self, hands: &mut Hands<'_>, snapshot: Snapshot) {
        let State::Leading(leading) = &mut self.state else {
            return;
        };
        let mut found = snapshot.found.into_iter();
        let own = found.next().unwrap_or_default();
        if !leading.place.is_intact(own.first()) {
            return self.displaced(hands, own.into_iter().next());
        }
        leading.seen = leading.seen.max(snapshot.at);
        let in_front = found.next().unwrap_or_default();
        let before = Some(leading.place.created);
        match leading.look.take(&self.layout, before, in_front) {
            Looked::Found(_) => {
                self.stumble(
                    hands,
                    other("a restored backup has put somebody in front of the leader"),
                );
                self.demote(hands, Reason::Deposed, true);
            }
            Looked::Nobody => {
                leading.look = Look::First;
                self.cover(hands);
            }
            Looked::Unfinished => self.check(hands),
        }
    }

    /// Whether our key was made after this revision.
    fn is_newer_than(&self, at: Revision) -> bool {
        match &self.state {
            State::InLine(InLine { place, .. }) | State::Leading(Leading { place, .. }) => {
                place.created > at
            }
            State::Outside
            | State::Claiming(_)
            | State::Outrun(_)
            | State::Ended(_)
            | State::Over => false,
        }
    }

    /// The keys on which this candidate's standing rests.
    pub fn points(&self) -> Vec<Vec<u8>> {
        match &self.state {
            State::InLine(InLine { place, stand: Stand::Behind(front) }) => {
                [place.key.clone(), front.key.clone()].into()
            }
            State::InLine(InLine { place, .. }) | State::Leading(Leading { place, .. }) => {
                [place.key.clone()].into()
            }
            State::Outrun(outrun) => [outrun.key.clone()].into(),
            State::Outside | State::Claiming(_) | State::Ended(_) | State::Over => Vec::new(),
        }
    }

    /// The reads of these keys. A rival's value is told, others are not.
    pub fn selections(&self) -> Vec<Selection> {
        let select = match self.state {
            State::Outrun(_) => point,
            State::Outside
            | State::Claiming(_)
            | State::InLine(_)
            | State::Leading(_)
            | State::Ended(_)
            | State::Over => point_of_key,
        };
        self.points().into_iter().map(select).collect()
    }

    /// Compares what was found at `keys` with what is known.
    pub fn examine(
        &mut self,
        hands: &mut Hands<'_>,
        keys: &[Vec<u8>],
        found: Vec<Vec<Entry>>,
        at: Revision,
    ) {
        let mut found: Vec<(&Vec<u8>, Option<Entry>)> = keys
            .iter()
            .zip(found)
            .map(|(key, entries)| (key, entries.into_iter().next()))
            .collect();
        let mut take = |key: &Vec<u8>| {
            let index = found.iter().position(|(asked, _)| *asked == key)?;
            Some(found.swap_remove(index).1)
        };
        match &mut self.state {
            // It may be from before our key, unless the store went back.
            State::InLine(InLine { place, .. }) if at < place.created => self.check(hands),
            State::Leading(leading) if at < leading.seen => self.check(hands),
            State::InLine(InLine { place, stand }) => {
                let own = take(&place.key);
                if let Some(own) = own
                    && !place.is_intact(own.as_ref())
                {
                    return self.displaced(hands, own);
                }
                if let Stand::Behind(front) = stand
                    && at >= front.seen
                    && let Some(entry) = take(&front.key)
                {
                    if entry.is_some_and(|entry| entry.created == front.created) {
                        front.seen = at;
                        self.cover(hands);
                    } else {
                        self.survey(hands);
                    }
                }
            }
            State::Leading(leading) => {
                if let Some(own) = take(&leading.place.key) {
                    if leading.place.is_intact(own.as_ref()) {
                        leading.seen = leading.seen.max(at);
                        self.cover(hands);
                    } else {
                        self.displaced(hands, own);
                    }
                }
            }
            State::Outrun(outrun) if at >= outrun.seen => match take(&outrun.key) {
                Some(Some(entry)) => {
                    let silent = outrun.lookout.covers(outrun.seen);
                    let changed = entry.modified > outrun.seen;
                    outrun.seen = at;
                    if changed && silent {
                        hands.context.renew_watch(&mut outrun.lookout);
                    }
                    // An old key of ours is no news, and no rival either.
                    let ours = hands.tenure.is_some_and(|tenure| tenure.lease == entry.lease);
                    if changed || ours {
                        self.rival_changed(hands, &entry);
                    }
                    self.cover(hands);
                }
                Some(None) => self.vacated(hands),
                None => {}
            },
            State::Outrun(_)
            | State::Outside
            | State::Claiming(_)
            | State::Ended(_)
            | State::Over => {}
        }
    }

    /// Takes the answer to a proclamation under the key created at `created`.
    pub fn proclaimed(
        &mut self,
        hands: &mut Hands<'_>,
        created: Epoch,
        ticket: Option<Ticket>,
        outcome: Result<Response, Failure>,
    ) {
        self.proclaiming = false;
        let outcome = written(outcome);
        let stale = outcome == WriteOutcome::Stale;
        if let Some(ticket) = ticket {
            tell_written(hands, ticket, outcome);
        }
        if stale {
            self.fenced(hands, created);
            // A waiter's place is gone as well: the survey shows how.
            if let State::InLine(line) = &self.state
                && line.place.created == created
                && !matches!(line.stand, Stand::Surveying { .. })
            {
                self.survey(hands);
            }
        }
        self.proclaim_next(hands);
    }

    /// A guarded write of this term was refused.
    pub fn fenced(&mut self, hands: &mut Hands<'_>, epoch: Epoch) {
        if self.leading(epoch).is_some() {
            self.demote(hands, Reason::Fenced, true);
        }
    }

    // What the watches see.

    /// News of our own key, or in a race of the one key.
    pub fn own_key_changed(&mut self, hands: &mut Hands<'_>, change: Change) {
        if let Some(lookout) = self.own_lookout()
            && lookout.take_note(&change)
        {
            // A watch that cannot go on where it was is how a restored store looks.
            if let (State::Leading(leading), Change::Ended(_)) = (&mut self.state, &change) {
                leading.seen = 0;
            }
            return self.cover(hands);
        }
        match (&mut self.state, change) {
            (
                State::InLine(InLine { place, .. }) | State::Leading(Leading { place, .. }),
                Change::Put(entry),
            ) => {
                if entry.modified >= place.created && !place.is_intact(Some(&entry)) {
                    self.displaced(hands, Some(entry));
                }
            }
            (
                State::InLine(InLine { place, .. }) | State::Leading(Leading { place, .. }),
                Change::Deleted(deletion),
            ) => {
                if deletion.at > place.created {
                    self.displaced(hands, None);
                }
            }
            (State::Outrun(outrun), Change::Put(entry)) if entry.modified > outrun.seen => {
                outrun.seen = entry.modified;
                self.rival_changed(hands, &entry);
            }
            (State::Outrun(outrun), Change::Deleted(deletion)) if deletion.at > outrun.seen => {
                self.vacated(hands);
            }
            // Of whom these tell, the answer to the claim will show.
            (State::Claiming(claiming), Change::Put(entry)) => {
                claiming.lookout.miss(entry.modified);
            }
            (State::Claiming(claiming), Change::Deleted(deletion)) => {
                claiming.lookout.miss(deletion.at);
            }
            (
                State::Outrun(_)
                | State::Outside
                | State::Claiming(_)
                | State::InLine(_)
                | State::Leading(_)
                | State::Ended(_)
                | State::Over,
                _,
            ) => {}
        }
    }

    /// News of the key in front.
    pub fn front_key_changed(&mut self, hands: &mut Hands<'_>, change: Change) {
        let State::InLine(InLine { stand: Stand::Behind(front), .. }) = &mut self.state else {
            return;
        };
        if front.lookout.take_note(&change) {
            return self.cover(hands);
        }
        match change {
            Change::Put(entry) if entry.created == front.created => {}
            // Somebody's end is not our beginning: a read decides.
            Change::Put(_) | Change::Deleted(_) => self.survey(hands),
            Change::Started(_) | Change::Ended(_) => {}
        }
    }
}
