//! Everything that happens, in order: the network, the members, the hosts around
//! the electors.

use std::collections::BTreeMap;

use fastrand::Rng;
use incumbent_guest::types::*;

use super::application::{Act, Part, Terms};
use super::clock::Clock;
use super::cluster::Cluster;
use super::evidence::counts;
use super::history::History;
use super::laws::{Broken, Law, Laws};
use super::machine::{Machine, Open};
use super::plan::{Election, Kind, Moment, Plan};
use super::store::{EXPIRY_TICK, SHORTEST_LEASE, Store};
use super::story::Story;
use super::{MILLISECOND, Run, SECOND};

mod faults;
mod network;
mod stream;
mod verdict;
mod watches;

use self::stream::Stream;

/// More turns of one process in a second than this are a spin; each of its elections may
/// take some more.
const MOST_TURNS: u32 = 2_000;
const MOST_TURNS_EACH: u32 = 40;

/// A simulated world.
pub struct World<'a> {
    pub plan: &'a Plan,
    open: Open<'a>,
    /// The true time.
    pub now: Mark,
    pub rng: Rng,
    pub processes: Vec<Process>,
    pub cluster: Cluster,
    pub laws: Laws,
    pub history: History,
    pub story: Story,
    pub run: Run,
    /// When somebody last led the first election.
    led: Option<Mark>,
    /// No more faults, and leaders stay.
    pub calm: bool,
    /// Nobody campaigns any more.
    pub closing: bool,
    /// What will happen, by the time and in the order in which it was planned.
    queue: BTreeMap<(Mark, u64), Happening>,
    last: u64,
    /// The faults that have begun and not ended.
    pub faults: Vec<Kind>,
    /// Messages that a cut holds up.
    held: Vec<Held>,
    backup: Option<Store>,
    /// The store's changes by key.
    changes: stream::ChangesByKey,
    pub election_due: bool,
}

/// A process: an application, the host in it, and the elector in that.
#[derive(Default)]
pub struct Process {
    pub clock: Clock,
    pub runs: bool,
    /// Counts its starts.
    pub life: u32,
    /// Counts the electors that it had.
    pub generation: u32,
    pub elector: Option<Box<dyn Machine>>,
    pub inbox: Vec<Event>,
    pub parts: Vec<Part>,
    /// Of each part, the term in which it leads or works.
    pub terms: Terms,
    /// Writes without an outcome, and their increments in the history.
    pub writes: BTreeMap<Ticket, usize>,
    /// It was told to close.
    pub closing: bool,
    pub closed: bool,
    /// Of each election id that was used, the part.
    elections: Vec<usize>,
    last_ticket: Ticket,
    /// Proclamations that its elector was given and has not answered, and since when.
    pub tickets: BTreeMap<Ticket, Mark>,
    /// What its clock showed when its elector was last told something.
    told: Mark,
    /// Steps in a row that said nothing, and want to be followed by another at once.
    idle: u32,
    turning: bool,
    deadline: Option<Mark>,
    /// What would have happened while it was stopped.
    stuck: Vec<Happening>,
    /// The member that it speaks with.
    member: usize,
    stream: Stream,
    /// Leases that its elector asked for.
    pub leases: Vec<LeaseId>,
    /// Leases of electors that broke, to be given back.
    pub orphaned: Vec<LeaseId>,
    /// A second, and the turns in it.
    turns: (u64, u32),
}

