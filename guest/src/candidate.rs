//! One candidate's part in one election, from the claim of a key to its removal.
//!
//! ```text
//! Outside -> Claiming -> InLine -> Leading -> Ended -> Outside or Over
//!              |           |
//!              Outrun      lost its key: Outside
//! ```

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::context::{Context, Lookout, Purpose, Watcher};
use crate::farewell::{Farewells, Remains};
use crate::layout::{Layout, check_value, point};
use crate::session::{Tenure, unfit};
use crate::timers::{MILLISECOND, Timer};
use crate::types::{
    Candidacy, Change, Claim, Contest, Demotion, ElectionId, Entry, Epoch, Failure, Guarded,
    Joined, Leadership, LeaseId, Mark, Mutation, Notice, Operation, Reason, RequestId, Response,
    Revision, Sighting, Term, Ticket, Withdrawal, WriteOutcome, Written,
};

/// In a race, those who saw the key go do not all claim it at one instant.
const RACE_JITTER: u64 = 10 * MILLISECOND;

/// How many keys the second look at those in front asks for, where the first one
/// found a key that does not count; eight times more at each further look.
const WIDER: u32 = 8;

/// From here on a look asks for all of them.
const WIDEST: u32 = 4_096;

/// What a candidate works with.
#[derive(Debug)]
pub struct Hands<'a> {
    pub context: &'a mut Context,
    pub farewells: &'a mut Farewells,
    pub tenure: Option<Tenure>,
}

/// One candidate's part in one election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    election: ElectionId,
    layout: Layout,
    value: Vec<u8>,
    rejoin: bool,
    /// Values to be proclaimed, one after the other, once there is a key.
    proclamations: VecDeque<Proclamation>,
    proclaiming: bool,
    /// Claims under the present lease that were given up, and may still land.
    given_up: u32,
    /// The create revision of the last place that was announced.
    announced: Option<Revision>,
    /// The newest epoch of this election that was seen, in a race also a rival's.
    newest: Epoch,
    /// Whether the other layout was looked for under this name.
    layouts_compared: bool,
    /// Tries in a row that failed.
    failed: u32,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Proclamation {
    /// None for our own, after a key was found that an older value is in.
    ticket: Option<Ticket>,
    value: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Has no key, and waits for a lease, for an old key to go, or for a pause
    /// to end.
    Outside,
    Claiming(Claiming),
    Outrun(Outrun),
    InLine(InLine),
    Leading(Leading),
    Ended(Ended),
    /// Nothing follows.
    Over,
}

/// The key was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claiming {
    key: Vec<u8>,
    lease: LeaseId,
    lookout: Lookout,
    /// None while the next try waits for its timer.
    call: Option<RequestId>,
}

/// In a race: somebody else has the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Outrun {
    key: Vec<u8>,
    lookout: Lookout,
    /// The revision at which the rival was last seen.
    seen: Revision,
    call: Option<RequestId>,
}

/// A key of our own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    key: Vec<u8>,
    lease: LeaseId,
    created: Revision,
    lookout: Lookout,
}

/// Has a key, and does not lead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InLine {
    place: Place,
    stand: Stand,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stand {
    /// Looks who is in front.
    Surveying {
        limit: u32,
        /// None while the next try waits for its timer.
        call: Option<RequestId>,
    },
    Behind(Front),
    /// Nobody is in front, but the lease's deadline is over: looks again once it
    /// is renewed.
    Overdue,
}

/// The key in front of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Front {
    key: Vec<u8>,
    created: Revision,
    lookout: Lookout,
    /// The revision at which it was last read, together with ours.
    seen: Revision,
    call: Option<RequestId>,
}

/// Leads, until the lease's deadline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leading {
    place: Place,
    /// The revision at which our key was last read.
    seen: Revision,
    call: Option<RequestId>,
}

/// Led, and the work may not have stopped yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ended {
    key: Vec<u8>,
    lease: LeaseId,
    epoch: Epoch,
    /// The key may still be in the store.
    remains: bool,
    /// The term's deadline, as it was when the term ended.
    until: Mark,
}

