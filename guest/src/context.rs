//! What every part of the elector works with: the step in the making, the calls and watches under
//! way, the timers, and the random numbers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::backoff::{self, CAP};
use crate::ids::{DeletionId, WatchId};
use crate::layout::NameHash;
use crate::random::Random;
use crate::share::Share;
use crate::table::{Table, with_first};
use crate::timers::{SECOND, Timer, Timers};
use crate::types::{
    Call, Change, Command, Duration, ElectionId, Epoch, Failure, LeaseId, Mark, Notice, Operation,
    RequestId, Response, Revision, Snapshot, Ticket, Trouble, Watch, Withdrawal, WriteOutcome,
    Written,
};
use crate::wish::Wish;

/// What the store answers, or why it does not.
pub type Answer = Result<Response, Failure>;

/// How often the watches are checked against a read.
pub const RECHECK: Duration = 30 * SECOND;

/// Who gets the answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The session, which gets a lease.
    Grant { sent: Mark },
    /// The session, which gives a lease back.
    Revoke(LeaseId),
    /// A candidate that claims its key under this lease.
    Claim { election: ElectionId, lease: LeaseId },
    /// A candidate that reads who is in front, or what its watches may have missed.
    Check(ElectionId),
    /// A candidate that writes a new value into its key.
    Proclaim { election: ElectionId, created: Epoch, ticket: Option<Ticket> },
    /// The application, which writes in a term.
    Write { election: ElectionId, epoch: Epoch, ticket: Ticket },
    /// An observer that reads who leads.
    Observe(ElectionId),
    /// A candidate that writes its wish.
    Wish { election: ElectionId, lease: LeaseId },
    /// A session that leads too much, or counts, and reads who else is in line for these.
    Successors(Vec<ElectionId>),
    /// An inspection.
    Inspect(ElectionId),
    /// A pending deletion.
    Cleanup(DeletionId),
    /// All candidates in line, which may have missed wishes.
    Wishes,
    /// Watches that may be silent, and the keys that were read for each.
    Recheck(Vec<(Asker, Vec<Vec<u8>>)>),
}

/// An election or a pending deletion: the check of the watches and the sweep after a change of
/// the lease visit each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    Election(ElectionId),
    Cleanup(DeletionId),
}

/// What to reconcile with everything else before the step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dirty {
    Election(ElectionId),
    /// The elections of a name, because one of their keys is gone.
    Name(NameHash),
}

/// Who gets what a watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watcher {
    /// A candidate, of its own key, or in a race of the one key.
    Own(ElectionId),
    /// A candidate, of the key in front of its own.
    Predecessor(ElectionId),
    /// A candidate, of the key in front of its predecessor's.
    Farther(ElectionId),
    /// An observer, of all that it follows.
    Observer(ElectionId),
    /// A pending deletion, of a key of this election's that may turn up.
    Cleanup(DeletionId, ElectionId),
    /// All candidates in line, of what is wished.
    Wishes,
}

/// A watch, as its user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchHandle {
    id: WatchId,
    /// The revision after which nothing is missed; none while the watch is not on.
    pub started: Option<Revision>,
}

impl WatchHandle {
    /// Whether nothing can have been missed since `at`, a read's revision.
    pub fn covers(&self, at: Revision) -> bool {
        self.started.is_some_and(|started| started <= at)
    }

    /// The watch reported the changes up to `at` too early for its user.
    pub fn miss(&mut self, at: Revision) {
        self.started = self.started.map(|started| started.max(at));
    }

    /// Notes that the watch is on, or off; false for any other change.
    pub fn note(&mut self, change: &Change) -> bool {
        match change {
            Change::Started(at) => self.started = Some(*at),
            Change::Ended(_) => self.started = None,
            Change::Put(_) | Change::Deleted(_) => return false,
        }
        true
    }
}

/// A watch, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpenWatch {
    watcher: Watcher,
    key: Vec<u8>,
    prefix: bool,
    /// None while the watch waits for its next opening.
    request: Option<RequestId>,
    /// When the store last said that the watch is on.
    on: Option<Mark>,
    failed: u32,
}

