//! The elector: takes what happened, and hands it to whom it concerns.
//!
//! What makes a candidate lead, or stop leading, is in `candidate`; the lease in
//! `session`; what has to go from the store in `farewell`. No other module
//! touches election state, and all of it changes inside [`Elector::handle`].

use alloc::format;
use alloc::vec::Vec;

use crate::candidate::{Candidate, Hands, tell_written, written};
use crate::context::{Asker, Context, Dirty, Purpose, RECHECK, Watcher};
use crate::farewell::{FarewellId, Farewells};
use crate::layout::{Layout, NameHash, hash, point_of_key, queue_of, written_key};
use crate::observer::{Inspection, Observer, withdraw};
use crate::session::{Session, Tenure, Turn};
use crate::table::{Table, with_hash};
use crate::timers::{FAR, Timer};
use crate::types::{
    Candidacy, Config, ConfigError, ElectionId, Entry, Event, Extension, Failure, Guarded,
    GuardedWrite, LeaseId, Mark, Notice, Observation, Operation, Reply, Response, Selection,
    Snapshot, Step, Watched, WriteOutcome,
};

/// How many elections one elector takes part in or follows.
const MOST_ELECTIONS: usize = 10_000;

/// How many elections, keys and timers one step looks at beyond what its events
/// concern. What is left is done by the next steps, which follow at once.
const PORTION: usize = 128;

/// How many keys one read of a check asks for; a store caps the size of a
/// transaction.
const MOST_CHECKED: usize = 64;

/// One lease, and any number of elections held on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elector {
    context: Context,
    session: Session,
    farewells: Farewells,
    elections: Table<ElectionId, Part>,
    /// The candidacies of a name, in the order in which they came.
    names: Table<(NameHash, u64), ()>,
    /// How many candidacies there are.
    candidates: usize,
    /// All inspections. Only one of them reads at a time, because it may hold many candidates.
    inspections: Table<ElectionId, ()>,
    inspecting: Option<ElectionId>,
    life: Life,
    /// How far everything on the lease has been looked at since it changed.
    sweep: Sweep,
    /// How far the watches have been checked.
    rechecked: Sweep,
    /// What this step may still look at.
    budget: usize,
}

/// The part taken in an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Candidate(Candidate),
    Observer(Observer),
    Inspection(Inspection),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Open,
    Closing,
    Closed,
}

/// What comes next, of all elections and all keys that are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sweep {
    Done,
    Elections(ElectionId),
    Farewells(FarewellId),
}

impl Elector {
    /// Opens an elector at the time `now`. It asks for nothing until there is an
    /// election to take part in.
    ///
    /// # Errors
    ///
    /// If the configuration leaves no time to lead.
    pub fn open(mut config: Config, now: Mark) -> Result<Elector, ConfigError> {
        config.lease_ttl = config.lease_ttl.min(FAR);
        config.request_timeout = config.request_timeout.min(FAR);
        Ok(Elector {
            session: Session::new(&config)?,
            context: Context::new(now.min(FAR), config.request_timeout, config.seed),
            farewells: Farewells::default(),
            elections: Table::new(),
            names: Table::new(),
            candidates: 0,
            inspections: Table::new(),
            inspecting: None,
            life: Life::Open,
            sweep: Sweep::Done,
            rechecked: Sweep::Done,
            budget: 0,
        })
    }

    /// Lets time pass to `now`, with all that falls due, then takes the events in
    /// order, and says what to do. The same history gives the same steps.
    ///
    /// Where that is much, the step does a portion, and wants to be woken at once for
    /// the next one.
    pub fn handle(&mut self, now: Mark, events: Vec<Event>) -> Step {
        self.context.now = now.min(FAR).max(self.context.now);
        self.budget = PORTION + events.len();
        if self.life != Life::Closed {
            self.pass_time();
        }
        for event in events {
            self.take(event);
            self.settle();
        }
        self.budget = 0;
        let ahead = self.context.now + 1;
        let deadline = match self.is_settled() {
            true => self.context.timers.next().map(|mark| mark.max(ahead)),
            false => Some(ahead),
        };
        Step { commands: self.context.take_commands(), deadline }
    }

    // Time.

    fn pass_time(&mut self) {
        // Whoever wakes late must hear first that its time is over.
        self.session.pass_deadline(&mut self.context);
        self.settle();
        // A timer that is set meanwhile is due later than now.
        while self.budget > 0
            && let Some(timer) = self.context.timers.pop_due(self.context.now)
        {
            self.budget -= 1;
            self.due(timer);
            self.settle();
            if self.context.now == FAR {
                break;
            }
        }
    }

