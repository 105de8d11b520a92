//! Whatever an elector is told, sense or nonsense, at whatever time: it does not panic,
//! says little at a time, wants to be woken later than now, keeps to what it was granted,
//! remembers no more than is going on, and says the same when it is told the same.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Result;
use incumbent_guest::Elector;
use incumbent_guest::types::*;

use super::native::{self as anything, Bytes, Known, number, span, text};
use crate::client::{FAR, HeldTerm, Renewals, extend};

/// How many steps are made at most.
const MOST: usize = 200;

/// Tells two electors what the bytes say, the same to both. Panics if they break a law, or
/// their word to one another.
pub fn check(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let Ok(Some(mut world)) = World::open(&mut bytes) else { return };
    for _ in 0..MOST {
        if bytes.is_empty() || world.turn(&mut bytes).is_err() {
            break;
        }
    }
    world.check_memory();
}

/// A candidacy, observation or inspection, as the application sees it.
#[derive(Default)]
struct Part {
    leads: Option<HeldTerm>,
    last_epoch: Epoch,
    /// Terms whose work was said to have stopped.
    yielded: BTreeSet<Epoch>,
}

struct World {
    elector: Elector,
    twin: Elector,
    now: Mark,
    /// The latest time that the elector was given.
    latest: Mark,
    deadline: Option<Mark>,
    calls: Vec<Call>,
    renewals: Renewals,
    watches: Vec<RequestId>,
    last_request: RequestId,
    last_ticket: Ticket,
    known: Known,
    parts: BTreeMap<ElectionId, Part>,
    closed: bool,
}

impl World {
    fn open(bytes: &mut Bytes<'_>) -> Result<Option<World>> {
        let usual = bytes.ratio(3, 4)?;
        let config = Config {
            lease_ttl: if usual { 10_000_000_000 } else { span(bytes)? },
            safety_margin: if usual { 0 } else { span(bytes)? },
            request_timeout: if usual { 5_000_000_000 } else { span(bytes)? },
            seed: bytes.arbitrary()?,
        };
        let now = span(bytes)?;
        let (Ok(elector), Ok(twin)) = (Elector::open(config, now), Elector::open(config, now))
        else {
            return Ok(None);
        };
        Ok(Some(World {
            elector,
            twin,
            now,
            latest: now.min(FAR),
            deadline: None,
            calls: Vec::new(),
            renewals: Renewals::new(config.safety_margin),
            watches: Vec::new(),
            last_request: 0,
            last_ticket: 0,
            known: Known::default(),
            parts: BTreeMap::new(),
            closed: false,
        }))
    }

    fn turn(&mut self, bytes: &mut Bytes<'_>) -> Result<()> {
        self.now = match bytes.int_in_range(0..=15)? {
            0..=5 => self.now,
            6..=8 => self.now.saturating_add(1_000_000),
            9 => self.now.saturating_add(span(bytes)?),
            10 => self.now.saturating_sub(span(bytes)?),
            11 => self.deadline.unwrap_or(self.now).saturating_sub(1),
            12 => span(bytes)?,
            _ => self.deadline.unwrap_or(self.now),
        };
        let many = bytes.int_in_range(0..=5)?;
        let events = (0..many).map(|_| self.event(bytes)).collect::<Result<Vec<_>>>()?;
        self.handle(events);
        Ok(())
    }