impl Candidate {
    /// Refuses, with a sentence, what can never be a candidacy.
    pub fn new(candidacy: Candidacy) -> Result<Candidate, String> {
        let Candidacy { election, name, contest, value, rejoin } = candidacy;
        check_value(&value)?;
        Ok(Candidate {
            election,
            layout: Layout::new(name, contest)?,
            value,
            rejoin,
            proclamations: VecDeque::new(),
            proclaiming: false,
            given_up: 0,
            announced: None,
            newest: 0,
            layouts_compared: false,
            failed: 0,
            state: State::Outside,
        })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether nothing follows any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The guard's key and lease, if this term stands.
    pub fn leading(&self, epoch: Epoch) -> Option<(&[u8], LeaseId)> {
        match &self.state {
            State::Leading(leading) if leading.place.created == epoch => {
                Some((&leading.place.key, leading.place.lease))
            }
            State::Outside
            | State::Claiming(_)
            | State::Outrun(_)
            | State::InLine(_)
            | State::Leading(_)
            | State::Ended(_)
            | State::Over => None,
        }
    }

    // What the application wants.

    /// Gives the leadership back, if this term stands.
    pub fn resign(&mut self, hands: &mut Hands<'_>, epoch: Epoch) {
        if self.leading(epoch).is_some() {
            self.demote(hands, Reason::Resigned, true);
        }
    }

    /// The work of this term has stopped.
    pub fn yielded(&mut self, hands: &mut Hands<'_>, epoch: Epoch) {
        self.resign(hands, epoch);
        match &self.state {
            State::Ended(ended) if ended.epoch == epoch => {
                self.release(hands);
                if self.rejoin {
                    self.stay_outside(hands, false);
                }
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

    /// Ends the candidacy; a term first wants its work to have stopped.
    pub fn leave(&mut self, hands: &mut Hands<'_>) {
        self.rejoin = false;
        match core::mem::replace(&mut self.state, State::Over) {
            state @ State::Leading(_) => {
                self.state = state;
                self.demote(hands, Reason::Resigned, true);
            }
            State::Ended(ended) => {
                let released = !ended.remains;
                let due = ended.until <= hands.context.now;
                self.state = State::Ended(ended);
                if released && due {
                    self.release(hands);
                }
            }
            State::Outside | State::Over => self.conclude(hands, None),
            State::Outrun(outrun) => {
                hands.context.forget(outrun.call);
                self.conclude(hands, Some(outrun.lookout));
            }
            State::Claiming(claiming) => {
                let Claiming { key, lease, lookout, call } = claiming;
                match call {
                    Some(call) => {
                        let remains = self.remains(key, lease, Some(lookout));
                        hands.farewells.await_claim(hands.context, remains, call);
                        self.finish(hands);
                    }
                    None => self.conclude(hands, Some(lookout)),
                }
            }
            State::InLine(line) => {
                let Place { key, lease, created, lookout } = self.quit_line(hands, line);
                let remains = self.remains(key, lease, Some(lookout));
                hands.farewells.remove(hands.context, remains, created);
                self.finish(hands);
            }
        }
    }

    /// Changes what others read of this candidate.
    pub fn proclaim(&mut self, hands: &mut Hands<'_>, ticket: Ticket, value: Vec<u8>) {
        if let Err(sentence) = check_value(&value) {
            tell_written(hands, ticket, WriteOutcome::Failed(Failure::Invalid(sentence)));
            return;
        }
        self.proclamations.push_back(Proclamation { ticket: Some(ticket), value });
        self.proclaim_next(hands);
    }

    /// Ends the candidacy because there is no lease to be had.
    pub fn refused(&mut self, hands: &mut Hands<'_>, failure: Failure) {
        self.withdraw(hands, failure);
    }

    // What happens to the lease.

    /// The lease lives longer.
    pub fn extended(&mut self, hands: &mut Hands<'_>) {
        match &self.state {
            State::Leading(leading) => {
                if let Some(leadership) = self.leadership(&leading.place, hands.tenure) {
                    hands.context.notify(Notice::Extended(leadership));
                }
            }
            State::InLine(InLine { stand: Stand::Overdue, .. }) => self.survey(hands, 1),
            State::Outside
            | State::Claiming(_)
            | State::Outrun(_)
            | State::InLine(_)
            | State::Ended(_)
            | State::Over => {}
        }
    }

    /// Renewals fail, and less than half of the time is left.
    pub fn endangered(&mut self, hands: &mut Hands<'_>) {
        if let State::Leading(leading) = &self.state
            && let Some(leadership) = self.leadership(&leading.place, hands.tenure)
        {
            hands.context.notify(Notice::Endangered(leadership));
        }
    }

    /// The lease's deadline is over. Whoever only waits is not concerned.
    pub fn expired(&mut self, hands: &mut Hands<'_>) {
        self.demote(hands, Reason::Expired, true);
    }

    /// The store says that the lease is gone, and with it the key.
    pub fn lease_lost(&mut self, hands: &mut Hands<'_>) {
        self.given_up = 0;
        match core::mem::replace(&mut self.state, State::Outside) {
            state @ State::Leading(_) => {
                self.state = state;
                self.demote(hands, Reason::LeaseLost, false);
            }
            State::Ended(mut ended) => {
                ended.remains = false;
                self.state = State::Ended(ended);
            }
            // Has no key; the next claim takes the next lease.
            state @ (State::Outrun(_) | State::Outside | State::Over) => self.state = state,
            State::Claiming(claiming) => {
                hands.context.forget(claiming.call);
                hands.context.unwatch(&claiming.lookout);
                self.stay_outside(hands, false);
            }
            State::InLine(line) => {
                let place = self.quit_line(hands, line);
                hands.context.unwatch(&place.lookout);
                self.stay_outside(hands, false);
            }
        }
    }

    // What falls due.

    /// Claims a key, if there is none and nothing stands against it.
    pub fn settle(&mut self, hands: &mut Hands<'_>) {
        let State::Outside = self.state else {
            return;
        };
        let Some(Tenure { lease, .. }) = hands.tenure else {
            return;
        };
        if hands.context.timers.is_set(Timer::Election(self.election)) {
            return;
        }
        let key = self.layout.key(lease);
        if let Some(failure) = hands.farewells.refusal(&key, lease) {
            let failure = failure.clone();
            self.withdraw(hands, failure);
        } else if !hands.farewells.blocks(&key, lease) {
            self.given_up += hands.farewells.absorb(hands.context, &key, lease);
            let watcher = Watcher::Own(self.election);
            let lookout = hands.context.watch(watcher, key.clone(), false);
            self.claim(hands, Claiming { key, lease, lookout, call: None });
        }
    }

    /// The timer of this election: the next try, or the end of a term's time.
    pub fn due(&mut self, hands: &mut Hands<'_>) {
        match core::mem::replace(&mut self.state, State::Outside) {
            State::Outside => hands.context.unsettled = true,
            State::Claiming(claiming) => self.claim(hands, claiming),
            State::InLine(line) => {
                let limit = match line.stand {
                    Stand::Surveying { limit, .. } => Some(limit),
                    Stand::Behind(_) | Stand::Overdue => None,
                };
                self.state = State::InLine(line);
                match limit {
                    Some(limit) => self.survey(hands, limit),
                    None => self.check(hands),
                }
            }
            state @ (State::Leading(_) | State::Outrun(_)) => {
                self.state = state;
                self.check(hands);
            }
            state @ State::Ended(_) => {
                self.state = state;
                self.release(hands);
            }
            State::Over => self.state = State::Over,
        }
    }

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
        let State::InLine(InLine { place, stand: Stand::Surveying { limit, call } }) =
            &mut self.state
        else {
            return;
        };
        *call = None;
        let limit = *limit;
        let snapshot = match outcome {
            Ok(Response::Snapshot(snapshot)) => snapshot,
            Ok(_) => return self.look_failed(hands, Failure::Other(unfit("read"))),
            Err(failure) => return self.look_failed(hands, failure),
        };
        let at = snapshot.at;
        let mut found = snapshot.found.into_iter();
        let in_front = match self.layout.in_front(place.created, limit) {
            Some(_) => found.next(),
            None => Some(Vec::new()),
        };
        let (Some(in_front), Some(own)) = (in_front, found.next()) else {
            return self.look_failed(hands, Failure::Other(unfit("read")));
        };
        if !place.is_intact(own.first()) {
            return self.displaced(hands, own.into_iter().next());
        }
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
        let seen_all = limit == 0 || in_front.len() < limit as usize;
        match in_front.into_iter().find(|entry| self.layout.counts(&entry.key)) {
            Some(front) => self.stand_behind(hands, &front, at),
            None if !seen_all => {
                let wider = limit.saturating_mul(WIDER);
                self.survey(hands, if wider > WIDEST { 0 } else { wider });
            }
            None => self.stand_first(hands, at),
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
            Ok(Response::Snapshot(snapshot)) => {
                self.failed = 0;
                let keys = self.points();
                self.examine(hands, &keys, snapshot.found, snapshot.at);
            }
            Ok(_) => self.look_failed(hands, Failure::Other(unfit("read"))),
            Err(failure) => self.look_failed(hands, failure),
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
            State::InLine(InLine { place, .. }) | State::Leading(Leading { place, .. })
                if at < place.created => {}
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
                        self.survey(hands, 1);
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
                    if changed {
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
                self.survey(hands, 1);
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
            Change::Put(_) | Change::Deleted(_) => self.survey(hands, 1),
            Change::Started(_) | Change::Ended(_) => {}
        }
    }

    // Roles: each changes here, and nowhere else.

    /// Has no key any more, or not yet: claims one when the step is settled, or
    /// after a pause.
    fn stay_outside(&mut self, hands: &mut Hands<'_>, pause: bool) {
        self.state = State::Outside;
        let timer = Timer::Election(self.election);
        if pause {
            hands.context.retry(timer, self.failed);
        } else {
            hands.context.timers.cancel(timer);
            hands.context.unsettled = true;
        }
    }

    /// Asks for the key, for the first time or again.
    fn claim(&mut self, hands: &mut Hands<'_>, mut claiming: Claiming) {
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
    fn take_place(&mut self, hands: &mut Hands<'_>, claiming: Claiming, entry: &Entry) {
        let Claiming { key, lease, lookout, .. } = claiming;
        if entry.created <= self.newest {
            let sentence = "the store went back behind this election's last epoch, as one that \
                            is restored from a backup does: waiting until it is beyond";
            self.stumble(hands, other(sentence));
            return self.clear(hands, key, lease, &lookout, entry);
        }
        self.announce(hands, &key, entry.created);
        let place = Place { key, lease, created: entry.created, lookout };
        self.state =
            State::InLine(InLine { place, stand: Stand::Surveying { limit: 1, call: None } });
        self.survey(hands, 1);
        self.proclaim_next(hands);
    }

    /// Somebody else has the one key.
    fn be_outrun(
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
        self.cover(hands);
    }

    fn stand_behind(&mut self, hands: &mut Hands<'_>, entry: &Entry, seen: Revision) {
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
    fn stand_first(&mut self, hands: &mut Hands<'_>, seen: Revision) {
        let now = hands.context.now;
        let State::InLine(line) = &mut self.state else {
            return;
        };
        let leadership = hands
            .tenure
            .filter(|tenure| tenure.valid_until > now && tenure.lease == line.place.lease);
        if leadership.is_none() {
            line.stand = Stand::Overdue;
            return;
        }
        let place = line.place.clone();
        self.become_leader(hands, place, seen);
    }

    fn become_leader(&mut self, hands: &mut Hands<'_>, place: Place, seen: Revision) {
        self.failed = 0;
        if let Some(leadership) = self.leadership(&place, hands.tenure) {
            hands.context.notify(Notice::Elected(leadership));
        }
        self.state = State::Leading(Leading { place, seen, call: None });
        self.cover(hands);
    }

    /// Ends the term, if there is one.
    fn demote(&mut self, hands: &mut Hands<'_>, reason: Reason, remains: bool) {
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
        let Leading { place: Place { key, lease, created, lookout }, call, .. } = leading;
        hands.context.forget(call);
        self.newest = created;
        if remains {
            hands.context.unwatch(&lookout);
        } else {
            self.await_landings(hands, Some(lookout));
        }
        let now = hands.context.now;
        let until = hands.tenure.map_or(now, |tenure| tenure.valid_until);
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
    fn release(&mut self, hands: &mut Hands<'_>) {
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
    fn withdraw(&mut self, hands: &mut Hands<'_>, cause: Failure) {
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
    fn conclude(&mut self, hands: &mut Hands<'_>, lookout: Option<Lookout>) {
        self.await_landings(hands, lookout);
        hands.farewells.conclude(hands.context, &self.layout, self.election);
        self.finish(hands);
    }

    /// Leaves it to a farewell to remove what claims that were given up may make.
    fn await_landings(&mut self, hands: &mut Hands<'_>, lookout: Option<Lookout>) {
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

    fn finish(&mut self, hands: &mut Hands<'_>) {
        self.state = State::Over;
        hands.context.timers.cancel(Timer::Election(self.election));
        hands.context.unsettled = true;
        for proclamation in core::mem::take(&mut self.proclamations) {
            if let Some(ticket) = proclamation.ticket {
                tell_written(hands, ticket, WriteOutcome::Stale);
            }
        }
    }

    // Steps.

    /// Looks who is in front, and whether our key is what it was, at one revision.
    fn survey(&mut self, hands: &mut Hands<'_>, limit: u32) {
        let State::InLine(line) = &mut self.state else {
            return;
        };
        line.stand.quit(hands.context);
        hands.context.timers.cancel(Timer::Election(self.election));
        let mut selections = Vec::from_iter(self.layout.in_front(line.place.created, limit));
        selections.push(point(line.place.key.clone()));
        if !self.layouts_compared {
            selections.push(self.layout.other_layout());
        }
        let purpose = Purpose::Survey(self.election);
        let call = Some(hands.context.call(purpose, Operation::Read(selections)));
        line.stand = Stand::Surveying { limit, call };
    }

    /// Looks at the keys on which our standing rests.
    fn check(&mut self, hands: &mut Hands<'_>) {
        let selections = self.points().into_iter().map(point).collect();
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
    fn cover(&mut self, hands: &mut Hands<'_>) {
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

    /// Our key is gone, or not ours any more.
    fn displaced(&mut self, hands: &mut Hands<'_>, entry: Option<Entry>) {
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
    fn clear(
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

    fn claim_failed(&mut self, hands: &mut Hands<'_>, mut claiming: Claiming, failure: Failure) {
        self.given_up = self.given_up.saturating_add(1);
        claiming.call = None;
        self.state = State::Claiming(claiming);
        self.look_failed(hands, failure);
    }

    fn look_failed(&mut self, hands: &mut Hands<'_>, failure: Failure) {
        self.stumble(hands, failure);
        hands.context.retry(Timer::Election(self.election), self.failed);
    }

    /// Counts a failure, and says it if it is the first in a row.
    fn stumble(&mut self, hands: &mut Hands<'_>, failure: Failure) {
        self.failed = self.failed.saturating_add(1);
        if self.failed == 1 {
            hands.context.trouble(Some(self.election), failure);
        }
    }

    fn rival_changed(&mut self, hands: &mut Hands<'_>, entry: &Entry) {
        // A claim of ours that was given up has landed.
        if hands.tenure.is_some_and(|tenure| tenure.lease == entry.lease) {
            return self.vacated(hands);
        }
        if let State::Outrun(_) = self.state {
            self.tell_leader(hands, Some(entry.clone()));
        }
    }

    /// The one key is free, or was.
    fn vacated(&mut self, hands: &mut Hands<'_>) {
        if let State::Outrun(outrun) = core::mem::replace(&mut self.state, State::Outside) {
            hands.context.forget(outrun.call);
            hands.context.unwatch(&outrun.lookout);
            self.tell_leader(hands, None);
            let pause = 1 + hands.context.random.below(RACE_JITTER);
            let due = hands.context.now.saturating_add(pause);
            hands.context.timers.set(Timer::Election(self.election), due);
        }
    }

    /// Sends the next value to proclaim, if there is a key to put it into.
    fn proclaim_next(&mut self, hands: &mut Hands<'_>) {
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

    /// The place in line, to be left.
    fn take_line(&mut self) -> Option<InLine> {
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

    /// Stops looking, and gives up what is in front.
    fn quit_line(&mut self, hands: &mut Hands<'_>, mut line: InLine) -> Place {
        line.stand.quit(hands.context);
        line.place
    }

    fn own_lookout(&mut self) -> Option<&mut Lookout> {
        match &mut self.state {
            State::Claiming(Claiming { lookout, .. })
            | State::Outrun(Outrun { lookout, .. })
            | State::InLine(InLine { place: Place { lookout, .. }, .. })
            | State::Leading(Leading { place: Place { lookout, .. }, .. }) => Some(lookout),
            State::Outside | State::Ended(_) | State::Over => None,
        }
    }

    /// What a farewell takes over.
    fn remains(&mut self, key: Vec<u8>, lease: LeaseId, lookout: Option<Lookout>) -> Remains {
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

    fn leadership(&self, place: &Place, tenure: Option<Tenure>) -> Option<Leadership> {
        tenure.map(|tenure| Leadership {
            term: Term { election: self.election, epoch: place.created },
            key: place.key.clone(),
            lease: place.lease,
            valid_until: tenure.valid_until,
        })
    }

    fn announce(&mut self, hands: &mut Hands<'_>, key: &[u8], created: Revision) {
        if self.announced != Some(created) {
            self.announced = Some(created);
            let joined = Joined { election: self.election, key: key.into(), created };
            hands.context.notify(Notice::Joined(joined));
        }
    }

    fn tell_leader(&mut self, hands: &mut Hands<'_>, leader: Option<Entry>) {
        self.newest = leader.as_ref().map_or(self.newest, |leader| self.newest.max(leader.created));
        let sighting = Sighting { election: self.election, leader };
        hands.context.notify(Notice::Leader(sighting));
    }
}

impl Place {
    /// Whether this is our key as we made it. A new value is no loss: our own
    /// proclamation looks the same.
    fn is_intact(&self, entry: Option<&Entry>) -> bool {
        entry.is_some_and(|entry| entry.created == self.created && entry.lease == self.lease)
    }
}

impl Stand {
    /// Lets go of what is under way.
    fn quit(&mut self, context: &mut Context) {
        match self {
            Stand::Surveying { call, .. } => context.forget(call.take()),
            Stand::Behind(front) => {
                context.forget(front.call.take());
                context.unwatch(&front.lookout);
            }
            Stand::Overdue => {}
        }
    }
}

impl Lookout {
    /// Notes that the watch is on, or off; false for anything else.
    fn take_note(&mut self, change: &Change) -> bool {
        match change {
            Change::Started(at) => self.started = Some(*at),
            Change::Ended(_) => self.started = None,
            Change::Put(_) | Change::Deleted(_) => return false,
        }
        true
    }
}

fn other(sentence: &str) -> Failure {
    Failure::Other(sentence.into())
}

/// What the answer to a guarded write means for the one who asked for it.
pub fn written(outcome: Result<Response, Failure>) -> WriteOutcome {
    match outcome {
        Ok(Response::Applied(at)) => WriteOutcome::Applied(at),
        Ok(Response::Stale) => WriteOutcome::Stale,
        Ok(Response::Conflict) => WriteOutcome::Conflict,
        Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => WriteOutcome::Failed(failure),
        // It may have happened all the same.
        Ok(_) | Err(_) => WriteOutcome::Unknown,
    }
}

/// Tells the application what became of a write.
pub fn tell_written(hands: &mut Hands<'_>, ticket: Ticket, outcome: WriteOutcome) {
    hands.context.notify(Notice::Written(Written { ticket, outcome }));
}
