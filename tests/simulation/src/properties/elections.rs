//! Whatever happens, in whatever order: the elector keeps its laws.
//!
//! A small store answers calls at once, late, twice or never, loses what it did or
//! does it after all, and tells its watches as slowly as it likes; rivals come and
//! go. How far it can be trusted otherwise is a matter of its [honesty](Honesty).

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Unstructured};
use incumbent_guest::Elector;
use incumbent_guest::types::*;

use super::native::{self as anything, Known};
use crate::client::{HeldTerm, OpenWatch, Renewals, extend};
use crate::evidence::{Evidence, counts};
use crate::laws::judge;
use crate::store::Store;

mod checks;

const MS: u64 = 1_000_000;
const TTL: u64 = 10_000 * MS;
/// Rivals never fail to keep their leases alive.
const FOR_GOOD: u64 = 1_000_000_000 * MS;
const MARGIN: u64 = 50 * MS;
/// How many moves are played at most.
const MOST: usize = 300;

/// What can happen. The numbers choose among what is there.
#[derive(Arbitrary, Clone, Debug)]
pub enum Move {
    /// The elector is given what has gathered.
    Handle,
    /// All is well for as long as a few answers take.
    Round,
    /// Milliseconds go by.
    Pass(#[arbitrary(with = milliseconds)] u64),
    /// The elector is woken when it wants to be.
    PassToDeadline,
    /// The store does what a call asks, and answers.
    Answer(#[arbitrary(with = index)] usize),
    /// The store does what a call asks, and says nothing yet.
    Commit(#[arbitrary(with = index)] usize),
    /// A call fails. It may be done all the same, or later.
    Fail(#[arbitrary(with = index)] usize, u8),
    /// What a call asked that was given up is done after all.
    Land(#[arbitrary(with = index)] usize),
    /// A watch is on.
    StartWatch(#[arbitrary(with = index)] usize),
    /// A watch tells its next news.
    Tell(#[arbitrary(with = index)] usize),
    /// A watch ends.
    EndWatch(#[arbitrary(with = index)] usize),
    /// An event comes twice.
    Repeat(#[arbitrary(with = index)] usize),
    /// A candidate joins; perhaps to rejoin.
    Campaign(#[arbitrary(with = index)] usize, bool),
    /// Somebody looks on.
    Observe(#[arbitrary(with = index)] usize),
    /// Somebody asks for the candidates.
    Inspect(#[arbitrary(with = index)] usize),
    /// A candidate, an observer or an inspection leaves.
    Leave(#[arbitrary(with = index)] usize),
    /// A term is given back, the last one or an old one.
    Resign(#[arbitrary(with = index)] usize, bool),
    /// Its work has stopped.
    Yield(#[arbitrary(with = index)] usize, bool),
    /// Something is written in it.
    Write(#[arbitrary(with = index)] usize, bool),
    /// A candidate changes its value.
    Proclaim(#[arbitrary(with = index)] usize),
    /// The elector is to close.
    Close,
    /// Another candidate joins.
    RivalJoins(#[arbitrary(with = index)] usize),
    /// Another candidate leaves.
    RivalLeaves(#[arbitrary(with = index)] usize),
    /// An operator deletes or changes a key or a lease.
    Operator(#[arbitrary(with = index)] usize, u8),
    /// A call is answered with anything, which is read from these bytes.
    Nonsense(#[arbitrary(with = index)] usize, [u8; 32]),
    /// A watch tells anything.
    WatchNonsense(#[arbitrary(with = index)] usize, [u8; 32]),
}

/// How far the store can be trusted.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum Honesty {
    /// True to its word.
    Honest,
    /// An operator changes and deletes keys and leases.
    Meddled,
    /// Any answer may be nonsense.
    Nonsense,
}

fn index(bytes: &mut Unstructured<'_>) -> arbitrary::Result<usize> {
    bytes.int_in_range(0..=7)
}

fn milliseconds(bytes: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
    bytes.int_in_range(1..=40_000)
}

/// Plays what the bytes say, to the end. Panics if the elector breaks a law.
pub fn check(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let Ok(honesty) = bytes.arbitrary() else { return };
    let moves = bytes.arbitrary_iter::<Move>().into_iter().flatten().flatten();
    let moves: Vec<Move> = moves.filter(|a_move| suits(honesty, a_move)).take(MOST).collect();
    play(honesty, &moves);
}

fn suits(honesty: Honesty, a_move: &Move) -> bool {
    match a_move {
        Move::Operator(..) => honesty != Honesty::Honest,
        Move::Nonsense(..) | Move::WatchNonsense(..) => honesty == Honesty::Nonsense,
        _ => true,
    }
}

/// Plays these moves, and lets all faults end. Panics if the elector breaks a law.
pub fn play(honesty: Honesty, moves: &[Move]) {
    let mut world = World::new(honesty);
    world.campaign(0, true);
    world.campaign(1, true);
    for a_move in moves {
        world.make(a_move);
    }
    match honesty {
        Honesty::Honest | Honesty::Meddled => world.end(),
        Honesty::Nonsense => world.handle(),
    }
}

// The elector, its application, and what they may expect of one another.

struct Pending {
    call: Call,
    done: Option<Result<Response, Failure>>,
}

#[derive(Default)]
struct Part {
    name: &'static str,
    candidate: bool,
    withdrawn: bool,
    /// It may be refused: another candidacy of its name went on when it began.
    second: bool,
    /// It was left, or ends with its term.
    left: bool,
    rejoin: bool,
    /// Somebody else has the one key of a race, as its candidacy was told.
    rival: bool,
    terms: Vec<HeldTerm>,
}

struct World {
    honesty: Honesty,
    elector: Elector,
    now: Mark,
    deadline: Option<Mark>,
    store: Store,
    calls: Vec<Pending>,
    stragglers: Vec<Operation>,
    watches: Vec<OpenWatch>,
    events: Vec<Event>,
    delivered: Vec<Reply>,
    asked: BTreeMap<RequestId, Operation>,
    last_request: RequestId,
    parts: BTreeMap<ElectionId, Part>,
    last_election: ElectionId,
    open_tickets: BTreeSet<Ticket>,
    last_ticket: Ticket,
    last_rival: LeaseId,
    renewals: Renewals,
    evidence: Evidence,
    /// Leases whose grant was done late: they run out by themselves.
    revived: BTreeSet<LeaseId>,
    /// The last epoch of each name.
    epochs: BTreeMap<&'static str, Epoch>,
    closing: bool,
    closed: bool,
}

const ELECTIONS: [(&str, Contest); 4] = [
    ("jobs", Contest::Queue),
    ("mail", Contest::Race),
    ("jobs/night", Contest::Queue),
    ("news", Contest::Race),
];

impl World {
    fn new(honesty: Honesty) -> World {
        let config = Config {
            lease_ttl: TTL,
            safety_margin: MARGIN,
            request_timeout: 5_000 * MS,
            seed: (1, 2),
        };
        World {
            honesty,
            elector: Elector::open(config, 0).expect("the configuration is good"),
            now: 0,
            deadline: None,
            store: Store::default(),
            calls: Vec::new(),
            stragglers: Vec::new(),
            watches: Vec::new(),
            events: Vec::new(),
            delivered: Vec::new(),
            asked: BTreeMap::new(),
            last_request: 0,
            parts: BTreeMap::new(),
            last_election: 0,
            open_tickets: BTreeSet::new(),
            last_ticket: 0,
            last_rival: 0,
            renewals: Renewals::new(MARGIN),
            evidence: Evidence::default(),
            revived: BTreeSet::new(),
            epochs: BTreeMap::new(),
            closing: false,
            closed: false,
        }
    }

    fn make(&mut self, a_move: &Move) {
        match *a_move {
            Move::Handle => self.handle(),
            Move::Round => {
                for _ in 0..3 {
                    self.hear_all();
                    self.handle();
                }
            }
            Move::Pass(ms) => self.pass(self.now + ms * MS),
            Move::PassToDeadline => {
                if let Some(deadline) = self.deadline {
                    self.pass(deadline);
                    self.events.push(Event::Wake);
                    self.handle();
                }
            }
            Move::Answer(index) => self.answer(index),
            Move::Commit(index) => self.commit(index),
            Move::Fail(index, kind) => self.fail(index, kind),
            Move::Land(index) => {
                if let Some(index) = index.checked_rem(self.stragglers.len()) {
                    let operation = self.stragglers.remove(index);
                    // Nobody waits for the answer.
                    let _ = self.perform(&operation, true);
                }
            }
            Move::StartWatch(index) => self.start_watch(index),
            Move::Tell(index) => self.tell(index),
            Move::EndWatch(index) => {
                if let Some(index) = index.checked_rem(self.watches.len()) {
                    let ended = Change::Ended(Failure::Unavailable);
                    self.events.push(self.watches.remove(index).event(ended));
                }
            }
            Move::Repeat(index) => {
                if let Some(index) = index.checked_rem(self.events.len()) {
                    let again = self.events[index].clone();
                    if let Event::Reply(_) | Event::Watched(_) | Event::Wake = again {
                        self.events.push(again);
                    }
                }
            }
            Move::Campaign(index, rejoin) => self.campaign(index, rejoin),
            Move::Observe(index) | Move::Inspect(index) => {
                let (name, contest) = ELECTIONS[index % ELECTIONS.len()];
                let election = self.begin(name, false);
                let observation = Observation { election, name: name.into(), contest };
                self.events.push(match a_move {
                    Move::Observe(_) => Event::Observe(observation),
                    _ => Event::Inspect(observation),
                });
            }
            Move::Leave(index) => {
                if let Some(election) = self.pick(index) {
                    self.parts.get_mut(&election).expect("it was picked").left = true;
                    self.events.push(Event::Leave(election));
                }
            }
            Move::Resign(index, old) => {
                if let Some(term) = self.term(index, old) {
                    self.events.push(Event::Resign(term));
                }
            }
            Move::Yield(index, old) => {
                if let Some(term) = self.term(index, old) {
                    self.stop_work(term);
                }
            }
            Move::Write(index, old) => {
                if let Some(term) = self.term(index, old) {
                    let ticket = self.ticket();
                    let put = Put { key: b"/data".into(), value: b"v".into() };
                    let expect = match index {
                        0 => vec![Expectation { key: b"/data".into(), modified: 0 }],
                        _ => Vec::new(),
                    };
                    let mutations = vec![Mutation::Put(put)];
                    self.events.push(Event::Write(GuardedWrite {
                        term,
                        ticket,
                        expect,
                        mutations,
                    }));
                }
            }
            Move::Proclaim(index) => {
                if let Some(election) = self.pick(index) {
                    let ticket = self.ticket();
                    let value = ticket.to_string().into_bytes();
                    self.events.push(Event::Proclaim(Proclamation { election, ticket, value }));
                }
            }
            Move::Close => {
                self.closing = true;
                self.events.push(Event::Close);
            }
            Move::RivalJoins(index) => self.rival_joins(index),
            Move::RivalLeaves(index) => {
                let rivals = self.rivals();
                if let Some(index) = index.checked_rem(rivals.len()) {
                    self.store.delete(&rivals[index]);
                }
            }
            Move::Operator(index, kind) => self.meddle(index, kind),
            Move::Nonsense(index, bytes) => {
                if let Some(index) = index.checked_rem(self.calls.len()) {
                    let known = self.known();
                    let Call { id, operation, .. } = self.calls.remove(index).call;
                    let (kinds, findings) = anything::fitting(&operation);
                    let bytes = &mut Unstructured::new(&bytes);
                    let outcome = anything::outcome(bytes, &known, kinds, findings);
                    self.reply(id, outcome.unwrap_or(Err(Failure::Timeout)));
                }
            }
            Move::WatchNonsense(index, bytes) => {
                if let Some(index) = index.checked_rem(self.watches.len()) {
                    let change = anything::change(&mut Unstructured::new(&bytes), &self.known());
                    let change = change.unwrap_or(Change::Started(0));
                    let ended = matches!(change, Change::Ended(_));
                    self.events.push(self.watches[index].event(change));
                    if ended {
                        self.watches.remove(index);
                    }
                }
            }
        }
    }

    /// What nonsense is about.
    fn known(&self) -> Known {
        let keys = self.watches.iter().map(|open| open.watch.key.clone()).collect();
        Known { keys, leases: self.store.leases().collect() }
    }

    fn pass(&mut self, to: Mark) {
        // What has gathered has gathered before.
        if !self.events.is_empty() {
            self.handle();
        }
        self.now = self.now.max(to);
        self.store.tick(self.now);
    }

    // The store's side.

    fn answer(&mut self, index: usize) {
        self.commit(index);
        if let Some(index) = index.checked_rem(self.calls.len()) {
            let pending = self.calls.remove(index);
            let response = pending.done.expect("it was committed");
            self.reply(pending.call.id, response);
        }
    }

    fn commit(&mut self, index: usize) {
        if let Some(index) = index.checked_rem(self.calls.len()) {
            let Pending { call, done } = &self.calls[index];
            if done.is_none() {
                let operation = call.operation.clone();
                let late = call.give_up <= self.now;
                self.calls[index].done = Some(self.perform(&operation, late));
            }
        }
    }

    fn fail(&mut self, index: usize, kind: u8) {
        if let Some(index) = index.checked_rem(self.calls.len()) {
            let pending = self.calls.remove(index);
            if pending.done.is_none() {
                self.stragglers.push(pending.call.operation);
            }
            let failure = match kind % 3 {
                0 => Failure::Timeout,
                1 => Failure::Unavailable,
                _ => Failure::Other("?".into()),
            };
            self.reply(pending.call.id, Err(failure));
        }
    }

    fn perform(&mut self, operation: &Operation, late: bool) -> Result<Response, Failure> {
        if let Operation::Grant(grant) = operation
            && late
            && self.store.end_of(grant.lease).is_none()
        {
            self.revived.insert(grant.lease);
        }
        self.store.perform(self.now, operation)
    }

    fn reply(&mut self, id: RequestId, outcome: Result<Response, Failure>) {
        self.delivered.push(Reply { id, outcome: outcome.clone() });
        self.events.push(Event::Reply(Reply { id, outcome }));
    }

    fn start_watch(&mut self, index: usize) {
        if let Some(index) = index.checked_rem(self.watches.len())
            && self.watches[index].told.is_none()
        {
            self.events.push(self.watches[index].start(&self.store));
        }
    }

    fn tell(&mut self, index: usize) {
        if let Some(index) = index.checked_rem(self.watches.len()) {
            self.events.extend(self.watches[index].tell(&self.store));
        }
    }

    fn rivals(&self) -> Vec<Vec<u8>> {
        let ours = |lease| self.renewals.allowed(lease).is_some() || lease == 0 || lease > 1 << 20;
        let rivals = self.store.keys().filter(|entry| !ours(entry.lease));
        rivals.map(|entry| entry.key.clone()).collect()
    }

    fn rival_joins(&mut self, index: usize) {
        let (name, contest) = ELECTIONS[index % ELECTIONS.len()];
        self.last_rival += 1;
        let lease = self.last_rival;
        let key = match contest {
            Contest::Queue => format!("{name}/{lease:x}").into_bytes(),
            Contest::Race => name.into(),
        };
        if self.store.key(&key).is_none() {
            let grant = Grant { lease, ttl: FOR_GOOD };
            let claim = Claim { key, value: b"rival".into(), lease };
            for operation in [Operation::Grant(grant), Operation::Claim(claim)] {
                self.store.perform(self.now, &operation).expect("the store takes it");
            }
        }
    }

    fn meddle(&mut self, index: usize, kind: u8) {
        let keys: Vec<Vec<u8>> = self.store.keys().map(|entry| entry.key.clone()).collect();
        let leases: Vec<LeaseId> = self.store.leases().collect();
        let key = index.checked_rem(keys.len()).map(|index| keys[index].clone());
        let lease = index.checked_rem(leases.len()).map(|index| leases[index]);
        match (kind % 4, key, lease) {
            (0, _, Some(lease)) => {
                self.store.end_lease(lease);
            }
            (1, Some(key), _) => {
                self.store.put(key, b"meddled".into(), 0).expect("there is space");
            }
            (2, Some(key), _) => {
                let lease = self.store.key(&key).map_or(0, |entry| entry.lease);
                self.store.put(key, b"meddled".into(), lease).expect("there is space");
            }
            (_, Some(key), _) => {
                self.store.delete(&key);
            }
            (_, None, _) => {}
        }
    }

    fn hear_all(&mut self) {
        while !self.calls.is_empty() {
            self.answer(0);
        }
        for index in 0..self.watches.len() {
            self.start_watch(index);
            while let Some(event) = self.watches[index].tell(&self.store) {
                self.events.push(event);
            }
        }
    }

    // The application's side.

    fn begin(&mut self, name: &'static str, candidate: bool) -> ElectionId {
        self.last_election += 1;
        let part = Part { name, candidate, ..Part::default() };
        self.parts.insert(self.last_election, part);
        self.last_election
    }

    fn campaign(&mut self, index: usize, rejoin: bool) {
        let (name, contest) = ELECTIONS[index % ELECTIONS.len()];
        let goes_on = |part: &Part| {
            let ends = part.left || !part.rejoin && !part.terms.is_empty();
            part.candidate && part.name == name && !part.withdrawn && !ends
        };
        let second = self.parts.values().any(goes_on);
        let election = self.begin(name, true);
        let part = self.parts.get_mut(&election).expect("it has begun");
        (part.second, part.rejoin) = (second, rejoin);
        let name = name.to_owned();
        let (value, priority) = (b"us".into(), 0);
        let candidacy =
            Candidacy { election, name, contest, value, rejoin, priority, preempt_after: None };
        self.events.push(Event::Campaign(candidacy));
    }

    fn pick(&self, index: usize) -> Option<ElectionId> {
        let live: Vec<ElectionId> =
            self.parts.iter().filter(|(_, part)| !part.withdrawn).map(|(id, _)| *id).collect();
        Some(live[index.checked_rem(live.len())?])
    }

    /// A term of a candidacy that had some: the last one, or an older one.
    fn term(&self, index: usize, old: bool) -> Option<Term> {
        let led: Vec<&Part> = self.parts.values().filter(|part| !part.terms.is_empty()).collect();
        let part = led.get(led.len().checked_sub(1 + index % led.len().max(1))?)?;
        let held = if old { part.terms.first() } else { part.terms.last() };
        held.map(|held| held.leadership.term)
    }

    fn stop_work(&mut self, term: Term) {
        let part = self.parts.get_mut(&term.election).expect("there was a term");
        for held in part.terms.iter_mut().filter(|held| held.leadership.term == term) {
            held.yielded = true;
        }
        self.events.push(Event::Yielded(term));
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.open_tickets.insert(self.last_ticket);
        self.last_ticket
    }
}