    fn event(&mut self, bytes: &mut Bytes<'_>) -> Result<Event> {
        Ok(match bytes.int_in_range(0..=31)? {
            0 => Event::Wake,
            1..=4 => {
                let election = election(bytes)?;
                Event::Campaign(Candidacy {
                    election,
                    name: name(bytes)?,
                    contest: contest(bytes)?,
                    value: text(bytes)?.into(),
                    rejoin: bytes.arbitrary()?,
                    priority: bytes.arbitrary()?,
                    preempt_after: bytes.arbitrary()?,
                })
            }
            choice @ (5 | 6) => {
                let election = election(bytes)?;
                let name = name(bytes)?;
                let observation = Observation { election, name, contest: contest(bytes)? };
                if choice == 5 { Event::Observe(observation) } else { Event::Inspect(observation) }
            }
            7 => {
                let election = election(bytes)?;
                let ticket = self.ticket();
                Event::Proclaim(Proclamation { election, ticket, value: text(bytes)?.into() })
            }
            8 => {
                let mutations = bytes.int_in_range(0..=2)?;
                Event::Write(GuardedWrite {
                    term: self.term(bytes)?,
                    ticket: self.ticket(),
                    expect: Vec::new(),
                    mutations: (0..mutations)
                        .map(|_| self.mutation(bytes))
                        .collect::<Result<_>>()?,
                })
            }
            9 | 10 => Event::Resign(self.term(bytes)?),
            11 => Event::Leave(election(bytes)?),
            12 | 13 => Event::Yielded(self.term(bytes)?),
            14 if bytes.ratio(1, 8)? => Event::Close,
            14 if bytes.ratio(1, 3)? => Event::Limit(match bytes.arbitrary()? {
                true => None,
                false => Some(Limit {
                    at_most: bytes.int_in_range(0..=2)?,
                    is_fair: bytes.arbitrary()?,
                    at_once: bytes.arbitrary()?,
                }),
            }),
            14 => Event::Watched(Watched {
                id: bytes.arbitrary()?,
                change: anything::change(bytes, &self.known)?,
            }),
            15 => Event::Reply(Reply {
                // What was not asked yet has no answer.
                id: bytes.int_in_range(0..=self.last_request)?,
                outcome: anything::outcome(bytes, &self.known, &[0, 2, 5, 7, 8], 2)?,
            }),
            16..=21 if !self.watches.is_empty() => Event::Watched(Watched {
                id: *bytes.choose(&self.watches)?,
                change: anything::change(bytes, &self.known)?,
            }),
            _ if self.calls.is_empty() => Event::Wake,
            _ => {
                let index = bytes.choose_index(self.calls.len())?;
                let call = self.calls.remove(index);
                let (kinds, findings) = anything::fitting(&call.operation);
                let outcome = anything::outcome(bytes, &self.known, kinds, findings)?;
                Event::Reply(Reply { id: call.id, outcome })
            }
        })
    }

