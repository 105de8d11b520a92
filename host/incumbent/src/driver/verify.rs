//! What the driver verifies of the elector: this is a trust boundary. An elector that breaks
//! one of these rules is replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::CandidateState;
use crate::elector::ComponentError;
use crate::term::Validity;
use crate::types::{
    Call, ElectionId, Epoch, Leadership, LeaseId, Mark, Operation, Reply, RequestId, Response, Term,
};

/// How many calls and how many watches an elector may have under way: each of the 10,000
/// elections that it may hold needs four of each at most.
const UNDER_WAY: usize = 100_000;

pub(super) type Verified<T = ()> = Result<T, ComponentError>;

/// What the elector has under way, and what the store has granted.
#[derive(Default)]
pub(super) struct Ledger {
    /// With what a grant or a renewal may prove: that the lease lives on for a time, from
    /// this mark on.
    calls: BTreeMap<RequestId, Option<(LeaseId, Mark)>>,
    watches: BTreeSet<RequestId>,
    /// How long the store lets the leases live, by its answers.
    granted: BTreeMap<LeaseId, Mark>,
}

impl Ledger {
    /// Each request has an id of its own, and there is a limit to how many are under way.
    pub(super) fn call(&mut self, now: Mark, call: &Call) -> Verified {
        let may_prove = match &call.operation {
            Operation::Grant(grant) => Some((grant.lease.into(), now)),
            Operation::KeepAlive(lease) => Some(((*lease).into(), now)),
            Operation::Revoke(_)
            | Operation::Claim(_)
            | Operation::Read(_)
            | Operation::Guarded(_) => None,
        };
        let is_new = self.calls.insert(call.id, may_prove).is_none();
        admit("calls", call.id, is_new, self.calls.len())
    }

    pub(super) fn watch(&mut self, id: RequestId) -> Verified {
        let is_new = self.watches.insert(id);
        admit("watches", id, is_new, self.watches.len())
    }

    pub(super) fn unwatch(&mut self, id: RequestId) {
        self.watches.remove(&id);
    }

    /// The store has answered a call.
    pub(super) fn answered(&mut self, now: Mark, reply: &Reply) {
        let proves = self.calls.remove(&reply.id).flatten();
        let Ok(Response::Granted(time) | Response::Renewed(time)) = &reply.outcome else {
            return;
        };
        if let Some((lease, sent)) = proves {
            if let Ok(Response::Granted(_)) = reply.outcome {
                self.granted.retain(|_, until| *until > now);
            }
            let until = self.granted.entry(lease).or_default();
            *until = sent.saturating_add(*time).max(*until);
        }
    }

    /// How long the longest lease lives on.
    pub(super) fn longest_lease(&self, now: Mark) -> u64 {
        self.granted.values().map(|until| until.saturating_sub(now)).max().unwrap_or_default()
    }

    /// No term stands for longer than the store has granted.
    pub(super) fn valid_until(&self, lease: LeaseId, valid_until: Mark) -> Verified {
        if self.granted.get(&lease).is_some_and(|until| valid_until <= *until) {
            return Ok(());
        }
        Err(broken(format!(
            "lease {lease} would be valid until {valid_until}, beyond what the store has granted"
        )))
    }
}

fn admit(what: &str, id: RequestId, is_new: bool, under_way: usize) -> Verified {
    if !is_new {
        return Err(broken(format!("it uses the request {id} twice")));
    }
    if under_way > UNDER_WAY {
        return Err(broken(format!("it has more than {UNDER_WAY} {what} under way")));
    }
    Ok(())
}

/// Only an idle candidate comes to lead, with a later epoch than before, and before the
/// deadline.
pub(super) fn may_lead(candidate: &CandidateState, now: Mark, leadership: &Leadership) -> Verified {
    let Term { election, epoch } = leadership.term;
    if candidate.is_idle()
        && Epoch::from(epoch) > candidate.last_epoch
        && now < leadership.valid_until
    {
        return Ok(());
    }
    Err(broken(format!("candidacy {election} cannot lead in epoch {epoch}")))
}

/// A lease is not valid for shorter than before.
pub(super) fn not_shortened(lease: LeaseId, before: &Validity, valid_until: Mark) -> Verified {
    let earlier = before.deadline();
    if earlier <= valid_until {
        return Ok(());
    }
    Err(broken(format!(
        "lease {lease} would be valid until {valid_until}, and was until {earlier} before"
    )))
}

/// Only the term that a candidate leads is extended, endangered or ended.
pub(super) fn leads(candidate: &CandidateState, term: Term) -> Verified {
    if candidate.led().is_some_and(|led| led.id == term) {
        return Ok(());
    }
    Err(broken(format!("candidacy {} does not lead in epoch {}", term.election, term.epoch)))
}

/// Each notice names a registrant of the right kind.
pub(super) fn misnamed(election: ElectionId) -> ComponentError {
    broken(format!("it names election {election}, which is unknown or of another kind"))
}

pub(super) fn broken(rule: impl Into<String>) -> ComponentError {
    ComponentError::Step(rule.into())
}
