//! An observer: follows who leads an election, and takes no part in it.

use alloc::vec::Vec;

use crate::context::{Answer, Context, Purpose, WatchHandle, Watcher, unfit};
use crate::layout::Layout;
use crate::search::{Found, Search};
use crate::timers::Timer;
use crate::types::{
    Change, Deletion, ElectionId, Entry, Failure, Notice, Operation, RequestId, Response, Revision,
    Selection, Sighting, Snapshot,
};

const WENT_BACK: &str =
    "the store went back behind what it said before, as one that is restored from a backup does";

/// Follows who leads an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observer {
    election: ElectionId,
    layout: Layout,
    watch: WatchHandle,
    view: View,
    /// Other data lie below the name.
    crowded: bool,
    /// A search that failed, or is not finished, and goes on.
    next: Option<Search>,
    /// The newest revision that a read or the watch reported.
    seen: Revision,
    /// The leader, as the application was told last; none before the first time.
    told: Option<Option<Told>>,
    /// The revision of the last deletion of a key, if the leader that was told is gone; none if
    /// the watch may have missed a deletion.
    vacated: Option<Revision>,
    /// Failures in a row.
    failed: u32,
}

/// A leader that the application was told of. Its value is left out, because other programs may
/// store large ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Told {
    key: Vec<u8>,
    created: Revision,
    modified: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum View {
    /// The application knows who leads.
    Current,
    /// The watch is not on, or the next try waits for its timer.
    Idle,
    /// A read is under way.
    Reading {
        search: Search,
        call: RequestId,
        /// What the watch has reported since the read was sent. It may be newer.
        meanwhile: Vec<Change>,
    },
}

impl Observer {
    /// Starts to watch. The first read follows once the watch is on.
    pub fn new(context: &mut Context, election: ElectionId, layout: Layout) -> Observer {
        let (key, prefix) = layout.followed();
        Observer {
            election,
            watch: context.watch(Watcher::Observer(election), key, prefix),
            layout,
            view: View::Idle,
            crowded: false,
            next: None,
            seen: 0,
            told: None,
            vacated: None,
            failed: 0,
        }
    }

    /// Stops watching, because the application asked for it.
    pub fn leave(mut self, context: &mut Context) {
        self.stop_reading(context);
        context.unwatch(self.watch);
        context.withdraw(self.election, None);
    }

    /// The next try is due.
    pub fn due(&mut self, context: &mut Context) {
        if matches!(self.view, View::Idle) {
            self.read(context);
        }
    }

    /// Searches anew if other data lie below the name, because then no single read shows whether
    /// the watch is silent.
    pub fn searches_again(&mut self, context: &mut Context) -> bool {
        let again = self.crowded && !matches!(self.view, View::Reading { .. });
        if again {
            self.read(context);
        }
        again
    }

    /// The read of the leader that shows whether the watch is silent.
    pub fn selection(&self) -> Option<Selection> {
        let reads = matches!(self.view, View::Reading { .. });
        (!reads).then(|| self.layout.oldest())
    }

    /// Compares what that read found with what the application was told.
    pub fn examine(&mut self, context: &mut Context, found: &[Entry], at: Revision) {
        let leader = found.iter().find(|entry| self.layout.counts(entry));
        let told = self.told.as_ref().and_then(Option::as_ref);
        let differs = leader.map(|entry| entry.modified) != told.map(|entry| entry.modified);
        match self.view {
            // Other data that have come meanwhile hide the leader.
            View::Current if leader.is_none() && !found.is_empty() => self.read(context),
            // News from before the last one may be lost, and nothing has changed since.
            View::Current if at >= self.seen && differs => {
                context.renew_watch(&mut self.watch);
                self.vacated = None;
                self.read(context);
            }
            // The watch may never come on.
            View::Idle => self.read(context),
            View::Current | View::Reading { .. } => {}
        }
    }

