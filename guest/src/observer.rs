//! Those who want to know who leads, and take no part.

use alloc::vec::Vec;

use crate::context::{Context, Lookout, Purpose, Watcher};
use crate::layout::Layout;
use crate::session::unfit;
use crate::timers::Timer;
use crate::types::{
    Change, ElectionId, Entry, Failure, Listing, Notice, Operation, RequestId, Response, Revision,
    Selection, Sighting, Snapshot, Withdrawal,
};

/// How many keys the second look for the leader asks for, where the first one
/// found a key that does not count.
const WIDER: u32 = 8;

/// From here on a look asks for all of them.
const WIDEST: u32 = 4_096;

/// Follows who leads an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observer {
    election: ElectionId,
    layout: Layout,
    lookout: Lookout,
    look: Look,
    /// Who leads, as it was last told; none before the first time.
    told: Option<Option<Entry>>,
    /// When the leader that was told was deleted, if that was seen.
    vacated: Option<Revision>,
    /// Looks in a row that failed.
    failed: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Look {
    /// What was told is so, as of this revision.
    Settled(Revision),
    /// A read has to tell.
    Looking {
        limit: u32,
        /// None while the watch is not on, or the next try waits for its timer.
        call: Option<RequestId>,
        /// The newest change that the watch reported meanwhile: the read has to
        /// be newer.
        changed: Revision,
    },
}

impl Observer {
    /// Starts to watch; the first look follows once the watch is on.
    pub fn new(context: &mut Context, election: ElectionId, layout: Layout) -> Observer {
        let (key, prefix) = layout.followed();
        Observer {
            election,
            lookout: context.watch(Watcher::Observer(election), key, prefix),
            layout,
            look: Look::Looking { limit: 1, call: None, changed: 0 },
            told: None,
            vacated: None,
            failed: 0,
        }
    }

    /// Stops watching, as was asked for.
    pub fn leave(self, context: &mut Context) {
        context.unwatch(&self.lookout);
        context.timers.cancel(Timer::Election(self.election));
        if let Look::Looking { call, .. } = self.look {
            context.forget(call);
        }
        withdraw(context, self.election, None);
    }

    /// The next try is due.
    pub fn due(&mut self, context: &mut Context) {
        if let Look::Looking { limit, call: None, changed } = self.look {
            self.look_up(context, limit, changed);
        }
    }

    /// Selects the leader, to see whether the watch is silent.
    pub fn selection(&self) -> Option<Selection> {
        match self.look {
            Look::Settled(_) => Some(self.layout.leader_first(1)),
            Look::Looking { .. } => None,
        }
    }

    /// Compares what `selection` found with what was told.
    pub fn examine(&mut self, context: &mut Context, found: &[Entry], at: Revision) {
        let Look::Settled(seen) = self.look else {
            return;
        };
        let found = found.first().filter(|entry| self.layout.counts(&entry.key));
        let told = self.told.as_ref().and_then(Option::as_ref);
        if at > seen && found.map(|entry| entry.modified) != told.map(|entry| entry.modified) {
            // The look follows once the watch is on again.
            context.renew_watch(&mut self.lookout);
            self.look = Look::Looking { limit: 1, call: None, changed: at };
        }
    }

    /// Takes the answer to a look.
    pub fn looked(&mut self, context: &mut Context, outcome: Result<Response, Failure>) {
        let Look::Looking { limit, call, changed } = &mut self.look else {
            return;
        };
        *call = None;
        let (limit, changed) = (*limit, *changed);
        let (at, found) = match outcome {
            Ok(Response::Snapshot(Snapshot { at, found })) => {
                (at, found.into_iter().next().unwrap_or_default())
            }
            Ok(_) => return self.look_failed(context, Failure::Other(unfit("read"))),
            Err(failure) => return self.look_failed(context, failure),
        };
        let seen_all = limit == 0 || found.len() < limit as usize;
        let leader = found.into_iter().find(|entry| self.layout.counts(&entry.key));
        if at < changed {
            self.look_up(context, 1, changed);
        } else if leader.is_none() && !seen_all {
            let wider = limit.saturating_mul(WIDER);
            self.look_up(context, if wider > WIDEST { 0 } else { wider }, changed);
        } else {
            self.failed = 0;
            self.look = Look::Settled(at);
            self.tell(context, leader);
        }
    }

    /// Takes what the watch saw.
    pub fn watched(&mut self, context: &mut Context, change: Change) {
        match change {
            Change::Started(at) => {
                self.lookout.started = Some(at);
                self.look_up(context, 1, at);
            }
            Change::Ended(_) => self.lookout.started = None,
            Change::Put(entry) if self.layout.counts(&entry.key) => self.saw_put(context, entry),
            Change::Deleted(deletion) if self.layout.counts(&deletion.key) => {
                self.saw_deletion(context, &deletion.key, deletion.at);
            }
            Change::Put(_) | Change::Deleted(_) => {}
        }
    }