/// What every part of the elector works with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    pub now: Mark,
    pub timers: Timers,
    pub random: Random,
    pub dirty: VecDeque<Dirty>,
    /// A change may affect whether the lease is needed.
    pub lease_is_dirty: bool,
    /// The lease changed: everything on it has to catch up.
    pub sweep: bool,
    /// The lease that the store has granted, and not ended.
    pub lease: Option<LeaseId>,
    /// How many terms stand.
    pub leaders: u32,
    /// How many candidacies there are.
    pub candidacies: u32,
    /// The deadline that these terms were told last, and of which lease.
    pub announced: (LeaseId, Mark),
    /// Candidates that are first in line, and wait for the lease to be renewed.
    pub overdue: Vec<ElectionId>,
    /// How many candidacies there have been.
    pub admitted: u32,
    /// The newest epoch in which this elector led. Its later candidacies do not lead in an older
    /// one, even if the store went back.
    pub newest: Epoch,
    pub share: Share,
    /// All wishes up to this revision are known, of all elections.
    pub wishes_known_at: Revision,
    commands: Vec<Command>,
    request_timeout: Duration,
    last_request: RequestId,
    last_watch: WatchId,
    calls: Table<RequestId, Purpose>,
    watches: Table<WatchId, OpenWatch>,
    /// The watches by the requests that opened them.
    requests: Table<(RequestId, WatchId), ()>,
    /// The watch of what is wished.
    wishes: Option<WatchHandle>,
}

impl Context {
    pub fn new(now: Mark, request_timeout: Duration, seed: (u64, u64)) -> Context {
        let random = Random::new(seed);
        Context { now, request_timeout, random, ..Context::default() }
    }

    /// Ends the step, and returns its commands.
    pub fn take_commands(&mut self) -> Vec<Command> {
        core::mem::take(&mut self.commands)
    }

    /// How much this step says so far.
    pub fn said(&self) -> usize {
        self.commands.len()
    }

    /// Reconciles an election before the step ends.
    pub fn touch(&mut self, election: ElectionId) {
        self.dirty.push_back(Dirty::Election(election));
    }

    // What the application is told.

    pub fn notify(&mut self, notice: Notice) {
        self.commands.push(Command::Notify(notice));
    }

    pub fn trouble(&mut self, election: Option<ElectionId>, failure: Failure) {
        self.notify(Notice::Trouble(Trouble { election, failure }));
    }

    /// Says that an election is over for the application.
    pub fn withdraw(&mut self, election: ElectionId, cause: Option<Failure>) {
        self.notify(Notice::Withdrawn(Withdrawal { election, cause }));
    }

    /// Says what became of a write.
    pub fn written(&mut self, ticket: Ticket, outcome: WriteOutcome) {
        self.notify(Notice::Written(Written { ticket, outcome }));
    }

    // Calls.

    /// Asks the store, and gives up after the request time-out.
    pub fn call(&mut self, purpose: Purpose, operation: Operation) -> RequestId {
        let give_up = self.now.saturating_add(self.request_timeout);
        let id = self.send(give_up, operation);
        self.calls.insert(id, purpose);
        id
    }

    /// Asks the store to renew. The session keeps track of the call itself, because a late answer
    /// counts too.
    pub fn call_renewal(&mut self, within: Duration, operation: Operation) -> RequestId {
        let within = within.min(self.request_timeout);
        self.send(self.now.saturating_add(within), operation)
    }

    fn send(&mut self, give_up: Mark, operation: Operation) -> RequestId {
        let id = self.next_request();
        self.timers.set(Timer::GiveUp(id), give_up);
        self.commands.push(Command::Call(Call { id, give_up, operation }));
        id
    }

    /// Takes the purpose of a call that has an answer; none if nobody waits for it any more.
    pub fn answered(&mut self, id: RequestId) -> Option<Purpose> {
        self.timers.cancel(Timer::GiveUp(id));
        self.calls.remove(&id)
    }

    /// Nobody waits for the answer any more.
    pub fn forget(&mut self, call: Option<RequestId>) {
        if let Some(id) = call {
            self.answered(id);
        }
    }

