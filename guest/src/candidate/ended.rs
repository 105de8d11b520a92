//! A candidate whose term is over.
//!
//! After the deadline its key is deleted even if the application has not said that the work has
//! stopped, because a candidate that never says so must not block the queue. The candidate itself
//! campaigns again only once the application has said so.

use alloc::vec::Vec;

use super::common::{CandidateContext, Inputs, Next, OwnKey, Pause};
use crate::types::{Demotion, Epoch, LeaseId, Mark, Notice, Reason, Term};

/// Led, and waits for the application to say that the work has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ended {
    key: Vec<u8>,
    lease: LeaseId,
    epoch: Epoch,
    /// The key may still be in the store.
    key_remains: bool,
    /// The term's deadline, as it was when the term ended.
    until: Mark,
}

impl Ended {
    pub fn enter(
        cx: &mut CandidateContext<'_>,
        own: OwnKey,
        key_remains: bool,
        until: Mark,
        reason: Reason,
    ) -> (Ended, Next) {
        let OwnKey { key, lease, created: epoch, .. } = own;
        let mut ended = Ended { key, lease, epoch, key_remains, until };
        let term = Term { election: cx.common.election, epoch };
        cx.context.notify(Notice::Demoted(Demotion { term, reason }));
        let next = if until <= cx.context.now {
            ended.release(cx)
        } else {
            cx.context.timers.set(cx.timer(), until);
            Next::Stay
        };
        (ended, next)
    }

    /// The work has stopped, or the deadline has passed: deletes the key, and ends the candidacy
    /// unless it rejoins. The deadline is enough, because others rely on nothing else.
    fn release(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let key_remained = core::mem::replace(&mut self.key_remains, false);
        if key_remained {
            let abandoned = cx.abandon(self.key.clone(), self.lease, None);
            cx.cleanup.delete(cx.context, abandoned, self.epoch);
        }
        match (cx.common.rejoin, key_remained) {
            (true, _) => Next::Stay,
            (false, true) => Next::Over,
            (false, false) => cx.conclude(None),
        }
    }
}

impl Inputs for Ended {
    fn yielded(&mut self, cx: &mut CandidateContext<'_>, epoch: Epoch) -> Next {
        if self.epoch != epoch {
            return Next::Stay;
        }
        let next = self.release(cx);
        if cx.common.rejoin { Next::Idle(Pause::None) } else { next }
    }

    fn leave(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        match !self.key_remains && self.until <= cx.context.now {
            true => self.release(cx),
            false => Next::Stay,
        }
    }

    fn lease_lost(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        cx.handed_over();
        self.key_remains = false;
        Next::Stay
    }

    fn due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.release(cx)
    }
}
