//! What the steps of the component cost, by how many elections it holds.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use incumbent::types::{
    Call, Candidacy, Change, Claim, Command, Config, Deletion, Demotion, ElectionId, Event, Grant,
    GuardedWrite, Leadership, Limit, Notice, Operation, Reply, RequestId, Response, Watched,
};
use incumbent::{Component, Contents, Contest, Elector, Mark, Rules};

use crate::operations::put;

/// The bytes of the names that are measured, up to the longest: all begin alike.
pub const NAMES: [usize; 3] = [12, 200, 1_024];
/// How many elections are held.
pub const SIZES: [u32; 4] = [10, 100, 1_000, 10_000];

const SECOND: u64 = 1_000_000_000;
const TTL: u64 = 10 * SECOND;
/// How many events a driver gives at once, and of how many elections a successor is told.
const BATCH: usize = 256;
const PORTION: usize = 128;

/// The costliest of the steps that something took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// In instructions.
    pub fuel: u64,
    /// How many events that step was given.
    pub events: usize,
    /// The longest one, which may be another.
    pub time: Duration,
    /// How many steps there were.
    pub steps: u32,
}

/// Everything that is measured with so many elections and such names.
pub fn measure(elections: u32, name: usize) -> Vec<(&'static str, Cost)> {
    let mut load = Load::new(name, TTL);
    let mut costs = Vec::new();
    let last = elections;
    let all: Vec<ElectionId> = (1..last).collect();
    costs.push(("restart", load.campaign(&all, PORTION)));
    assert_eq!(load.leads.len(), all.len(), "all lead");
    costs.push(("campaign", load.campaign(&[last], PORTION)));
    costs.push(("wishes", load.wishes()));
    costs.push(("renewal", load.renewal()));
    costs.push(("write", load.write(last)));
    costs.push(("deletion", load.deletion(elections / 2)));
    assert_eq!(load.leads.len(), all.len() + 1, "it leads again");
    let one = load.leave(&[last]);
    costs.push(("one left", one));
    costs.push(("all deleted", load.all_deleted()));
    costs.push(("recheck", load.recheck()));
    costs.push(("expiry", load.expiry()));
    assert_eq!(load.leads.len(), all.len(), "all lead again");
    costs.push(("outage", load.outage()));
    assert_eq!(load.leads.len(), all.len(), "all lead once more");
    costs.push(("limits", load.limits()));
    costs.push(("spread", load.spread()));
    assert_eq!(load.leads.len(), all.len(), "all lead though there is a limit");
    costs.push(("all left", load.leave(&all)));
    assert_eq!(load.store.keys_from(b"").count(), 1, "only what was written is left");
    costs
}

/// Gives one elector the most elections that it admits, with the longest names and values, and
/// returns how many of them it leads.
pub fn leads_at_most() -> usize {
    let mut load = Load::new(1_024, TTL);
    load.value = vec![b'v'; 4_096];
    load.campaign(&(1..=10_000).collect::<Vec<_>>(), PORTION);
    load.leads.len()
}

/// An elector that leads in one election, on a lease of so many nanoseconds, and the mark of its
/// next renewal.
pub fn leader(ttl: u64) -> (Elector, Mark) {
    let mut load = Load::new(NAMES[0], ttl);
    load.campaign(&[1], PORTION);
    (load.elector, load.deadline.expect("a renewal is due"))
}

/// An elector, and a store that does at once what it is asked.
struct Load {
    elector: Elector,
    ttl: u64,
    now: u64,
    deadline: Option<u64>,
    name: usize,
    value: Vec<u8>,
    store: Contents,
    /// The watch of each key.
    watches: BTreeMap<Vec<u8>, RequestId>,
    leads: BTreeMap<ElectionId, Leadership>,
    events: VecDeque<Event>,
    /// Which operations get no answer.
    silent: Silent,
    /// The newest lease.
    lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silent {
    Nothing,
    Renewals,
    All,
}

impl Load {
    fn new(name: usize, ttl: u64) -> Load {
        let component = Component::embedded().expect("it loads");
        let config =
            Config { lease_ttl: ttl, safety_margin: 0, request_timeout: 5 * SECOND, seed: (1, 2) };
        Load {
            elector: Elector::open(&component, config, 0).expect("it opens"),
            ttl,
            now: 0,
            deadline: None,
            name,
            value: b"worker-1".to_vec(),
            store: Contents::new(Rules { shortest: 0, unit: 1 }),
            watches: BTreeMap::new(),
            leads: BTreeMap::new(),
            events: VecDeque::new(),
            silent: Silent::Nothing,
            lease: 0,
        }
    }