    /// Gives the answer to a call under way to somebody else.
    pub fn hand_over(&mut self, id: RequestId, purpose: Purpose) {
        if let Some(waiting) = self.calls.get_mut(&id) {
            *waiting = purpose;
        }
    }

    /// Forgets all calls; returns the writes among them.
    pub fn forget_all(&mut self) -> Vec<Ticket> {
        core::mem::take(&mut self.calls)
            .into_iter()
            .inspect(|&(id, _)| self.timers.cancel(Timer::GiveUp(id)))
            .filter_map(|(_, purpose)| {
                let (Purpose::Write { ticket, .. }
                | Purpose::Proclaim { ticket: Some(ticket), .. }) = purpose
                else {
                    return None;
                };
                Some(ticket)
            })
            .collect()
    }

    /// Whether the session leads as much as it may at all. Of its fair part, too much may go on later.
    pub fn leads_enough(&self) -> bool {
        self.share.limit.is_some_and(|limit| self.leaders >= limit.at_most)
    }

    /// Sets a timer that fires after a pause.
    pub fn set_timer(&mut self, timer: Timer, pause: Duration) {
        self.timers.set(timer, self.now.saturating_add(pause));
    }

    /// Sets a timer to the next try, after so many failures in a row.
    pub fn retry(&mut self, timer: Timer, failed: u32) {
        let pause = backoff::pause(failed, &mut self.random);
        self.set_timer(timer, pause);
    }

    /// Counts a failure, tells the application of the first in a row, and sets a timer to the
    /// next try.
    pub fn fail(&mut self, failed: &mut u32, timer: Timer, election: ElectionId, failure: Failure) {
        *failed = failed.saturating_add(1);
        self.retry(timer, *failed);
        if *failed == 1 {
            self.trouble(Some(election), failure);
        }
    }

    // Watches.

    /// Watches a key from now on, or all keys that begin with it.
    pub fn watch(&mut self, watcher: Watcher, key: Vec<u8>, prefix: bool) -> WatchHandle {
        self.last_watch += 1;
        let id = self.last_watch;
        let open = OpenWatch { watcher, key, prefix, request: None, on: None, failed: 0 };
        self.watches.insert(id, open);
        self.open(id);
        if !self.timers.is_set(Timer::Recheck) {
            self.set_timer(Timer::Recheck, RECHECK);
        }
        WatchHandle { id, started: None }
    }

    /// Hears from now on what is wished.
    pub fn hear_wishes(&mut self) {
        if self.wishes.is_none() {
            self.wishes = Some(self.watch(Watcher::Wishes, Wish::keys(), true));
        }
    }

    /// Whether the watch of wishes is on.
    pub fn hears_wishes(&self) -> bool {
        self.wishes.is_some_and(|watch| watch.started.is_some())
    }

    /// Whether wishes were heard later than from this revision on. A watch that is not on does not
    /// count: perhaps the role allows neither to watch wishes nor to read them.
    pub fn missed_wishes_since(&self, at: Revision) -> bool {
        let at = at.max(self.wishes_known_at);
        self.wishes.and_then(|watch| watch.started).is_some_and(|started| started > at)
    }

    /// Whoever knows of no wishes from this revision on may have missed some: the watch may be silent.
    pub fn may_have_missed_wishes(&mut self, at: Revision) {
        if let Some(WatchHandle { started: Some(started), .. }) = &mut self.wishes {
            *started = at.max(*started);
        }
    }

    /// Hears no more wishes.
    pub fn ignore_wishes(&mut self) {
        if let Some(watch) = self.wishes.take() {
            self.unwatch(watch);
            self.timers.cancel(Timer::MissedWishes);
            self.wishes_known_at = 0;
        }
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, watch: WatchHandle) {
        self.timers.cancel(Timer::Rewatch(watch.id));
        let Some(open) = self.watches.remove(&watch.id) else { return };
        if let Some(request) = open.request {
            self.requests.remove(&(request, watch.id));
            self.commands.push(Command::Unwatch(request));
        }
        if self.watches.is_empty() {
            self.timers.cancel(Timer::Recheck);
        }
    }

