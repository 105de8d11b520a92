//! Deletes keys of ours: of terms that ended, of candidates that left, keys that somebody
//! overwrote, and what claims make that were given up and may still land.
//!
//! No key is claimed while a deletion of it is under way. That keeps an ended epoch dead.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::context::{Answer, Context, Dirty, Purpose, WatchHandle, Watcher, unfit};
use crate::ids::DeletionId;
use crate::layout::{Layout, NameHash, hash, point_of_key};
use crate::table::{Table, with_first};
use crate::timers::{SECOND, Timer};
use crate::types::{
    Change, Duration, ElectionId, Entry, Epoch, Failure, Guarded, LeaseId, Mutation, Operation,
    RequestId, Response,
};

/// The longest pause before the next try of a deletion that the store did not allow. The tries go
/// on, because a dead key must not stand in front of a queue for as long as others keep its lease.
const REFUSED: Duration = 10 * SECOND;

/// All pending deletions. They are of keys under the present lease, because the end of a lease
/// deletes its keys anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cleanup {
    last: DeletionId,
    /// Boxed, because each removal moves the rows behind it in their run.
    pending: Table<DeletionId, Box<PendingDeletion>>,
    by_key: Table<(NameHash, DeletionId), ()>,
    /// How many keys are being deleted, and need the lease to live until then.
    deleting: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PendingDeletion {
    abandoned: AbandonedKey,
    /// Of the key.
    hash: NameHash,
    /// Failures in a row.
    failed: u32,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The claim of a candidate that left has no answer yet.
    Claiming(RequestId),
    /// The key is there, and is being deleted.
    Deleting { created: Epoch, call: Option<RequestId> },
    /// The store did not let us delete the key. The next try is seconds away, and the lease's end
    /// may come first.
    Refused { created: Epoch, failure: Failure },
    /// The key is not there, but may turn up.
    Waiting { call: Option<RequestId> },
}

/// A key that a candidate leaves behind in the store, or that may still turn up there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AbandonedKey {
    pub layout: Layout,
    pub key: Vec<u8>,
    pub lease: LeaseId,
    /// Claims of the key that were given up, and may still land.
    pub given_up: u32,
    /// The newest create revision that the key had and does not have any more. A watch may report
    /// it late.
    pub last_created: Epoch,
    /// A watch of the key. Only a key that may turn up needs one.
    pub watch: Option<WatchHandle>,
    /// Whose key it is, or was.
    pub election: ElectionId,
    /// Whether that candidacy is over once the key is gone.
    pub is_last: bool,
    /// Whether the next term may be handed over once the key is gone.
    pub hands_over: bool,
}

impl Cleanup {
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether a key may not be claimed yet.
    pub fn blocks(&self, key: &[u8]) -> bool {
        self.of(key).any(|(_, pending)| !matches!(pending.phase, Phase::Waiting { .. }))
    }

    /// Why a key cannot be deleted, and so not be claimed either.
    pub fn refusal(&self, key: &[u8]) -> Option<&Failure> {
        self.of(key).find_map(|(_, pending)| match &pending.phase {
            Phase::Refused { failure, .. } => Some(failure),
            Phase::Claiming(_) | Phase::Deleting { .. } | Phase::Waiting { .. } => None,
        })
    }

    /// Whether any deletion needs the lease to live until it is done.
    pub fn needs_lease(&self) -> bool {
        self.deleting > 0
    }

    /// Stops waiting for a key to turn up, because it is claimed again. Returns how many claims
    /// may still land.
    pub fn absorb(&mut self, context: &mut Context, key: &[u8]) -> u32 {
        let absorbed: Vec<DeletionId> = self
            .of(key)
            .filter(|(_, pending)| matches!(pending.phase, Phase::Waiting { .. }))
            .map(|(id, _)| id)
            .collect();
        absorbed
            .into_iter()
            .filter_map(|id| self.close(context, id))
            .map(|abandoned| abandoned.given_up)
            .sum()
    }

    /// The first deletion that is not before this one.
    pub fn next(&self, from: DeletionId) -> Option<DeletionId> {
        self.pending.next(&from).map(|(id, _)| id)
    }

    /// The first deletion that is not before this one and whose lease is gone, or about to be
    /// revoked.
    pub fn next_behind(&self, context: &Context, from: DeletionId) -> Option<DeletionId> {
        self.pending.find(from, |pending| pending.is_behind(context))
    }

