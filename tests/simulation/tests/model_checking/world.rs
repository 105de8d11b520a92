//! A few electors and their applications, the store, and what is under way between
//! them: what can happen next, and what must be true of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use incumbent_guest::Elector;
use incumbent_guest::types::*;
use incumbent_simulation::client::{HeldTerm, OpenWatch};
use incumbent_simulation::evidence::shows_own;
use incumbent_simulation::laws::{Broken, Law, judge};
use incumbent_simulation::store::Store;

mod actions;
mod laws;

/// Time goes in steps of this: an elector whose deadline lies in between wakes a little late, as
/// on a busy machine. It makes jitter of no account, and worlds alike that differ in
/// nothing else.
pub const STEP: Duration = 1_000_000_000;

/// When everything begins: so late that no span and no number reaches it.
pub const BEGINNING: Mark = 1_200_000 * STEP;

/// The election.
pub const NAME: &str = "jobs";

/// Where operators' wishes are.
const WISHES: &str = "incumbent-wishes/";

const DATA: &[u8] = b"/data";
/// What is written in the last term, and what in the one before.
const LAST: &[u8] = b"last";
const EARLIER: &[u8] = b"earlier";

const MARGIN: Duration = STEP;
/// How long a call waits for its answer.
pub const REQUEST_TIMEOUT: Duration = 5 * STEP;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub contest: Contest,
    pub candidates: usize,
    /// Whole seconds.
    pub ttl: Duration,
    pub budget: Budget,
}

/// How much of what is out of the ordinary may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Calls that fail, answers that are late, watches that break.
    pub faults: u8,
    /// How often time passes although something could be delivered or done.
    pub delays: u8,
    /// How often a process is stopped for a while.
    pub pauses: u8,
    /// How often the way to the store is cut for a while.
    pub cuts: u8,
    pub resignations: u8,
    pub writes: u8,
    pub departures: u8,
    /// How often an operator removes a key, or the lease that it is under.
    pub removals: u8,
    /// How often a candidate hears that an operator wants another one to lead.
    pub wishes: u8,
    /// How many processes are killed, and never started again.
    pub deaths: u8,
}

impl Budget {
    pub const NONE: Self = Self {
        faults: 0,
        delays: 0,
        pauses: 0,
        cuts: 0,
        resignations: 0,
        writes: 0,
        departures: 0,
        removals: 0,
        wishes: 0,
        deaths: 0,
    };
}

/// What can happen, and to which candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The store does what a call asks, if it has not yet, and the answer comes.
    Answer(usize, RequestId),
    /// The store does what a call asks; the answer is on its way.
    Keep(usize, RequestId),
    /// The call fails at once. The store may do it all the same, then or later.
    Fail(usize, RequestId),
    /// There will be no answer. The store may do it all the same, then or later.
    Lose(usize, RequestId),
    /// The store does what was asked by a call that failed or was given up.
    Land(usize, usize),
    Start(usize, RequestId),
    /// A watch tells its next news.
    Tell(usize, RequestId),
    Break(usize, RequestId),
    /// The elector's deadline has come.
    Wake(usize),
    /// The process stops; what it is told gathers.
    Pause(usize),
    Resume(usize),
    /// The process is killed.
    Die(usize),
    /// Nothing comes through to the store, or from it.
    Cut(usize),
    Mend(usize),
    Resign(usize),
    /// The work has stopped, because the term is over.
    Yield(usize),
    /// The application writes, in its last term or the one before.
    Write(usize, bool),
    Leave(usize),
    /// An operator deletes a key, the oldest being the first.
    Depose(usize),
    /// An operator revokes the lease of a key.
    Revoke(usize),
    /// A candidate hears a wish: that the key of the second age leads after the key of the first,
    /// and whether the leader should resign now. The others hear it at any other time, or never.
    Wish(usize, usize, usize, bool),
    /// Time passes until something is due.
    Pass,
    /// The store ends the leases that are over.
    Tick,
}

/// Everything.
#[derive(Clone)]
pub struct World {
    pub ttl: Duration,
    pub now: Mark,
    pub store: Arc<Store>,
    pub candidates: Vec<Arc<Candidate>>,
    pub left: Budget,
    /// The newest epoch that anyone was elected in.
    pub newest: Epoch,
    /// An operator has removed something: two may believe that they lead.
    pub meddled: bool,
    /// What was broken by the last thing that happened: nothing follows it.
    pub broken: Vec<Broken>,
}