    fn saw_put(&mut self, context: &mut Context, entry: Entry) {
        let seen = match &mut self.look {
            Look::Settled(seen) => *seen,
            Look::Looking { changed, .. } => {
                *changed = entry.modified.max(*changed);
                return;
            }
        };
        if entry.modified <= seen {
            return;
        }
        match &self.told {
            Some(Some(leader)) if leader.key != entry.key => {}
            Some(Some(leader)) if leader.created != entry.created => {
                self.look_up(context, 1, entry.modified);
            }
            // The first of its kind, or the leader's new value.
            Some(_) | None => {
                self.look = Look::Settled(entry.modified);
                self.tell(context, Some(entry));
            }
        }
    }

    fn saw_deletion(&mut self, context: &mut Context, key: &[u8], at: Revision) {
        let leads = matches!(
            &self.told,
            Some(Some(leader)) if leader.key == key && leader.created < at
        );
        if leads && self.vacated.is_none() {
            self.vacated = Some(at);
        }
        match &mut self.look {
            Look::Settled(seen) if at > *seen && leads => self.look_up(context, 1, at),
            Look::Settled(_) => {}
            Look::Looking { changed, .. } => *changed = at.max(*changed),
        }
    }

    fn look_up(&mut self, context: &mut Context, limit: u32, changed: Revision) {
        if let Look::Looking { call: Some(call), .. } = self.look {
            context.forget(Some(call));
        }
        let read = Operation::Read([self.layout.leader_first(limit)].into());
        let call = Some(context.call(Purpose::Observe(self.election), read));
        self.look = Look::Looking { limit, call, changed };
    }

    fn look_failed(&mut self, context: &mut Context, failure: Failure) {
        self.failed = self.failed.saturating_add(1);
        context.retry(Timer::Election(self.election), self.failed);
        if self.failed == 1 {
            context.trouble(Some(self.election), failure);
        }
    }

    /// Tells who leads, if that is news; and first of the gap that lay between.
    fn tell(&mut self, context: &mut Context, leader: Option<Entry>) {
        let vacated = self.vacated.take();
        if self.told.as_ref() == Some(&leader) {
            return;
        }
        let gap = match (&leader, vacated) {
            (Some(leader), Some(vacated)) => leader.created > vacated,
            (Some(_) | None, _) => false,
        };
        for leader in gap.then_some(None).into_iter().chain([leader]) {
            self.told = Some(leader.clone());
            let sighting = Sighting { election: self.election, leader };
            context.notify(Notice::Leader(sighting));
        }
    }
}

/// Lists the candidates of an election, once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    election: ElectionId,
    layout: Layout,
    call: Option<RequestId>,
    failed: u32,
}

impl Inspection {
    /// Starts to look.
    pub fn new(context: &mut Context, election: ElectionId, layout: Layout) -> Inspection {
        let mut inspection = Inspection { election, layout, call: None, failed: 0 };
        inspection.due(context);
        inspection
    }

    /// Stops looking, as was asked for.
    pub fn leave(self, context: &mut Context) {
        context.timers.cancel(Timer::Election(self.election));
        context.forget(self.call);
        withdraw(context, self.election, None);
    }

    /// The first or the next try is due.
    pub fn due(&mut self, context: &mut Context) {
        let read = Operation::Read([self.layout.leader_first(0)].into());
        self.call = Some(context.call(Purpose::Inspect(self.election), read));
    }

    /// Takes the answer. True if the inspection is over.
    pub fn looked(&mut self, context: &mut Context, outcome: Result<Response, Failure>) -> bool {
        self.call = None;
        let failure = match outcome {
            Ok(Response::Snapshot(snapshot)) => {
                let candidates: Vec<Entry> = snapshot
                    .found
                    .into_iter()
                    .flatten()
                    .filter(|entry| self.layout.counts(&entry.key))
                    .collect();
                let listing = Listing { election: self.election, candidates };
                context.notify(Notice::Listed(listing));
                return true;
            }
            Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => {
                withdraw(context, self.election, Some(failure));
                return true;
            }
            Ok(_) => Failure::Other(unfit("read")),
            Err(failure) => failure,
        };
        self.failed = self.failed.saturating_add(1);
        context.retry(Timer::Election(self.election), self.failed);
        if self.failed == 1 {
            context.trouble(Some(self.election), failure);
        }
        false
    }
}

/// Says that an election is over for the application.
pub fn withdraw(context: &mut Context, election: ElectionId, cause: Option<Failure>) {
    context.notify(Notice::Withdrawn(Withdrawal { election, cause }));
}