/// What is asked of the store.
#[derive(Clone, Debug)]
pub struct Request {
    pub process: usize,
    pub from: Sender,
    pub operation: Operation,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub enum Sender {
    /// The elector of this generation.
    Elector { generation: u32, id: RequestId },
    /// The host, which gives back the lease of an elector that broke.
    Host,
    /// The application, which reads the counter for its next write in a term.
    Application { life: u32, part: usize, epoch: Epoch, increment: usize },
}

#[derive(Debug)]
pub enum Happening {
    Turn { process: usize, generation: u32 },
    Wake { process: usize, generation: u32, mark: Mark },
    Depart { request: Request, generation: u32 },
    Arrive { member: usize, request: Request },
    Answer { request: Request, outcome: Result<Response, Failure> },
    Open { process: usize, stream: u32, id: RequestId, since: Option<Revision> },
    Flush { process: usize, stream: u32 },
    News { process: usize, stream: u32, news: Vec<Watched> },
    Supervise { process: usize, stream: u32 },
    Act { process: usize, life: u32, act: Act },
    Tick,
    Elect,
    Begin(usize),
    End(usize),
    Reopen { process: usize, life: u32 },
}

struct Held {
    process: usize,
    member: usize,
    to_store: bool,
    what: Happening,
}

impl<'a> World<'a> {
    /// A world before anything happened.
    pub fn new(plan: &'a Plan, open: Open<'a>, story: Story) -> World<'a> {
        let mut world = World {
            plan,
            open,
            now: 0,
            rng: Rng::with_seed(plan.seed),
            processes: Vec::new(),
            cluster: Cluster::default(),
            laws: Laws::new(plan),
            history: History::default(),
            story,
            run: Run::default(),
            led: None,
            calm: false,
            closing: false,
            queue: BTreeMap::new(),
            last: 0,
            faults: Vec::new(),
            held: Vec::new(),
            backup: None,
            changes: stream::ChangesByKey::default(),
            election_due: false,
        };
        for process in 0..plan.processes {
            let clock = world.draw_clock();
            world.processes.push(Process {
                clock,
                parts: vec![Part::default(); plan.elections.len()],
                member: process % plan.members,
                ..Process::default()
            });
            world.start(process);
        }
        world.push(EXPIRY_TICK, Happening::Tick);
        for (index, fault) in plan.faults.iter().enumerate() {
            world.push(fault.at, Happening::Begin(index));
            world.push(fault.at + fault.lasts, Happening::End(index));
        }
        world
    }

    /// A rate that the margin allows for.
    fn draw_clock(&mut self) -> Clock {
        let ttl = self.plan.lease_ttl.max(SHORTEST_LEASE);
        let margin = self.plan.safety_margin.max(ttl / 100);
        // A whole millionth less than what would be just enough.
        let most = (margin * 1_000_000 / ttl).min(200_000) as i64 - 1;
        let drift = match self.rng.u8(..4) {
            0 => -most,
            1 => 0,
            _ => self.rng.i64(-most..=most),
        };
        Clock { began: self.rng.u64(..1_000 * SECOND), drift }
    }

    // Time.

    /// Lets everything happen up to `until`.
    pub fn pass(&mut self, until: Mark) -> Result<(), Broken> {
        while let Some(due) = self.queue.first_entry().filter(|due| due.key().0 <= until) {
            let ((at, _), what) = due.remove_entry();
            self.now = at;
            self.happen(what)?;
        }
        self.now = until;
        Ok(())
    }

    fn push(&mut self, at: Mark, what: Happening) {
        self.last += 1;
        self.queue.insert((at, self.last), what);
    }

    pub fn after(&mut self, pause: Duration, what: Happening) {
        self.push(self.now + pause, what);
    }

