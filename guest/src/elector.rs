//! The elector: takes what happened, and hands it to whom it concerns.
//!
//! What makes a candidate lead, or stop leading, is in `candidate`; the lease in
//! `session`; what has to go from the store in `farewell`. No other module
//! touches election state, and all of it changes inside [`Elector::handle`].

use alloc::format;
use alloc::vec::Vec;

use crate::candidate::{Candidate, Hands, tell_written, written};
use crate::context::{Context, Purpose, RECHECK, Watcher};
use crate::farewell::Farewells;
use crate::layout::{Layout, point};
use crate::observer::{Inspection, Observer, withdraw};
use crate::session::{Session, Turn};
use crate::table::Table;
use crate::timers::{FAR, Timer};
use crate::types::{
    Candidacy, Config, ConfigError, ElectionId, Entry, Event, Failure, Guarded, GuardedWrite,
    LeaseId, Mark, Notice, Observation, Operation, Reply, Response, Snapshot, Step, Watched,
    WriteOutcome,
};

/// How many elections one elector takes part in or follows: a cluster manager may
/// cap the keys of a lease.
const MOST_ELECTIONS: usize = 1_000;

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
    life: Life,
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
            life: Life::Open,
        })
    }

    /// Lets time pass to `now`, with all that falls due, then takes the events in
    /// order, and says what to do. The same history gives the same steps.
    pub fn handle(&mut self, now: Mark, events: Vec<Event>) -> Step {
        self.context.now = now.min(FAR).max(self.context.now);
        if self.life != Life::Closed {
            self.pass_time();
        }
        for event in events {
            self.take(event);
            self.settle();
        }
        let ahead = self.context.now + 1;
        Step {
            commands: self.context.take_commands(),
            deadline: self.context.timers.next().map(|mark| mark.max(ahead)),
        }
    }

    // Time.

    fn pass_time(&mut self) {
        // Whoever wakes late must hear first that its time is over.
        if let Some(tenure) = self.session.tenure()
            && tenure.valid_until <= self.context.now
        {
            self.context.timers.cancel(Timer::Deadline);
            self.each_candidate(Candidate::expired);
            self.settle();
        }
        // A timer that is set meanwhile is due later than now.
        while let Some(timer) = self.context.timers.pop_due(self.context.now) {
            self.due(timer);
            self.settle();
            if self.context.now == FAR {
                break;
            }
        }
    }

    fn due(&mut self, timer: Timer) {
        match timer {
            Timer::Deadline => self.each_candidate(Candidate::expired),
            Timer::Endangered => self.each_candidate(Candidate::endangered),
            Timer::GiveUp(id) => {
                if !self.session.give_up(&mut self.context, id) {
                    self.answer(Reply { id, outcome: Err(Failure::Timeout) });
                }
            }
            Timer::Renewal => self.session.renew(&mut self.context),
            Timer::LeaseEnd => {
                self.session.run_out(&mut self.context);
                self.farewells.lease_ended(&mut self.context);
            }
            Timer::GiveBack => self.give_back(),
            Timer::Grant => self.session.ask(&mut self.context),
            Timer::Revoke(lease) => self.session.revoke(&mut self.context, lease),
            Timer::Election(id) => match self.elections.get_mut(&id) {
                Some(Part::Candidate(_)) => self.with_candidate(id, Candidate::due),
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
            Event::Observe(observation) => self.look_on(observation, |context, id, layout| {
                Part::Observer(Observer::new(context, id, layout))
            }),
            Event::Inspect(observation) => self.look_on(observation, |context, id, layout| {
                Part::Inspection(Inspection::new(context, id, layout))
            }),
            Event::Proclaim(proclamation) => {
                let ticket = proclamation.ticket;
                match self.elections.get(&proclamation.election) {
                    Some(Part::Candidate(_)) => {
                        self.with_candidate(proclamation.election, |candidate, hands| {
                            candidate.proclaim(hands, ticket, proclamation.value);
                        });
                    }
                    Some(Part::Observer(_) | Part::Inspection(_)) | None => {
                        tell_written(&mut self.hands(), ticket, WriteOutcome::Stale);
                    }
                }
            }
            Event::Write(write) => self.write(write),
            Event::Resign(term) => self.with_candidate(term.election, |candidate, hands| {
                candidate.resign(hands, term.epoch);
            }),
            Event::Yielded(term) => self.with_candidate(term.election, |candidate, hands| {
                candidate.yielded(hands, term.epoch);
            }),
            Event::Leave(election) => self.leave(election),
            Event::Close => self.close(),
        }
    }

    fn campaign(&mut self, candidacy: Candidacy) {
        let election = candidacy.election;
        if !self.admits(election) {
            return;
        }
        let double = self.elections.values().any(|part| match part {
            Part::Candidate(candidate) => candidate.layout().name() == candidacy.name,
            Part::Observer(_) | Part::Inspection(_) => false,
        });
        if double {
            let name = candidacy.name.escape_debug();
            let sentence = format!(
                "there is a candidacy for `{name}` on this elector already: leave it first, or \
                 open another elector"
            );
            return withdraw(&mut self.context, election, Some(Failure::Invalid(sentence)));
        }
        match Candidate::new(candidacy, self.context.newest) {
            Ok(candidate) => {
                self.elections.insert(election, Part::Candidate(candidate));
                self.context.unsettled = true;
            }
            Err(sentence) => {
                withdraw(&mut self.context, election, Some(Failure::Invalid(sentence)));
            }
        }
    }

    fn look_on(
        &mut self,
        observation: Observation,
        begin: fn(&mut Context, ElectionId, Layout) -> Part,
    ) {
        let election = observation.election;
        if !self.admits(election) {
            return;
        }
        match Layout::of(observation) {
            Ok(layout) => {
                let part = begin(&mut self.context, election, layout);
                self.elections.insert(election, part);
            }
            Err(sentence) => {
                withdraw(&mut self.context, election, Some(Failure::Invalid(sentence)));
            }
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
            "the elector holds 1,000 elections already: open another"
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
        let refusal = self.elections.values().find_map(|part| match part {
            Part::Candidate(candidate) => {
                let check = |mutation| candidate.layout().check_mutation(mutation);
                mutations.iter().try_for_each(check).err()
            }
            Part::Observer(_) | Part::Inspection(_) => None,
        });
        if let Some(sentence) = refusal {
            let outcome = WriteOutcome::Failed(Failure::Invalid(sentence));
            return tell_written(&mut self.hands(), ticket, outcome);
        }
        let purpose = Purpose::Write { election: term.election, epoch: term.epoch, ticket };
        let guarded = Guarded { guard, expect, mutations };
        self.context.call(purpose, Operation::Guarded(guarded));
    }

    fn leave(&mut self, election: ElectionId) {
        match self.elections.get(&election) {
            Some(Part::Candidate(_)) => self.with_candidate(election, Candidate::leave),
            Some(Part::Observer(_) | Part::Inspection(_)) => {
                match self.elections.remove(&election) {
                    Some(Part::Observer(observer)) => observer.leave(&mut self.context),
                    Some(Part::Inspection(inspection)) => inspection.leave(&mut self.context),
                    Some(Part::Candidate(_)) | None => {}
                }
            }
            None => {}
        }
    }

    fn close(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Closing;
            self.context.unsettled = true;
            let all: Vec<ElectionId> = self.elections.keys().collect();
            for election in all {
                self.leave(election);
            }
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
            Purpose::Grant { sent } => {
                let turn = self.session.granted(&mut self.context, sent, outcome);
                self.turn(turn);
            }
            Purpose::Revoke(lease) => self.session.revoked(&mut self.context, lease, &outcome),
            Purpose::Claim { election, lease } => {
                if let Ok(Response::Expired) = outcome {
                    self.lose(lease);
                } else {
                    self.with_candidate(election, |candidate, hands| {
                        candidate.claimed(hands, outcome);
                    });
                }
            }
            Purpose::Survey(election) => self.with_candidate(election, |candidate, hands| {
                candidate.surveyed(hands, outcome);
            }),
            Purpose::Check(election) => self.with_candidate(election, |candidate, hands| {
                candidate.checked(hands, outcome);
            }),
            Purpose::Proclaim { election, created, ticket } => {
                if let Some(Part::Candidate(_)) = self.elections.get(&election) {
                    self.with_candidate(election, |candidate, hands| {
                        candidate.proclaimed(hands, created, ticket, outcome);
                    });
                } else if let Some(ticket) = ticket {
                    tell_written(&mut self.hands(), ticket, written(outcome));
                }
            }
            Purpose::Write { election, epoch, ticket } => {
                let outcome = written(outcome);
                let fenced = outcome == WriteOutcome::Stale;
                tell_written(&mut self.hands(), ticket, outcome);
                if fenced {
                    self.with_candidate(election, |candidate, hands| {
                        candidate.fenced(hands, epoch);
                    });
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
            Some(Watcher::Own(election)) => self.with_candidate(election, |candidate, hands| {
                candidate.own_key_changed(hands, change);
            }),
            Some(Watcher::Front(election)) => self.with_candidate(election, |candidate, hands| {
                candidate.front_key_changed(hands, change);
            }),
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

    /// Compares what the watches told with reads of as many keys as fit into one.
    fn recheck(&mut self) {
        self.context.timers.set(Timer::Recheck, self.context.now.saturating_add(RECHECK));
        let mut selections = Vec::new();
        let mut asked = Vec::new();
        for (election, part) in self.elections.iter() {
            let (keys, selected): (Vec<_>, Vec<_>) = match part {
                Part::Candidate(candidate) => {
                    candidate.points().into_iter().map(|key| (key.clone(), point(key))).unzip()
                }
                Part::Observer(observer) => observer
                    .selection()
                    .into_iter()
                    .map(|selection| (selection.key.clone(), selection))
                    .unzip(),
                Part::Inspection(_) => continue,
            };
            if selections.len() + selected.len() > MOST_CHECKED {
                let read = Operation::Read(core::mem::take(&mut selections));
                self.context.call(Purpose::Recheck(core::mem::take(&mut asked)), read);
            }
            if !keys.is_empty() {
                selections.extend(selected);
                asked.push((election, keys));
            }
        }
        if !asked.is_empty() {
            self.context.call(Purpose::Recheck(asked), Operation::Read(selections));
        }
    }

    fn rechecked(&mut self, asked: Vec<(ElectionId, Vec<Vec<u8>>)>, snapshot: Snapshot) {
        let Snapshot { at, found } = snapshot;
        let mut found = found.into_iter();
        for (election, keys) in asked {
            let found: Vec<Vec<Entry>> = found.by_ref().take(keys.len()).collect();
            match self.elections.get_mut(&election) {
                Some(Part::Candidate(_)) => self.with_candidate(election, |candidate, hands| {
                    candidate.examine(hands, &keys, found, at);
                }),
                Some(Part::Observer(observer)) => {
                    if let Some(found) = found.first() {
                        observer.examine(&mut self.context, found, at);
                    }
                }
                Some(Part::Inspection(_)) | None => {}
            }
        }
    }

    // The lease.

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::None => {}
            Turn::Extended => self.each_candidate(Candidate::extended),
            Turn::Lost(lease) => self.lose(lease),
            Turn::Refused(failure) => {
                self.each_candidate(|candidate, hands| candidate.refused(hands, failure.clone()));
            }
        }
    }

    /// The store says that the lease is gone.
    fn lose(&mut self, lease: LeaseId) {
        if self.session.tenure().is_none_or(|tenure| tenure.lease != lease) {
            return;
        }
        let sentence = "the store says that the lease is gone: getting back in line";
        self.context.trouble(None, Failure::Other(sentence.into()));
        self.each_candidate(Candidate::lease_lost);
        self.farewells.lease_ended(&mut self.context);
        self.session.lose(&mut self.context);
    }

    /// Nobody needs the lease, and what may still turn up under it goes with it.
    fn give_back(&mut self) {
        self.farewells.lease_ended(&mut self.context);
        self.session.retire(&mut self.context);
    }

    // The end of a step.

    /// Brings elections, farewells and the lease in line with one another.
    fn settle(&mut self) {
        while core::mem::take(&mut self.context.unsettled) {
            self.elections.retain(|part| match part {
                Part::Candidate(candidate) => !candidate.is_over(),
                Part::Observer(_) | Part::Inspection(_) => true,
            });
            let candidates = self.elections.values().any(|part| match part {
                Part::Candidate(_) => true,
                Part::Observer(_) | Part::Inspection(_) => false,
            });
            let removals = self.farewells.is_removing();
            let spare = self.life == Life::Open
                && self.session.tenure().is_some()
                && self.farewells.is_empty();
            if candidates || removals || spare {
                self.session.settle(&mut self.context, candidates, removals);
            } else {
                self.give_back();
            }
            self.each_candidate(Candidate::settle);
        }
        if self.life == Life::Closing && self.elections.is_empty() && self.session.is_over() {
            self.life = Life::Closed;
            for ticket in self.context.forget_all() {
                tell_written(&mut self.hands(), ticket, WriteOutcome::Unknown);
            }
            self.context.notify(Notice::Closed);
        }
    }

    fn hands(&mut self) -> Hands<'_> {
        Hands {
            context: &mut self.context,
            farewells: &mut self.farewells,
            tenure: self.session.tenure(),
        }
    }

    fn with_candidate(
        &mut self,
        election: ElectionId,
        act: impl FnOnce(&mut Candidate, &mut Hands<'_>),
    ) {
        if let Some(Part::Candidate(candidate)) = self.elections.get_mut(&election) {
            let mut hands = Hands {
                context: &mut self.context,
                farewells: &mut self.farewells,
                tenure: self.session.tenure(),
            };
            act(candidate, &mut hands);
        }
    }

    fn each_candidate(&mut self, mut act: impl FnMut(&mut Candidate, &mut Hands<'_>)) {
        let mut hands = Hands {
            context: &mut self.context,
            farewells: &mut self.farewells,
            tenure: self.session.tenure(),
        };
        for part in self.elections.values_mut() {
            if let Part::Candidate(candidate) = part {
                act(candidate, &mut hands);
            }
        }
    }
}