/// A candidate's process, and what is under way to and from it.
#[derive(Clone)]
pub struct Candidate {
    pub elector: Elector,
    pub deadline: Option<Mark>,
    pub calls: Vec<Pending>,
    /// What the store may do although nobody waits for it any more.
    pub strays: Vec<Operation>,
    pub watches: Vec<OpenWatch>,
    /// The watch of wishes. It is on from its first moment.
    pub wishes: Option<RequestId>,
    /// The term that it was asked to hand over.
    pub asked: Option<Term>,
    /// What gathers while the process is stopped.
    pub asleep: Option<Vec<Told>>,
    pub cut: bool,
    pub term: Option<HeldTerm>,
    pub earlier: Option<Term>,
    /// The longest deadline that the acknowledged calls allow, for each lease.
    pub allowed: Vec<(LeaseId, Mark)>,
    pub withdrawn: bool,
    pub dead: bool,
}

/// A call under way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pending {
    pub sent: Mark,
    pub call: Call,
    pub answer: Option<Result<Response, Failure>>,
}

/// What an elector is told: an answer together with its call.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Told {
    Answer(Pending),
    Other(Event),
}

impl World {
    pub fn new(scope: &Scope) -> World {
        let candidate = |number: usize| {
            let config = Config {
                lease_ttl: scope.ttl,
                safety_margin: MARGIN,
                request_timeout: REQUEST_TIMEOUT,
                seed: (number as u64 + 1, 7),
            };
            Arc::new(Candidate {
                elector: Elector::open(config, BEGINNING).expect("the configuration is good"),
                deadline: None,
                calls: Vec::new(),
                strays: Vec::new(),
                watches: Vec::new(),
                wishes: None,
                asked: None,
                asleep: None,
                cut: false,
                term: None,
                earlier: None,
                allowed: Vec::new(),
                withdrawn: false,
                dead: false,
            })
        };
        let mut world = World {
            ttl: scope.ttl,
            now: BEGINNING,
            store: Arc::new(Store::default()),
            candidates: (0..scope.candidates).map(candidate).collect(),
            left: scope.budget,
            newest: 0,
            meddled: false,
            broken: Vec::new(),
        };
        for who in 0..scope.candidates {
            let candidacy = Candidacy {
                election: 1,
                name: NAME.into(),
                contest: scope.contest,
                value: b"us".into(),
                rejoin: true,
                priority: 0,
                preempt_after: None,
            };
            world.tell(who, Told::Other(Event::Campaign(candidacy)));
        }
        world
    }

    /// Whether somebody regards itself as leader.
    pub fn is_led(&self) -> bool {
        self.terms().any(|held| held.stands(self.now))
    }

    fn terms(&self) -> impl Iterator<Item = &HeldTerm> {
        self.candidates.iter().filter_map(|candidate| candidate.term.as_ref())
    }

    fn candidate(&mut self, who: usize) -> &mut Candidate {
        Arc::make_mut(&mut self.candidates[who])
    }

    fn law(&mut self, law: Law, holds: bool, how: &str) {
        if !holds {
            self.broken.push(law.broken(how.into()));
        }
    }

