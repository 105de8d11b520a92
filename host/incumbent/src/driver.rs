//! The loop between elector, store and application.
//!
//! One task of one loop: whatever happened goes to the elector in one batch, and
//! what the elector says is done in the order it says it. Nothing else touches
//! the state of an election. What the driver knows beside it serves two ends: to
//! pass on what concerns each handle, and to go on when the elector breaks.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};
use tokio::task::coop::consume_budget;
use tracing::{debug, info, warn};

use crate::candidate::{self, Seat, Stage};
use crate::clock::Clock;
use crate::component::{Component, ComponentError, Elector, size};
use crate::deadlines::Deadlines;
use crate::observer::Leader;
use crate::store::{Store, Watches};
use crate::term::{Term, Validity};
use crate::types::{
    self, Call, Candidacy, Change, Command, Config, ElectionId, Event, Failure, GuardedWrite,
    LeaseId, Mark, Notice, Operation, Proclamation, Reason, Reply, RequestId, Response, Step,
    Ticket, Watched, WriteOutcome,
};

mod attendant;
mod broken;
mod handle;
mod queue;
#[cfg(feature = "testing")]
mod rehearsal;

use attendant::{Attendant, Candidate, Pending, Tenure};
use broken::{Orphans, Successor};
pub(crate) use handle::{Attendance, Handle, Wish};
use queue::{BATCH, Queue};
#[cfg(feature = "testing")]
pub(crate) use rehearsal::{Director, Rehearsal};

/// How many bytes the store may tell the elector at once: several times what etcd takes
/// for a value, and several times less than the memory that the elector has.
const ANSWER: usize = 8 << 20;
/// How many calls and how many watches an elector may have under way: each of the 10,000
/// elections that it may hold needs four and three at most.
const UNDER_WAY: usize = 100_000;
/// The first pause before a broken elector is replaced, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// An elector that has worked for so long is replaced after the first pause.
const PROBATION: Duration = Duration::from_secs(60);

/// What a session is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) component: Component,
    pub(crate) identity: String,
    /// Its seed, unless it is given, is drawn; and anew for each elector that follows.
    pub(crate) config: Config,
    pub(crate) deadlines: Arc<Deadlines>,
    #[cfg(feature = "testing")]
    pub(crate) rehearsal: Rehearsal,
}

/// Starts a driver on the runtime of the caller. It ends when the session is
/// closed, or when the last handle is gone and nothing is left in the store.
pub(crate) fn start(parts: Parts) -> Result<Handle, ComponentError> {
    let opened = parts.clock.now();
    let elector = Elector::open(&parts.component, reseeded(parts.config)?, opened)?;
    let (wishes, inbox) = mpsc::unbounded_channel();
    let (troubles, _) = broadcast::channel(BATCH);
    let handle = Handle {
        wishes,
        elections: Arc::new(AtomicU32::new(1)),
        writes: Arc::new(Semaphore::new(handle::AT_ONCE)),
        reads: Arc::new(Semaphore::new(handle::AT_ONCE)),
        troubles: troubles.downgrade(),
        identity: parts.identity.into(),
        clock: Arc::clone(&parts.clock),
        store: Arc::downgrade(&parts.store),
        patience: Duration::from_nanos(parts.config.request_timeout),
        runtime: tokio::runtime::Handle::current(),
    };
    let driver = Driver {
        inbox,
        handles: true,
        watches: parts.store.watches(),
        store: parts.store,
        deadlines: parts.deadlines,
        clock: parts.clock,
        component: parts.component,
        // One that was given is the first elector's alone: the leases of a broken one are not
        // to be taken for the next one's.
        config: Config { seed: (0, 0), ..parts.config },
        elector: State::Running(elector),
        deadline: None,
        events: Queue::default(),
        calls: FuturesUnordered::new(),
        outstanding: BTreeMap::new(),
        watched: BTreeSet::new(),
        sleep: None,
        seats: BTreeMap::new(),
        leading: BTreeMap::new(),
        tickets: BTreeMap::new(),
        last_ticket: 0,
        leases: BTreeSet::new(),
        granted: BTreeMap::new(),
        opened,
        pause: PAUSES.0,
        successor: Successor::default(),
        orphans: Orphans::default(),
        revocations: FuturesUnordered::new(),
        closing: None,
        close_by: Mark::MAX,
        troubles,
        #[cfg(feature = "testing")]
        rehearsal: parts.rehearsal,
    };
    tokio::spawn(driver.run());
    Ok(handle)
}