    fn due(&mut self, timer: Timer) {
        match timer {
            Timer::Deadline => self.session.pass_deadline(&mut self.context),
            Timer::Endangered => self.session.endanger(&mut self.context),
            Timer::GiveUp(id) => {
                if !self.session.give_up(&mut self.context, id) {
                    self.answer(Reply { id, outcome: Err(Failure::Timeout) });
                }
            }
            Timer::Renewal => self.session.renew(&mut self.context),
            Timer::LeaseEnd => self.session.run_out(&mut self.context),
            Timer::GiveBack => self.session.retire(&mut self.context),
            Timer::Grant => self.session.ask(&mut self.context),
            Timer::Revoke(lease) => self.session.revoke(&mut self.context, lease),
            Timer::Election(id) => match self.elections.get_mut(&id) {
                Some(Part::Candidate(_)) => {
                    if let Some((candidate, mut hands)) = self.enter(id) {
                        candidate.due(&mut hands);
                    }
                }
                Some(Part::Observer(observer)) => observer.due(&mut self.context),
                Some(Part::Inspection(inspection)) => inspection.due(&mut self.context),
                None => {}
            },
            Timer::Farewell(id) => self.farewells.try_again(&mut self.context, id),
            Timer::Rewatch(watch) => self.context.open(watch),
            Timer::Recheck => self.recheck(),
        }
    }

    // Events.

    fn take(&mut self, event: Event) {
        match event {
            Event::Wake => {}
            Event::Reply(reply) => self.answer(reply),
            Event::Watched(watched) => self.watched(watched),
            Event::Campaign(candidacy) => self.campaign(candidacy),
            Event::Observe(observation) => {
                if let Some((id, layout)) = self.check_observation(observation) {
                    let observer = Observer::new(&mut self.context, id, layout);
                    self.elections.insert(id, Part::Observer(observer));
                }
            }
            Event::Inspect(observation) => {
                if let Some((id, layout)) = self.check_observation(observation) {
                    let inspection = Inspection::new(id, layout);
                    self.elections.insert(id, Part::Inspection(inspection));
                    self.inspections.insert(id, ());
                    self.start_inspection();
                }
            }
            Event::Proclaim(proclamation) => {
                let ticket = proclamation.ticket;
                match self.elections.get(&proclamation.election) {
                    Some(Part::Candidate(_)) => {
                        if let Some((candidate, mut hands)) = self.enter(proclamation.election) {
                            candidate.proclaim(&mut hands, ticket, proclamation.value);
                        }
                    }
                    Some(Part::Observer(_) | Part::Inspection(_)) | None => {
                        tell_written(&mut self.hands(), ticket, WriteOutcome::Stale);
                    }
                }
            }
            Event::Write(write) => self.write(write),
            Event::Resign(term) => {
                if let Some((candidate, mut hands)) = self.enter(term.election) {
                    candidate.resign(&mut hands, term.epoch);
                }
            }
            Event::Yielded(term) => {
                if let Some((candidate, mut hands)) = self.enter(term.election) {
                    candidate.yielded(&mut hands, term.epoch);
                }
            }
            Event::Leave(election) => self.leave(election),
            Event::Close => self.close(),
        }
    }

    fn campaign(&mut self, candidacy: Candidacy) {
        let election = candidacy.election;
        if !self.admits(election) {
            return;
        }
        let admitted = self.context.admitted.saturating_add(1);
        let candidate = match Candidate::new(candidacy, admitted) {
            Ok(candidate) => candidate,
            Err(sentence) => {
                return withdraw(&mut self.context, election, Some(Failure::Invalid(sentence)));
            }
        };
        let name = candidate.layout().name();
        let name_hash = hash(name.as_bytes());
        let waits = self.of_name(name).next().is_some();
        let beside = self.of_name(name).any(|(_, other)| !other.is_ending());
        if beside {
            let sentence = format!(
                "there is a candidacy for `{name}` on this elector already: leave it first, or \
                 open another elector"
            );
            return withdraw(&mut self.context, election, Some(Failure::Invalid(sentence)));
        }
        self.names.insert((name_hash, election.into()), ());
        self.context.admitted = admitted;
        self.candidates += 1;
        self.elections.insert(election, Part::Candidate(candidate));
        // One that ends with its present term is let end first.
        if !waits {
            self.begin(election);
        }
    }

