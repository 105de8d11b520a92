//! A candidate that asks the store for its key.

use alloc::vec::Vec;

use super::common::{
    CandidateContext, Inputs, Next, OwnKey, Pause, Proclamation, WENT_BACK, other,
};
use crate::context::{Answer, Purpose, WatchHandle, unfit};
use crate::types::{
    Change, Claim, Contest, Entry, Failure, LeaseId, Operation, RequestId, Response,
};
use crate::wish::Wish;

/// Asked for its key, and waits for the answer or for the next try.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claiming {
    key: Vec<u8>,
    lease: LeaseId,
    watch: WatchHandle,
    /// None while the next try waits for its timer.
    call: Option<RequestId>,
}

impl Claiming {
    pub fn enter(
        cx: &mut CandidateContext<'_>,
        key: Vec<u8>,
        lease: LeaseId,
        watch: WatchHandle,
    ) -> Claiming {
        let mut claiming = Claiming { key, lease, watch, call: None };
        claiming.send(cx);
        claiming
    }

    fn send(&mut self, cx: &mut CandidateContext<'_>) {
        let purpose = Purpose::Claim { election: cx.common.election, lease: self.lease };
        let (key, value) = (self.key.clone(), cx.common.value.clone());
        let claim = Claim { key, value, lease: self.lease };
        self.call = Some(cx.context.call(purpose, Operation::Claim(claim)));
    }

    /// The key is ours. A predecessor check has to show whether it leads.
    fn succeeded(&mut self, cx: &mut CandidateContext<'_>, entry: &Entry) -> Next {
        let key = core::mem::take(&mut self.key);
        if entry.created <= cx.common.newest {
            cx.record_failure(other(WENT_BACK));
            return cx.clear(key, self.lease, self.watch, entry.created);
        }
        let Claiming { lease, watch, .. } = *self;
        Next::Waiting(OwnKey { key, lease, created: entry.created, watch })
    }

    /// The claim may still land. The next one will tell.
    fn failed(&mut self, cx: &mut CandidateContext<'_>, failure: Failure) -> Next {
        cx.common.given_up = cx.common.given_up.saturating_add(1);
        cx.try_later(failure)
    }

    fn release(&mut self, cx: &mut CandidateContext<'_>) {
        cx.context.forget(self.call.take());
        cx.context.unwatch(self.watch);
    }
}

impl Inputs for Claiming {
    fn wished(&mut self, cx: &mut CandidateContext<'_>, wish: &Wish<'_>) -> Next {
        cx.keep_wish(wish);
        Next::Stay
    }

    fn leave(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        let Some(call) = self.call else {
            return cx.conclude(Some(self.watch));
        };
        let abandoned = cx.abandon(core::mem::take(&mut self.key), self.lease, Some(self.watch));
        cx.cleanup.await_claim(cx.context, abandoned, call);
        Next::Over
    }

    fn lease_lost(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.release(cx);
        Next::Idle(Pause::None)
    }

    fn refused(&mut self, cx: &mut CandidateContext<'_>, cause: Failure) -> Next {
        self.release(cx);
        cx.withdraw(cause)
    }

    fn due(&mut self, cx: &mut CandidateContext<'_>) -> Next {
        self.send(cx);
        Next::Stay
    }

    fn claimed(&mut self, cx: &mut CandidateContext<'_>, outcome: Answer) -> Next {
        self.call = None;
        match outcome {
            Ok(Response::Claimed(claimed)) if claimed.entry.lease == self.lease => {
                self.succeeded(cx, &claimed.entry)
            }
            // An earlier try of ours made it, perhaps with an older value.
            Ok(Response::Taken(claimed)) if claimed.entry.lease == self.lease => {
                cx.common.given_up = cx.common.given_up.saturating_sub(1);
                if claimed.entry.value != cx.common.value {
                    let value = cx.common.value.clone();
                    cx.common.proclamations.push_front(Proclamation { ticket: None, value });
                }
                self.succeeded(cx, &claimed.entry)
            }
            Ok(Response::Taken(claimed)) => {
                let (key, watch) = (core::mem::take(&mut self.key), self.watch);
                match cx.common.layout.contest {
                    Contest::Race => {
                        Next::LostRace { key, watch, rival: claimed.entry, seen: claimed.at }
                    }
                    Contest::Queue => {
                        let sentence = "somebody took this candidate's key: it goes";
                        cx.record_failure(other(sentence));
                        cx.clear(key, self.lease, watch, claimed.entry.created)
                    }
                }
            }
            Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => self.refused(cx, failure),
            Ok(_) => self.failed(cx, unfit("claim")),
            Err(failure) => self.failed(cx, failure),
        }
    }

    /// Only the answer to the claim tells whose key the watch reports.
    fn own_key_changed(&mut self, _: &mut CandidateContext<'_>, change: Change) -> Next {
        if !self.watch.note(&change) {
            match change {
                Change::Put(entry) => self.watch.miss(entry.modified),
                Change::Deleted(deletion) => self.watch.miss(deletion.at),
                Change::Started(_) | Change::Ended(_) => {}
            }
        }
        Next::Stay
    }
}