    fn happen(&mut self, what: Happening) -> Result<(), Broken> {
        if let Some(process) = what.process()
            && self.is_active(Kind::Pause(process))
        {
            self.processes[process].stuck.push(what);
            return Ok(());
        }
        match what {
            Happening::Turn { process, generation } => {
                let it = &self.processes[process];
                if it.generation == generation && it.turning {
                    return self.turn(process);
                }
            }
            Happening::Wake { process, generation, mark } => {
                let it = &mut self.processes[process];
                let at_once = mark <= it.told + 1;
                if it.generation == generation
                    && it.deadline == Some(mark)
                    && (at_once || !it.turning)
                {
                    it.inbox.push(Event::Wake);
                    return self.turn(process);
                }
            }
            Happening::Depart { request, generation } => {
                if self.processes[request.process].generation == generation {
                    self.depart(request);
                }
            }
            Happening::Arrive { member, request } => self.arrive(member, request),
            Happening::Answer { request, outcome } => self.answered(request, outcome),
            Happening::Open { process, stream, id, since } => {
                self.open(process, stream, id, since);
            }
            Happening::Flush { process, stream } => self.flush(process, stream),
            Happening::News { process, stream, news } => self.news(process, stream, news),
            Happening::Supervise { process, stream } => self.supervise(process, stream),
            Happening::Act { process, life, act } => {
                if self.processes[process].runs && self.processes[process].life == life {
                    return self.act(process, act);
                }
            }
            Happening::Tick => {
                if self.cluster.leader.is_some() {
                    self.cluster.store.tick(self.now);
                    self.changed();
                }
                self.after(EXPIRY_TICK, Happening::Tick);
            }
            Happening::Elect => self.elect(),
            Happening::Begin(fault) => return self.begin(fault),
            Happening::End(fault) => self.end(fault),
            Happening::Reopen { process, life } => {
                let it = &self.processes[process];
                if it.runs && it.life == life && (it.elector.is_none() || it.closed) {
                    self.reopen(process);
                }
            }
        }
        Ok(())
    }

    // Processes.

    fn start(&mut self, process: usize) {
        let clock = self.draw_clock();
        let it = &mut self.processes[process];
        it.runs = true;
        it.life += 1;
        it.clock = clock;
        it.elections.clear();
        it.told = 0;
        it.forget_parts();
        self.reopen(process);
    }

    /// Opens an elector, and campaigns where nothing stands against it.
    pub fn reopen(&mut self, process: usize) {
        let seed = (self.rng.u64(..), self.rng.u64(..));
        let config = Config {
            lease_ttl: self.plan.lease_ttl,
            safety_margin: self.plan.safety_margin,
            request_timeout: self.plan.request_timeout,
            seed,
        };
        let now = self.processes[process].clock.at(self.now);
        let elector = (self.open)(config, now);
        self.story.opened(self.now, process, config, now);
        self.processes[process].drop_elector();
        self.processes[process].elector = Some(elector);
        self.laws.opened(process);
        if self.is_active(Kind::Drain(process)) || !self.plan.limits.is_empty() {
            self.tell_limit(process);
        }
        for part in 0..self.plan.elections.len() {
            self.come_in(process, part);
            if process < self.plan.observers {
                self.look_on(process, part);
            }
        }
    }

    fn kill(&mut self, process: usize) {
        let it = &mut self.processes[process];
        if !it.runs {
            return;
        }
        it.runs = false;
        it.drop_elector();
        it.stuck.clear();
        it.orphaned.clear();
        it.forget_parts();
        self.history.abandon(process, self.now);
    }

    /// The component traps: terms go on to their deadline without it.
    fn trap(&mut self, process: usize) -> Result<(), Broken> {
        let it = &mut self.processes[process];
        if it.elector.is_none() {
            return Ok(());
        }
        it.orphaned.append(&mut it.leases);
        it.drop_elector();
        let life = it.life;
        self.faults.retain(|kind| match *kind {
            Kind::Trap(of, moment) => of != process || moment == Moment::Again,
            _ => true,
        });
        self.run.traps += 1;
        self.story.note(self.now, &format!("the component of process {process} traps"));
        self.orphan(process)?;
        self.history.abandon(process, self.now);
        let pause = 100 * MILLISECOND + self.rng.u64(..SECOND);
        self.after(pause, Happening::Reopen { process, life });
        Ok(())
    }

    /// Opens another elector after a while.
    pub fn reopen_later(&mut self, process: usize) {
        let life = self.processes[process].life;
        let pause = self.rng.u64(..SECOND);
        self.after(pause, Happening::Reopen { process, life });
    }

    /// An election id that was not used before.
    pub fn next_election(&mut self, process: usize, part: usize) -> ElectionId {
        let elections = &mut self.processes[process].elections;
        elections.push(part);
        elections.len() as ElectionId
    }

    /// A ticket that was not used before.
    pub fn next_ticket(&mut self, process: usize) -> Ticket {
        self.processes[process].last_ticket += 1;
        self.processes[process].last_ticket
    }

