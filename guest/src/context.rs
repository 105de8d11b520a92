//! What every part of the elector works with: the step in the making, the calls
//! and watches under way, the timers, and the random numbers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::backoff::{self, CAP};
use crate::farewell::FarewellId;
use crate::layout::NameHash;
use crate::random::Random;
use crate::table::Table;
use crate::timers::{Timer, Timers};
use crate::types::{
    Call, Change, Command, Duration, ElectionId, Epoch, Failure, LeaseId, Mark, Notice, Operation,
    RequestId, Revision, Ticket, Trouble, Watch,
};

/// How often the watches are checked against a read.
pub const RECHECK: Duration = 30 * crate::timers::SECOND;

/// Names one watch, however often it is opened again.
pub type WatchId = u64;

/// Whom an answer is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The session, which gets a lease.
    Grant { sent: Mark },
    /// The session, which gives a lease back.
    Revoke(LeaseId),
    /// A candidate that claims its key under this lease.
    Claim { election: ElectionId, lease: LeaseId },
    /// A candidate that looks who is in front.
    Survey(ElectionId),
    /// A candidate that looks at single keys, which its watches may have missed.
    Check(ElectionId),
    /// A candidate whose key gets a new value.
    Proclaim { election: ElectionId, created: Epoch, ticket: Option<Ticket> },
    /// The application, which writes in a term.
    Write { election: ElectionId, epoch: Epoch, ticket: Ticket },
    /// An observer that looks who leads.
    Observe(ElectionId),
    /// An inspection.
    Inspect(ElectionId),
    /// A key that is to go.
    Farewell(FarewellId),
    /// Watches that may be silent, and the keys that were read for each.
    Recheck(Vec<(Asker, Vec<Vec<u8>>)>),
}

/// Who has its watches checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    Election(ElectionId),
    Farewell(FarewellId),
}

/// What has to be brought in line with the rest before the step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dirty {
    Election(ElectionId),
    /// The elections of a name, one of whose keys is gone.
    Name(NameHash),
}

/// Whom a watch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watcher {
    /// A candidate's own key, or in a race the one key.
    Own(ElectionId),
    /// The key in front of a candidate's.
    Front(ElectionId),
    /// All that an observer follows.
    Observer(ElectionId),
    /// A key that may turn up, and then is to go.
    Farewell(FarewellId),
}

/// A watch, as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookout {
    pub watch: WatchId,
    /// The revision after which nothing is missed; none while it is not on.
    pub started: Option<Revision>,
}

impl Lookout {
    /// Whether nothing can have been missed since `at`, a read's revision.
    pub fn covers(&self, at: Revision) -> bool {
        self.started.is_some_and(|started| started <= at)
    }

    /// What the watch told up to `at` came too early to be of use.
    pub fn miss(&mut self, at: Revision) {
        self.started = self.started.map(|started| started.max(at));
    }
}

/// A watch, as it stands with the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpenWatch {
    watcher: Watcher,
    key: Vec<u8>,
    prefix: bool,
    /// None while it waits to be opened again.
    request: Option<RequestId>,
    /// When it was last said to be on.
    on: Option<Mark>,
    failed: u32,
}

/// What every part of the elector works with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    pub now: Mark,
    pub timers: Timers,
    pub random: Random,
    pub dirty: VecDeque<Dirty>,
    /// Something changed on which the lease depends.
    pub lease_is_dirty: bool,
    /// The lease changed: everything on it has to be looked at.
    pub sweep: bool,
    /// The lease that the store has granted, and not ended.
    pub lease: Option<LeaseId>,
    /// How many terms stand.
    pub leaders: u32,
    /// The deadline that these terms were told last, and of which lease.
    pub announced: (LeaseId, Mark),
    /// First in line, and waiting for the lease to be renewed.
    pub overdue: Vec<ElectionId>,
    /// How many candidacies there have been.
    pub admitted: u32,
    /// The newest epoch in which this elector led: what it claims from then on is
    /// newer, unless the store goes back.
    pub newest: Epoch,
    commands: Vec<Command>,
    request_timeout: Duration,
    last_request: RequestId,
    last_watch: WatchId,
    calls: Table<RequestId, Purpose>,
    watches: Table<WatchId, OpenWatch>,
    requests: Table<RequestId, WatchId>,
}

impl Context {
    pub fn new(now: Mark, request_timeout: Duration, seed: (u64, u64)) -> Context {
        Context {
            now,
            timers: Timers::default(),
            random: Random::new(seed),
            dirty: VecDeque::new(),
            lease_is_dirty: false,
            sweep: false,
            lease: None,
            leaders: 0,
            announced: (0, 0),
            overdue: Vec::new(),
            admitted: 0,
            newest: 0,
            commands: Vec::new(),
            request_timeout,
            last_request: 0,
            last_watch: 0,
            calls: Table::new(),
            watches: Table::new(),
            requests: Table::new(),
        }
    }

    /// Ends the step: what it came to.
    pub fn take_commands(&mut self) -> Vec<Command> {
        core::mem::take(&mut self.commands)
    }

