//! Keys of ours that are to go: of terms that ended, of candidates that left, and
//! of claims that were given up and may still land.

use alloc::vec::Vec;

use crate::context::{Context, Dirty, Lookout, Purpose, Watcher};
use crate::layout::{Layout, NameHash, hash, point_of_key};
use crate::session::unfit;
use crate::table::{Table, with_hash};
use crate::timers::{SECOND, Timer};
use crate::types::{
    Change, Duration, ElectionId, Entry, Epoch, Failure, Guarded, LeaseId, Mutation, Notice,
    Operation, RequestId, Response, Withdrawal,
};

/// The longest pause before a removal is tried again that the store did not allow.
const REFUSED: Duration = 10 * SECOND;

/// Names one farewell.
pub type FarewellId = u64;

/// All keys that are to go, under the present lease: it takes them with it. None of
/// them may be claimed anew before it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Farewells {
    last: FarewellId,
    open: Table<FarewellId, Farewell>,
    by_key: Table<(NameHash, FarewellId), ()>,
    /// How many are being removed, and need the lease to live until then.
    removing: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Farewell {
    layout: Layout,
    key: Vec<u8>,
    lease: LeaseId,
    /// Claims of the key that were given up, and may still land.
    given_up: u32,
    /// The newest create revision that the key had: a watch may tell of it late.
    gone: Epoch,
    /// Says where the key turns up; needed where claims were given up.
    lookout: Option<Lookout>,
    /// The candidacy that is over once the key is gone.
    election: Option<ElectionId>,
    failed: u32,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The claim of a candidate that left has no answer yet.
    Claiming(RequestId),
    /// The key is there, and is being removed.
    Removing { created: Epoch, call: Option<RequestId> },
    /// The store does not let us: the lease's end will have to do, unless a try in a
    /// while does.
    Refused { created: Epoch, failure: Failure },
    /// The key is not there, but may turn up.
    Waiting { call: Option<RequestId> },
}

/// What is left of a candidacy in the store.
#[derive(Debug)]
pub struct Remains {
    pub layout: Layout,
    pub key: Vec<u8>,
    pub lease: LeaseId,
    /// Claims of the key that were given up, and may still land.
    pub given_up: u32,
    /// The newest create revision that the key had and does not have any more.
    pub gone: Epoch,
    /// A watch on the key that may be used on.
    pub lookout: Option<Lookout>,
    /// The candidacy that is over once the key is gone; none if it goes on.
    pub election: Option<ElectionId>,
}

impl Farewells {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a key may not be claimed yet.
    pub fn blocks(&self, key: &[u8]) -> bool {
        self.of(key).any(|(_, farewell)| !matches!(farewell.phase, Phase::Waiting { .. }))
    }

    /// Why a key cannot be removed, and so not be claimed either.
    pub fn refusal(&self, key: &[u8]) -> Option<&Failure> {
        self.of(key).find_map(|(_, farewell)| match &farewell.phase {
            Phase::Refused { failure, .. } => Some(failure),
            Phase::Claiming(_) | Phase::Removing { .. } | Phase::Waiting { .. } => None,
        })
    }

    /// Whether anything is being removed that needs the lease to live until then.
    pub fn is_removing(&self) -> bool {
        self.removing > 0
    }

    /// Stops waiting for a key to turn up, because it is claimed again; returns
    /// how many claims may still land.
    pub fn absorb(&mut self, context: &mut Context, key: &[u8]) -> u32 {
        let absorbed: Vec<FarewellId> = self
            .of(key)
            .filter(|(_, farewell)| matches!(farewell.phase, Phase::Waiting { .. }))
            .map(|(id, _)| id)
            .collect();
        absorbed
            .into_iter()
            .filter_map(|id| self.close(context, id))
            .map(|farewell| farewell.given_up)
            .sum()
    }

    /// The first farewell that is not before this one.
    pub fn next(&self, from: FarewellId) -> Option<FarewellId> {
        self.open.next(&from).map(|(id, _)| id)
    }