    /// Gives the reports of a watch to somebody else.
    pub fn hand_watch_over(&mut self, watch: WatchHandle, watcher: Watcher) {
        if let Some(open) = self.watches.get_mut(&watch.id) {
            open.watcher = watcher;
        }
    }

    /// Opens a watch anew, because it should have reported a change and did not.
    pub fn renew_watch(&mut self, watch: &mut WatchHandle) {
        if let Some(open) = self.watches.get_mut(&watch.id)
            && let Some(request) = open.request.take()
        {
            self.requests.remove(&(request, watch.id));
            self.commands.push(Command::Unwatch(request));
            self.open(watch.id);
        }
        watch.started = None;
    }

    /// Opens a watch with the store, under a request id of its own, for the first time or again.
    pub fn open(&mut self, watch: WatchId) {
        let id = self.next_request();
        let Some(open) = self.watches.get_mut(&watch) else { return };
        open.request = Some(id);
        self.requests.insert((id, watch), ());
        let (key, prefix) = (open.key.clone(), open.prefix);
        self.commands.push(Command::Watch(Watch { id, key, prefix, since: None }));
    }

    /// Who gets this change; none if nobody listens any more. A watch that ended is opened again
    /// by itself, after a pause.
    pub fn watched(&mut self, id: RequestId, change: &Change) -> Option<Watcher> {
        let watch = with_first(&self.requests, id).next()?;
        let open = self.watches.get_mut(&watch)?;
        let watcher = open.watcher;
        if watcher == Watcher::Wishes
            && let Some(wishes) = &mut self.wishes
        {
            wishes.note(change);
        }
        match change {
            Change::Ended(failure) => {
                open.request = None;
                // A watch that only flickers is not opened sooner because it was on.
                if open.on.take().is_some_and(|on| on.saturating_add(CAP) <= self.now) {
                    open.failed = 0;
                }
                open.failed = open.failed.saturating_add(1);
                let failed = open.failed;
                self.requests.remove(&(id, watch));
                let (Watcher::Own(election)
                | Watcher::Predecessor(election)
                | Watcher::Farther(election)
                | Watcher::Observer(election)
                | Watcher::Cleanup(_, election)) = watcher
                else {
                    match failure {
                        // Elections do not need it. The role does not allow it, and may never.
                        Failure::Denied(_) => self.set_timer(Timer::Rewatch(watch), RECHECK),
                        Failure::Timeout
                        | Failure::Unavailable
                        | Failure::Compacted(_)
                        | Failure::Invalid(_)
                        | Failure::Other(_) => self.retry(Timer::Rewatch(watch), failed),
                    }
                    return None;
                };
                self.retry(Timer::Rewatch(watch), failed);
                // After a compacted revision the watch simply goes on from now.
                // Nor does an election need to hear of the farther key.
                if failed == 1
                    && !matches!(failure, Failure::Compacted(_))
                    && !matches!(watcher, Watcher::Farther(_))
                {
                    self.trouble(Some(election), failure.clone());
                }
            }
            Change::Started(_) => open.on = Some(self.now),
            Change::Put(_) | Change::Deleted(_) => {}
        }
        Some(watcher)
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        self.last_request
    }
}

/// The failure of a call whose answer does not fit the operation.
pub fn unfit(operation: &str) -> Failure {
    let sentence = ["the store's answer does not fit the operation `", operation, "`"];
    Failure::Other(sentence.concat())
}

/// The snapshot that answers a read.
pub fn snapshot(outcome: Answer) -> Result<Snapshot, Failure> {
    match outcome {
        Ok(Response::Snapshot(snapshot)) => Ok(snapshot),
        Ok(_) => Err(unfit("read")),
        Err(failure) => Err(failure),
    }
}

/// The outcome of a guarded write, from the store's answer.
pub fn write_outcome(outcome: Answer) -> WriteOutcome {
    match outcome {
        Ok(Response::Applied(at)) => WriteOutcome::Applied(at),
        Ok(Response::Stale) => WriteOutcome::Stale,
        Ok(Response::Conflict) => WriteOutcome::Conflict,
        Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => WriteOutcome::Failed(failure),
        // It may have happened all the same.
        Ok(_) | Err(_) => WriteOutcome::Unknown,
    }
}
