//! The elector: hands each event to the part that it concerns.
//!
//! `candidate` decides who leads, `session` holds the lease, and `cleanup` deletes keys from the
//! store. No other module touches election state, and all of it changes inside
//! [`Elector::handle`].
//!
//! An event only changes the parts that it concerns. A change that concerns everything on the
//! lease (the lease was granted or lost, or its deadline passed) is noted once. Each candidate
//! catches up with it before it does anything else. A sweep visits those that have something to do
//! about it, in portions of 128 a step, and passes over the others.

mod checks;
mod wishes;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::candidate::{Candidate, CandidateContext, Inputs, Next};
use crate::cleanup::Cleanup;
use crate::context::{Answer, Asker, Context, Dirty, Purpose, Watcher, snapshot, write_outcome};
use crate::inspection::Inspection;
use crate::layout::{Layout, NameHash, hash, queue_of, written_key};
use crate::observer::Observer;
use crate::session::{Session, Validity};
use crate::table::{Table, with_first};
use crate::text::decimal;
use crate::timers::{FAR, SECOND, Timer};
use crate::types::{
    Candidacy, Config, ConfigError, ElectionId, Epoch, Event, Extension, Failure, Guarded,
    GuardedWrite, Limit, Mark, Notice, Observation, Operation, Proclamation, Reply, Response,
    Snapshot, Step, Term, Ticket, Watched, WriteOutcome,
};

/// How many elections one elector takes part in or follows.
const MOST_ELECTIONS: usize = 10_000;

/// How many elections, keys and timers one step handles; more where it is given more events.
/// The next steps handle the others, and follow at once.
const PORTION: usize = 128;

/// How many further ones a step handles without a command, such as deletions that end with their
/// lease. They cost little.
const SILENT: usize = 1_250;

/// One lease, and any number of elections held on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elector {
    context: Context,
    session: Session,
    cleanup: Cleanup,
    elections: Table<ElectionId, Participation>,
    /// The candidacies by name, in the order in which they came.
    names: Table<(NameHash, u64), ()>,
    /// All inspections. Only one reads at a time, because its results may be large.
    inspections: VecDeque<ElectionId>,
    inspecting: Option<ElectionId>,
    life: Life,
    /// The session was told in this step how much it may lead.
    limited: bool,
    /// What catches up next with a change of the lease; none once all has.
    sweep: Option<Asker>,
    /// Whose watches are checked next; none once all were.
    rechecked: Option<Asker>,
    /// The first election for which missed wishes may still have to be read.
    missed_from: ElectionId,
    /// How many regular checks go by before the next one that reads all wishes.
    wishes_rest: usize,
    /// How much this step may still do.
    budget: Budget,
}

/// How this elector takes part in an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Participation {
    Candidate(Candidate),
    Observer(Observer),
    Inspection(Inspection),
}