    /// Tells an elector something, soon.
    pub fn tell(&mut self, process: usize, event: Event) {
        let jitter = self.rng.u64(..200_000);
        let it = &mut self.processes[process];
        if it.elector.is_none() {
            return;
        }
        it.inbox.push(event);
        if !it.turning {
            it.turning = true;
            let generation = it.generation;
            self.after(jitter, Happening::Turn { process, generation });
        }
    }

    /// Does something later, if the process lives so long.
    pub fn later(&mut self, process: usize, pause: Duration, act: Act) {
        let life = self.processes[process].life;
        self.after(pause, Happening::Act { process, life, act });
    }

    /// Does something when the process's clock shows a mark.
    pub fn at_mark(&mut self, process: usize, mark: Mark, act: Act) {
        let due = self.processes[process].clock.when(mark).max(self.now);
        let life = self.processes[process].life;
        self.push(due, Happening::Act { process, life, act });
    }

    /// The heart of a host.
    /// Notes that the first election is led, if it is.
    fn note_leader(&mut self) {
        if self.leaders(0) > 0 {
            self.led = Some(self.now);
        }
    }

    /// The first election has a leader again.
    pub fn note_elected(&mut self) {
        if let Some(led) = self.led {
            self.run.vacancy = self.run.vacancy.max(self.now - led);
        }
    }

    fn turn(&mut self, process: usize) -> Result<(), Broken> {
        self.note_leader();
        let it = &mut self.processes[process];
        it.turning = false;
        let closing = it.closing;
        let in_step = |moment| match moment {
            Moment::Step | Moment::Again => true,
            Moment::Closing => closing,
            Moment::Now | Moment::Demotion | Moment::Asking => false,
        };
        if self.traps(process, in_step) {
            return self.trap(process);
        }
        let it = &mut self.processes[process];
        if it.elector.is_none() {
            return Ok(());
        }
        let now = it.clock.at(self.now).max(it.told);
        it.told = now;
        let events = std::mem::take(&mut it.inbox);
        let generation = it.generation;
        let second = self.now / SECOND;
        it.turns = if it.turns.0 == second { (second, it.turns.1 + 1) } else { (second, 1) };
        if it.turns.1 > MOST_TURNS + MOST_TURNS_EACH * self.plan.elections.len() as u32 {
            return Err(Law::NothingSpins.broken(format!("process {process} spins")));
        }
        let mut lost_races = Vec::new();
        for event in &events {
            if let Event::Proclaim(Proclamation { election, ticket, .. }) = event {
                it.tickets.insert(*ticket, self.now);
                let waits = it.current(*election).is_some_and(|part| it.parts[part].rival);
                lost_races.extend(waits.then_some((*election, *ticket)));
            }
        }

        self.laws.hear(process, now, &events);
        self.story.told(self.now, process, now, &events);
        let Some(elector) = &mut it.elector else { return Ok(()) };
        let step = elector.handle(now, events)?;
        self.run.steps += 1;
        self.run.digest(process, now, &step);
        self.story.said(process, &step);
        it.deadline = step.deadline;
        // There is more to do, at once.
        let more = step.deadline == Some(now + 1);
        if let Some(mark) = step.deadline {
            if mark <= now {
                return Err(Law::NothingSpins.broken("the next deadline is not ahead".into()));
            }
            // One timer may happen to be due so soon, and come to nothing; and a few steps may
            // only forget what went with a lease. However many elections there are, no step looks
            // at those that nothing follows for.
            it.idle = if more && step.commands.is_empty() { it.idle + 1 } else { 0 };
            if it.idle > 8 {
                return Err(Law::NothingSpins.broken(format!(
                    "process {process} wants to be woken at once, again and again, and does \
                     nothing"
                )));
            }
            let late = if more { 0 } else { self.rng.u64(..1_000_000) };
            let due = it.clock.when(mark).max(self.now) + late;
            self.push(due, Happening::Wake { process, generation, mark });
        }
        let traps = self.traps(process, |moment| {
            step.commands.iter().any(|command| match (moment, command) {
                (Moment::Demotion, Command::Notify(Notice::Demoted(_))) => true,
                (Moment::Asking, Command::Call(call)) => {
                    matches!(call.operation, Operation::Claim(_) | Operation::Guarded(_))
                }
                _ => false,
            })
        });
        for command in step.commands {
            match command {
                Command::Call(call) => self.call(process, now, call)?,
                Command::Watch(watch) => self.watch(process, watch),
                Command::Unwatch(id) => {
                    self.processes[process].stream.remove(id);
                }
                Command::Notify(notice) => self.notice(process, now, notice)?,
            }
        }
        if !more {
            for (election, ticket) in lost_races {
                self.check_answered(process, election, ticket)?;
            }
            let terms = &mut self.processes[process].terms;
            terms.forget_stopped();
            self.laws.after_step(process, now, terms)?;
        }
        if traps { self.trap(process) } else { Ok(()) }
    }

