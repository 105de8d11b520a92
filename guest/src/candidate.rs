//! One candidate's part in one election, from the claim of a key to its deletion.
//!
//! ```text
//! Idle -> Claiming -> Waiting -> Leading -> Ended -> Idle or Over
//!  |^        |           |
//!  |'- LostRace          lost its key: Idle
//!  '- left, or refused by the store: Over
//! ```
//!
//! Each state has its file: what it holds, what it does with each input, and which state comes
//! next. This one hands the inputs to the states, and is the only one that changes them.

mod claiming;
mod common;
mod ended;
mod idle;
mod leading;
mod lost_race;
mod over;
mod waiting;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use self::claiming::Claiming;
use self::common::{CandidateContext, Common, Inputs, Next, Proclamation};
use self::ended::Ended;
use self::idle::Idle;
use self::leading::Leading;
use self::lost_race::LostRace;
use self::over::Over;
use self::waiting::Waiting;
use crate::cleanup::Cleanup;
use crate::context::{Answer, Context, write_outcome};
use crate::layout::{Layout, check_value};
use crate::session::Session;
use crate::types::{Candidacy, Change, Epoch, Failure, Guard, Selection, Ticket, WriteOutcome};

pub use self::common::Reading;

/// One candidate's part in one election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    common: Common,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle(Idle),
    Claiming(Claiming),
    LostRace(LostRace),
    Waiting(Waiting),
    Leading(Leading),
    Ended(Ended),
    Over(Over),
}

/// What can happen to a candidate. The methods of [`Inputs`] say more.
#[derive(Debug)]
pub enum Input {
    Resign(Epoch),
    Yielded(Epoch),
    Leave,
    Proclaim(Ticket, Vec<u8>),
    Reconcile,
    Due,
    Claimed(Answer),
    PredecessorRead(Answer),
    Checked(Answer),
    Proclaimed { created: Epoch, ticket: Option<Ticket>, outcome: Answer },
    Fenced(Epoch),
    Examine(Reading),
    OwnKeyChanged(Change),
    PredecessorChanged(Change),
}

/// A candidate that knows what has become of the lease, and what it works with.
struct Active<'a> {
    state: &'a mut State,
    cx: CandidateContext<'a>,
}

impl Candidate {
    /// Refuses, with a sentence, what can never be a candidacy.
    pub fn new(candidacy: Candidacy, admitted: u32) -> Result<Candidate, String> {
        let Candidacy { election, name, contest, value, rejoin } = candidacy;
        check_value(&value)?;
        let common = Common {
            election,
            layout: Layout::new(name, contest)?,
            value,
            rejoin,
            admitted,
            lease: 0,
            proclamations: VecDeque::new(),
            proclaiming: false,
            given_up: 0,
            announced: None,
            newest: 0,
            layouts_compared: false,
            failed: 0,
        };
        Ok(Candidate { common, state: State::Idle(Idle { held_back: true }) })
    }

    pub fn layout(&self) -> &Layout {
        &self.common.layout
    }

    /// Whether nothing follows any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// Whether it ends once its present term has yielded. The next candidacy of its name may
    /// wait for that.
    pub fn is_ending(&self) -> bool {
        !self.common.rejoin
            && matches!(self.state, State::Leading(_) | State::Ended(_) | State::Over(_))
    }

    /// The guard of a write in the term of this epoch, if that term stands.
    pub fn guard(&self, epoch: Epoch) -> Option<Guard> {
        let State::Leading(leading) = &self.state else { return None };
        leading.guard(&self.common.layout, epoch)
    }

    /// The reads of the keys that the present state relies on.
    pub fn selections(&mut self) -> Vec<Selection> {
        self.state.inputs().selections()
    }

    /// Begins, unless it has. Its epochs come after `newest`.
    pub fn begin(&mut self, newest: Epoch) {
        if let State::Idle(idle) = &mut self.state {
            idle.held_back = false;
        }
        self.common.newest = self.common.newest.max(newest);
    }

    /// Takes an input, after what has become of the lease.
    pub fn take(
        &mut self,
        context: &mut Context,
        cleanup: &mut Cleanup,
        session: &Session,
        input: Input,
    ) {
        let validity = session.validity();
        let common = &mut self.common;
        let cx = CandidateContext { common, context, cleanup, session, validity };
        let mut active = Active { state: &mut self.state, cx };
        active.catch_up();
        active.take(input);
    }
}