    pub fn make(&mut self, action: &Action) {
        match *action {
            Action::Answer(who, id) => {
                let mut pending = self.take_call(who, id);
                if pending.answer.is_none() {
                    pending.answer = Some(self.perform(&pending.call.operation));
                }
                self.tell(who, Told::Answer(pending));
            }
            Action::Keep(who, id) => {
                self.left.faults -= 1;
                let mut pending = self.take_call(who, id);
                pending.answer = Some(self.perform(&pending.call.operation));
                let calls = &mut self.candidate(who).calls;
                let index = calls.partition_point(|other| other.call.id < id);
                calls.insert(index, pending);
            }
            Action::Fail(who, id) => {
                self.left.faults -= 1;
                let mut pending = self.take_call(who, id);
                self.candidate(who).stray(&pending.call.operation);
                pending.answer = Some(Err(Failure::Unavailable));
                self.tell(who, Told::Answer(pending));
            }
            Action::Lose(who, id) => {
                self.left.faults -= 1;
                let pending = self.take_call(who, id);
                self.candidate(who).stray(&pending.call.operation);
            }
            Action::Land(who, index) => {
                let operation = self.candidate(who).strays.remove(index);
                // Nobody hears of it.
                let _ = self.perform(&operation);
            }
            Action::Start(who, id) => {
                let store = Arc::clone(&self.store);
                let started = self.watch(who, id).start(&store);
                self.tell(who, Told::Other(started));
            }
            Action::Tell(who, id) => {
                let store = Arc::clone(&self.store);
                if let Some(event) = self.watch(who, id).tell(&store) {
                    self.tell(who, Told::Other(event));
                }
            }
            Action::Break(who, id) => {
                self.left.faults -= 1;
                let ended = self.watch(who, id).event(Change::Ended(Failure::Unavailable));
                self.candidate(who).watches.retain(|open| open.watch.id != id);
                self.tell(who, Told::Other(ended));
            }
            Action::Wake(who) => self.tell(who, Told::Other(Event::Wake)),
            Action::Pause(who) => {
                self.left.pauses -= 1;
                self.candidate(who).asleep = Some(Vec::new());
            }
            Action::Resume(who) => {
                let gathered = self.candidate(who).asleep.take().unwrap_or_default();
                self.handle(who, gathered);
            }
            Action::Die(who) => {
                self.left.deaths -= 1;
                let candidate = self.candidate(who);
                for pending in std::mem::take(&mut candidate.calls) {
                    if pending.answer.is_none() {
                        candidate.stray(&pending.call.operation);
                    }
                }
                candidate.watches.clear();
                (candidate.wishes, candidate.asleep) = (None, None);
                (candidate.term, candidate.earlier, candidate.deadline) = (None, None, None);
                candidate.dead = true;
            }
            Action::Cut(who) => {
                self.left.cuts -= 1;
                self.candidate(who).cut = true;
            }
            Action::Mend(who) => self.candidate(who).cut = false,
            Action::Resign(who) => {
                let asked = self.candidate(who).asked.take();
                if asked.is_none() {
                    self.left.resignations -= 1;
                }
                if let Some(term) = self.term_of(who) {
                    self.tell(who, Told::Other(Event::Resign(term)));
                }
            }
            Action::Yield(who) => {
                if let Some(held) = &mut self.candidate(who).term {
                    held.yielded = true;
                    let term = held.leadership.term;
                    self.tell(who, Told::Other(Event::Yielded(term)));
                }
            }
            Action::Write(who, earlier) => self.write(who, earlier),
            Action::Leave(who) => {
                self.left.departures -= 1;
                self.tell(who, Told::Other(Event::Leave(1)));
            }
            Action::Depose(index) => {
                let key = self.meddle(index).key;
                Arc::make_mut(&mut self.store).delete(&key);
            }
            Action::Revoke(index) => {
                let lease = self.meddle(index).lease;
                Arc::make_mut(&mut self.store).end_lease(lease);
            }
            Action::Wish(who, after, target, now) => {
                self.left.wishes -= 1;
                if let Some(event) = self.wish(who, after, target, now) {
                    self.tell(who, Told::Other(event));
                }
            }
            Action::Pass => {
                if !self.is_quiet() {
                    self.left.delays -= 1;
                }
                if let Some(mark) = self.next_mark() {
                    self.pass(mark);
                }
            }
            Action::Tick => Arc::make_mut(&mut self.store).tick(self.now),
        }
        self.drop_idle_strays();
        let now = self.now;
        let at_work = self.terms().filter(|held| held.may_work(now)).count();
        self.law(Law::OneLeader, at_work <= 1 || self.meddled, "two may work at one instant");
    }

    /// An operator takes a key, by its age.
    fn meddle(&mut self, index: usize) -> Entry {
        self.left.removals -= 1;
        self.meddled = true;
        let mut entries: Vec<&Entry> = self.store.keys().collect();
        entries.sort_by_key(|entry| entry.created);
        entries[index].clone()
    }

    fn term_of(&self, who: usize) -> Option<Term> {
        self.candidates[who].term.as_ref().map(|held| held.leadership.term)
    }

    fn take_call(&mut self, who: usize, id: RequestId) -> Pending {
        let calls = &mut self.candidate(who).calls;
        let index = calls.iter().position(|pending| pending.call.id == id);
        calls.remove(index.expect("the call is under way"))
    }

    /// What a candidate hears of a wish: that the key of the second age leads after the key of the
    /// first.
    fn wish(&self, who: usize, after: usize, target: usize, now: bool) -> Option<Event> {
        let mut created: Vec<_> = self.store.keys().map(|entry| entry.created).collect();
        created.sort_unstable();
        let now = if now { " now" } else { "" };
        let wish = Entry {
            key: format!("{WISHES}{NAME}/transfer").into(),
            value: format!("{} {}{now}", created[after], created[target]).into(),
            lease: 1,
            created: self.store.revision(),
            modified: self.store.revision(),
        };
        let id = self.candidates[who].wishes?;
        Some(Event::Watched(Watched { id, change: Change::Put(wish) }))
    }

