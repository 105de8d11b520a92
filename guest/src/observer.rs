//! Those who want to know who leads, and take no part.

use alloc::vec::Vec;

use crate::context::{Context, Lookout, Purpose, Watcher};
use crate::layout::{Layout, wider};
use crate::session::unfit;
use crate::timers::Timer;
use crate::types::{
    Change, Deletion, ElectionId, Entry, Failure, Listing, Notice, Operation, RequestId, Response,
    Revision, Selection, Sighting, Snapshot, Withdrawal,
};

/// Follows who leads an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observer {
    election: ElectionId,
    layout: Layout,
    lookout: Lookout,
    look: Look,
    /// The newest revision of which anything was heard.
    seen: Revision,
    /// Who leads, as it was last told; none before the first time.
    told: Option<Option<Entry>>,
    /// When the last key was deleted, once the leader's that was told was; none if
    /// the watch may have missed one.
    vacated: Option<Revision>,
    /// Looks in a row that failed.
    failed: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Look {
    /// What was told is so; a look with this limit showed it.
    Settled { limit: u32 },
    /// The watch is not on, or the next try waits for its timer.
    Idle,
    /// A read is to tell.
    Looking {
        limit: u32,
        call: RequestId,
        /// What the watch told since the read was sent: perhaps newer.
        meanwhile: Vec<Change>,
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
            look: Look::Idle,
            seen: 0,
            told: None,
            vacated: None,
            failed: 0,
        }
    }

    /// Stops watching, as was asked for.
    pub fn leave(mut self, context: &mut Context) {
        self.stop_looking(context);
        context.unwatch(&self.lookout);
        withdraw(context, self.election, None);
    }

    /// The next try is due.
    pub fn due(&mut self, context: &mut Context) {
        match self.look {
            Look::Idle => self.look_up(context, 1),
            Look::Settled { .. } | Look::Looking { .. } => {}
        }
    }

    /// Selects the leader, to see whether the watch is silent.
    pub fn selection(&self) -> Option<Selection> {
        match self.look {
            Look::Settled { limit } => Some(self.layout.leader_first(limit)),
            Look::Idle => Some(self.layout.leader_first(1)),
            Look::Looking { .. } => None,
        }
    }

    /// Compares what `selection` found with what was told.
    pub fn examine(&mut self, context: &mut Context, found: &[Entry], at: Revision) {
        let found = found.iter().find(|entry| self.layout.counts(&entry.key));
        let told = self.told.as_ref().and_then(Option::as_ref);
        let differs = found.map(|entry| entry.modified) != told.map(|entry| entry.modified);
        match self.look {
            Look::Settled { .. } if at > self.seen && differs => {
                context.renew_watch(&mut self.lookout);
                self.vacated = None;
                self.look_up(context, 1);
            }
            // The watch may never come on.
            Look::Idle => self.look_up(context, 1),
            Look::Settled { .. } | Look::Looking { .. } => {}
        }
    }

    /// Takes the answer to a look.
    pub fn looked(&mut self, context: &mut Context, outcome: Result<Response, Failure>) {
        let (limit, meanwhile) = match core::mem::replace(&mut self.look, Look::Idle) {
            Look::Looking { limit, meanwhile, .. } => (limit, meanwhile),
            look @ (Look::Settled { .. } | Look::Idle) => {
                self.look = look;
                return;
            }
        };
        let (at, found) = match outcome {
            Ok(Response::Snapshot(Snapshot { at, found })) if at >= self.seen => {
                (at, found.into_iter().next().unwrap_or_default())
            }
            outcome => {
                for change in meanwhile {
                    self.watched(context, change);
                }
                return self.look_failed(context, outcome);
            }
        };
        let seen_all = limit == 0 || found.len() < limit as usize;
        let leader = found.into_iter().find(|entry| self.layout.counts(&entry.key));
        self.seen = at;
        if leader.is_none() && !seen_all {
            self.look_up(context, wider(limit));
        } else {
            self.failed = 0;
            self.look = Look::Settled { limit };
            self.tell(context, leader);
        }
        for change in meanwhile {
            self.watched(context, change);
        }
    }

    /// Takes what the watch saw.
    pub fn watched(&mut self, context: &mut Context, change: Change) {
        match change {
            Change::Started(at) => {
                self.lookout.started = Some(at);
                self.seen = self.seen.max(at);
                self.look_up(context, 1);
            }
            Change::Ended(_) => {
                self.lookout.started = None;
                self.vacated = None;
            }
            Change::Put(entry) if self.layout.counts(&entry.key) => self.saw_put(context, entry),
            Change::Deleted(deletion) if self.layout.counts(&deletion.key) => {
                self.saw_deletion(context, deletion);
            }
            Change::Put(_) | Change::Deleted(_) => {}
        }
    }

    fn saw_put(&mut self, context: &mut Context, entry: Entry) {
        let newer = entry.modified > self.seen;
        match &mut self.look {
            Look::Idle => self.seen = self.seen.max(entry.modified),
            Look::Looking { meanwhile, .. } => meanwhile.push(Change::Put(entry)),
            Look::Settled { .. } if newer => match &self.told {
                Some(Some(leader)) if leader.key != entry.key => {}
                Some(Some(leader)) if leader.created != entry.created => {
                    self.seen = entry.modified;
                    self.look_up(context, 1);
                }
                // The first of its kind, or the leader's new value.
                Some(_) | None => {
                    self.seen = entry.modified;
                    self.tell(context, Some(entry));
                }
            },
            Look::Settled { .. } => {}
        }
    }

    fn saw_deletion(&mut self, context: &mut Context, deletion: Deletion) {
        let Deletion { ref key, at } = deletion;
        let leads = matches!(
            &self.told,
            Some(Some(leader)) if leader.key == *key && leader.created < at
        );
        if leads || self.vacated.is_some() {
            self.vacated = self.vacated.max(Some(at));
        }
        let newer = at > self.seen;
        match &mut self.look {
            Look::Idle => self.seen = self.seen.max(at),
            Look::Looking { meanwhile, .. } => meanwhile.push(Change::Deleted(deletion)),
            Look::Settled { .. } if newer && leads => {
                self.seen = at;
                self.look_up(context, 1);
            }
            Look::Settled { .. } => {}
        }
    }

    fn look_up(&mut self, context: &mut Context, limit: u32) {
        self.stop_looking(context);
        let read = Operation::Read([self.layout.leader_first(limit)].into());
        let call = context.call(Purpose::Observe(self.election), read);
        self.look = Look::Looking { limit, call, meanwhile: Vec::new() };
    }

    /// Gives up a look; the next one will be newer than all that was heard.
    fn stop_looking(&mut self, context: &mut Context) {
        context.timers.cancel(Timer::Election(self.election));
        match core::mem::replace(&mut self.look, Look::Idle) {
            Look::Looking { call, meanwhile, .. } => {
                context.forget(Some(call));
                for change in meanwhile {
                    self.watched(context, change);
                }
            }
            Look::Settled { .. } | Look::Idle => {}
        }
    }

    fn look_failed(&mut self, context: &mut Context, outcome: Result<Response, Failure>) {
        self.failed = self.failed.saturating_add(1);
        context.retry(Timer::Election(self.election), self.failed);
        if self.failed == 1 {
            let failure = match outcome {
                Err(failure) => failure,
                Ok(Response::Snapshot(_)) => Failure::Other(
                    "the store went back behind what it said before, as one that is restored \
                     from a backup does"
                        .into(),
                ),
                Ok(_) => Failure::Other(unfit("read")),
            };
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