    /// Ends a farewell whose lease is gone, or about to be revoked, and the key with it.
    /// True if it goes on.
    pub fn is_current(&mut self, context: &mut Context, id: FarewellId) -> bool {
        let current = match self.open.get(&id) {
            Some(farewell) => context.lease == Some(farewell.lease),
            None => return false,
        };
        if !current {
            self.withdraw(context, id, None);
            self.close(context, id);
        }
        current
    }

    /// The key that a farewell waits for, to see whether its watch is silent.
    pub fn awaited(&self, id: FarewellId) -> Option<&[u8]> {
        let farewell = self.open.get(&id)?;
        matches!(farewell.phase, Phase::Waiting { .. }).then_some(&farewell.key)
    }

    /// Takes what a check found at that key.
    pub fn examine(&mut self, context: &mut Context, id: FarewellId, found: &[Entry]) {
        if self.is_current(context, id)
            && let Some(entry) = found.first()
        {
            self.turned_up(context, id, entry);
        }
    }

    fn of(&self, key: &[u8]) -> impl Iterator<Item = (FarewellId, &Farewell)> {
        with_hash(&self.by_key, hash(key))
            .filter_map(|id| Some((id, self.open.get(&id)?)))
            .filter(move |(_, farewell)| farewell.key == key)
    }

    // How a farewell begins.

    /// Removes a key that was created at `created`.
    pub fn remove(&mut self, context: &mut Context, remains: Remains, created: Epoch) {
        let id = self.begin(context, remains, Phase::Removing { created, call: None });
        self.try_again(context, id);
    }

    /// Waits for the answer to a claim, and removes what it made.
    pub fn await_claim(&mut self, context: &mut Context, remains: Remains, call: RequestId) {
        let id = self.begin(context, remains, Phase::Claiming(call));
        context.hand_over(call, Purpose::Farewell(id));
    }

    /// There is no key, but claims that were given up: removes what they make.
    pub fn await_landing(&mut self, context: &mut Context, remains: Remains) {
        let id = self.begin(context, remains, Phase::Waiting { call: None });
        self.gone(context, id);
    }

    fn begin(&mut self, context: &mut Context, remains: Remains, phase: Phase) -> FarewellId {
        self.last += 1;
        let id = self.last;
        if let Some(lookout) = &remains.lookout {
            context.hand_watch_over(lookout, Watcher::Farewell(id));
        }
        let Remains { layout, key, lease, given_up, gone, lookout, election } = remains;
        let failed = 0;
        self.by_key.insert((hash(&key), id), ());
        self.removing += u32::from(phase.is_removing());
        context.lease_is_dirty = true;
        let farewell =
            Farewell { layout, key, lease, given_up, gone, lookout, election, failed, phase };
        self.open.insert(id, farewell);
        id
    }

    fn set_phase(&mut self, id: FarewellId, phase: Phase) {
        if let Some(farewell) = self.open.get_mut(&id) {
            self.removing += u32::from(phase.is_removing());
            self.removing -= u32::from(farewell.phase.is_removing());
            farewell.phase = phase;
        }
    }

    // How it goes on.

    /// Takes the next step of a farewell, the first or one that failed.
    pub fn try_again(&mut self, context: &mut Context, id: FarewellId) {
        if !self.is_current(context, id) {
            return;
        }
        if let Some(Farewell { phase: Phase::Refused { created, .. }, .. }) = self.open.get(&id) {
            let created = *created;
            self.set_phase(id, Phase::Removing { created, call: None });
        }
        let Some(farewell) = self.open.get_mut(&id) else {
            return;
        };
        farewell.phase.quit(context, id);
        match &mut farewell.phase {
            Phase::Removing { created, call } => {
                let guard =
                    farewell.layout.removal_guard(farewell.key.clone(), *created, farewell.lease);
                *call = Some(context.call(
                    Purpose::Farewell(id),
                    Operation::Guarded(Guarded {
                        mutations: [Mutation::Delete(guard.key.clone())].into(),
                        guard,
                        expect: Vec::new(),
                    }),
                ));
            }
            Phase::Waiting { call } => {
                let read = Operation::Read([point_of_key(farewell.key.clone())].into());
                *call = Some(context.call(Purpose::Farewell(id), read));
            }
            Phase::Claiming(_) | Phase::Refused { .. } => {}
        }
    }