    /// Takes the answer to a read.
    pub fn answered(&mut self, context: &mut Context, outcome: Answer) {
        let (mut search, meanwhile) = match core::mem::replace(&mut self.view, View::Idle) {
            View::Reading { search, meanwhile, .. } => (search, meanwhile),
            view @ (View::Current | View::Idle) => {
                self.view = view;
                return;
            }
        };
        let answer = match outcome {
            Ok(Response::Snapshot(snapshot)) if snapshot.at >= self.seen => Ok(snapshot),
            Ok(Response::Snapshot(_)) => Err(Failure::Other(WENT_BACK.into())),
            Ok(_) => Err(unfit("read")),
            Err(failure) => {
                search.failed(&failure);
                Err(failure)
            }
        };
        let Snapshot { at, found } = match answer {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                for change in meanwhile {
                    self.watched(context, change);
                }
                self.next = Some(search);
                let timer = Timer::Election(self.election);
                return context.fail(&mut self.failed, timer, self.election, failure);
            }
        };
        let found = found.into_iter().next().unwrap_or_default();
        self.seen = at;
        let found = search.take(&self.layout, None, found);
        self.crowded = search.met_other_data();
        let leader = match found {
            Found::One(entry, _) => Some(Some(entry)),
            Found::Nobody => Some(None),
            Found::Unfinished => None,
        };
        if let Some(leader) = leader {
            self.failed = 0;
            self.view = View::Current;
            self.tell(context, leader);
        } else {
            self.next = Some(search);
            self.read(context);
        }
        for change in meanwhile {
            self.watched(context, change);
        }
    }

    /// Takes what the watch reports.
    pub fn watched(&mut self, context: &mut Context, change: Change) {
        match change {
            Change::Started(at) => {
                self.watch.started = Some(at);
                self.seen = self.seen.max(at);
                self.read(context);
            }
            Change::Ended(_) => {
                self.watch.started = None;
                self.vacated = None;
            }
            Change::Put(entry) if self.layout.counts(&entry) => self.saw_put(context, entry),
            // The leader's key is not under its lease any more.
            Change::Put(Entry { key, modified: at, .. }) if self.is_leaders(&key) => {
                self.saw_deletion(context, Deletion { key, at });
            }
            Change::Deleted(deletion) if self.layout.may_count(&deletion.key) => {
                self.saw_deletion(context, deletion);
            }
            Change::Put(_) | Change::Deleted(_) => {}
        }
    }

    fn is_leaders(&self, key: &[u8]) -> bool {
        matches!(&self.told, Some(Some(leader)) if leader.key == key)
    }

    fn saw_put(&mut self, context: &mut Context, entry: Entry) {
        let newer = entry.modified > self.seen;
        match &mut self.view {
            View::Idle => self.seen = self.seen.max(entry.modified),
            View::Reading { meanwhile, .. } => match meanwhile.last_mut() {
                // Only the key's latest value matters.
                Some(Change::Put(last)) if last.key == entry.key => *last = entry,
                Some(_) | None => meanwhile.push(Change::Put(entry)),
            },
            View::Current if newer => match &self.told {
                Some(Some(leader)) if leader.key != entry.key => {}
                Some(Some(leader)) if leader.created != entry.created => {
                    self.seen = entry.modified;
                    self.read(context);
                }
                // A leader after none, or the leader's new value.
                Some(_) | None => {
                    self.seen = entry.modified;
                    self.tell(context, Some(entry));
                }
            },
            View::Current => {}
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
        match &mut self.view {
            View::Idle => self.seen = self.seen.max(at),
            View::Reading { meanwhile, .. } => meanwhile.push(Change::Deleted(deletion)),
            View::Current if newer && leads => {
                self.seen = at;
                self.read(context);
            }
            View::Current => {}
        }
    }

    fn read(&mut self, context: &mut Context) {
        self.stop_reading(context);
        let search = self.next.take().unwrap_or(Search::First);
        let read = Operation::Read([search.selection(&self.layout, None)].into());
        let call = context.call(Purpose::Observe(self.election), read);
        self.view = View::Reading { search, call, meanwhile: Vec::new() };
    }

    /// Gives up a read. The next one will be newer than all that the watch reported.
    fn stop_reading(&mut self, context: &mut Context) {
        context.timers.cancel(Timer::Election(self.election));
        match core::mem::replace(&mut self.view, View::Idle) {
            View::Reading { call, meanwhile, .. } => {
                context.forget(Some(call));
                for change in meanwhile {
                    self.watched(context, change);
                }
            }
            View::Current | View::Idle => {}
        }
    }

    /// Tells the application who leads, unless it knows. If nobody led in between, it is told of
    /// that gap first.
    fn tell(&mut self, context: &mut Context, leader: Option<Entry>) {
        let vacated = self.vacated.take();
        let news = leader.as_ref().map(|Entry { key, created, modified, .. }| Told {
            key: key.clone(),
            created: *created,
            modified: *modified,
        });
        if self.told.as_ref() == Some(&news) {
            return;
        }
        self.told = Some(news);
        let gap = match (&leader, vacated) {
            (Some(leader), Some(vacated)) => leader.created > vacated,
            (Some(_) | None, _) => false,
        };
        for leader in gap.then_some(None).into_iter().chain([leader]) {
            let sighting = Sighting { election: self.election, leader };
            context.notify(Notice::Leader(sighting));
        }
    }
}