    /// The deletion, if it goes on.
    fn current(&mut self, context: &mut Context, id: DeletionId) -> Option<&mut PendingDeletion> {
        if self.pending.get(&id).is_some_and(|pending| pending.is_behind(context)) {
            self.close(context, id);
        }
        self.get_mut(id)
    }

    fn get_mut(&mut self, id: DeletionId) -> Option<&mut PendingDeletion> {
        self.pending.get_mut(&id).map(|pending| &mut **pending)
    }

    /// The key that may turn up. The regular check of all watches reads it.
    pub fn awaited(&self, id: DeletionId) -> Option<&[u8]> {
        let pending = self.pending.get(&id)?;
        matches!(pending.phase, Phase::Waiting { .. }).then_some(&pending.abandoned.key)
    }

    /// Takes what that check found.
    pub fn examine(&mut self, context: &mut Context, id: DeletionId, found: &[Entry]) {
        if self.current(context, id).is_some()
            && let Some(entry) = found.first()
        {
            self.turned_up(context, id, entry);
        }
    }

    fn of(&self, key: &[u8]) -> impl Iterator<Item = (DeletionId, &PendingDeletion)> {
        with_first(&self.by_key, hash(key))
            .filter_map(|id| Some((id, &**self.pending.get(&id)?)))
            .filter(move |(_, pending)| pending.abandoned.key == key)
    }

    // How a deletion begins.

    /// Deletes a key that was created at `created`.
    pub fn delete(&mut self, context: &mut Context, abandoned: AbandonedKey, created: Epoch) {
        let id = self.begin(context, abandoned, Phase::Deleting { created, call: None });
        self.try_again(context, id);
    }

    /// Waits for the answer to a claim, and deletes the key that the claim made.
    pub fn await_claim(&mut self, context: &mut Context, abandoned: AbandonedKey, call: RequestId) {
        let id = self.begin(context, abandoned, Phase::Claiming(call));
        context.hand_over(call, Purpose::Cleanup(id));
    }

    /// There is no key, but claims were given up: deletes the key that they may make.
    pub fn await_landing(&mut self, context: &mut Context, abandoned: AbandonedKey) {
        let id = self.begin(context, abandoned, Phase::Waiting { call: None });
        self.gone(context, id);
    }

    fn begin(
        &mut self,
        context: &mut Context,
        abandoned: AbandonedKey,
        phase: Phase,
    ) -> DeletionId {
        self.last += 1;
        let id = self.last;
        if let Some(watch) = abandoned.watch {
            context.hand_watch_over(watch, abandoned.watcher(id));
        }
        let hash = hash(&abandoned.key);
        self.by_key.insert((hash, id), ());
        self.deleting += u32::from(phase.is_deleting());
        context.lease_is_dirty = true;
        self.pending.insert(id, Box::new(PendingDeletion { abandoned, hash, failed: 0, phase }));
        id
    }

    fn set_phase(&mut self, id: DeletionId, phase: Phase) {
        if let Some(pending) = self.pending.get_mut(&id) {
            self.deleting += u32::from(phase.is_deleting());
            self.deleting -= u32::from(pending.phase.is_deleting());
            pending.phase = phase;
        }
    }

    // How it goes on.

    /// Takes the next step of a deletion: the first one, or one that failed.
    pub fn try_again(&mut self, context: &mut Context, id: DeletionId) {
        let Some(PendingDeletion { phase, .. }) = self.current(context, id) else { return };
        if let &mut Phase::Refused { created, .. } = phase {
            self.set_phase(id, Phase::Deleting { created, call: None });
        }
        let Some(PendingDeletion { abandoned, phase, .. }) = self.get_mut(id) else {
            return;
        };
        phase.release(context, id);
        let AbandonedKey { layout, key, lease, .. } = abandoned;
        match phase {
            Phase::Deleting { created, call } => {
                let guarded = Guarded {
                    mutations: [Mutation::Delete(key.clone())].into(),
                    guard: layout.deletion_guard(key.clone(), *created, *lease),
                    expect: Vec::new(),
                };
                *call = Some(context.call(Purpose::Cleanup(id), Operation::Guarded(guarded)));
            }
            Phase::Waiting { call } => {
                let read = Operation::Read([point_of_key(key.clone())].into());
                *call = Some(context.call(Purpose::Cleanup(id), read));
            }
            Phase::Claiming(_) | Phase::Refused { .. } => {}
        }
    }