impl Participation {
    fn is_candidate(&self, wanted: impl Fn(&Candidate) -> bool) -> bool {
        matches!(self, Participation::Candidate(candidate) if wanted(candidate))
    }
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
            cleanup: Cleanup::default(),
            elections: Table::default(),
            names: Table::default(),
            inspections: VecDeque::new(),
            inspecting: None,
            life: Life::Open,
            limited: false,
            sweep: None,
            rechecked: None,
            missed_from: 0,
            wishes_rest: 0,
            budget: Budget::default(),
        })
    }

    /// Lets time pass to `now`, with all that falls due, then takes the events in
    /// order, and says what to do. The same history gives the same steps.
    ///
    /// If that is a lot, the step does a portion, and its deadline asks for the next step at
    /// once.
    pub fn handle(&mut self, now: Mark, events: Vec<Event>) -> Step {
        self.context.now = now.min(FAR).max(self.context.now);
        self.budget = Budget { said: PORTION.max(events.len()), silent: SILENT };
        if self.life != Life::Closed {
            self.pass_time();
        }
        for event in events {
            self.take(event);
            self.reconcile();
        }
        self.take_limit();
        self.end();
        self.budget = Budget::default();
        let ahead = self.context.now + 1;
        let deadline = match self.is_reconciled() {
            true => self.context.timers.next().map(|mark| mark.max(ahead)),
            false => Some(ahead),
        };
        Step { commands: self.context.take_commands(), deadline }
    }

    // Time.

    fn pass_time(&mut self) {
        // After a late wake-up, the first thing to hear is that the time is over.
        self.session.pass_deadline(&mut self.context);
        self.reconcile();
        // This ends, because a timer that is set meanwhile is due later than now.
        while self.budget.is_left()
            && let Some(timer) = self.context.timers.pop_due(self.context.now)
        {
            let before = self.context.said();
            self.due(timer);
            self.budget.spend(self.context.said() > before);
            self.reconcile();
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
            Timer::LeaseEnd => self.session.drop_lease(&mut self.context),
            Timer::GiveBack => self.session.retire(&mut self.context),
            Timer::Grant => self.session.ask(&mut self.context),
            Timer::Revoke(lease) => self.session.revoke(&mut self.context, lease),
            Timer::Election(id) => match self.elections.get_mut(&id) {
                Some(Participation::Candidate(_)) => self.input(id, |state, cx| state.due(cx)),
                Some(Participation::Observer(observer)) => observer.due(&mut self.context),
                Some(Participation::Inspection(inspection)) => inspection.due(&mut self.context),
                None => {}
            },
            Timer::Wish(id) => self.input(id, |_, cx| {
                cx.write_wish();
                Next::Stay
            }),
            Timer::Preempt(id) => self.input(id, |state, cx| {
                state.preempt(cx);
                Next::Stay
            }),
            Timer::Room(id) => self.input(id, |state, cx| state.wishes_due(cx)),
            Timer::Share => self.begin_round(),
            Timer::Cleanup(id) => self.cleanup.try_again(&mut self.context, id),
            Timer::Rewatch(watch) => self.context.open(watch),
            Timer::Recheck => self.recheck(),
            Timer::MissedWishes => self.read_missed_wishes(),
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
                    self.elections.insert(id, Participation::Observer(observer));
                }
            }
            Event::Inspect(observation) => {
                if let Some((id, layout)) = self.check_observation(observation) {
                    let inspection = Inspection::new(id, layout);
                    self.elections.insert(id, Participation::Inspection(inspection));
                    self.inspections.push_back(id);
                    self.start_inspection();
                }
            }
            Event::Proclaim(proclamation) => {
                let Proclamation { election, ticket, value } = proclamation;
                match self.candidate(election) {
                    Some(_) => self.input(election, |state, cx| {
                        cx.proclaim(ticket, value);
                        state.proclaim_next(cx);
                        Next::Stay
                    }),
                    None => self.context.written(ticket, WriteOutcome::Stale),
                }
            }
            Event::Write(write) => self.write(write),
            Event::Resign(Term { election, epoch }) => {
                self.input(election, |state, cx| state.resign(cx, epoch));
            }
            Event::Yielded(Term { election, epoch }) => {
                self.input(election, |state, cx| state.resign(cx, epoch));
                self.input(election, |state, cx| state.yielded(cx, epoch));
            }
            Event::Leave(election) => self.leave(election),
            Event::Limit(limit) => self.limit(limit),
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
                return self.context.withdraw(election, Some(Failure::Invalid(sentence)));
            }
        };
        let name = &candidate.layout().name;
        let name_hash = candidate.layout().hash;
        let waits = self.of_name(candidate.layout()).next().is_some();
        let beside = self.of_name(candidate.layout()).any(|(_, other)| !other.is_ending());
        if beside {
            let sentence = [
                "there is a candidacy for `",
                name,
                "` on this elector already: leave it first, or open another elector",
            ];
            let sentence = sentence.concat();
            return self.context.withdraw(election, Some(Failure::Invalid(sentence)));
        }
        self.names.insert((name_hash, election.into()), ());
        self.context.admitted = admitted;
        self.context.candidacies += 1;
        self.elections.insert(election, Participation::Candidate(candidate));
        // A candidacy that ends with its present term ends first.
        if !waits {
            self.begin(election);
        }
    }

    /// The candidacies of a name: one, or one that is ending and the next one.
    fn of_name(&self, layout: &Layout) -> impl Iterator<Item = (ElectionId, &Candidate)> {
        self.with_hash(layout.hash)
            .filter_map(|id| Some((id, self.candidate(id)?)))
            .filter(move |(_, candidate)| candidate.layout().name == layout.name)
    }

    fn with_hash(&self, hash: NameHash) -> impl Iterator<Item = ElectionId> {
        with_first(&self.names, hash).filter_map(|id| ElectionId::try_from(id).ok())
    }

    fn candidate(&self, election: ElectionId) -> Option<&Candidate> {
        match self.elections.get(&election) {
            Some(Participation::Candidate(candidate)) => Some(candidate),
            Some(Participation::Observer(_) | Participation::Inspection(_)) | None => None,
        }
    }

    /// Begins a candidacy. No older one of its name is left.
    fn begin(&mut self, election: ElectionId) {
        let newest = self.context.newest;
        if let Some(Participation::Candidate(candidate)) = self.elections.get_mut(&election) {
            candidate.begin(newest);
            self.context.touch(election);
            self.context.lease_is_dirty = true;
        }
    }

    /// Removes a candidacy that is over. The next one of its name begins.
    fn remove(&mut self, election: ElectionId) {
        let Some(Participation::Candidate(over)) = self.elections.remove(&election) else { return };
        self.context.candidacies -= 1;
        self.context.lease_is_dirty = true;
        self.names.remove(&(over.layout().hash, election.into()));
        let next = self.of_name(over.layout()).next().map(|(next, _)| next);
        if let Some(next) = next {
            self.begin(next);
        }
    }

    /// Checks an observation, or refuses it with a sentence.
    fn check_observation(&mut self, observation: Observation) -> Option<(ElectionId, Layout)> {
        let Observation { election, name, contest } = observation;
        if !self.admits(election) {
            return None;
        }
        match Layout::new(name, contest) {
            Ok(layout) => Some((election, layout)),
            Err(sentence) => {
                self.context.withdraw(election, Some(Failure::Invalid(sentence)));
                None
            }
        }
    }

    /// Starts the next inspection, unless one is running.
    fn start_inspection(&mut self) {
        if self.inspecting.is_none() && self.life == Life::Open {
            self.inspecting = self.inspections.front().copied();
            if let Some(next) = self.inspecting
                && let Some(Participation::Inspection(inspection)) = self.elections.get_mut(&next)
            {
                inspection.due(&mut self.context);
            }
        }
    }

    /// Forgets an inspection that is over, and starts the next one.
    fn end_inspection(&mut self, election: ElectionId) {
        self.inspections.retain(|id| *id != election);
        if self.inspecting == Some(election) {
            self.inspecting = None;
            self.start_inspection();
        }
    }

    /// Whether an election may begin under this id. Tells the application why not.
    fn admits(&mut self, election: ElectionId) -> bool {
        if self.elections.contains_key(&election) {
            let id = decimal(election.into());
            let sentence = ["the election id ", &id, " is in use: choose another"].concat();
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
        self.context.withdraw(election, Some(Failure::Invalid(sentence.into())));
        false
    }

    fn write(&mut self, write: GuardedWrite) {
        let GuardedWrite { term, ticket, expect, mutations } = write;
        // The term may be over, though nobody was told yet.
        self.input(term.election, |_, _| Next::Stay);
        let now = self.context.now;
        let lasts = self.session.validity().is_some_and(|validity| validity.until > now);
        let candidate = self.candidate(term.election).filter(|_| lasts);
        let Some(guard) = candidate.and_then(|candidate| candidate.guard(term.epoch)) else {
            return self.context.written(ticket, WriteOutcome::Stale);
        };
        let check = |mutation| {
            let key = written_key(mutation)?;
            self.owner(key).map_or(Ok(()), |layout| Err(layout.refuse_write(key)))
        };
        if let Err(sentence) = mutations.iter().try_for_each(check) {
            let outcome = WriteOutcome::Failed(Failure::Invalid(sentence));
            return self.context.written(ticket, outcome);
        }
        let purpose = Purpose::Write { election: term.election, epoch: term.epoch, ticket };
        let guarded = Guarded { guard, expect, mutations };
        self.context.call(purpose, Operation::Guarded(guarded));
    }

    /// The layout of our election whose own key this is.
    fn owner(&self, key: &[u8]) -> Option<&Layout> {
        let names = [Some(key), queue_of(key)].into_iter().flatten();
        let ids = names.flat_map(|name| self.with_hash(hash(name)));
        ids.filter_map(|id| Some(self.candidate(id)?.layout())).find(|layout| layout.owns(key))
    }

    fn leave(&mut self, election: ElectionId) {
        if self.candidate(election).is_some() {
            return self.input(election, |state, cx| {
                cx.common.rejoin = false;
                state.leave(cx)
            });
        }
        match self.elections.remove(&election) {
            Some(Participation::Observer(observer)) => observer.leave(&mut self.context),
            Some(Participation::Inspection(inspection)) => {
                inspection.leave(&mut self.context);
                self.end_inspection(election);
            }
            Some(Participation::Candidate(_)) | None => {}
        }
    }

    fn close(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Closing;
            self.context.lease_is_dirty = true;
            // Each election leaves when the sweep comes to it.
            self.limit(None);
        }
    }

    /// Has the session lead no more than that, or as much as comes.
    fn limit(&mut self, limit: Option<Limit>) {
        self.context.share.limit = limit;
        self.limited = true;
    }

    /// Does what a limit asks for: once in a step, because it looks at all elections.
    fn take_limit(&mut self) {
        if core::mem::take(&mut self.limited) {
            // If it is drained, or is no more, that concerns all who do not lead.
            self.context.sweep = true;
            self.begin_round();
            self.reconcile();
        }
    }

    fn begin_round(&mut self) {
        let Context { now, share, leaders, candidacies, timers, .. } = &mut self.context;
        share.begin(*now, *leaders, *candidacies);
        timers.cancel(Timer::Share);
    }

    /// Hands over terms of a session that leads too much: as many as may be at a time.
    fn hand_over(&mut self) {
        let Context { share, leaders, candidacies, timers, random, .. } = &mut self.context;
        if share.limit.is_none() || share.asks || self.life != Life::Open {
            return;
        }
        let (looks, counts) = share.looks(checks::MOST_CHECKED as u32, *leaders, *candidacies);
        // Lines differ in length: a count looks at elections from all over.
        let apart = if counts { (*leaders / looks).max(1) } else { 1 };
        let first = random.below(apart.into()) as u32;
        if *leaders > 0 && !timers.is_set(Timer::Share) {
            self.context.set_timer(Timer::Share, SECOND);
        }
        let wanted =
            |it: &Candidate| if counts { it.leads() } else { it.may_hand_over(&self.context) };
        let all = self.elections.around(self.context.share.next);
        let passed: Vec<ElectionId> = all
            .filter(|(_, it)| it.is_candidate(wanted))
            .take((looks * apart) as usize)
            .map(|(election, _)| election)
            .collect();
        match passed.last() {
            Some(last) => self.context.share.next = last.saturating_add(1),
            None if looks > 0 => self.context.share.left = 0,
            None => {}
        }
        let is_drained = self.context.share.is_drained();
        let (mut asked, mut selections) = (Vec::new(), Vec::new());
        for election in passed.into_iter().skip(first as usize).step_by(apart as usize) {
            match self.candidate(election).and_then(|it| it.layout().newest()) {
                Some(selection) => {
                    asked.push(election);
                    selections.push(selection);
                }
                // In a race nobody is seen in line.
                None if is_drained => self.input(election, |state, cx| state.hand_over(cx)),
                None => self.context.share.in_vain(),
            }
        }
        if asked.is_empty() {
            self.context.share.has_looked();
            // Until the next round: another look would find the same races.
            if looks > 0 && !is_drained {
                self.context.share.left = 0;
            }
        } else {
            self.context.share.asks = true;
            self.context.call(Purpose::Successors(asked), Operation::Read(selections));
        }
    }

    /// Hands over terms for which somebody else is in line.
    fn successors_read(&mut self, asked: Vec<ElectionId>, outcome: Answer) {
        self.context.share.asks = false;
        let Ok(Snapshot { found, .. }) = snapshot(outcome) else {
            self.context.share.left = 0;
            return;
        };
        let counts = self.context.share.has_looked();
        for (election, found) in asked.into_iter().zip(found) {
            let Some(candidate) = self.candidate(election) else { continue };
            let Some(followers) = candidate.followers(&found) else { continue };
            let may_go = candidate.may_hand_over(&self.context);
            let Context { share, leaders, candidacies, .. } = &mut self.context;
            share.count(1 + followers);
            if followers == 0 {
                share.in_vain();
            } else if may_go && share.wanted(*leaders, *candidacies) > 0 {
                self.input(election, |state, cx| state.hand_over(cx));
            }
        }
        if counts {
            let Context { share, leaders, candidacies, .. } = &mut self.context;
            share.counted(*leaders, *candidacies);
        }
    }

    // The store.

    fn answer(&mut self, reply: Reply) {
        let Reply { id, outcome } = reply;
        if self.session.renewed(&mut self.context, id, &outcome) {
            return;
        }
        let Some(purpose) = self.context.answered(id) else { return };
        match purpose {
            Purpose::Grant { sent } => self.session.granted(&mut self.context, sent, outcome),
            Purpose::Revoke(lease) => self.session.revoked(&mut self.context, lease, &outcome),
            Purpose::Claim { lease, .. } | Purpose::Wish { lease, .. }
                if matches!(outcome, Ok(Response::Expired)) =>
            {
                self.session.lose(&mut self.context, lease);
            }
            Purpose::Claim { election, .. } => {
                self.input(election, |state, cx| state.claimed(cx, outcome));
            }
            Purpose::Check(election) => {
                self.input(election, |state, cx| state.checked(cx, outcome));
            }
            Purpose::Proclaim { election, created, ticket } => {
                self.proclaimed(election, created, ticket, write_outcome(outcome));
            }
            Purpose::Write { election, epoch, ticket } => {
                let outcome = write_outcome(outcome);
                let fenced = outcome == WriteOutcome::Stale;
                self.context.written(ticket, outcome);
                if fenced {
                    self.input(election, |state, cx| state.fenced(cx, epoch));
                }
            }
            Purpose::Wish { election, lease } => {
                if self.candidate(election).is_none() {
                    return self.wish_landed(election, lease, outcome);
                }
                self.input(election, |_, cx| {
                    cx.wish_written(lease, outcome);
                    Next::Stay
                });
            }
            Purpose::Observe(election) => {
                if let Some(Participation::Observer(observer)) = self.elections.get_mut(&election) {
                    observer.answered(&mut self.context, outcome);
                }
            }
            Purpose::Successors(asked) => self.successors_read(asked, outcome),
            Purpose::Inspect(election) => {
                if let Some(Participation::Inspection(inspection)) =
                    self.elections.get_mut(&election)
                    && inspection.answered(&mut self.context, outcome)
                {
                    self.elections.remove(&election);
                    self.end_inspection(election);
                }
            }
            Purpose::Cleanup(id) => self.cleanup.answered(&mut self.context, id, outcome),
            Purpose::Wishes => self.wishes_were_read(outcome),
            Purpose::Recheck(asked) => match snapshot(outcome) {
                Ok(snapshot) => self.rechecked(asked, snapshot),
                Err(failure) => self.recheck_failed(asked, &failure),
            },
        }
    }

    /// Takes the answer to a proclamation into the key that was created at `created`.
    fn proclaimed(
        &mut self,
        election: ElectionId,
        created: Epoch,
        ticket: Option<Ticket>,
        outcome: WriteOutcome,
    ) {
        if self.candidate(election).is_none() {
            if let Some(ticket) = ticket {
                self.context.written(ticket, outcome);
            }
            return;
        }
        self.input(election, |state, cx| {
            cx.common.proclaiming = false;
            let stale = outcome == WriteOutcome::Stale;
            if let Some(ticket) = ticket {
                cx.context.written(ticket, outcome);
            }
            if stale { state.fenced(cx, created) } else { Next::Stay }
        });
        self.input(election, |state, cx| {
            state.proclaim_next(cx);
            Next::Stay
        });
    }

    fn watched(&mut self, watched: Watched) {
        let Watched { id, change } = watched;
        match self.context.watched(id, &change) {
            Some(Watcher::Own(election)) => {
                self.input(election, |state, cx| state.own_key_changed(cx, change));
            }
            Some(Watcher::Predecessor(election)) => {
                self.input(election, |state, cx| state.predecessor_changed(cx, change));
            }
            Some(Watcher::Farther(election)) => {
                self.input(election, |state, cx| state.farther_changed(cx, change));
            }
            Some(Watcher::Observer(election)) => {
                if let Some(Participation::Observer(observer)) = self.elections.get_mut(&election) {
                    observer.watched(&mut self.context, change);
                }
            }
            Some(Watcher::Cleanup(id, _)) => self.cleanup.watched(&mut self.context, id, change),
            Some(Watcher::Wishes) => self.wished(&change),
            None => {}
        }
    }

    // The end of a step.

    /// Has elections, pending deletions and the lease react to each other's changes, as far as
    /// this step goes.
    fn reconcile(&mut self) {
        loop {
            self.reconcile_dirty();
            if !core::mem::take(&mut self.context.lease_is_dirty) {
                break;
            }
            let candidates = self.context.candidacies > 0;
            let deletions = self.cleanup.needs_lease();
            let spare =
                self.life == Life::Open && self.context.lease.is_some() && self.cleanup.is_empty();
            if candidates || deletions || spare {
                self.session.reconcile(&mut self.context, candidates, deletions);
            } else {
                self.session.retire(&mut self.context);
            }
        }
        self.hand_over();
        self.tell_extension();
    }

    /// Says that the session is over, after everything else that there is to say.
    fn end(&mut self) {
        if self.life == Life::Closing
            && self.elections.is_empty()
            && self.session.is_over()
            && self.is_reconciled()
        {
            self.life = Life::Closed;
            for ticket in self.context.forget_all() {
                self.context.written(ticket, WriteOutcome::Unknown);
            }
            self.context.notify(Notice::Closed);
        }
    }

    fn is_reconciled(&self) -> bool {
        self.context.dirty.is_empty() && !self.context.sweep && self.sweep.is_none()
    }

    fn reconcile_dirty(&mut self) {
        while self.budget.is_left() {
            let before = (self.context.said(), self.elections.len());
            match self.context.dirty.pop_front() {
                Some(Dirty::Election(election)) => {
                    // It may be there for several reasons, and the first look is enough.
                    let Some(it) = self.elections.get(&election) else { continue };
                    if !self.is_behind(it) {
                        // The time that a renewal brought was over before its turn came.
                        if it.is_candidate(Candidate::is_overdue) {
                            self.context.overdue.push(election);
                        }
                        continue;
                    }
                    self.reconcile_election(election);
                }
                Some(Dirty::Name(name)) => {
                    for id in with_first(&self.names, name) {
                        self.context.touch(id as ElectionId);
                    }
                    continue;
                }
                None => {
                    if core::mem::take(&mut self.context.sweep) {
                        self.sweep = Some(FIRST);
                    }
                    let Some(from) = self.sweep else { return };
                    let Some(asker) = self.next_behind(from) else {
                        self.sweep = None;
                        return self.session.swept();
                    };
                    self.sweep = Some(after(asker));
                    match asker {
                        Asker::Election(election) => self.reconcile_election(election),
                        Asker::Cleanup(id) => {
                            self.cleanup.close(&mut self.context, id);
                        }
                    }
                }
            }
            let nothing_said = (self.context.said(), self.elections.len()) == before;
            let forgotten = self.context.lease.is_none() && nothing_said;
            self.budget.spend(!forgotten);
        }
    }

    /// Has one election react to all that has changed.
    fn reconcile_election(&mut self, election: ElectionId) {
        if self.life == Life::Closing {
            self.leave(election);
        }
        self.input(election, |state, cx| state.reconcile(cx));
        if self.candidate(election).is_some_and(Candidate::is_over) {
            self.remove(election);
        }
    }

    /// The first election or pending deletion that is not before `from`.
    fn next_from(&self, from: Asker) -> Option<Asker> {
        let deletion = |from| Some(Asker::Cleanup(self.cleanup.next(from)?));
        match from {
            Asker::Election(from) => match self.elections.next(&from) {
                Some((election, _)) => Some(Asker::Election(election)),
                None => deletion(0),
            },
            Asker::Cleanup(from) => deletion(from),
        }
    }

    /// The first one in a sweep that is not before `from` and has something to do. It is cheap to
    /// pass over the others, so they do not count towards the portion.
    fn next_behind(&self, from: Asker) -> Option<Asker> {
        let deletion = match from {
            Asker::Election(from) => {
                if let Some(election) = self.elections.find(from, |it| self.is_behind(it)) {
                    return Some(Asker::Election(election));
                }
                0
            }
            Asker::Cleanup(from) => from,
        };
        self.cleanup.next_behind(&self.context, deletion).map(Asker::Cleanup)
    }

    fn is_behind(&self, election: &Participation) -> bool {
        let closing = self.life == Life::Closing;
        match election {
            Participation::Candidate(candidate) => {
                candidate.is_behind(&self.context, &self.session, closing)
            }
            Participation::Observer(_) | Participation::Inspection(_) => closing,
        }
    }

    /// Tells all leaders at once that the lease lives longer. By then the elector has told the
    /// end of each term whose deadline had passed.
    fn tell_extension(&mut self) {
        if self.context.leaders > 0
            && self.is_reconciled()
            && let Some(Validity { lease, until: valid_until, .. }) = self.session.validity()
            && valid_until > self.context.now
            && (lease, valid_until) != self.context.announced
        {
            self.context.announced = (lease, valid_until);
            self.context.notify(Notice::Extended(Extension { lease, valid_until }));
        }
    }

    /// Gives a candidate an input; nothing happens if there is no such candidate.
    fn input(
        &mut self,
        election: ElectionId,
        input: impl FnOnce(&mut dyn Inputs, &mut CandidateContext<'_>) -> Next,
    ) {
        if let Some(Participation::Candidate(candidate)) = self.elections.get_mut(&election) {
            candidate.take(&mut self.context, &mut self.cleanup, &self.session, input);
        }
    }
}

/// How many elections, keys and timers a step may still handle: with a command, and without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    said: usize,
    silent: usize,
}

impl Budget {
    fn is_left(&self) -> bool {
        self.said > 0 && self.silent > 0
    }

    fn spend(&mut self, said: bool) {
        let part = if said { &mut self.said } else { &mut self.silent };
        *part = part.saturating_sub(1);
    }
}

/// Where a sweep begins: over all elections, and then over all pending deletions.
const FIRST: Asker = Asker::Election(0);

/// Where a sweep goes on.
fn after(asker: Asker) -> Asker {
    match asker {
        Asker::Election(election) => {
            election.checked_add(1).map_or(Asker::Cleanup(0), Asker::Election)
        }
        Asker::Cleanup(id) => Asker::Cleanup(id + 1),
    }
}