fn reseeded(mut config: Config) -> Result<Config, ComponentError> {
    if config.seed != (0, 0) {
        return Ok(config);
    }
    let draw = || Ok((getrandom::u64()?, getrandom::u64()?));
    config.seed = draw().map_err(|error: getrandom::Error| {
        ComponentError::Config(types::ConfigError::Other(format!(
            "the system gives no random numbers: {error}"
        )))
    })?;
    Ok(config)
}

struct Driver {
    inbox: mpsc::UnboundedReceiver<Wish>,
    /// Somebody may still wish for something.
    handles: bool,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    deadlines: Arc<Deadlines>,
    component: Component,
    config: Config,

    elector: State,
    /// When the elector wants to be woken.
    deadline: Option<Mark>,
    /// What the elector is to be told next.
    events: Queue,
    calls: FuturesUnordered<BoxFuture<'static, Reply>>,
    /// The calls that are under way; and what a grant or a renewal may prove: that
    /// the lease lives on for a time, from this mark on.
    outstanding: BTreeMap<RequestId, Option<(LeaseId, Mark)>>,
    watches: Box<dyn Watches>,
    /// Those that are open.
    watched: BTreeSet<RequestId>,
    sleep: Option<(Mark, BoxFuture<'static, ()>)>,

    seats: BTreeMap<ElectionId, Attendant>,
    /// The leases on which somebody leads.
    leading: BTreeMap<LeaseId, Leading>,
    tickets: BTreeMap<Ticket, Pending>,
    last_ticket: Ticket,

    /// The leases that the elector asked for and has not given back.
    leases: BTreeSet<LeaseId>,
    /// How long the store lets the leases live, by what it has answered.
    granted: BTreeMap<LeaseId, Mark>,
    /// When the elector was opened, or broke.
    opened: Mark,
    pause: Duration,
    /// What the elector has not been told of yet.
    successor: Successor,
    /// The terms of broken electors, and their leases.
    orphans: Orphans,
    revocations: FuturesUnordered<BoxFuture<'static, ()>>,

    closing: Option<Vec<oneshot::Sender<()>>>,
    /// When an elector that has not closed by then is given up.
    close_by: Mark,
    troubles: broadcast::Sender<Failure>,
    #[cfg(feature = "testing")]
    rehearsal: Rehearsal,
}

/// A lease on which somebody leads.
struct Leading {
    validity: Arc<Validity>,
    elections: BTreeSet<ElectionId>,
}

enum State {
    Running(Elector),
    /// Broken; another one is opened at this mark.
    Broken(Mark),
    /// It has said `closed`.
    Closed,
}

impl Driver {
    async fn run(mut self) {
        while !self.is_done() {
            self.arm();
            poll_fn(|context| self.poll_news(context)).await;
            self.turn();
            // An elector that always wants to be woken at once leaves others their turn.
            consume_budget().await;
        }
        for (_, attendant) in mem::take(&mut self.seats) {
            attendant.withdraw(None);
        }
        for done in self.closing.take().into_iter().flatten() {
            // Whoever closed need not wait for it.
            let _ = done.send(());
        }
    }

    fn is_done(&self) -> bool {
        let over = match self.elector {
            State::Running(_) => false,
            State::Broken(_) => self.closing.is_some(),
            State::Closed => true,
        };
        over && self.orphans.is_empty() && self.revocations.is_empty()
    }