    /// Whether a fault has the process's component trap at such a moment.
    fn traps(&self, process: usize, at: impl Fn(Moment) -> bool) -> bool {
        let traps = |kind: &Kind| match *kind {
            Kind::Trap(of, moment) => of == process && at(moment),
            _ => false,
        };
        self.faults.iter().any(traps)
    }

    /// Who has no key because somebody else has it puts a new value nowhere, and says so.
    fn check_answered(
        &self,
        process: usize,
        election: ElectionId,
        ticket: Ticket,
    ) -> Result<(), Broken> {
        let it = &self.processes[process];
        let waits = it.current(election).is_some_and(|part| it.parts[part].rival);
        if waits && it.tickets.contains_key(&ticket) {
            return Err(Law::Answered.broken(format!(
                "process {process} proclaims as {election}, in a race that somebody else leads, \
                 and ticket {ticket} is not answered at once"
            )));
        }
        Ok(())
    }

    /// An election's keys in the store, the leader's first.
    pub fn candidates(&self, election: usize) -> Vec<Entry> {
        let Election { name, contest } = &self.plan.elections[election];
        let prefix = format!("{name}/").into_bytes();
        let store = &self.cluster.store;
        let mut found: Vec<Entry> = match contest {
            Contest::Queue => store
                .keys_from(&prefix)
                .take_while(|entry| entry.key.starts_with(&prefix))
                .filter(|entry| counts(name, entry))
                .cloned()
                .collect(),
            Contest::Race => store.key(name.as_bytes()).into_iter().cloned().collect(),
        };
        found.sort_by_key(|entry| entry.created);
        found
    }

    fn leaders_key(&self, election: usize) -> Option<Entry> {
        self.candidates(election).into_iter().next()
    }
}

impl Process {
    fn forget_parts(&mut self) {
        self.parts.fill(Part::default());
        self.terms = Terms::none(self.parts.len());
        self.writes.clear();
    }

    /// The part that an election id was made for.
    pub fn part(&self, election: ElectionId) -> Option<usize> {
        self.elections.get((election as usize).checked_sub(1)?).copied()
    }

    /// The part whose present candidacy this is.
    pub fn current(&self, election: ElectionId) -> Option<usize> {
        self.part(election).filter(|part| self.parts[*part].election == Some(election))
    }

    /// Forgets the elector, and all that is under way to it and from it.
    fn drop_elector(&mut self) {
        self.generation += 1;
        self.elector = None;
        self.closing = false;
        self.closed = false;
        self.idle = 0;
        self.tickets.clear();
        self.inbox.clear();
        self.turning = false;
        self.deadline = None;
        self.leases.clear();
        self.stream = self.stream.next();
    }
}

impl Happening {
    /// The process that does it, if it is one.
    fn process(&self) -> Option<usize> {
        match self {
            Happening::Turn { process, .. }
            | Happening::Wake { process, .. }
            | Happening::Act { process, .. }
            | Happening::Reopen { process, .. } => Some(*process),
            Happening::Depart { request, .. } => Some(request.process),
            _ => None,
        }
    }
}