    fn campaign(&mut self, elections: &[ElectionId], portion: usize) -> Cost {
        let mut cost = Cost::default();
        for portion in elections.chunks(portion) {
            for election in portion {
                let name = format!("{:n>width$}", format!("/{election:07}"), width = self.name);
                self.events.push_back(Event::Campaign(Candidacy {
                    election: *election,
                    name,
                    contest: Contest::Queue,
                    value: self.value.clone(),
                    rejoin: true,
                    priority: 0,
                    preempt_after: None,
                }));
            }
            cost.add(self.settle());
        }
        cost
    }

    /// The next renewal, with its answer.
    fn renewal(&mut self) -> Cost {
        self.now += self.ttl / 3 + 1;
        let cost = self.settle();
        let until = self.now + self.ttl - self.ttl / 100;
        assert!(self.leads.values().all(|led| led.valid_until == until), "all are extended");
        cost
    }

    fn write(&mut self, election: ElectionId) -> Cost {
        let key = format!("{:n>width$}", "/data/0123456789abcde!", width = self.name);
        self.events.push_back(Event::Write(GuardedWrite {
            term: self.leads[&election].term,
            ticket: 1,
            expect: Vec::new(),
            mutations: vec![put(&key, "value")],
        }));
        self.settle()
    }

    fn delete(&mut self, election: ElectionId) {
        let key = self.leads[&election].key.clone();
        self.store.delete(&key);
        if let Some(id) = self.watches.get(&key) {
            let change = Change::Deleted(Deletion { key, at: self.store.revision() });
            self.events.push_back(Event::Watched(Watched { id: *id, change }));
        }
    }

    /// One key is deleted by somebody else, and claimed again.
    fn deletion(&mut self, election: ElectionId) -> Cost {
        self.delete(election);
        self.settle()
    }

    fn all_deleted(&mut self) -> Cost {
        let mut all: Vec<ElectionId> = self.leads.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().for_each(|election| self.delete(election));
        self.settle()
    }

    /// What was wished before that was watched is read, for some at a time.
    fn wishes(&mut self) -> Cost {
        self.pass(SECOND)
    }

    /// A period in which all watches are checked.
    fn recheck(&mut self) -> Cost {
        self.pass(31 * SECOND)
    }

    fn pass(&mut self, time: u64) -> Cost {
        let end = self.now + time;
        let mut cost = Cost::default();
        while let Some(deadline) = self.deadline
            && deadline < end
        {
            self.now = deadline;
            cost.add(self.settle());
        }
        cost
    }

    /// No renewal is answered until the deadline is over, and then all are again.
    fn expiry(&mut self) -> Cost {
        let led = self.leads.len();
        self.silent = Silent::Renewals;
        let mut cost = Cost::default();
        while self.leads.len() == led {
            self.now = self.deadline.expect("there is a deadline");
            cost.add(self.settle());
        }
        self.silent = Silent::Nothing;
        cost.add(self.until_led(led));
        cost
    }

    /// No call is answered for twice the lease time, so all terms and their lease end, and the elector
    /// still has their keys to delete.
    fn outage(&mut self) -> Cost {
        let led = self.leads.len();
        self.silent = Silent::All;
        let mut cost = Cost::default();
        let end = self.now + 2 * self.ttl;
        while let Some(deadline) = self.deadline
            && deadline < end
        {
            self.now = deadline;
            cost.add(self.settle());
        }
        self.silent = Silent::Nothing;
        self.store.perform(0, &Operation::Revoke(self.lease)).expect("it is done");
        cost.add(self.until_led(led));
        cost
    }

    /// Many limits in one step.
    fn limits(&mut self) -> Cost {
        let all = Limit { at_most: u32::MAX, is_fair: false, at_once: 64 };
        self.events.extend([Some(all), None].into_iter().cycle().take(64).map(Event::Limit));
        self.settle()
    }