    /// Whether such a wish changes anything. One that does not leads to no new world.
    pub fn minds(&self, who: usize, after: usize, target: usize, now: bool) -> bool {
        let Some(event) = self.wish(who, after, target, now) else { return false };
        let [mut woken, mut told] = [(); 2].map(|()| self.candidates[who].elector.clone());
        let step = told.handle(self.now, vec![event]);
        step != woken.handle(self.now, vec![Event::Wake]) || told != woken
    }

    fn watch(&mut self, who: usize, id: RequestId) -> &mut OpenWatch {
        let open = self.candidate(who).watches.iter_mut().find(|open| open.watch.id == id);
        open.expect("the watch is open")
    }

    fn write(&mut self, who: usize, earlier: bool) {
        self.left.writes -= 1;
        let (term, value) = match earlier {
            true => (self.candidates[who].earlier, EARLIER),
            false => (self.term_of(who), LAST),
        };
        if let Some(term) = term {
            let put = Put { key: DATA.into(), value: value.into() };
            self.tell(
                who,
                Told::Other(Event::Write(GuardedWrite {
                    term,
                    ticket: 1,
                    expect: Vec::new(),
                    mutations: vec![Mutation::Put(put)],
                })),
            );
        }
    }

    pub fn pass(&mut self, mark: Mark) {
        self.now = mark;
        let ttl = self.ttl;
        for candidate in &mut self.candidates {
            // A host abandons calls then, but for renewals: their late answers count.
            let cut = candidate.cut;
            let is_over = |pending: &Pending| match pending.call.operation {
                Operation::KeepAlive(_) if !cut => pending.sent + ttl <= mark,
                _ => pending.call.give_up <= mark,
            };
            if candidate.calls.iter().any(is_over) {
                let candidate = Arc::make_mut(candidate);
                for pending in candidate.calls.extract_if(.., |pending| is_over(pending)) {
                    // What was not sent off before it was cut has not left.
                    if !cut && pending.answer.is_none() && is_lasting(&pending.call.operation) {
                        candidate.strays.push(pending.call.operation);
                    }
                }
            }
        }
    }

    /// Forgets what cannot change anything any more.
    fn drop_idle_strays(&mut self) {
        for candidate in &mut self.candidates {
            let store = &self.store;
            let idle = |candidate: &Candidate, stray: &Operation| match stray {
                Operation::Claim(Claim { lease, .. })
                | Operation::KeepAlive(lease)
                | Operation::Revoke(lease) => {
                    store.end_of(*lease).is_none() && !candidate.may_be_granted(*lease)
                }
                Operation::Guarded(guarded) => store
                    .key(&guarded.guard.key)
                    .is_none_or(|entry| entry.created != guarded.guard.epoch),
                Operation::Grant(_) | Operation::Read(_) => false,
            };
            if candidate.strays.iter().any(|stray| idle(candidate, stray)) {
                let candidate = Arc::make_mut(candidate);
                let strays = std::mem::take(&mut candidate.strays);
                let (_, rest) = strays.into_iter().partition(|stray| idle(candidate, stray));
                candidate.strays = rest;
            }
        }
    }

    fn perform(&mut self, operation: &Operation) -> Result<Response, Failure> {
        let response = Arc::make_mut(&mut self.store).perform(self.now, operation);
        if let (Operation::Guarded(guarded), Ok(Response::Applied(_))) = (operation, &response)
            && writes_data(guarded)
        {
            let newest = guarded.guard.epoch >= self.newest;
            self.law(Law::Guarded, newest, "a write of an older term is done");
        }
        response
    }

    // A step, and all that must be true of it.

    fn tell(&mut self, who: usize, told: Told) {
        match &mut self.candidate(who).asleep {
            Some(gathered) => gathered.push(told),
            None => self.handle(who, vec![told]),
        }
    }

