//! The wish that a candidate with a priority has for itself.

use alloc::vec::Vec;

use super::common::{CandidateContext, OwnKey};
use crate::context::{Answer, Context, Purpose};
use crate::types::{
    Claim, ElectionId, Epoch, Failure, Guard, Guarded, LeaseId, Mutation, Operation, Response,
    Revision,
};
use crate::wish::Wish;

impl CandidateContext<'_> {
    /// Whether this candidate, whose key was created then, makes room as is wished. One that an
    /// operator named does not, unless the operator names another one.
    pub fn makes_room(&self, wish: &Wish<'_>, created: Revision) -> bool {
        (wish.priority.is_none() || !self.common.is_named(self.context.now))
            && self.common.priority.makes_room(wish, created)
    }

    /// Wishes that this candidate is in front of all with a lower priority; and that the term of
    /// an epoch ends now, if that is not 0.
    pub fn prefer(&mut self, own: &OwnKey, epoch: Epoch) {
        let priority = &mut self.common.priority;
        if priority.level != 0 {
            priority.wanted = (epoch, own.created, epoch != 0);
            priority.is_stale = true;
            self.write_wish();
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
            created => guarded(key, created, lease, Mutation::Proclaim(value)),
        };
        self.context.call(Purpose::Wish { election: self.common.election, lease }, operation);
    }

    /// Takes the answer to a write of the wish. Returns whether it has to be written again, after a
    /// pause.
    pub fn wish_written(&mut self, lease: LeaseId, outcome: Answer) -> bool {
        if lease != self.common.lease {
            return false;
        }
        let priority = &mut self.common.priority;
        priority.is_writing = false;
        match outcome {
            Ok(Response::Claimed(claimed)) => priority.created = claimed.entry.created,
            // From an earlier candidacy.
            Ok(Response::Taken(claimed)) if claimed.entry.lease == lease => {
                (priority.created, priority.is_stale) = (claimed.entry.created, true);
            }
            Ok(Response::Stale) => (priority.created, priority.is_stale) = (0, true),
            // It is written, or somebody else has the key, and may keep it.
            Ok(_) => {}
            Err(failure) => {
                // Without the right to write wishes, a candidate is one like all others.
                let fails_again = matches!(failure, Failure::Denied(_) | Failure::Invalid(_));
                priority.is_stale = !fails_again;
                self.record_failure(failure);
                return !fails_again;
            }
        }
        self.write_wish();
        false
    }

    /// Deletes the wish of a candidacy that is over. If that fails, the lease's end does it.
    pub fn withdraw_wish(&mut self) {
        let (lease, created) = (self.common.lease, self.common.priority.created);
        if lease != 0 && created != 0 {
            let key = Wish::key(&self.common.layout.name, lease);
            delete_wish(self.context, self.common.election, lease, key, created);
        }
    }
}

/// Deletes a wish that was created then.
pub fn delete_wish(
    context: &mut Context,
    election: ElectionId,
    lease: LeaseId,
    key: Vec<u8>,
    created: Revision,
) {
    let delete = guarded(key.clone(), created, lease, Mutation::Delete(key));
    context.call(Purpose::Wish { election, lease }, delete);
}

fn guarded(key: Vec<u8>, epoch: Epoch, lease: LeaseId, mutation: Mutation) -> Operation {
    let guard = Guard { key, epoch, lease: Some(lease) };
    Operation::Guarded(Guarded { guard, expect: [].into(), mutations: [mutation].into() })
}