    /// Somebody else gets in line for each term, and the session may lead few of them: the others go
    /// over, and come back when that one's lease ends.
    fn spread(&mut self) -> Cost {
        const OTHER: i64 = 77;
        let theirs = format!("/{OTHER:x}").into_bytes();
        let led = self.leads.len();
        self.store.perform(0, &Operation::Grant(Grant { lease: OTHER, ttl: 0 })).expect("a lease");
        for term in self.leads.values() {
            let name = term.key.rsplitn(2, |byte| *byte == b'/').nth(1).expect("a name");
            let key = [name, &theirs].concat();
            let claim = Claim { key, value: Vec::new(), lease: OTHER };
            self.store.perform(0, &Operation::Claim(claim)).expect("a key");
        }
        let most = led.div_ceil(20);
        let limit = Limit { at_most: most as u32, is_fair: true, at_once: 64 };
        self.events.push_back(Event::Limit(Some(limit)));
        let mut cost = self.settle();
        while self.leads.len() > most {
            self.now = self.deadline.expect("there is a deadline");
            cost.add(self.settle());
        }
        self.store.perform(0, &Operation::Revoke(OTHER)).expect("it is done");
        let at = self.store.revision();
        let others = self.watches.iter().filter(|(key, _)| key.ends_with(&theirs));
        self.events.extend(others.map(|(key, id)| {
            let change = Change::Deleted(Deletion { key: key.clone(), at });
            Event::Watched(Watched { id: *id, change })
        }));
        cost.add(self.settle());
        cost.add(self.until_led(led));
        self.events.push_back(Event::Limit(None));
        cost.add(self.settle());
        cost
    }

    fn until_led(&mut self, elections: usize) -> Cost {
        let mut cost = Cost::default();
        while self.leads.len() < elections {
            self.now = self.deadline.expect("there is a deadline");
            cost.add(self.settle());
        }
        cost
    }

    fn leave(&mut self, elections: &[ElectionId]) -> Cost {
        self.events.extend(elections.iter().map(|election| Event::Leave(*election)));
        self.settle()
    }

    /// Steps until there is nothing left to do at this moment.
    fn settle(&mut self) -> Cost {
        let mut cost = Cost::default();
        loop {
            let due = self.deadline.is_some_and(|deadline| deadline <= self.now);
            if self.events.is_empty() && !due {
                return cost;
            }
            let mut batch: Vec<Event> = self.events.drain(..self.events.len().min(BATCH)).collect();
            if batch.is_empty() {
                batch.push(Event::Wake);
            }
            let begun = Instant::now();
            let step = self.elector.handle(self.now, &batch).expect("the step is within its limit");
            let (time, fuel) = (begun.elapsed(), self.elector.fuel_spent());
            cost.add(Cost { fuel, events: batch.len(), time, steps: 1 });
            self.deadline = step.deadline;
            for command in step.commands {
                self.obey(command);
            }
            if self.deadline == Some(self.now + 1) {
                self.now += 1;
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Call(Call { id, operation, .. }) => {
                if let Some(response) = self.perform(&operation) {
                    self.events.push_back(Event::Reply(Reply { id, outcome: Ok(response) }));
                }
            }
            Command::Watch(watch) => {
                self.watches.insert(watch.key, watch.id);
                let change = Change::Started(self.store.revision());
                self.events.push_back(Event::Watched(Watched { id: watch.id, change }));
            }
            Command::Unwatch(id) => self.watches.retain(|_, watch| *watch != id),
            Command::Notify(notice) => self.noticed(notice),
        }
    }

    fn perform(&mut self, operation: &Operation) -> Option<Response> {
        match self.silent {
            Silent::Nothing => {}
            Silent::Renewals if !matches!(operation, Operation::KeepAlive(_)) => {}
            Silent::Renewals | Silent::All => return None,
        }
        if let Operation::Grant(grant) = operation {
            self.lease = grant.lease;
        }
        // No lease runs out here.
        Some(self.store.perform(0, operation).expect("it is done"))
    }

    fn noticed(&mut self, notice: Notice) {
        match notice {
            Notice::Elected(leadership) => {
                self.leads.insert(leadership.term.election, leadership);
            }
            Notice::Extended(extension) => {
                for led in self.leads.values_mut() {
                    led.valid_until = extension.valid_until;
                }
            }
            Notice::Demoted(Demotion { term, .. }) | Notice::HandOver(term) => {
                self.leads.remove(&term.election);
                self.events.push_back(Event::Yielded(term));
            }
            Notice::Withdrawn(withdrawal) => assert_eq!(withdrawal.cause, None),
            Notice::Joined(_)
            | Notice::Endangered(_)
            | Notice::Leader(_)
            | Notice::Listed(_)
            | Notice::Written(_)
            | Notice::Trouble(_)
            | Notice::Closed => {}
        }
    }
}

impl Cost {
    fn add(&mut self, other: Cost) {
        if other.fuel > self.fuel {
            (self.fuel, self.events) = (other.fuel, other.events);
        }
        self.time = self.time.max(other.time);
        self.steps += other.steps;
    }
}