    fn handle(&mut self, who: usize, told: Vec<Told>) {
        let now = self.now;
        for told in &told {
            if let Told::Answer(pending) = told {
                self.candidate(who).acknowledge(now, pending);
            }
        }
        let events = told.iter().map(Told::event).collect();
        let step = self.candidate(who).elector.handle(now, events);
        let ahead = step.deadline.is_none_or(|deadline| deadline > now);
        self.law(Law::NothingSpins, ahead, "the next deadline is past");
        self.candidate(who).deadline = step.deadline;
        for command in step.commands {
            match command {
                Command::Call(call) => self.called(who, call),
                Command::Watch(watch) if watch.key == WISHES.as_bytes() => {
                    self.candidate(who).wishes = Some(watch.id);
                }
                Command::Watch(watch) => {
                    self.candidate(who).watches.push(OpenWatch::new(watch));
                }
                Command::Unwatch(id) => {
                    self.candidate(who).wishes.take_if(|wishes| *wishes == id);
                    self.candidate(who).watches.retain(|open| open.watch.id != id);
                }
                Command::Notify(notice) => self.noticed(who, notice, &told),
            }
        }
        for told in &told {
            if let Told::Answer(Pending { call, answer: Some(Ok(Response::Stale)), .. }) = told
                && let Operation::Guarded(guarded) = &call.operation
                && writes_data(guarded)
            {
                let stands = |held: &HeldTerm| held.is_of(&guarded.guard) && !held.over;
                let demoted = !self.candidates[who].term.as_ref().is_some_and(stands);
                self.law(Law::Guarded, demoted, "a refused write does not end its term");
            }
        }
        if let Some(held) = &self.candidates[who].term {
            let in_time = held.over || now < held.leadership.valid_until;
            self.law(Law::ByTheClock, in_time, "a term goes on at its deadline");
        }
    }
}

impl Candidate {
    pub fn is_due(&self, now: Mark) -> bool {
        self.asleep.is_none() && self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn stray(&mut self, operation: &Operation) {
        if is_lasting(operation) {
            self.strays.push(operation.clone());
        }
    }

    /// Whether a lease that is not there may come yet.
    fn may_be_granted(&self, lease: LeaseId) -> bool {
        let grants = |operation: &Operation| match operation {
            Operation::Grant(grant) => grant.lease == lease,
            _ => false,
        };
        self.strays.iter().any(grants)
            || self.calls.iter().any(|pending| grants(&pending.call.operation))
    }

    fn acknowledge(&mut self, now: Mark, pending: &Pending) {
        let (lease, ttl) = match (&pending.call.operation, &pending.answer) {
            (Operation::Grant(grant), Some(Ok(Response::Granted(ttl)))) => (grant.lease, *ttl),
            (Operation::KeepAlive(lease), Some(Ok(Response::Renewed(ttl)))) => (*lease, *ttl),
            _ => return,
        };
        let until = pending.sent + ttl - MARGIN.max(ttl / 100);
        self.allowed.retain(|(of, mark)| *mark > now && (*of != lease || *mark > until));
        if self.allowed.iter().all(|(of, _)| *of != lease) {
            self.allowed.push((lease, until));
        }
    }
}

impl Told {
    fn event(&self) -> Event {
        match self {
            Told::Answer(Pending { call, answer, .. }) => {
                let outcome = answer.clone().expect("it is answered");
                Event::Reply(Reply { id: call.id, outcome })
            }
            Told::Other(event) => event.clone(),
        }
    }

    /// Whether this is a read that shows the leader's key, or the news that somebody has gone: together with
    /// what was told before, all in front have. `OneLeader` finds who has not.
    fn shows(&self, leadership: &Leadership) -> bool {
        match self {
            Told::Answer(Pending { answer: Some(Ok(Response::Snapshot(snapshot))), .. }) => {
                shows_own(leadership, snapshot)
            }
            Told::Other(Event::Watched(Watched { change: Change::Deleted(_), .. })) => true,
            Told::Answer(_) | Told::Other(_) => false,
        }
    }
}

/// When time, in its steps, has come to a mark.
pub fn in_steps(mark: Mark) -> Mark {
    mark.next_multiple_of(STEP)
}

/// Whether it matters that an operation is done when nobody waits for it.
fn is_lasting(operation: &Operation) -> bool {
    !matches!(operation, Operation::Read(_))
}

fn writes_data(guarded: &Guarded) -> bool {
    guarded.mutations.iter().any(|mutation| matches!(mutation, Mutation::Put(_)))
}

fn is_earlier(mutation: &Mutation) -> bool {
    matches!(mutation, Mutation::Put(put) if put.value == EARLIER)
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases: BTreeSet<LeaseId> = self.store.leases().collect();
        f.debug_struct("World")
            .field("now", &(self.now - BEGINNING))
            .field("keys", &self.store.keys().collect::<Vec<_>>())
            .field("leases", &leases)
            .field("left", &self.left)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