    /// Takes the answer to what a farewell asked.
    pub fn answered(
        &mut self,
        context: &mut Context,
        id: FarewellId,
        outcome: Result<Response, Failure>,
    ) {
        if !self.is_current(context, id) {
            return;
        }
        let Some(farewell) = self.open.get_mut(&id) else {
            return;
        };
        match (&mut farewell.phase, outcome) {
            (Phase::Claiming(_), Ok(Response::Claimed(claimed)))
                if claimed.entry.lease == farewell.lease =>
            {
                self.found(context, id, &claimed.entry);
            }
            // An earlier try of ours made it.
            (Phase::Claiming(_), Ok(Response::Taken(claimed)))
                if claimed.entry.lease == farewell.lease =>
            {
                farewell.given_up = farewell.given_up.saturating_sub(1);
                self.found(context, id, &claimed.entry);
            }
            (Phase::Claiming(_), Err(Failure::Denied(_) | Failure::Invalid(_)) | Ok(_)) => {
                self.gone(context, id);
            }
            (Phase::Claiming(_), Err(_)) => {
                farewell.given_up = farewell.given_up.saturating_add(1);
                self.gone(context, id);
            }
            // Stale: a key of this create revision is not there, and never will be.
            (Phase::Removing { created, .. }, Ok(Response::Applied(_) | Response::Stale)) => {
                farewell.gone = farewell.gone.max(*created);
                self.gone(context, id);
            }
            (
                Phase::Removing { created, .. },
                Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))),
            ) => {
                let created = *created;
                self.refused(context, id, created, failure);
            }
            (Phase::Waiting { call }, Ok(Response::Snapshot(snapshot))) => {
                *call = None;
                farewell.failed = 0;
                if let Some(entry) = snapshot.found.into_iter().flatten().next() {
                    self.turned_up(context, id, &entry);
                }
            }
            (Phase::Removing { call, .. } | Phase::Waiting { call }, outcome) => {
                *call = None;
                farewell.failed = farewell.failed.saturating_add(1);
                let failed = farewell.failed;
                let election = farewell.election;
                context.retry(Timer::Farewell(id), failed);
                if failed == 1 {
                    let failure = outcome.err().unwrap_or_else(|| Failure::Other(unfit("guarded")));
                    context.trouble(election, failure);
                }
            }
            (Phase::Refused { .. }, _) => {}
        }
    }

    /// Takes what the watch of a key saw that may turn up.
    pub fn watched(&mut self, context: &mut Context, id: FarewellId, change: Change) {
        if !self.is_current(context, id) {
            return;
        }
        let Some(farewell) = self.open.get_mut(&id) else {
            return;
        };
        let Some(lookout) = &mut farewell.lookout else {
            return;
        };
        match change {
            Change::Started(at) => {
                lookout.started = Some(at);
                // A look from before the watch was on may have missed something.
                if matches!(farewell.phase, Phase::Waiting { .. }) {
                    self.try_again(context, id);
                }
            }
            Change::Put(entry) => self.turned_up(context, id, &entry),
            Change::Deleted(_) => {}
            Change::Ended(_) => lookout.started = None,
        }
    }

    /// Says that a candidacy is over: once its last key is removed, or now.
    pub fn conclude(&mut self, context: &mut Context, layout: &Layout, election: ElectionId) {
        let last = context.lease.and_then(|lease| {
            let removed = |(id, farewell): (FarewellId, &Farewell)| {
                let removing = matches!(farewell.phase, Phase::Removing { .. });
                (removing && farewell.election.is_none() && farewell.layout == *layout)
                    .then_some(id)
            };
            self.of(&layout.key(lease)).find_map(removed)
        });
        match last.and_then(|id| self.open.get_mut(&id)) {
            Some(farewell) => farewell.election = Some(election),
            None => context.notify(Notice::Withdrawn(Withdrawal { election, cause: None })),
        }
    }

    // Steps.

    /// A key turned up that was waited for.
    fn turned_up(&mut self, context: &mut Context, id: FarewellId, entry: &Entry) {
        let Some(farewell) = self.open.get_mut(&id) else {
            return;
        };
        if entry.lease == farewell.lease
            && entry.created > farewell.gone
            && matches!(farewell.phase, Phase::Waiting { .. })
        {
            farewell.given_up = farewell.given_up.saturating_sub(1);
            self.found(context, id, entry);
        }
    }

    /// The key is there.
    fn found(&mut self, context: &mut Context, id: FarewellId, entry: &Entry) {
        if let Some(farewell) = self.open.get_mut(&id) {
            farewell.phase.quit(context, id);
            farewell.failed = 0;
            self.set_phase(id, Phase::Removing { created: entry.created, call: None });
            self.try_again(context, id);
        }
    }

    /// The key is not there, or not there any more.
    fn gone(&mut self, context: &mut Context, id: FarewellId) {
        self.withdraw(context, id, None);
        let Some(farewell) = self.open.get_mut(&id) else {
            return;
        };
        if farewell.given_up == 0 {
            self.close(context, id);
            return;
        }
        farewell.phase.quit(context, id);
        farewell.failed = 0;
        farewell.changed(context);
        self.set_phase(id, Phase::Waiting { call: None });
        let Some(farewell) = self.open.get_mut(&id) else {
            return;
        };
        match &farewell.lookout {
            Some(lookout) if lookout.started.is_some() => self.try_again(context, id),
            // Looks once the watch is on.
            Some(_) => {}
            None => {
                let watcher = Watcher::Farewell(id);
                farewell.lookout = Some(context.watch(watcher, farewell.key.clone(), false));
            }
        }
    }

    /// The store does not let us remove the key, for now.
    fn refused(&mut self, context: &mut Context, id: FarewellId, created: Epoch, failure: Failure) {
        self.set_phase(id, Phase::Refused { created, failure: failure.clone() });
        let Some(farewell) = self.open.get_mut(&id) else {
            return;
        };
        farewell.changed(context);
        farewell.failed = farewell.failed.saturating_add(1);
        if farewell.failed == 1 && farewell.election.is_none() {
            context.trouble(None, failure.clone());
        }
        let pause = REFUSED / 2 + context.random.below(REFUSED / 2);
        context.timers.set(Timer::Farewell(id), context.now.saturating_add(pause));
        self.withdraw(context, id, Some(failure));
    }

    /// Says that the candidacy is over, once.
    fn withdraw(&mut self, context: &mut Context, id: FarewellId, cause: Option<Failure>) {
        let election = self.open.get_mut(&id).and_then(|farewell| farewell.election.take());
        if let Some(election) = election {
            context.notify(Notice::Withdrawn(Withdrawal { election, cause }));
        }
    }

    fn close(&mut self, context: &mut Context, id: FarewellId) -> Option<Farewell> {
        let mut farewell = self.open.remove(&id)?;
        self.removing -= u32::from(farewell.phase.is_removing());
        farewell.phase.quit(context, id);
        if let Some(lookout) = &farewell.lookout {
            context.unwatch(lookout);
        }
        self.by_key.remove(&(hash(&farewell.key), id));
        farewell.changed(context);
        Some(farewell)
    }
}

impl Farewell {
    /// Has those looked at that could not claim the key, and the lease.
    fn changed(&self, context: &mut Context) {
        context.dirty.push_back(Dirty::Name(hash(self.layout.name().as_bytes())));
        context.lease_is_dirty = true;
    }
}

impl Phase {
    fn is_removing(&self) -> bool {
        match self {
            Phase::Claiming(_) | Phase::Removing { .. } => true,
            Phase::Refused { .. } | Phase::Waiting { .. } => false,
        }
    }

    /// Lets go of what is under way, and of the next try.
    fn quit(&mut self, context: &mut Context, id: FarewellId) {
        context.timers.cancel(Timer::Farewell(id));
        match self {
            Phase::Claiming(call) => context.forget(Some(*call)),
            Phase::Removing { call, .. } | Phase::Waiting { call } => context.forget(call.take()),
            Phase::Refused { .. } => {}
        }
    }
}