    /// Has an election looked at before the step ends.
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

    // Calls.

    /// Asks the store, and gives up after the request time-out.
    pub fn call(&mut self, purpose: Purpose, operation: Operation) -> RequestId {
        let give_up = self.now.saturating_add(self.request_timeout);
        let id = self.send(give_up, operation);
        self.calls.insert(id, purpose);
        id
    }

    /// Asks the store to renew, and leaves the answer to the session, for which a
    /// late one counts too.
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

    /// Takes what an answer was for; none if nobody waits for it any more.
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

    /// Hands a call under way over to someone else.
    pub fn hand_over(&mut self, id: RequestId, purpose: Purpose) {
        if let Some(waiting) = self.calls.get_mut(&id) {
            *waiting = purpose;
        }
    }

    /// Waits for no answer any more; returns the writes that had none.
    pub fn forget_all(&mut self) -> Vec<Ticket> {
        core::mem::take(&mut self.calls)
            .into_iter()
            .inspect(|&(id, _)| self.timers.cancel(Timer::GiveUp(id)))
            .filter_map(|(_, purpose)| match purpose {
                Purpose::Write { ticket, .. } => Some(ticket),
                Purpose::Proclaim { ticket, .. } => ticket,
                Purpose::Grant { .. }
                | Purpose::Revoke(_)
                | Purpose::Claim { .. }
                | Purpose::Survey(_)
                | Purpose::Check(_)
                | Purpose::Observe(_)
                | Purpose::Inspect(_)
                | Purpose::Farewell(_)
                | Purpose::Recheck(_) => None,
            })
            .collect()
    }

    /// Sets a timer to the next try, after so many in a row that failed.
    pub fn retry(&mut self, timer: Timer, failed: u32) {
        let pause = backoff::pause(failed, &mut self.random);
        self.timers.set(timer, self.now.saturating_add(pause));
    }

    // Watches.

    /// Watches a key from now on, or all that begin with it.
    pub fn watch(&mut self, watcher: Watcher, key: Vec<u8>, prefix: bool) -> Lookout {
        self.last_watch += 1;
        let watch = self.last_watch;
        let open = OpenWatch { watcher, key, prefix, request: None, on: None, failed: 0 };
        self.watches.insert(watch, open);
        self.open(watch);
        if !self.timers.is_set(Timer::Recheck) {
            self.timers.set(Timer::Recheck, self.now.saturating_add(RECHECK));
        }
        Lookout { watch, started: None }
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, lookout: &Lookout) {
        self.timers.cancel(Timer::Rewatch(lookout.watch));
        let Some(open) = self.watches.remove(&lookout.watch) else {
            return;
        };
        if let Some(request) = open.request {
            self.requests.remove(&request);
            self.commands.push(Command::Unwatch(request));
        }
        if self.watches.is_empty() {
            self.timers.cancel(Timer::Recheck);
        }
    }

    /// Lets someone else use a watch.
    pub fn hand_watch_over(&mut self, lookout: &Lookout, watcher: Watcher) {
        if let Some(open) = self.watches.get_mut(&lookout.watch) {
            open.watcher = watcher;
        }
    }

    /// Opens a watch anew that should have told something and did not.
    pub fn renew_watch(&mut self, lookout: &mut Lookout) {
        if let Some(open) = self.watches.get_mut(&lookout.watch)
            && let Some(request) = open.request.take()
        {
            self.requests.remove(&request);
            self.commands.push(Command::Unwatch(request));
            self.open(lookout.watch);
        }
        lookout.started = None;
    }

    /// (Re)opens a watch with the store, under a request id of its own.
    pub fn open(&mut self, watch: WatchId) {
        let id = self.next_request();
        let Some(open) = self.watches.get_mut(&watch) else {
            return;
        };
        open.request = Some(id);
        self.requests.insert(id, watch);
        self.commands.push(Command::Watch(Watch {
            id,
            key: open.key.clone(),
            prefix: open.prefix,
            since: None,
        }));
    }

    /// Whom a watch's news is for; none if nobody listens any more. A watch that
    /// ended is opened again by itself, after a pause.
    pub fn watched(&mut self, id: RequestId, change: &Change) -> Option<Watcher> {
        let watch = *self.requests.get(&id)?;
        let open = self.watches.get_mut(&watch)?;
        let watcher = open.watcher;
        match change {
            Change::Ended(failure) => {
                open.request = None;
                // One that only ever flickers is not opened faster for it.
                if open.on.take().is_some_and(|on| on.saturating_add(CAP) <= self.now) {
                    open.failed = 0;
                }
                open.failed = open.failed.saturating_add(1);
                let failed = open.failed;
                self.requests.remove(&id);
                self.retry(Timer::Rewatch(watch), failed);
                // A compacted revision is met by watching from now on.
                if failed == 1 && !matches!(failure, Failure::Compacted(_)) {
                    let election = match watcher {
                        Watcher::Own(id) | Watcher::Front(id) | Watcher::Observer(id) => Some(id),
                        Watcher::Farewell(_) => None,
                    };
                    self.trouble(election, failure.clone());
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
