//! The wish that a candidate has for itself: to be in front of all with a lower priority, and to follow a
//! leader that has led for long enough.

use alloc::vec::Vec;

use super::common::{CandidateContext, OwnKey};
use super::priority::Priority;
use crate::context::{Answer, Context, Purpose, RECHECK};
use crate::timers::Timer;
use crate::types::{
    Claim, Claimed, ElectionId, Epoch, Expectation, Failure, Guard, Guarded, LeaseId, Mutation,
    Operation, Response, Revision,
};
use crate::wish::Wish;

impl CandidateContext<'_> {
    /// Whether this candidate, whose key was created then, makes room as is wished. One that an
    /// operator named does not, unless the operator names another one.
    ///
    /// After it has made room for a priority, it stays for two lease times, and keeps such wishes meanwhile. Who
    /// asks may be killed and come back again and again: then nobody would lead, because its keys, each
    /// of which stays until its lease ends, are in front of everybody else.
    pub fn heeds(&mut self, wish: &Wish<'_>, created: Revision) -> bool {
        let (now, common) = (self.context.now, &mut *self.common);
        if !common.priority.makes_room(wish, created) {
            return false;
        }
        if wish.priority.is_none() {
            return true;
        }
        if common.is_named(now) {
            return false;
        }
        let timer = Timer::Room(common.election);
        if self.context.timers.is_set(timer) {
            self.keep_wish(wish);
            return false;
        }
        self.context.set_timer(timer, self.session.ttl().saturating_mul(2));
        true
    }

    /// Asks those in front with a lower priority to make room; with an epoch, also asks its leader to hand
    /// over. A candidate with priority 0 asks only for the latter.
    pub fn prefer(&mut self, own: &OwnKey, epoch: Epoch) {
        let priority = &mut self.common.priority;
        if priority.level != 0 || epoch != 0 {
            priority.wanted = (epoch, own.created, epoch != 0);
            priority.is_stale = true;
            self.write_wish();
        } else if priority.created != 0 {
            // It was for an earlier key.
            self.withdraw_wish();
            let priority = &mut self.common.priority;
            (priority.created, priority.modified) = (0, None);
        }
    }

    /// Writes the wish, unless a write is under way or the right one is there.
    pub fn write_wish(&mut self) {
        let (lease, priority) = (self.common.lease, &mut self.common.priority);
        if priority.is_writing || !priority.is_stale {
            return;
        }
        (priority.is_writing, priority.is_stale) = (true, false);
        let (epoch, target, now) = priority.wanted;
        let level = Some(priority.level);
        let value = Wish { name: &[], epoch, target, priority: level, now }.text();
        let key = Wish::key(&self.common.layout.name, lease);
        let operation = match priority.created {
            0 => Operation::Claim(Claim { key, value, lease }),
            created => guarded(key, created, lease, None, Mutation::Proclaim(value)),
        };
        priority.modified = None;
        self.context.call(Purpose::Wish { election: self.common.election, lease }, operation);
    }

    /// Takes the answer to a write of the wish.
    pub fn wish_written(&mut self, lease: LeaseId, outcome: Answer) {
        if lease != self.common.lease {
            return;
        }
        let priority = &mut self.common.priority;
        priority.is_writing = false;
        match outcome {
            Ok(Response::Claimed(Claimed { entry, .. })) => {
                (priority.created, priority.modified) = (entry.created, Some(entry.modified));
            }
            Ok(Response::Applied(at)) => priority.modified = Some(at),
            // From an earlier candidacy.
            Ok(Response::Taken(claimed)) if claimed.entry.lease == lease => {
                (priority.created, priority.is_stale) = (claimed.entry.created, true);
            }
            Ok(Response::Stale) => (priority.created, priority.is_stale) = (0, true),
            // It is written, or somebody else has the key, and may keep it.
            Ok(_) => {}
            Err(failure) => {
                priority.is_stale = true;
                let is_refused = matches!(failure, Failure::Denied(_) | Failure::Invalid(_));
                let was_refused = core::mem::replace(&mut priority.is_refused, is_refused);
                if !was_refused {
                    self.record_failure(without_effect(failure));
                }
                let timer = Timer::Wish(self.common.election);
                // Without the right to write wishes, a candidate is one like all others. It may get it later.
                return match is_refused {
                    true => self.context.set_timer(timer, RECHECK),
                    false => self.context.retry(timer, self.common.failed),
                };
            }
        }
        self.write_wish();
    }

    /// Deletes the wish of a candidacy that is over. If that fails, the lease's end does it.
    pub fn withdraw_wish(&mut self) {
        let Priority { created, modified, .. } = self.common.priority;
        let lease = self.common.lease;
        if lease != 0 && created != 0 {
            let key = Wish::key(&self.common.layout.name, lease);
            delete_wish(self.context, self.common.election, lease, key, created, modified);
        }
    }
}

/// Deletes a wish that was created and last changed then, if that is known: the next candidacy of the
/// name on the lease may have taken it over.
pub fn delete_wish(
    context: &mut Context,
    election: ElectionId,
    lease: LeaseId,
    key: Vec<u8>,
    created: Revision,
    modified: Option<Revision>,
) {
    let delete = guarded(key.clone(), created, lease, modified, Mutation::Delete(key));
    context.call(Purpose::Wish { election, lease }, delete);
}

/// The failure to write a wish, with what follows from it.
fn without_effect(failure: Failure) -> Failure {
    let Failure::Denied(why) = &failure else { return failure };
    let follows = "this candidate's priority does not count, because the wish for it, below \
                   `incumbent-wishes/`, may not be written: ";
    Failure::Denied([follows, &**why].concat())
}

fn guarded(
    key: Vec<u8>,
    epoch: Epoch,
    lease: LeaseId,
    modified: Option<Revision>,
    mutation: Mutation,
) -> Operation {
    let expect = modified.map(|modified| Expectation { key: key.clone(), modified });
    let expect = expect.into_iter().collect();
    let guard = Guard { key, epoch, lease: Some(lease) };
    Operation::Guarded(Guarded { guard, expect, mutations: [mutation].into() })
}