    /// The candidacies of a name: one, or one that is ending and the next one.
    fn of_name(&self, name: &str) -> impl Iterator<Item = (ElectionId, &Candidate)> {
        self.with_hash(hash(name.as_bytes()))
            .filter_map(|id| Some((id, self.candidate(id)?)))
            .filter(move |(_, candidate)| candidate.layout().name() == name)
    }

    fn with_hash(&self, hash: NameHash) -> impl Iterator<Item = ElectionId> {
        with_hash(&self.names, hash).filter_map(|id| ElectionId::try_from(id).ok())
    }

    fn candidate(&self, election: ElectionId) -> Option<&Candidate> {
        match self.elections.get(&election) {
            Some(Part::Candidate(candidate)) => Some(candidate),
            Some(Part::Observer(_) | Part::Inspection(_)) | None => None,
        }
    }

    /// Begins a candidacy, if it does not wait for another one's end.
    fn begin(&mut self, election: ElectionId) {
        let newest = self.context.newest;
        if let Some(Part::Candidate(candidate)) = self.elections.get_mut(&election) {
            candidate.begin(newest);
            self.context.touch(election);
            self.context.lease_is_dirty = true;
        }
    }

    /// Takes out a candidacy that is over; the next one of its name begins.
    fn remove(&mut self, election: ElectionId) {
        let Some(Part::Candidate(over)) = self.elections.remove(&election) else {
            return;
        };
        self.candidates -= 1;
        self.context.lease_is_dirty = true;
        let name = over.layout().name();
        self.names.remove(&(hash(name.as_bytes()), election.into()));
        let next = self.of_name(name).next().map(|(next, _)| next);
        if let Some(next) = next {
            self.begin(next);
        }
    }

    /// Checks an observation, or refuses it with a sentence.
    fn check_observation(&mut self, observation: Observation) -> Option<(ElectionId, Layout)> {
        let election = observation.election;
        if !self.admits(election) {
            return None;
        }
        match Layout::of(observation) {
            Ok(layout) => Some((election, layout)),
            Err(sentence) => {
                withdraw(&mut self.context, election, Some(Failure::Invalid(sentence)));
                None
            }
        }
    }

    /// Starts the next inspection, unless one is running.
    fn start_inspection(&mut self) {
        if self.inspecting.is_none() && self.life == Life::Open {
            self.inspecting = self.inspections.first().map(|(next, ())| next);
            if let Some(next) = self.inspecting
                && let Some(Part::Inspection(inspection)) = self.elections.get_mut(&next)
            {
                inspection.due(&mut self.context);
            }
        }
    }

    /// Forgets an inspection that is over, and starts the next one.
    fn end_inspection(&mut self, election: ElectionId) {
        self.inspections.remove(&election);
        if self.inspecting == Some(election) {
            self.inspecting = None;
            self.start_inspection();
        }
    }

    /// Whether an election may begin under this id; says why not.
    fn admits(&mut self, election: ElectionId) -> bool {
        if self.elections.contains_key(&election) {
            let sentence = format!("the election id {election} is in use: choose another");
            self.context.trouble(Some(election), Failure::Invalid(sentence));
            return false;
        }
        let sentence = if self.life != Life::Open {
            "the elector is closed: open another"
        } else if self.elections.len() >= MOST_ELECTIONS {
            "the elector holds 10,000 elections already: open another"
        } else {
            return true;
        };
        withdraw(&mut self.context, election, Some(Failure::Invalid(sentence.into())));
        false
    }

    fn write(&mut self, write: GuardedWrite) {
        let GuardedWrite { term, ticket, expect, mutations } = write;
        let now = self.context.now;
        let guard = match (self.elections.get(&term.election), self.session.tenure()) {
            (Some(Part::Candidate(candidate)), Some(tenure)) if tenure.valid_until > now => {
                candidate
                    .leading(term.epoch)
                    .map(|(key, lease)| candidate.layout().guard(key.into(), term.epoch, lease))
            }
            (Some(_) | None, _) => None,
        };
        let Some(guard) = guard else {
            return tell_written(&mut self.hands(), ticket, WriteOutcome::Stale);
        };
        let check = |mutation| {
            let key = written_key(mutation)?;
            self.owner(key).map_or(Ok(()), |layout| Err(layout.refuse_write(key)))
        };
        if let Err(sentence) = mutations.iter().try_for_each(check) {
            let outcome = WriteOutcome::Failed(Failure::Invalid(sentence));
            return tell_written(&mut self.hands(), ticket, outcome);
        }
        let purpose = Purpose::Write { election: term.election, epoch: term.epoch, ticket };
        let guarded = Guarded { guard, expect, mutations };
        self.context.call(purpose, Operation::Guarded(guarded));
    }

