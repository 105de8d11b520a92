//! One candidate's part in one election, from the claim of a key to its removal.
//!
//! ```text
//! Outside -> Claiming -> InLine -> Leading -> Ended -> Outside or Over
//!              |           |
//!              Outrun      lost its key: Outside
//! ```
//!
//! What others do to a candidate is here and in `news`; what follows from it for its
//! role in `roles`, and for the rest in `steps`.

mod news;
mod roles;
mod steps;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::context::{Context, Lookout, Watcher};
use crate::farewell::Farewells;
use crate::layout::{Layout, check_value};
use crate::look::Look;
use crate::session::{Session, Tenure};
use crate::timers::Timer;
use crate::types::{
    Candidacy, Change, ElectionId, Entry, Epoch, Failure, LeaseId, Mark, Notice, Reason, RequestId,
    Response, Revision, Ticket, WriteOutcome, Written,
};

const WENT_BACK: &str = "the store went back behind this election's last epoch, as one that is \
                         restored from a backup does: waiting until it is beyond";

/// What a candidate works with.
#[derive(Debug)]
pub struct Hands<'a> {
    pub context: &'a mut Context,
    pub farewells: &'a mut Farewells,
    pub session: &'a Session,
    pub tenure: Option<Tenure>,
}

/// One candidate's part in one election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    election: ElectionId,
    layout: Layout,
    value: Vec<u8>,
    rejoin: bool,
    /// How many candidacies there were up to this one.
    admitted: u32,
    /// An earlier candidacy of the name has not ended yet.
    waits: bool,
    /// The lease under which a key was claimed last; 0 for none, or one that is gone.
    lease: LeaseId,
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
        look: Look,
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
    /// Ends with the lease's, whatever comes after.
    era: u32,
    /// The last danger of the lease that was told.
    danger: Option<u32>,
    /// The revision at which our key was last read.
    seen: Revision,
    /// The look at what is in front, which a check includes.
    look: Look,
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
    pub fn new(candidacy: Candidacy, admitted: u32) -> Result<Candidate, String> {
        let Candidacy { election, name, contest, value, rejoin } = candidacy;
        check_value(&value)?;
        Ok(Candidate {
            election,
            layout: Layout::new(name, contest)?,
            value,
            rejoin,
            admitted,
            waits: true,
            lease: 0,
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

    /// Whether it ends once its present term has yielded: another of its name may wait
    /// for that.
    pub fn is_ending(&self) -> bool {
        !self.rejoin && matches!(self.state, State::Leading(_) | State::Ended(_) | State::Over)
    }

    /// Begins, unless it has. Its epochs come after `newest`.
    pub fn begin(&mut self, newest: Epoch) {
        self.waits = false;
        self.newest = self.newest.max(newest);
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
            State::Over => {}
            State::Outside => self.conclude(hands, None),
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
        if let State::Outrun(_) = self.state {
            self.keep_proclaimed(hands);
        } else {
            self.proclaim_next(hands);
        }
    }

    // What happens to the lease.

    /// Sees what has become of the lease. Nothing else is done with a candidate before.
    pub fn catch_up(&mut self, hands: &mut Hands<'_>) {
        if let State::Over = self.state {
            return;
        }
        if self.lease != 0 && hands.tenure.is_none_or(|tenure| tenure.lease != self.lease) {
            self.lease_lost(hands);
        }
        if let Some(failure) = hands.session.refusal(self.admitted) {
            self.withdraw(hands, failure.clone());
        }
        let (State::Leading(leading), Some(tenure)) = (&mut self.state, hands.tenure) else {
            return;
        };
        if leading.era != tenure.era {
            return self.demote(hands, Reason::Expired, true);
        }
        // Renewals fail, and less than half of the time is left.
        let danger = hands.session.danger();
        if danger.is_some() && leading.danger != danger && tenure.valid_until > hands.context.now {
            leading.danger = danger;
            let place = leading.place.clone();
            let endangered = Notice::Endangered(self.leadership(&place, tenure.valid_until));
            hands.context.notify(endangered);
        }
    }

    /// The store says that the lease is gone, and with it the key.
    fn lease_lost(&mut self, hands: &mut Hands<'_>) {
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
        self.lease = 0;
    }

    // What falls due.

    /// Claims a key, if there is none and nothing stands against it; looks again who is in
    /// front, where the lease's deadline was over.
    pub fn settle(&mut self, hands: &mut Hands<'_>) {
        let Some(Tenure { lease, valid_until, .. }) = hands.tenure else {
            return;
        };
        match &self.state {
            State::Outside if self.waits => return,
            State::Outside => {}
            State::InLine(InLine { stand: Stand::Overdue, .. })
                if valid_until > hands.context.now =>
            {
                return self.survey(hands);
            }
            State::Claiming(_)
            | State::Outrun(_)
            | State::InLine(_)
            | State::Leading(_)
            | State::Ended(_)
            | State::Over => return,
        }
        if hands.context.timers.is_set(Timer::Election(self.election)) {
            return;
        }
        let key = self.layout.key(lease);
        if let Some(failure) = hands.farewells.refusal(&key) {
            let failure = failure.clone();
            self.withdraw(hands, failure);
        } else if !hands.farewells.blocks(&key) {
            self.lease = lease;
            self.given_up += hands.farewells.absorb(hands.context, &key);
            let watcher = Watcher::Own(self.election);
            let lookout = hands.context.watch(watcher, key.clone(), false);
            self.claim(hands, Claiming { key, lease, lookout, call: None });
        }
    }

    /// The timer of this election: the next try, or the end of a term's time.
    pub fn due(&mut self, hands: &mut Hands<'_>) {
        match core::mem::replace(&mut self.state, State::Outside) {
            State::Outside => hands.context.touch(self.election),
            State::Claiming(claiming) => self.claim(hands, claiming),
            State::InLine(line) => {
                let look = match &line.stand {
                    Stand::Surveying { look, .. } => Some(look.clone()),
                    Stand::Behind(_) | Stand::Overdue => None,
                };
                self.state = State::InLine(line);
                match look {
                    Some(look) => self.look(hands, look),
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
