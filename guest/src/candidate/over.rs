//! A candidacy that is over. The elector removes it, but not always in the same step.

use super::common::{CandidateContext, Inputs};
use crate::timers::Timer;
use crate::types::WriteOutcome;

/// Nothing follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Over;

impl Over {
    pub fn enter(cx: &mut CandidateContext<'_>) -> Over {
        cx.context.timers.cancel(cx.timer());
        cx.context.timers.cancel(Timer::Preempt(cx.common.election));
        cx.context.timers.cancel(Timer::Room(cx.common.election));
        cx.context.timers.cancel(Timer::Wish(cx.common.election));
        cx.common.priority.is_stale = false;
        cx.withdraw_wish();
        cx.context.touch(cx.common.election);
        Over.proclaim_next(cx);
        Over
    }
}

impl Inputs for Over {
    fn proclaim_next(&mut self, cx: &mut CandidateContext<'_>) {
        for proclamation in core::mem::take(&mut cx.common.proclamations) {
            if let Some(ticket) = proclamation.ticket {
                cx.context.written(ticket, WriteOutcome::Stale);
            }
        }
    }
}