    /// Takes the answer to the call of a deletion.
    pub fn answered(&mut self, context: &mut Context, id: DeletionId, outcome: Answer) {
        let Some(pending) = self.current(context, id) else { return };
        let PendingDeletion { abandoned, failed, phase, .. } = pending;
        match (phase, outcome) {
            (Phase::Claiming(_), Ok(Response::Claimed(claimed)))
                if claimed.entry.lease == abandoned.lease =>
            {
                self.found(context, id, &claimed.entry);
            }
            // An earlier try of ours made it.
            (Phase::Claiming(_), Ok(Response::Taken(claimed)))
                if claimed.entry.lease == abandoned.lease =>
            {
                abandoned.given_up = abandoned.given_up.saturating_sub(1);
                self.found(context, id, &claimed.entry);
            }
            (Phase::Claiming(_), Err(Failure::Denied(_) | Failure::Invalid(_)) | Ok(_)) => {
                self.gone(context, id);
            }
            (Phase::Claiming(_), Err(_)) => {
                abandoned.given_up = abandoned.given_up.saturating_add(1);
                self.gone(context, id);
            }
            // Stale: a key of this create revision is not there, and never will be.
            (Phase::Deleting { created, .. }, Ok(Response::Applied(_) | Response::Stale)) => {
                abandoned.last_created = abandoned.last_created.max(*created);
                self.gone(context, id);
            }
            (
                Phase::Deleting { created, .. },
                Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))),
            ) => {
                let created = *created;
                self.refused(context, id, created, failure);
            }
            (Phase::Waiting { call }, Ok(Response::Snapshot(snapshot))) => {
                *call = None;
                *failed = 0;
                if let Some(entry) = snapshot.found.into_iter().flatten().next() {
                    self.turned_up(context, id, &entry);
                }
            }
            (Phase::Deleting { call, .. } | Phase::Waiting { call }, outcome) => {
                *call = None;
                let failure = outcome.err().unwrap_or_else(|| unfit("guarded"));
                context.fail(failed, Timer::Cleanup(id), abandoned.election, failure);
            }
            (Phase::Refused { .. }, _) => {}
        }
    }

    /// Takes what the watch of a key reports that may turn up.
    pub fn watched(&mut self, context: &mut Context, id: DeletionId, change: Change) {
        let Some(pending) = self.current(context, id) else { return };
        let PendingDeletion { abandoned, phase, .. } = pending;
        let Some(watch) = &mut abandoned.watch else { return };
        watch.note(&change);
        match change {
            // A read from before the watch was on may have missed something.
            Change::Started(_) if matches!(phase, Phase::Waiting { .. }) => {
                self.try_again(context, id);
            }
            Change::Put(entry) => self.turned_up(context, id, &entry),
            Change::Started(_) | Change::Deleted(_) | Change::Ended(_) => {}
        }
    }

    /// Says that a candidacy is over: once its last key is deleted, or now.
    pub fn conclude(&mut self, context: &mut Context, layout: &Layout, election: ElectionId) {
        let last = context.lease.and_then(|lease| {
            self.of(&layout.key(lease)).find_map(
                |(id, PendingDeletion { abandoned, phase, .. })| {
                    let deleting = matches!(phase, Phase::Deleting { .. });
                    (deleting && !abandoned.is_last && abandoned.layout == *layout).then_some(id)
                },
            )
        });
        match last.and_then(|id| self.get_mut(id)) {
            Some(PendingDeletion { abandoned, .. }) => {
                (abandoned.election, abandoned.is_last) = (election, true);
            }
            None => context.withdraw(election, None),
        }
    }

    // Steps.

    /// A key is there that may be the awaited one.
    fn turned_up(&mut self, context: &mut Context, id: DeletionId, entry: &Entry) {
        let Some(PendingDeletion { abandoned, phase, .. }) = self.get_mut(id) else {
            return;
        };
        if entry.lease == abandoned.lease
            && entry.created > abandoned.last_created
            && matches!(phase, Phase::Waiting { .. })
        {
            abandoned.given_up = abandoned.given_up.saturating_sub(1);
            self.found(context, id, entry);
        }
    }

    /// The key is there.
    fn found(&mut self, context: &mut Context, id: DeletionId, entry: &Entry) {
        if let Some(pending) = self.get_mut(id) {
            pending.phase.release(context, id);
            pending.failed = 0;
            self.set_phase(id, Phase::Deleting { created: entry.created, call: None });
            self.try_again(context, id);
        }
    }

    /// The key is not there, or not there any more.
    fn gone(&mut self, context: &mut Context, id: DeletionId) {
        self.withdraw(context, id, None);
        let Some(pending) = self.get_mut(id) else { return };
        if pending.abandoned.given_up == 0 {
            self.close(context, id);
            return;
        }
        pending.phase.release(context, id);
        pending.failed = 0;
        pending.abandoned.handed_over(context);
        pending.abandoned.changed(context);
        self.set_phase(id, Phase::Waiting { call: None });
        let Some(PendingDeletion { abandoned, .. }) = self.get_mut(id) else { return };
        match &abandoned.watch {
            Some(watch) if watch.started.is_some() => self.try_again(context, id),
            // Reads once the watch is on.
            Some(_) => {}
            None => {
                let watcher = abandoned.watcher(id);
                abandoned.watch = Some(context.watch(watcher, abandoned.key.clone(), false));
            }
        }
    }

    /// The store does not let us delete the key for now.
    fn refused(&mut self, context: &mut Context, id: DeletionId, created: Epoch, failure: Failure) {
        self.set_phase(id, Phase::Refused { created, failure: failure.clone() });
        let Some(PendingDeletion { abandoned, failed, .. }) = self.get_mut(id) else {
            return;
        };
        abandoned.changed(context);
        *failed = failed.saturating_add(1);
        if *failed == 1 && !abandoned.is_last {
            context.trouble(Some(abandoned.election), failure.clone());
        }
        let pause = REFUSED / 2 + context.random.below(REFUSED / 2);
        context.set_timer(Timer::Cleanup(id), pause);
        self.withdraw(context, id, Some(failure));
    }

    /// Says that the candidacy is over, once.
    fn withdraw(&mut self, context: &mut Context, id: DeletionId, cause: Option<Failure>) {
        if let Some(PendingDeletion { abandoned, .. }) = self.get_mut(id)
            && core::mem::take(&mut abandoned.is_last)
        {
            context.withdraw(abandoned.election, cause);
        }
    }

    /// Ends a deletion: its key is gone, or claimed again, or its lease is over and the key with it.
    pub fn close(&mut self, context: &mut Context, id: DeletionId) -> Option<AbandonedKey> {
        let mut pending = self.pending.remove(&id)?;
        if pending.abandoned.is_last {
            context.withdraw(pending.abandoned.election, None);
        }
        pending.abandoned.handed_over(context);
        self.deleting -= u32::from(pending.phase.is_deleting());
        pending.phase.release(context, id);
        if let Some(watch) = pending.abandoned.watch {
            context.unwatch(watch);
        }
        self.by_key.remove(&(pending.hash, id));
        match context.lease {
            Some(_) => pending.abandoned.changed(context),
            // Nobody claims a key before there is a lease, and all look at their keys then.
            None => context.lease_is_dirty = true,
        }
        Some(pending.abandoned)
    }
}