    /// The election of ours whose own key this is.
    fn owner(&self, key: &[u8]) -> Option<&Layout> {
        let names = [Some(key), queue_of(key)].into_iter().flatten();
        let ids = names.flat_map(|name| self.with_hash(hash(name)));
        ids.filter_map(|id| Some(self.candidate(id)?.layout())).find(|layout| layout.owns(key))
    }

    fn leave(&mut self, election: ElectionId) {
        match self.elections.get(&election) {
            Some(Part::Candidate(_)) => {
                if let Some((candidate, mut hands)) = self.enter(election) {
                    candidate.leave(&mut hands);
                }
            }
            Some(Part::Observer(_) | Part::Inspection(_)) => {
                match self.elections.remove(&election) {
                    Some(Part::Observer(observer)) => observer.leave(&mut self.context),
                    Some(Part::Inspection(inspection)) => {
                        inspection.leave(&mut self.context);
                        self.end_inspection(election);
                    }
                    Some(Part::Candidate(_)) | None => {}
                }
            }
            None => {}
        }
    }

    fn close(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Closing;
            self.context.lease_is_dirty = true;
            // Whoever is looked at leaves.
            self.context.sweep = true;
        }
    }

    // The store.

    fn answer(&mut self, reply: Reply) {
        let Reply { id, outcome } = reply;
        if let Some(turn) = self.session.renewed(&mut self.context, id, &outcome) {
            return self.turn(turn);
        }
        let Some(purpose) = self.context.answered(id) else {
            return;
        };
        match purpose {
            Purpose::Grant { sent } => self.session.granted(&mut self.context, sent, outcome),
            Purpose::Revoke(lease) => self.session.revoked(&mut self.context, lease, &outcome),
            Purpose::Claim { election, lease } => {
                if let Ok(Response::Expired) = outcome {
                    self.lose(lease);
                } else {
                    if let Some((candidate, mut hands)) = self.enter(election) {
                        candidate.claimed(&mut hands, outcome);
                    }
                }
            }
            Purpose::Survey(election) => {
                if let Some((candidate, mut hands)) = self.enter(election) {
                    candidate.surveyed(&mut hands, outcome);
                }
            }
            Purpose::Check(election) => {
                if let Some((candidate, mut hands)) = self.enter(election) {
                    candidate.checked(&mut hands, outcome);
                }
            }
            Purpose::Proclaim { election, created, ticket } => {
                if let Some(Part::Candidate(_)) = self.elections.get(&election) {
                    if let Some((candidate, mut hands)) = self.enter(election) {
                        candidate.proclaimed(&mut hands, created, ticket, outcome);
                    }
                } else if let Some(ticket) = ticket {
                    tell_written(&mut self.hands(), ticket, written(outcome));
                }
            }
            Purpose::Write { election, epoch, ticket } => {
                let outcome = written(outcome);
                let fenced = outcome == WriteOutcome::Stale;
                tell_written(&mut self.hands(), ticket, outcome);
                if fenced && let Some((candidate, mut hands)) = self.enter(election) {
                    candidate.fenced(&mut hands, epoch);
                }
            }
            Purpose::Observe(election) => {
                if let Some(Part::Observer(observer)) = self.elections.get_mut(&election) {
                    observer.looked(&mut self.context, outcome);
                }
            }
            Purpose::Inspect(election) => {
                if let Some(Part::Inspection(inspection)) = self.elections.get_mut(&election)
                    && inspection.looked(&mut self.context, outcome)
                {
                    self.elections.remove(&election);
                    self.end_inspection(election);
                }
            }
            Purpose::Farewell(id) => self.farewells.answered(&mut self.context, id, outcome),
            Purpose::Recheck(asked) => {
                if let Ok(Response::Snapshot(snapshot)) = outcome {
                    self.rechecked(asked, snapshot);
                }
            }
        }
    }

    fn watched(&mut self, watched: Watched) {
        let Watched { id, change } = watched;
        match self.context.watched(id, &change) {
            Some(Watcher::Own(election)) => {
                if let Some((candidate, mut hands)) = self.enter(election) {
                    candidate.own_key_changed(&mut hands, change);
                }
            }
            Some(Watcher::Front(election)) => {
                if let Some((candidate, mut hands)) = self.enter(election) {
                    candidate.front_key_changed(&mut hands, change);
                }
            }
            Some(Watcher::Observer(election)) => {
                if let Some(Part::Observer(observer)) = self.elections.get_mut(&election) {
                    observer.watched(&mut self.context, change);
                }
            }
            Some(Watcher::Farewell(id)) => {
                self.farewells.watched(&mut self.context, id, change);
            }
            None => {}
        }
    }

    /// Compares what the watches told with reads, a portion of them at a time: all of
    /// them once in each period.
    fn recheck(&mut self) {
        if self.rechecked == Sweep::Done {
            self.rechecked = Sweep::Elections(0);
        }
        let mut selections = Vec::new();
        let mut asked = Vec::new();
        for _ in 0..PORTION {
            let Some(asker) = self.next_of(self.rechecked) else {
                self.rechecked = Sweep::Done;
                break;
            };
            self.rechecked = after(asker);
            if let Asker::Election(election) = asker
                && let Some(Part::Observer(observer)) = self.elections.get_mut(&election)
                && observer.looks_again(&mut self.context)
            {
                continue;
            }
            let selected = self.rechecks(asker);
            if selections.len() + selected.len() > MOST_CHECKED {
                let read = Operation::Read(core::mem::take(&mut selections));
                self.context.call(Purpose::Recheck(core::mem::take(&mut asked)), read);
            }
            if !selected.is_empty() {
                asked.push((asker, selected.iter().map(|it: &Selection| it.key.clone()).collect()));
                selections.extend(selected);
            }
        }
        if !asked.is_empty() {
            self.context.call(Purpose::Recheck(asked), Operation::Read(selections));
        }
        let all = self.elections.len() + self.farewells.len();
        let portions = all.div_ceil(PORTION).max(1) as u64;
        self.context
            .timers
            .set(Timer::Recheck, self.context.now.saturating_add(RECHECK / portions));
    }

    /// What is read to check the watches of one.
    fn rechecks(&self, asker: Asker) -> Vec<Selection> {
        match asker {
            Asker::Election(election) => match self.elections.get(&election) {
                Some(Part::Candidate(candidate)) => candidate.selections(),
                Some(Part::Observer(observer)) => observer.selection().into_iter().collect(),
                Some(Part::Inspection(_)) | None => Vec::new(),
            },
            Asker::Farewell(id) => {
                self.farewells.awaited(id).map(|key| point_of_key(key.into())).into_iter().collect()
            }
        }
    }

    fn rechecked(&mut self, asked: Vec<(Asker, Vec<Vec<u8>>)>, snapshot: Snapshot) {
        let Snapshot { at, found } = snapshot;
        let mut found = found.into_iter();
        for (asker, keys) in asked {
            let found: Vec<Vec<Entry>> = found.by_ref().take(keys.len()).collect();
            match asker {
                Asker::Election(election) => match self.elections.get_mut(&election) {
                    Some(Part::Candidate(_)) => {
                        if let Some((candidate, mut hands)) = self.enter(election) {
                            candidate.examine(&mut hands, &keys, found, at);
                        }
                    }
                    Some(Part::Observer(observer)) => {
                        if let Some(found) = found.first() {
                            observer.examine(&mut self.context, found, at);
                        }
                    }
                    Some(Part::Inspection(_)) | None => {}
                },
                Asker::Farewell(id) => {
                    if let Some(found) = found.first() {
                        self.farewells.examine(&mut self.context, id, found);
                    }
                }
            }
        }
    }

    // The lease.

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::None => {}
            Turn::Extended => {
                let now = self.context.now;
                if self.session.tenure().is_some_and(|tenure| tenure.valid_until > now) {
                    for election in core::mem::take(&mut self.context.overdue) {
                        self.context.touch(election);
                    }
                }
            }
            Turn::Lost(lease) => self.lose(lease),
        }
    }

    /// The store says that the lease is gone.
    fn lose(&mut self, lease: LeaseId) {
        if self.context.lease == Some(lease) {
            let sentence = "the store says that the lease is gone: getting back in line";
            self.context.trouble(None, Failure::Other(sentence.into()));
            self.session.lose(&mut self.context);
        }
    }

    // The end of a step.

    /// Brings elections, farewells and the lease in line with one another, as far as
    /// this step goes.
    fn settle(&mut self) {
        loop {
            self.look_at_what_changed();
            if !core::mem::take(&mut self.context.lease_is_dirty) {
                break;
            }
            let candidates = self.candidates > 0;
            let removals = self.farewells.is_removing();
            let spare = self.life == Life::Open
                && self.context.lease.is_some()
                && self.farewells.is_empty();
            if candidates || removals || spare {
                self.session.settle(&mut self.context, candidates, removals);
            } else {
                self.session.retire(&mut self.context);
            }
        }
        self.tell_extension();
        if self.life == Life::Closing
            && self.elections.is_empty()
            && self.session.is_over()
            && self.is_settled()
        {
            self.life = Life::Closed;
            for ticket in self.context.forget_all() {
                tell_written(&mut self.hands(), ticket, WriteOutcome::Unknown);
            }
            self.context.notify(Notice::Closed);
        }
    }

    fn is_settled(&self) -> bool {
        self.context.dirty.is_empty() && !self.context.sweep && self.sweep == Sweep::Done
    }

    fn look_at_what_changed(&mut self) {
        while self.budget > 0 {
            match self.context.dirty.pop_front() {
                Some(Dirty::Election(election)) => self.look_at(election),
                Some(Dirty::Name(name)) => {
                    for id in with_hash(&self.names, name) {
                        self.context.touch(id as ElectionId);
                    }
                    continue;
                }
                None => {
                    if core::mem::take(&mut self.context.sweep) {
                        self.sweep = Sweep::Elections(0);
                    }
                    match self.next_of(self.sweep) {
                        Some(asker) => {
                            self.sweep = after(asker);
                            match asker {
                                Asker::Election(election) => self.look_at(election),
                                Asker::Farewell(id) => {
                                    self.farewells.is_current(&mut self.context, id);
                                }
                            }
                        }
                        None => {
                            if self.sweep != Sweep::Done {
                                self.sweep = Sweep::Done;
                                self.session.swept();
                            }
                            return;
                        }
                    }
                }
            }
            self.budget -= 1;
        }
    }

    /// Has one election do what follows from all that has changed.
    fn look_at(&mut self, election: ElectionId) {
        if self.life == Life::Closing {
            self.leave(election);
        }
        if let Some((candidate, mut hands)) = self.enter(election) {
            candidate.settle(&mut hands);
        };
        if let Some(Part::Candidate(candidate)) = self.elections.get(&election)
            && candidate.is_over()
        {
            self.remove(election);
        }
    }

    /// The next one to be looked at.
    fn next_of(&self, sweep: Sweep) -> Option<Asker> {
        let farewell = |from| Some(Asker::Farewell(self.farewells.next(from)?));
        match sweep {
            Sweep::Done => None,
            Sweep::Elections(from) => match self.elections.next(&from) {
                Some((election, _)) => Some(Asker::Election(election)),
                None => farewell(0),
            },
            Sweep::Farewells(from) => farewell(from),
        }
    }

    /// Tells those who lead, all at once, that the lease lives longer: after those have
    /// been told otherwise whose time was over before.
    fn tell_extension(&mut self) {
        if self.context.leaders > 0
            && self.is_settled()
            && let Some(tenure) = self.session.tenure()
            && tenure.valid_until > self.context.now
            && (tenure.lease, tenure.valid_until) != self.context.announced
        {
            let Tenure { lease, valid_until, .. } = tenure;
            self.context.announced = (lease, valid_until);
            self.context.notify(Notice::Extended(Extension { lease, valid_until }));
        }
    }

    fn hands(&mut self) -> Hands<'_> {
        Hands {
            context: &mut self.context,
            farewells: &mut self.farewells,
            session: &self.session,
            tenure: self.session.tenure(),
        }
    }

    /// A candidate that knows what has become of the lease, and what it works with.
    fn enter(&mut self, election: ElectionId) -> Option<(&mut Candidate, Hands<'_>)> {
        let Some(Part::Candidate(candidate)) = self.elections.get_mut(&election) else {
            return None;
        };
        let mut hands = Hands {
            context: &mut self.context,
            farewells: &mut self.farewells,
            session: &self.session,
            tenure: self.session.tenure(),
        };
        candidate.catch_up(&mut hands);
        Some((candidate, hands))
    }
}

fn after(asker: Asker) -> Sweep {
    match asker {
        Asker::Election(election) => match election.checked_add(1) {
            Some(next) => Sweep::Elections(next),
            None => Sweep::Farewells(0),
        },
        Asker::Farewell(id) => Sweep::Farewells(id + 1),
    }
}