impl State {
    fn inputs(&mut self) -> &mut dyn Inputs {
        match self {
            State::Idle(state) => state,
            State::Claiming(state) => state,
            State::LostRace(state) => state,
            State::Waiting(state) => state,
            State::Leading(state) => state,
            State::Ended(state) => state,
            State::Over(state) => state,
        }
    }
}

impl Active<'_> {
    /// Takes what has become of the lease since the last input.
    fn catch_up(&mut self) {
        let (validity, lease) = (self.cx.validity, self.cx.common.lease);
        if lease != 0 && validity.is_none_or(|validity| validity.lease != lease) {
            // The claims that were given up went with the lease.
            self.cx.common.given_up = 0;
            let next = self.state.inputs().lease_lost(&mut self.cx);
            self.enter(next);
            self.cx.common.lease = 0;
        }
        if let Some(failure) = self.cx.session.refusal(self.cx.common.admitted) {
            let next = self.state.inputs().refused(&mut self.cx, failure.clone());
            self.enter(next);
        }
        if let Some(validity) = validity {
            let next = self.state.inputs().validity_changed(&mut self.cx, validity);
            self.enter(next);
        }
    }

    fn take(&mut self, input: Input) {
        let (state, cx) = (self.state.inputs(), &mut self.cx);
        let next = match input {
            Input::Resign(epoch) => state.resign(cx, epoch),
            Input::Yielded(epoch) => {
                let next = state.resign(cx, epoch);
                self.enter(next);
                self.state.inputs().yielded(&mut self.cx, epoch)
            }
            Input::Leave => {
                cx.common.rejoin = false;
                state.leave(cx)
            }
            Input::Proclaim(ticket, value) => return self.proclaim(ticket, value),
            Input::Reconcile => match cx.validity {
                Some(validity) => state.reconcile(cx, validity),
                None => Next::Stay,
            },
            Input::Due => state.due(cx),
            Input::Claimed(outcome) => state.claimed(cx, outcome),
            Input::PredecessorRead(outcome) => state.predecessor_read(cx, outcome),
            Input::Checked(outcome) => state.checked(cx, outcome),
            Input::Proclaimed { created, ticket, outcome } => {
                return self.proclaimed(created, ticket, write_outcome(outcome));
            }
            Input::Fenced(epoch) => state.fenced(cx, epoch),
            Input::Examine(reading) => state.examine(cx, reading),
            Input::OwnKeyChanged(change) => state.own_key_changed(cx, change),
            Input::PredecessorChanged(change) => state.predecessor_changed(cx, change),
        };
        self.enter(next);
    }

    /// Changes what others read of this candidate.
    fn proclaim(&mut self, ticket: Ticket, value: Vec<u8>) {
        if let Err(sentence) = check_value(&value) {
            let outcome = WriteOutcome::Failed(Failure::Invalid(sentence));
            return self.cx.context.written(ticket, outcome);
        }
        let proclamation = Proclamation { ticket: Some(ticket), value };
        self.cx.common.proclamations.push_back(proclamation);
        self.state.inputs().proclaim_next(&mut self.cx);
    }

    /// Takes the answer to a proclamation into the key that was created at `created`.
    fn proclaimed(&mut self, created: Epoch, ticket: Option<Ticket>, outcome: WriteOutcome) {
        self.cx.common.proclaiming = false;
        let stale = outcome == WriteOutcome::Stale;
        if let Some(ticket) = ticket {
            self.cx.context.written(ticket, outcome);
        }
        if stale {
            self.take(Input::Fenced(created));
        }
        self.state.inputs().proclaim_next(&mut self.cx);
    }

    /// The only change of state.
    fn enter(&mut self, next: Next) {
        let cx = &mut self.cx;
        *self.state = match next {
            Next::Stay => return,
            Next::Idle(pause) => State::Idle(Idle::enter(cx, pause)),
            Next::Claiming { key, lease, watch } => {
                State::Claiming(Claiming::enter(cx, key, lease, watch))
            }
            Next::LostRace { key, watch, rival, seen } => {
                State::LostRace(LostRace::enter(cx, key, watch, rival, seen))
            }
            Next::Waiting(own) => State::Waiting(Waiting::enter(cx, own)),
            Next::Leading { own, validity, seen } => {
                State::Leading(Leading::enter(cx, own, validity, seen))
            }
            Next::Ended { own, key_remains, until, reason } => {
                let (ended, next) = Ended::enter(cx, own, key_remains, until, reason);
                *self.state = State::Ended(ended);
                return self.enter(next);
            }
            Next::Over => State::Over(Over::enter(cx)),
        };
    }
}