    fn term(&self, bytes: &mut Bytes<'_>) -> Result<Term> {
        let election = election(bytes)?;
        let last = self.parts.get(&election).map(|part| part.last_epoch);
        let epoch = match last {
            Some(epoch) if bytes.ratio(7, 8)? => epoch,
            Some(_) | None => number(bytes)?,
        };
        Ok(Term { election, epoch })
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    fn mutation(&self, bytes: &mut Bytes<'_>) -> Result<Mutation> {
        Ok(match bytes.int_in_range(0..=2)? {
            0 => Mutation::Put(Put {
                key: anything::key(bytes, &self.known)?,
                value: text(bytes)?.into(),
            }),
            1 => Mutation::Proclaim(text(bytes)?.into()),
            _ => Mutation::Delete(anything::key(bytes, &self.known)?),
        })
    }

    // A step, and what must be true of it.

    fn handle(&mut self, events: Vec<Event>) {
        let told = events.len();
        for event in &events {
            match event {
                Event::Reply(Reply { id, outcome }) => self.renewals.hear(*id, outcome),
                Event::Campaign(Candidacy { election, .. })
                | Event::Observe(Observation { election, .. })
                | Event::Inspect(Observation { election, .. }) => {
                    self.part(*election);
                }
                Event::Yielded(term) => {
                    self.part(term.election).yielded.insert(term.epoch);
                }
                _ => {}
            }
        }
        let step = self.elector.handle(self.now, events.clone());
        assert_eq!(step, self.twin.handle(self.now, events), "the same history, the same steps");
        self.latest = self.latest.max(self.now.min(FAR));
        let most = 60 + 30 * (told + self.parts.len() + self.calls.len());
        assert!(step.commands.len() <= most, "{} commands at once", step.commands.len());
        assert!(step.deadline.is_none_or(|deadline| deadline > self.latest), "it would spin");
        self.deadline = step.deadline;
        let closed = self.closed;
        assert!(!closed || step.deadline.is_none(), "who is closed waits for nothing");
        for command in step.commands {
            assert!(!closed || matches!(command, Command::Notify(_)), "and asks for nothing");
            self.obey(command);
        }
        for held in self.parts.values().filter_map(|part| part.leads.as_ref()) {
            let until = held.leadership.valid_until;
            assert!(until > self.latest, "a term is over at its deadline");
            assert!(self.deadline.is_some_and(|mark| mark <= until), "and that is not missed");
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Call(call) => {
                self.new_request(call.id);
                assert!(call.give_up > self.latest, "a call is given some time");
                self.renewals.ask(self.latest, &call);
                match &call.operation {
                    Operation::Grant(Grant { lease, .. }) | Operation::KeepAlive(lease) => {
                        self.knows_lease(*lease);
                    }
                    Operation::Claim(claim) => self.knows_key(&claim.key),
                    Operation::Revoke(_) | Operation::Read(_) | Operation::Guarded(_) => {}
                }
                self.calls.push(call);
            }
            Command::Watch(watch) => {
                self.new_request(watch.id);
                self.knows_key(&watch.key);
                self.watches.push(watch.id);
            }
            Command::Unwatch(id) => {
                let open = self.watches.iter().position(|watch| *watch == id);
                // One that was said to have ended may have been opened again.
                if let Some(index) = open {
                    self.watches.remove(index);
                }
            }
            Command::Notify(notice) => self.notice(notice),
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Elected(leadership) => {
                let Leadership { lease, valid_until, .. } = leadership;
                self.renewals.judge(self.latest, lease, valid_until).expect("is granted");
                let Term { election, epoch } = leadership.term;
                let part = self.part(election);
                assert!(part.leads.is_none(), "one term at a time");
                let stopped = part.last_epoch == 0 || part.yielded.contains(&part.last_epoch);
                assert!(stopped, "the next term begins when the last one's work has stopped");
                assert!(epoch > part.last_epoch, "epochs rise");
                part.last_epoch = epoch;
                part.leads = Some(HeldTerm::new(leadership));
            }
            Notice::Extended(extension) => {
                let Extension { lease, valid_until } = extension;
                self.renewals.judge(self.latest, lease, valid_until).expect("is granted");
                let terms = self.parts.values_mut().filter_map(|part| part.leads.as_mut());
                let moved = extend(terms, self.latest, &extension).expect("only forwards");
                assert!(moved > 0, "it extends a term");
            }
            Notice::Endangered(leadership) => {
                let held = self.part(leadership.term.election).leads.as_ref();
                assert_eq!(held.map(|held| &held.leadership), Some(&leadership));
            }
            Notice::HandOver(term) => {
                let held = self.part(term.election).leads.as_ref();
                assert_eq!(held.map(|held| held.leadership.term), Some(term));
            }
            Notice::Demoted(demotion) => {
                let part = self.part(demotion.term.election);
                let before = part.leads.take().expect("a term ends once");
                assert_eq!(before.leadership.term, demotion.term);
            }
            Notice::Withdrawn(Withdrawal { election, .. })
            | Notice::Listed(Listing { election, .. }) => {
                let part = self.parts.remove(&election).unwrap_or_default();
                assert!(part.leads.is_none(), "a term ends before its candidacy");
            }
            Notice::Closed => {
                assert!(!self.closed, "said once");
                self.closed = true;
            }
            Notice::Written(_) | Notice::Joined(_) | Notice::Leader(_) | Notice::Trouble(_) => {}
        }
    }

    fn part(&mut self, election: ElectionId) -> &mut Part {
        self.parts.entry(election).or_default()
    }

    fn new_request(&mut self, id: RequestId) {
        assert!(id > self.last_request, "an id is never used again");
        self.last_request = id;
    }

    /// What it remembers is in proportion to what is going on.
    fn check_memory(&self) {
        let awaited = self.calls.iter().filter(|call| call.give_up > self.latest).count();
        let most = 100 + 10 * (self.parts.len() + awaited + self.watches.len());
        let remembered = format!("{:?}", self.elector).matches('{').count();
        assert!(remembered <= most, "{remembered} things, where {most} are enough");
    }

    fn knows_lease(&mut self, lease: LeaseId) {
        if !self.known.leases.contains(&lease) {
            self.known.leases.push(lease);
        }
    }

    fn knows_key(&mut self, key: &[u8]) {
        if !self.known.keys.iter().any(|known| known == key) {
            self.known.keys.push(key.into());
        }
    }
}

fn election(bytes: &mut Bytes<'_>) -> Result<ElectionId> {
    bytes.int_in_range(0..=9)
}

fn name(bytes: &mut Bytes<'_>) -> Result<String> {
    Ok(match bytes.int_in_range(0..=7)? {
        0..=3 => "jobs".into(),
        4 => "mail".into(),
        5 => "jobs/night".into(),
        6 => "jobs\n".into(),
        _ => text(bytes)?,
    })
}

fn contest(bytes: &mut Bytes<'_>) -> Result<Contest> {
    Ok(if bytes.ratio(2, 3)? { Contest::Queue } else { Contest::Race })
}
