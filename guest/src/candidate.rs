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
mod own_wish;
mod place;
mod predecessor;
mod priority;
mod round;
mod waiting;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use self::claiming::Claiming;
use self::common::Common;
use self::ended::Ended;
use self::idle::Idle;
use self::leading::Leading;
use self::lost_race::LostRace;
use self::over::Over;
use self::priority::Priority;
use self::round::Round;
use self::waiting::Waiting;
use crate::cleanup::Cleanup;
use crate::context::Context;
use crate::layout::{Layout, check_value, wishes_of};
use crate::session::Session;
use crate::types::{Candidacy, Contest, Entry, Epoch, Guard, Selection};

pub use self::common::{CandidateContext, Inputs, Next, Reading};
pub use self::own_wish::delete_wish;

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

impl Candidate {
    /// Refuses, with a sentence, what can never be a candidacy.
    pub fn new(candidacy: Candidacy, admitted: u32) -> Result<Candidate, String> {
        let Candidacy { election, name, contest, value, rejoin, priority, preempt_after } =
            candidacy;
        check_value(&value)?;
        // A race has no line.
        let priority = if contest == Contest::Queue { priority } else { 0 };
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
            newest_is_of_name: false,
            layouts_compared: false,
            failed: 0,
            named_until: 0,
            hands_over: false,
            priority: Priority::new(priority, preempt_after),
            round: Round::default(),
            pending_wishes: Vec::new(),
            wishes_known_at: 0,
            reported_foreign_key: false,
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
        leading.guard(epoch)
    }

    /// Whether it leads, and does not hand over yet. A term that came back leads on for a while,
    /// because others have enough as well.
    pub fn may_hand_over(&self, context: &Context) -> bool {
        self.leads()
            && !self.common.hands_over
            && (context.share.is_drained()
                || self.common.priority.leads_until <= context.now
                    && !self.common.has_handed_on(context))
    }

    /// Whether it is first in line, and waits for the lease to be renewed.
    pub fn is_overdue(&self) -> bool {
        matches!(&self.state, State::Waiting(waiting) if waiting.is_overdue())
    }

    pub fn leads(&self) -> bool {
        matches!(self.state, State::Leading(_))
    }

    /// How many candidates are in line behind it, by what was found at `Layout::newest`; none if it
    /// does not lead any more.
    pub fn followers(&self, found: &[Entry]) -> Option<u32> {
        let State::Leading(leading) = &self.state else { return None };
        let follows = |it: &&Entry| self.common.layout.counts(it) && leading.is_before(it);
        Some(found.iter().filter(follows).count() as u32)
    }

    /// The reads of the keys that the present state relies on, and of wishes that it may have missed.
    pub fn selections(&mut self, context: &Context) -> Vec<Selection> {
        let mut selections = self.state.inputs().selections();
        if self.misses_wishes(context) {
            selections.push(wishes_of(&self.common.layout.name));
        }
        selections
    }

    /// Whether it should know of wishes that it may not have heard.
    pub fn misses_wishes(&self, context: &Context) -> bool {
        matches!(self.state, State::Waiting(_) | State::Leading(_))
            && self.common.misses_wishes(context)
    }

    /// Begins, unless it has. Its epochs come after `newest`.
    pub fn begin(&mut self, newest: Epoch) {
        if let State::Idle(idle) = &mut self.state {
            idle.held_back = false;
        }
        if newest > self.common.newest {
            (self.common.newest, self.common.newest_is_of_name) = (newest, false);
        }
    }

    /// Whether it has something to do that cannot wait for its next input: it can claim, it is
    /// over, or what has become of the lease or the elector asks something of its present state.
    pub fn is_behind(&self, context: &Context, session: &Session, closing: bool) -> bool {
        if closing {
            return self.common.rejoin || !matches!(self.state, State::Ended(_));
        }
        let validity = session.validity();
        let lost = || validity.is_none_or(|validity| validity.lease != self.common.lease);
        let refused = || session.refusal(self.common.admitted).is_some();
        match &self.state {
            State::Idle(idle) => {
                refused() || validity.is_some() && !idle.waits(context, &self.common)
            }
            State::Claiming(_) => refused() || lost(),
            State::LostRace(_) => refused(),
            State::Waiting(waiting) => {
                let valid = validity.is_some_and(|validity| validity.until > context.now);
                lost() || valid && waiting.is_overdue() || context.share.is_drained()
            }
            State::Leading(leading) => {
                lost() || validity.is_some_and(|it| leading.is_behind(context.now, it))
            }
            // The key that went with the lease is noted with the next input.
            State::Ended(_) => false,
            State::Over(_) => true,
        }
    }

    /// Has the present state take an input, after what has become of the lease.
    pub fn take(
        &mut self,
        context: &mut Context,
        cleanup: &mut Cleanup,
        session: &Session,
        input: impl FnOnce(&mut dyn Inputs, &mut CandidateContext<'_>) -> Next,
    ) {
        let (common, validity) = (&mut self.common, session.validity());
        let mut cx = CandidateContext { common, context, cleanup, session, validity };
        self.state.catch_up(&mut cx);
        let next = input(self.state.inputs(), &mut cx);
        self.state.enter(&mut cx, next);
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

    /// Takes what has become of the lease since the last input.
    fn catch_up(&mut self, cx: &mut CandidateContext<'_>) {
        let (validity, lease) = (cx.validity, cx.common.lease);
        if lease != 0 && validity.is_none_or(|validity| validity.lease != lease) {
            // The claims that were given up went with the lease.
            cx.common.given_up = 0;
            cx.common.priority.lease_lost();
            cx.common.round = Round::default();
            let next = self.inputs().lease_lost(cx);
            self.enter(cx, next);
            cx.common.lease = 0;
        }
        if let Some(failure) = cx.session.refusal(cx.common.admitted) {
            let next = self.inputs().refused(cx, failure.clone());
            self.enter(cx, next);
        }
        if let Some(validity) = validity {
            let next = self.inputs().validity_changed(cx, validity);
            self.enter(cx, next);
        }
    }

    /// The only change of state.
    fn enter(&mut self, cx: &mut CandidateContext<'_>, next: Next) {
        *self = match next {
            Next::Stay => return,
            Next::Idle(pause) => State::Idle(Idle::enter(cx, pause)),
            Next::Claiming { key, lease, watch } => {
                State::Claiming(Claiming::enter(cx, key, lease, watch))
            }
            Next::LostRace { key, watch, rival, seen } => {
                State::LostRace(LostRace::enter(cx, key, watch, rival, seen))
            }
            Next::Waiting(own) => State::Waiting(Waiting::enter(cx, own)),
            Next::Leading { own, validity, seen, is_read } => {
                State::Leading(Leading::enter(cx, own, validity, seen, is_read))
            }
            Next::Ended { own, key_remains, until, reason } => {
                let (ended, next) = Ended::enter(cx, own, key_remains, until, reason);
                *self = State::Ended(ended);
                return self.enter(cx, next);
            }
            Next::Over => State::Over(Over::enter(cx)),
        };
    }
}
