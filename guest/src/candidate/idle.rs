//! A candidate without a key.

use super::common::{CandidateContext, Common, Inputs, Next, Pause};
use crate::context::{Context, Watcher};
use crate::session::Validity;
use crate::timers::MILLISECOND;
use crate::types::Failure;
use crate::wish::Wish;

/// The longest pause of a candidate that saw the key of a race go.
const RACE_JITTER: u64 = 10 * MILLISECOND;

/// The shortest pause of a candidate that made room, and half of the longest one.
const ROOM: u64 = 50 * MILLISECOND;

/// Has no key. Waits for a lease, for the end of an older candidacy, for the deletion of an old
/// key, or for a pause to end, and then claims a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Idle {
    /// An older candidacy of the name has not ended yet.
    pub held_back: bool,
}

impl Idle {
    pub fn enter(cx: &mut CandidateContext<'_>, pause: Pause) -> Idle {
        match pause {
            Pause::None => {
                cx.context.timers.cancel(cx.timer());
                // Without a lease there is nothing to claim. A sweep follows the next one.
                if cx.validity.is_some() {
                    cx.context.touch(cx.common.election);
                }
            }
            Pause::BackOff => cx.retry(),
            Pause::Jitter => {
                let pause = 1 + cx.context.random.below(RACE_JITTER);
                cx.context.set_timer(cx.timer(), pause);
            }
            Pause::Room => {
                let pause = ROOM + cx.context.random.below(ROOM);
                cx.context.set_timer(cx.timer(), pause);
            }
        }
        Idle { held_back: false }
    }

    /// Whether something else than the lease has to come before a claim.
    pub fn waits(&self, context: &Context, common: &Common) -> bool {
        self.held_back || context.share.is_drained() || context.timers.is_set(common.timer())
    }
}

impl Inputs for Idle {
    fn wished(&mut self, cx: &mut CandidateContext<'_>, wish: &Wish<'_>) -> Next {
        cx.keep_wish(wish);
        Next::Stay
    }

    fn leave(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        cx.conclude(None)
    }

    fn refused(&mut self, cx: &mut CandidateContext<'_>, cause: Failure) -> Next {
        cx.withdraw(cause)
    }

    /// The pause is over.
    fn due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        cx.context.touch(cx.common.election);
        Next::Stay
    }

    /// Claims a key. This is where a granted lease leads to a claim: when the session gets a
    /// lease, the elector has every candidate catch up and reconcile.
    fn reconcile(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let Some(Validity { lease, .. }) = cx.validity else { return Next::Stay };
        if self.waits(cx.context, cx.common) {
            return Next::Stay;
        }
        let key = cx.common.layout.key(lease);
        if let Some(failure) = cx.cleanup.refusal(&key) {
            let failure = failure.clone();
            return cx.withdraw(failure);
        }
        // The end of the deletion reconciles all candidates of the name.
        if cx.cleanup.blocks(&key) {
            return Next::Stay;
        }
        cx.common.lease = lease;
        cx.common.given_up += cx.cleanup.absorb(cx.context, &key);
        let watcher = Watcher::Own(cx.common.election);
        let watch = cx.context.watch(watcher, key.clone(), false);
        Next::Claiming { key, lease, watch }
    }
}