impl PendingDeletion {
    fn is_behind(&self, context: &Context) -> bool {
        Some(self.abandoned.lease) != context.lease
    }
}

impl AbandonedKey {
    fn watcher(&self, id: DeletionId) -> Watcher {
        Watcher::Cleanup(id, self.election)
    }

    /// The next term may be handed over.
    fn handed_over(&mut self, context: &mut Context) {
        context.share.under_way -= u32::from(core::mem::take(&mut self.hands_over));
    }

    /// Reconciles the candidates that could not claim the key, and the lease.
    fn changed(&self, context: &mut Context) {
        context.dirty.push_back(Dirty::Name(self.layout.hash));
        context.lease_is_dirty = true;
    }
}

impl Phase {
    fn is_deleting(&self) -> bool {
        match self {
            Phase::Claiming(_) | Phase::Deleting { .. } => true,
            Phase::Refused { .. } | Phase::Waiting { .. } => false,
        }
    }

    /// Forgets the call that is under way, and the next try.
    fn release(&mut self, context: &mut Context, id: DeletionId) {
        context.timers.cancel(Timer::Cleanup(id));
        match self {
            Phase::Claiming(call) => context.forget(Some(*call)),
            Phase::Deleting { call, .. } | Phase::Waiting { call } => context.forget(call.take()),
            Phase::Refused { .. } => {}
        }
    }
}