    /// Collects what happened, up to a batch, or waits for it.
    fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<()> {
        #[cfg(feature = "testing")]
        if self.rehearsal.is_paused(context) {
            return Poll::Pending;
        }
        let mut news = !self.events.is_empty() || self.tells_next();
        // The store's answers first: no crowd of users is to be in the way of a renewal.
        while self.events.takes_stores() {
            let Poll::Ready(Some(reply)) = self.calls.poll_next_unpin(context) else {
                break;
            };
            self.reply(reply);
            news = true;
        }
        while self.events.takes_stores() {
            let Poll::Ready(watched) = self.watches.poll_next(context) else {
                break;
            };
            self.watched(watched);
            news = true;
        }
        while self.handles && self.events.takes_users() {
            match self.inbox.poll_recv(context) {
                Poll::Ready(Some(wish)) => self.wish(wish),
                Poll::Ready(None) => {
                    self.handles = false;
                    self.close(None);
                }
                Poll::Pending => break,
            }
            news = true;
        }
        while let Poll::Ready(Some(())) = self.revocations.poll_next_unpin(context) {
            news = true;
        }
        if let Some((_, sleep)) = &mut self.sleep
            && sleep.poll_unpin(context).is_ready()
        {
            self.sleep = None;
            news = true;
        }
        #[cfg(feature = "testing")]
        self.rehearsal.looked(news);
        if news { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether the elector is to be told of more elections right now.
    fn tells_next(&self) -> bool {
        matches!(self.elector, State::Running(_)) && self.successor.has_next()
    }

    /// Sleeps until the first thing that is due by itself.
    fn arm(&mut self) {
        let wake = match self.elector {
            State::Running(_) => {
                let close_by = self.closing.as_ref().map(|_| self.close_by);
                self.deadline.into_iter().chain(close_by).min()
            }
            State::Broken(reopen) => Some(reopen).filter(|_| self.closing.is_none()),
            State::Closed => None,
        };
        let next = self.orphans.next_deadline().into_iter().chain(wake).min();
        match next {
            Some(mark) if self.sleep.as_ref().is_some_and(|(set, _)| *set == mark) => {}
            Some(mark) => self.sleep = Some((mark, self.clock.sleep_until(mark))),
            None => self.sleep = None,
        }
    }

    fn turn(&mut self) {
        self.tend_orphans(self.clock.now());
        self.reopen();
        let now = self.clock.now();
        if let State::Running(_) = self.elector
            && self.close_by <= now
        {
            self.elector_broke(&ComponentError::Step("it does not close".into()));
        }
        let State::Running(elector) = &mut self.elector else {
            self.events.clear();
            return;
        };
        let mut events = self.successor.next(&self.seats);
        if !self.successor.is_told_alone() {
            events.extend(self.events.take(BATCH - events.len()));
        }
        if events.is_empty() {
            if self.deadline.is_none_or(|deadline| now < deadline) {
                return;
            }
            events.push(Event::Wake);
        }
        let stepped = elector.handle(now, &events).and_then(|step| self.obey(now, step));
        match stepped {
            // It has more to do at once where it wants to be woken at once.
            Ok(()) if self.deadline.is_none_or(|deadline| now.saturating_add(1) < deadline) => {
                self.successor.has_taken();
            }
            Ok(()) => {}
            Err(error) => self.elector_broke(&error),
        }
    }

    // What the users want.

    fn wish(&mut self, wish: Wish) {
        match wish {
            Wish::Campaign { candidacy, seat } => self.campaign(candidacy, seat),
            Wish::Observe { observation, sightings } => {
                let observer = Attendant::Observer { observation, sightings };
                self.attend(observer);
            }
            Wish::Inspect { observation, listed } => {
                let inspector = Attendant::Inspector { observation, listed };
                self.attend(inspector);
            }
            Wish::Proclaim { election, value, outcome, permit } => {
                let proclaimed = Some((election, value.clone()));
                let pending = Pending { outcome, proclaimed, _permit: permit };
                self.write(pending, |ticket| {
                    Event::Proclaim(Proclamation { election, ticket, value })
                });
            }
            Wish::Write { term, expect, mutations, outcome, permit } => {
                let pending = Pending { outcome, proclaimed: None, _permit: permit };
                self.write(pending, |ticket| {
                    Event::Write(GuardedWrite { term, ticket, expect, mutations })
                });
            }
            Wish::Yielded(term) => self.yielded(term),
            Wish::Leave(election) => self.leave(election),
            Wish::Close(done) => self.close(Some(done)),
        }
    }

    fn campaign(&mut self, candidacy: Candidacy, seat: Seat) {
        self.attend(Attendant::Candidate(Candidate {
            candidacy,
            seat,
            tenure: Tenure::None,
            last_epoch: 0,
            has_yielded: false,
            leaving: false,
        }));
    }

    fn attend(&mut self, attendant: Attendant) {
        if self.closing.is_some() {
            attendant.withdraw(None);
            return;
        }
        if let Some(wish) = attendant.wish() {
            if let Some(too_large) = too_large("what it was given", size::event(&wish)) {
                attendant.withdraw(Some(Failure::Invalid(too_large)));
                return;
            }
            // A broken elector's successor is told of all at its start.
            if let State::Running(_) = self.elector {
                self.events.push(wish);
            }
        }
        self.seats.insert(attendant.id(), attendant);
    }

    fn write(&mut self, pending: Pending, event: impl FnOnce(Ticket) -> Event) {
        if let State::Running(_) = self.elector {
            let ticket = self.last_ticket + 1;
            let event = event(ticket);
            if let Some(too_large) = too_large("the write", size::event(&event)) {
                pending.answer(WriteOutcome::Failed(Failure::Invalid(too_large)));
                return;
            }
            self.last_ticket = ticket;
            self.tickets.insert(ticket, pending);
            self.events.push(event);
        } else {
            let refused = Failure::Other("the elector is being replaced".into());
            pending.answer(WriteOutcome::Failed(refused));
        }
    }

    fn yielded(&mut self, term: types::Term) {
        let Some(Attendant::Candidate(candidate)) = self.seats.get_mut(&term.election) else {
            return;
        };
        if term.epoch != candidate.last_epoch {
            return;
        }
        match &candidate.tenure {
            Tenure::Leads(_) => candidate.has_yielded = true,
            Tenure::Stops(_) => candidate.tenure = Tenure::None,
            Tenure::Orphan(_) => {
                self.tend_orphan(term.election, false);
                return;
            }
            // It has yielded before.
            Tenure::None => return,
        }
        self.events.push(Event::Yielded(term));
    }

    fn leave(&mut self, election: ElectionId) {
        let Some(attendant) = self.seats.get_mut(&election) else {
            return;
        };
        let orphan = attendant.orphan().is_some();
        let repeated = match attendant {
            Attendant::Candidate(candidate) => mem::replace(&mut candidate.leaving, true),
            Attendant::Observer { .. } | Attendant::Inspector { .. } => false,
        };
        // The new elector knows nothing of an orphan.
        if repeated || orphan {
            return;
        }
        let told = !self.successor.forget(election);
        if let State::Running(_) = self.elector
            && told
        {
            self.events.push(Event::Leave(election));
        } else if let Some(attendant) = self.seats.remove(&election) {
            attendant.withdraw(None);
        }
    }

    fn close(&mut self, done: Option<oneshot::Sender<()>>) {
        if self.closing.is_none()
            && let State::Running(_) = self.elector
        {
            self.successor.forget_all();
            self.events.push(Event::Close);
            // Terms that are held to their end, and after them the lease.
            let now = self.clock.now();
            let granted = self.granted.values().map(|until| until.saturating_sub(now)).max();
            let lease = granted.unwrap_or_default().max(self.config.lease_ttl);
            let whole = lease.saturating_add(self.config.request_timeout).saturating_mul(2);
            self.close_by = now.saturating_add(whole);
        }
        self.closing.get_or_insert_default().extend(done);
    }

    // What the store says.

    fn reply(&mut self, mut reply: Reply) {
        let answer = size::outcome(&reply.outcome);
        if let Some(too_large) = too_large("the store's answer", answer) {
            reply.outcome = Err(Failure::Other(too_large));
        }
        let proves = self.outstanding.remove(&reply.id).flatten();
        if let Ok(Response::Granted(time) | Response::Renewed(time)) = &reply.outcome
            && let Some((lease, sent)) = proves
        {
            if matches!(reply.outcome, Ok(Response::Granted(_))) {
                let now = self.clock.now();
                self.granted.retain(|_, until| *until > now);
            }
            let until = self.granted.entry(lease).or_default();
            *until = sent.saturating_add(*time).max(*until);
        }
        match &reply.outcome {
            Ok(response) => debug!(id = reply.id, answer = response.name(), "reply"),
            Err(failure) => debug!(id = reply.id, %failure, "no reply"),
        }
        self.events.push(Event::Reply(reply));
    }

    fn watched(&mut self, mut watched: Watched) {
        let change = size::change(&watched.change);
        if let Some(too_large) = too_large("what a watch tells", change) {
            self.watches.close(watched.id);
            watched.change = Change::Ended(Failure::Other(too_large));
        }
        match &watched.change {
            Change::Started(revision) => debug!(id = watched.id, revision, "watch started"),
            Change::Put(entry) => debug!(id = watched.id, revision = entry.modified, "put seen"),
            Change::Deleted(deletion) => {
                debug!(id = watched.id, revision = deletion.at, "deletion seen");
            }
            Change::Ended(failure) => {
                self.watched.remove(&watched.id);
                debug!(id = watched.id, %failure, "watch ended");
            }
        }
        self.events.push(Event::Watched(watched));
    }

    // What the elector says.

    fn obey(&mut self, now: Mark, step: Step) -> Result<(), ComponentError> {
        self.deadline = step.deadline;
        for command in step.commands {
            match command {
                Command::Call(call) => self.call(now, call)?,
                Command::Watch(watch) => {
                    debug!(id = watch.id, prefix = watch.prefix, "watch");
                    if !self.watched.insert(watch.id) {
                        return Err(used_twice(watch.id));
                    }
                    check_under_way("watches", self.watched.len())?;
                    self.watches.open(watch);
                }
                Command::Unwatch(id) => {
                    debug!(id, "unwatch");
                    self.watched.remove(&id);
                    self.watches.close(id);
                }
                Command::Notify(notice) => self.notice(now, notice)?,
            }
        }
        Ok(())
    }

    fn call(&mut self, now: Mark, call: Call) -> Result<(), ComponentError> {
        let Call { id, give_up, operation } = call;
        let may_prove = match &operation {
            Operation::Grant(grant) => {
                self.leases.insert(grant.lease);
                Some((grant.lease, now))
            }
            Operation::KeepAlive(lease) => Some((*lease, now)),
            Operation::Revoke(lease) => {
                self.leases.remove(lease);
                None
            }
            Operation::Claim(_) | Operation::Read(_) | Operation::Guarded(_) => None,
        };
        if self.outstanding.insert(id, may_prove).is_some() {
            return Err(used_twice(id));
        }
        check_under_way("calls", self.outstanding.len())?;
        debug!(id, operation = operation.name(), "call");
        let within = Duration::from_nanos(give_up.saturating_sub(now));
        let answer = self.store.call(operation, within);
        let reply = answer.map(move |outcome| Reply { id, outcome });
        self.calls.push(reply.boxed());
        Ok(())
    }

    fn notice(&mut self, now: Mark, notice: Notice) -> Result<(), ComponentError> {
        match notice {
            Notice::Joined(joined) => {
                let candidate = self.candidate(joined.election)?;
                info!(election = candidate.candidacy.name, epoch = joined.created, "joined");
                let standing = matches!(*candidate.seat.stage.borrow(), Stage::Leading(_));
                if !standing {
                    candidate.seat.stage.send_replace(Stage::Waiting);
                }
                candidate
                    .seat
                    .tell(candidate::Event::Joined { key: joined.key, epoch: joined.created });
            }
            Notice::Elected(leadership) => self.elected(now, leadership)?,
            Notice::Extended(extension) => self.extended(extension)?,
            Notice::Endangered(leadership) => {
                let (candidate, term) = self.leader(leadership.term)?;
                candidate.endanger(&term, leadership.key);
            }
            Notice::Demoted(demotion) => self.demoted(demotion)?,
            Notice::Leader(sighting) => {
                let leader = sighting.leader.map(Leader::from);
                match self.attendant(sighting.election)? {
                    Attendant::Candidate(candidate) => {
                        candidate.seat.tell(candidate::Event::Leader(leader));
                    }
                    Attendant::Observer { observation, sightings } => {
                        debug!(
                            election = observation.name,
                            epoch = leader.as_ref().map(|leader| leader.epoch),
                            "leader seen"
                        );
                        // The observer may be on its way out.
                        let _ = sightings.send(Ok(leader));
                    }
                    Attendant::Inspector { .. } => return Err(misplaced(sighting.election)),
                }
            }
            Notice::Listed(listing) => match self.seats.remove(&listing.election) {
                Some(Attendant::Inspector { listed, .. }) => {
                    // Whoever asked may have gone.
                    let _ = listed.send(Ok(listing.candidates));
                }
                Some(Attendant::Candidate(_) | Attendant::Observer { .. }) | None => {
                    return Err(misplaced(listing.election));
                }
            },
            Notice::Written(written) => {
                let Some(pending) = self.tickets.remove(&written.ticket) else {
                    return Err(ComponentError::Step(format!(
                        "nobody waits for the write {}",
                        written.ticket
                    )));
                };
                self.note_value(&pending, &written.outcome);
                pending.answer(written.outcome);
            }
            Notice::Withdrawn(withdrawal) => match self.seats.remove(&withdrawal.election) {
                Some(attendant) => {
                    if let Some(Candidate { tenure: Tenure::Leads(term), .. }) =
                        attendant.as_candidate()
                    {
                        self.leads_no_more(withdrawal.election, term.lease());
                    }
                    attendant.withdraw(withdrawal.cause);
                }
                None => return Err(misplaced(withdrawal.election)),
            },
            Notice::Trouble(trouble) => self.trouble(trouble),
            Notice::Closed if self.closing.is_none() => {
                return Err(ComponentError::Step("it closes, and nobody asked for it".into()));
            }
            Notice::Closed => {
                info!("closed");
                self.elector = State::Closed;
                self.deadline = None;
            }
        }
        Ok(())
    }

    fn elected(&mut self, now: Mark, leadership: types::Leadership) -> Result<(), ComponentError> {
        self.check_valid_until(leadership.lease, leadership.valid_until)?;
        let deadlines = Arc::clone(&self.deadlines);
        let types::Term { election, epoch } = leadership.term;
        let candidate = self.candidate(election)?;
        let idle = matches!(candidate.tenure, Tenure::None);
        if !idle || epoch <= candidate.last_epoch || leadership.valid_until <= now {
            return Err(ComponentError::Step(format!(
                "candidacy {election} cannot lead in epoch {epoch}"
            )));
        }
        info!(election = candidate.candidacy.name, epoch, lease = hex(leadership.lease), "elected");
        let types::Leadership { term: id, key, lease, valid_until } = leadership;
        let validity = self.validity(lease, valid_until)?;
        let candidate = self.candidate(election)?;
        let term = deadlines.begin(&candidate.candidacy.name, id, key.clone(), &validity);
        candidate.last_epoch = epoch;
        candidate.has_yielded = false;
        candidate.tenure = Tenure::Leads(Arc::clone(&term));
        candidate.seat.stage.send_replace(Stage::Leading(Arc::clone(&term)));
        let event = candidate::Event::Elected { epoch, key, lease, valid_until };
        candidate.seat.tell_elected(event, term);
        let leading = || Leading { validity, elections: BTreeSet::new() };
        self.leading.entry(lease).or_insert_with(leading).elections.insert(election);
        Ok(())
    }

    /// For a term that begins on a lease. All that stand on it share one.
    fn validity(
        &mut self,
        lease: LeaseId,
        valid_until: Mark,
    ) -> Result<Arc<Validity>, ComponentError> {
        self.extend(lease, valid_until);
        let Some(leading) = self.leading.get(&lease) else {
            return Ok(self.deadlines.validity(lease, valid_until));
        };
        let earlier = leading.validity.deadline();
        if earlier > valid_until {
            return Err(ComponentError::Step(format!(
                "lease {} would be valid until {valid_until}, and was until {earlier} before",
                hex(lease)
            )));
        }
        Ok(Arc::clone(&leading.validity))
    }

    fn extended(&mut self, extension: types::Extension) -> Result<(), ComponentError> {
        let types::Extension { lease, valid_until } = extension;
        self.check_valid_until(lease, valid_until)?;
        debug!(lease = hex(lease), valid_until, "extended");
        self.extend(lease, valid_until);
        Ok(())
    }

    /// Moves the one deadline of all who lead on a lease. Where that comes too late their
    /// terms are over, which the elector took to be in time.
    fn extend(&mut self, lease: LeaseId, valid_until: Mark) {
        let Entry::Occupied(leading) = self.leading.entry(lease) else {
            return;
        };
        if leading.get().validity.extend(valid_until) {
            return;
        }
        for election in leading.remove().elections {
            if let Some(candidate) = self.seats.get(&election).and_then(Attendant::as_candidate)
                && let Tenure::Leads(term) = &candidate.tenure
                && candidate.demote(term, Reason::Expired)
            {
                self.events.push(Event::Resign(term.id()));
            }
        }
    }

    fn leads_no_more(&mut self, election: ElectionId, lease: LeaseId) {
        if let Entry::Occupied(mut leading) = self.leading.entry(lease) {
            leading.get_mut().elections.remove(&election);
            if leading.get().elections.is_empty() {
                leading.remove();
            }
        }
    }

    fn demoted(&mut self, demotion: types::Demotion) -> Result<(), ComponentError> {
        let (candidate, term) = self.leader(demotion.term)?;
        candidate.demote(&term, demotion.reason);
        let lease = term.lease();
        let nobody_works = !candidate.has_yielded && term.take();
        if nobody_works {
            // Nobody was told of the term.
            term.mark_yielded();
        }
        candidate.tenure =
            if candidate.has_yielded || nobody_works { Tenure::None } else { Tenure::Stops(term) };
        if nobody_works {
            self.events.push(Event::Yielded(demotion.term));
        }
        self.leads_no_more(demotion.term.election, lease);
        Ok(())
    }

    fn note_value(&mut self, pending: &Pending, outcome: &WriteOutcome) {
        if let (Some((election, value)), WriteOutcome::Applied(_)) = (&pending.proclaimed, outcome)
            && let Some(Attendant::Candidate(candidate)) = self.seats.get_mut(election)
        {
            candidate.candidacy.value.clone_from(value);
        }
    }

    fn trouble(&self, trouble: types::Trouble) {
        let types::Trouble { election, failure } = trouble;
        let concerned = election.and_then(|election| self.seats.get(&election));
        match concerned {
            Some(attendant) => warn!(election = attendant.name(), %failure, "trouble"),
            None => warn!(%failure, "trouble"),
        }
        self.tell_trouble(election, failure);
    }

    /// Tells the candidate that it concerns, or all, and whoever listens to the session's.
    fn tell_trouble(&self, election: Option<ElectionId>, failure: Failure) {
        let tell = |attendant: &Attendant| {
            if let Some(candidate) = attendant.as_candidate() {
                candidate.seat.tell(candidate::Event::Trouble(failure.clone()));
            }
        };
        match election {
            Some(election) => self.seats.get(&election).into_iter().for_each(tell),
            // Said once for a row of failures.
            None => self.seats.values().for_each(tell),
        }
        // Nobody has to listen.
        let _ = self.troubles.send(failure);
    }

    /// What the store has not granted, nobody can be given.
    fn check_valid_until(&self, lease: LeaseId, valid_until: Mark) -> Result<(), ComponentError> {
        if self.granted.get(&lease).is_some_and(|until| valid_until <= *until) {
            return Ok(());
        }
        Err(ComponentError::Step(format!(
            "lease {} would be valid until {valid_until}, beyond what the store has granted",
            hex(lease)
        )))
    }

    fn attendant(&mut self, election: ElectionId) -> Result<&mut Attendant, ComponentError> {
        let attendant = self.seats.get_mut(&election);
        attendant.ok_or_else(|| misplaced(election))
    }

    fn candidate(&mut self, election: ElectionId) -> Result<&mut Candidate, ComponentError> {
        match self.attendant(election)? {
            Attendant::Candidate(candidate) => Ok(candidate),
            Attendant::Observer { .. } | Attendant::Inspector { .. } => Err(misplaced(election)),
        }
    }

    fn leader(&mut self, term: types::Term) -> Result<(&mut Candidate, Arc<Term>), ComponentError> {
        let candidate = self.candidate(term.election)?;
        match &candidate.tenure {
            Tenure::Leads(standing) if standing.id() == term => {
                let standing = Arc::clone(standing);
                Ok((candidate, standing))
            }
            Tenure::Leads(_) | Tenure::Stops(_) | Tenure::Orphan(_) | Tenure::None => {
                Err(ComponentError::Step(format!(
                    "candidacy {} does not lead in epoch {}",
                    term.election, term.epoch
                )))
            }
        }
    }
}

/// A driver that is dropped with its runtime ends what nobody would extend.
impl Drop for Driver {
    fn drop(&mut self) {
        for attendant in self.seats.values_mut() {
            if let Attendant::Candidate(candidate) = attendant
                && let Tenure::Leads(term) | Tenure::Orphan(term) = &candidate.tenure
            {
                term.end(Reason::Other("the session has ended".into()));
            }
        }
    }
}

/// What is wrong with something of so many bytes, if anything.
fn too_large(what: &str, bytes: usize) -> Option<String> {
    let mebibytes = ANSWER >> 20;
    let sentence = || {
        format!(
            "{what} has {bytes} bytes, and an elector takes {mebibytes} MiB at once: shorten it"
        )
    };
    (bytes > ANSWER).then(sentence)
}

fn used_twice(id: RequestId) -> ComponentError {
    ComponentError::Step(format!("it uses the request {id} twice"))
}

fn check_under_way(what: &str, many: usize) -> Result<(), ComponentError> {
    if many <= UNDER_WAY {
        return Ok(());
    }
    Err(ComponentError::Step(format!("it has more than {UNDER_WAY} {what} under way")))
}

fn misplaced(election: ElectionId) -> ComponentError {
    ComponentError::Step(format!("election {election} is not what it takes it for"))
}

/// A lease as etcd's tools show it.
fn hex(lease: LeaseId) -> String {
    format!("{lease:x}")
}
