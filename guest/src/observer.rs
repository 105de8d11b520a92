//! Those who want to know who leads, and take no part.

use alloc::vec::Vec;

use crate::context::{Context, Lookout, Purpose, Watcher};
use crate::layout::{Layout, point};
use crate::look::{Look, Looked, PAGE, smaller};
use crate::session::unfit;
use crate::table::Table;
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
    view: View,
    /// Others' data lie below the name.
    crowded: bool,
    /// How a look goes on that failed, or is not finished.
    next: Option<Look>,
    /// The newest revision of which anything was heard.
    seen: Revision,
    /// Who leads, as it was last told; none before the first time.
    told: Option<Option<Told>>,
    /// When the last key was deleted, once the leader's that was told was; none if
    /// the watch may have missed one.
    vacated: Option<Revision>,
    /// Looks in a row that failed.
    failed: u32,
}

/// A leader that was told, without its value: other programs may store large ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Told {
    key: Vec<u8>,
    created: Revision,
    modified: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum View {
    /// What was told is so.
    Settled,
    /// The watch is not on, or the next try waits for its timer.
    Idle,
    /// A read is to tell.
    Looking {
        look: Look,
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
            view: View::Idle,
            crowded: false,
            next: None,
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
        match self.view {
            View::Idle => self.look_up(context),
            View::Settled | View::Looking { .. } => {}
        }
    }

    /// Looks anew, to see whether the watch is silent: where others' data lie below the name,
    /// no single read shows that.
    pub fn looks_again(&mut self, context: &mut Context) -> bool {
        let again = self.crowded && !matches!(self.view, View::Looking { .. });
        if again {
            self.look_up(context);
        }
        again
    }

    /// Selects the leader, to see whether the watch is silent.
    pub fn selection(&self) -> Option<Selection> {
        match self.view {
            View::Settled | View::Idle => Some(self.layout.oldest()),
            View::Looking { .. } => None,
        }
    }

    /// Compares what `selection` found with what was told.
    pub fn examine(&mut self, context: &mut Context, found: &[Entry], at: Revision) {
        let found = found.iter().find(|entry| self.layout.counts(&entry.key));
        let told = self.told.as_ref().and_then(Option::as_ref);
        let differs = found.map(|entry| entry.modified) != told.map(|entry| entry.modified);
        match self.view {
            View::Settled if at > self.seen && differs => {
                context.renew_watch(&mut self.lookout);
                self.vacated = None;
                self.look_up(context);
            }
            // The watch may never come on.
            View::Idle => self.look_up(context),
            View::Settled | View::Looking { .. } => {}
        }
    }

    /// Takes the answer to a look.
    pub fn looked(&mut self, context: &mut Context, outcome: Result<Response, Failure>) {
        let (mut look, meanwhile) = match core::mem::replace(&mut self.view, View::Idle) {
            View::Looking { look, meanwhile, .. } => (look, meanwhile),
            view @ (View::Settled | View::Idle) => {
                self.view = view;
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
                if let Err(failure) = &outcome {
                    look.failed(failure);
                }
                self.next = Some(look);
                return self.look_failed(context, outcome);
            }
        };
        self.seen = at;
        let looked = look.take(&self.layout, None, found);
        self.crowded = look.is_crowded();
        let leader = match looked {
            Looked::Found(entry) => Some(Some(entry)),
            Looked::Nobody => Some(None),
            Looked::Unfinished => None,
        };
        if let Some(leader) = leader {
            self.failed = 0;
            self.view = View::Settled;
            self.tell(context, leader);
        } else {
            self.next = Some(look);
            self.look_up(context);
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
                self.look_up(context);
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
        match &mut self.view {
            View::Idle => self.seen = self.seen.max(entry.modified),
            View::Looking { meanwhile, .. } => match meanwhile.last_mut() {
                // Only the key's latest value is told.
                Some(Change::Put(last)) if last.key == entry.key => *last = entry,
                Some(_) | None => meanwhile.push(Change::Put(entry)),
            },
            View::Settled if newer => match &self.told {
                Some(Some(leader)) if leader.key != entry.key => {}
                Some(Some(leader)) if leader.created != entry.created => {
                    self.seen = entry.modified;
                    self.look_up(context);
                }
                // The first of its kind, or the leader's new value.
                Some(_) | None => {
                    self.seen = entry.modified;
                    self.tell(context, Some(entry));
                }
            },
            View::Settled => {}
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
            View::Looking { meanwhile, .. } => meanwhile.push(Change::Deleted(deletion)),
            View::Settled if newer && leads => {
                self.seen = at;
                self.look_up(context);
            }
            View::Settled => {}
        }
    }

    fn look_up(&mut self, context: &mut Context) {
        self.stop_looking(context);
        let look = self.next.take().unwrap_or(Look::First);
        let read = Operation::Read([look.selection(&self.layout, None)].into());
        let call = context.call(Purpose::Observe(self.election), read);
        self.view = View::Looking { look, call, meanwhile: Vec::new() };
    }

    /// Gives up a look; the next one will be newer than all that was heard.
    fn stop_looking(&mut self, context: &mut Context) {
        context.timers.cancel(Timer::Election(self.election));
        match core::mem::replace(&mut self.view, View::Idle) {
            View::Looking { call, meanwhile, .. } => {
                context.forget(Some(call));
                for change in meanwhile {
                    self.watched(context, change);
                }
            }
            View::Settled | View::Idle => {}
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

/// Lists the candidates of an election, once: their keys page by page, and then their
/// values, some at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    election: ElectionId,
    layout: Layout,
    call: Option<RequestId>,
    failed: u32,
    /// Where the next page begins; none once all keys are known.
    from: Option<Vec<u8>>,
    /// How many keys, or values, a read asks for.
    limit: u32,
    /// The keys whose values are still to be read, in the order of the queue. Keys that one
    /// transaction created are told apart by the order in which they were found.
    keys: Table<(Revision, usize), Vec<u8>>,
    /// The candidates whose values are known.
    candidates: Vec<Entry>,
    /// How many bytes the keys and values have.
    bytes: usize,
}

/// How many values one read asks for.
const VALUES: u32 = 64;
/// How many candidates are listed at most, and how many bytes of their keys and values.
const MOST_CANDIDATES: usize = 30_000;
const MOST_BYTES: usize = 64 << 20;

impl Inspection {
    /// Reads nothing until [`due`](Self::due) is called.
    pub fn new(election: ElectionId, layout: Layout) -> Inspection {
        let from = Some(layout.followed().0);
        Inspection {
            election,
            layout,
            call: None,
            failed: 0,
            from,
            limit: PAGE,
            keys: Table::new(),
            candidates: Vec::new(),
            bytes: 0,
        }
    }

    /// Stops looking, as was asked for.
    pub fn leave(self, context: &mut Context) {
        context.timers.cancel(Timer::Election(self.election));
        context.forget(self.call);
        withdraw(context, self.election, None);
    }

    /// The next read, or the next try, is due.
    pub fn due(&mut self, context: &mut Context) {
        let selections = match &self.from {
            Some(from) => [self.layout.page(from.clone(), self.limit)].into(),
            None => {
                let next = self.keys.iter().take(self.limit as usize);
                next.map(|(_, key)| point(key.clone())).collect()
            }
        };
        self.call =
            Some(context.call(Purpose::Inspect(self.election), Operation::Read(selections)));
    }

    /// Takes the answer. True if the inspection is over.
    pub fn looked(&mut self, context: &mut Context, outcome: Result<Response, Failure>) -> bool {
        self.call = None;
        let failure = match outcome {
            Ok(Response::Snapshot(snapshot)) => {
                self.failed = 0;
                match self.from.take() {
                    Some(_) => self.take_page(snapshot.found.into_iter().flatten().collect()),
                    None => self.take_values(snapshot.found),
                }
                return self.go_on(context);
            }
            Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => {
                withdraw(context, self.election, Some(failure));
                return true;
            }
            Ok(_) => Failure::Other(unfit("read")),
            Err(failure) => failure,
        };
        self.limit = smaller(self.limit, &failure);
        self.failed = self.failed.saturating_add(1);
        context.retry(Timer::Election(self.election), self.failed);
        if self.failed == 1 {
            context.trouble(Some(self.election), failure);
        }
        false
    }

    fn take_page(&mut self, page: Vec<Entry>) {
        if page.len() >= self.limit as usize {
            self.from = page.last().map(|last| self.layout.after(&last.key));
        }
        for entry in page.into_iter().filter(|entry| self.layout.counts(&entry.key)) {
            self.bytes += entry.key.len();
            self.keys.insert((entry.created, self.keys.len()), entry.key);
        }
        if self.from.is_none() {
            self.limit = VALUES;
        }
    }

    /// Takes the values of the first keys, and leaves out candidates that have gone.
    fn take_values(&mut self, found: Vec<Vec<Entry>>) {
        for found in found {
            let Some((place, _)) = self.keys.first() else {
                return;
            };
            self.keys.remove(&place);
            let entry = found.into_iter().next().filter(|entry| entry.created == place.0);
            self.bytes += entry.as_ref().map_or(0, |entry| entry.value.len());
            self.candidates.extend(entry);
        }
        // If all have gone, others may have come.
        if self.keys.is_empty() && self.candidates.is_empty() {
            self.from = Some(self.layout.followed().0);
            self.limit = PAGE;
            self.bytes = 0;
        }
    }

    /// The next read, or the end.
    fn go_on(&mut self, context: &mut Context) -> bool {
        let too_much = if self.keys.len() + self.candidates.len() > MOST_CANDIDATES {
            Some("there are more than 30,000 candidates, or keys that look like theirs")
        } else if self.bytes > MOST_BYTES {
            Some("the candidates' keys and values have more than 64 MiB: shorten them")
        } else {
            None
        };
        if let Some(sentence) = too_much {
            withdraw(context, self.election, Some(Failure::Other(sentence.into())));
            return true;
        }
        if self.from.is_some() || !self.keys.is_empty() {
            self.due(context);
            return false;
        }
        let candidates = core::mem::take(&mut self.candidates);
        context.notify(Notice::Listed(Listing { election: self.election, candidates }));
        true
    }
}

/// Says that an election is over for the application.
pub fn withdraw(context: &mut Context, election: ElectionId, cause: Option<Failure>) {
    context.notify(Notice::Withdrawn(Withdrawal { election, cause }));
}
