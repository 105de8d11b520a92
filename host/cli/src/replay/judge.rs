//! Whether an elector kept to the model whose laws are proved: `tests/proof/README.md`.
//!
//! `tests/proof/judge.py` asks the model's own guards. This program has no Python where it is installed, so
//! here they stand once more, and a test holds both to the same verdicts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use incumbent::recording::{HostAction, Line};
use incumbent::types::{
    Change, Command, Config, ElectionId, Entry, Event, Guarded, Leadership, Mutation, Notice,
    Operation, Order, RequestId, Response, Selection, Snapshot, Step, Term,
};
use incumbent::{Contest, Mark};

use crate::text::shown_bytes;

/// How many keys in front of its own an elector follows.
const MOST_IN_FRONT: usize = 2;
/// So many answers to reads of a place are remembered: an old one may come late.
const ANSWERS: usize = 4;
/// So many calls may be without an answer.
const CALLS: usize = 100_000;
const WISHES: &[u8] = b"incumbent-wishes/";

type LeaseId = i64;
type Revision = i64;
type Epoch = i64;

/// Follows the lines of one recording.
#[derive(Debug, Default)]
pub struct Judge {
    now: Mark,
    /// How many electors were opened.
    opened: u32,
    electors: BTreeMap<u32, Elector>,
    leases: BTreeMap<LeaseId, Lease>,
    parts: BTreeMap<Part, Work>,
    /// The last epoch of each election.
    newest: BTreeMap<String, Epoch>,
}

/// A part in an election.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    election: String,
    lease: LeaseId,
    elector: u32,
}

/// A lease, as its elector knows it.
#[derive(Debug, Default)]
struct Lease {
    until: Mark,
    /// Its deadline was not seen to pass.
    is_valid: bool,
    /// How often its validity ended, or began again.
    stretch: u32,
    is_given_back: bool,
}

/// The terms of a part.
#[derive(Debug, Default)]
struct Work {
    /// It has said `elected`, and not yet `demoted`.
    leads: bool,
    /// The work of its term has not yielded.
    works: bool,
    /// When the work of its term ends at the latest, as it was told.
    until: Mark,
    /// Of its last term.
    epoch: Epoch,
    /// The epochs that led, or whose key was removed.
    over: BTreeSet<Epoch>,
}

/// What is known of one elector.
#[derive(Debug)]
struct Elector {
    serial: u32,
    margin: u64,
    calls: BTreeMap<RequestId, Asked>,
    leases: BTreeSet<LeaseId>,
    /// The one that it asked for last.
    lease: LeaseId,
    elections: BTreeMap<ElectionId, String>,
    contests: BTreeMap<String, Vec<Contest>>,
    places: BTreeMap<Place, Shown>,
    /// The places that a key was in front of.
    fronts: BTreeMap<Vec<u8>, BTreeSet<Place>>,
    /// When each key was gone at the latest, as a watch or a read has told.
    gone: BTreeMap<Vec<u8>, Revision>,
    /// By an own key: what pages have shown so far.
    pages: BTreeMap<(Vec<u8>, Revision), InFront>,
}

/// A call without an answer.
#[derive(Debug)]
enum Asked {
    Lease(LeaseId, Mark),
    Read { lease: LeaseId, stretch: u32, selections: Vec<Selection> },
}

/// A key of a part, by its create revision.
type Place = (Part, Revision);

/// The keys in front of another one, and when the first of the pages that showed them was read.
type InFront = (BTreeSet<Vec<u8>>, Revision);

/// What reads have shown of a place.
#[derive(Debug, Default)]
struct Shown {
    /// The last stretch of its lease in which one was asked.
    stretch: Option<u32>,
    /// Those in front that are not gone.
    answers: VecDeque<InFront>,
}

impl Judge {
    /// Takes a line: an error says in a sentence what the model does not allow.
    pub fn line(&mut self, line: &Line) -> Result<(), String> {
        match line {
            Line::Open { elector, config, error: None, .. } => {
                self.opened += 1;
                self.electors.insert(*elector, Elector::new(self.opened, config));
                Ok(())
            }
            Line::Host { elector, now, action } => self.host_did(*elector, *now, action),
            Line::Step { elector, now, events, step } => {
                let Some(mut state) = self.electors.remove(elector) else { return Ok(()) };
                let judged = self.step(&mut state, *now, events, step.as_ref());
                self.electors.insert(*elector, state);
                judged
            }
            Line::Head(_) | Line::Open { .. } => Ok(()),
        }
    }

    /// What the host did beside an elector.
    fn host_did(&mut self, elector: u32, now: Mark, action: &HostAction) -> Result<(), String> {
        match action {
            HostAction::Gap(_) => {
                // What follows rests on what is missing.
                self.electors.remove(&elector);
                self.forget_work();
            }
            HostAction::Yielded(term) => {
                let of_term =
                    self.parts_in(&term.name).filter(|(_, work)| work.epoch == term.epoch);
                let parts: Vec<Part> = of_term.map(|(part, _)| part.clone()).collect();
                for part in parts {
                    self.parts.entry(part).or_default().works = false;
                }
            }
            HostAction::GaveBack(lease) => {
                self.now = now;
                return self.gives_back(*lease);
            }
            HostAction::Clock(_)
            | HostAction::Broke(_)
            | HostAction::Expired(_)
            | HostAction::Elections(_)
            | HostAction::Closed
            | _ => {}
        }
        Ok(())
    }

    /// Lines are missing here.
    pub fn is_interrupted(&mut self) {
        self.electors.clear();
        self.forget_work();
    }

    /// Work may have stopped where lines are missing: also of other electors, whose lines about it were not
    /// written either.
    fn forget_work(&mut self) {
        self.parts.values_mut().for_each(|work| work.works = false);
    }

    fn step(
        &mut self,
        elector: &mut Elector,
        now: Mark,
        events: &[Event],
        step: Option<&Step>,
    ) -> Result<(), String> {
        self.now = now;
        for lease in &elector.leases {
            self.look_at_the_clock(*lease);
        }
        for event in events {
            self.hear(elector, event);
        }
        for command in step.iter().flat_map(|step| &step.commands) {
            match command {
                Command::Call(call) => self.called(elector, call.id, &call.operation)?,
                Command::Notify(notice) => self.told(elector, notice)?,
                Command::Watch(_) | Command::Unwatch(_) => {}
            }
        }
        Ok(())
    }

    // What it is told.

    fn look_at_the_clock(&mut self, id: LeaseId) {
        let lease = self.leases.entry(id).or_default();
        if lease.is_valid && lease.until <= self.now {
            lease.is_valid = false;
            lease.stretch += 1;
            for (_, work) in self.parts.iter_mut().filter(|(part, _)| part.lease == id) {
                work.leads = false;
            }
        }
    }

    fn hear(&mut self, elector: &mut Elector, event: &Event) {
        match event {
            Event::Campaign(it) => elector.knows(it.election, &it.name, it.contest),
            Event::Observe(it) | Event::Inspect(it) => {
                elector.knows(it.election, &it.name, it.contest);
            }
            Event::Reply(reply) => {
                let Some(asked) = elector.calls.remove(&reply.id) else { return };
                match (asked, &reply.outcome) {
                    (
                        Asked::Lease(lease, sent),
                        Ok(Response::Granted(ttl) | Response::Renewed(ttl)),
                    ) => self.acknowledged(lease, sent, *ttl, elector.margin),
                    (
                        Asked::Read { lease, stretch, selections },
                        Ok(Response::Snapshot(snapshot)),
                    ) => elector.places_are(&selections, snapshot, lease, stretch),
                    (Asked::Lease(..) | Asked::Read { .. }, _) => {}
                }
            }
            Event::Watched(watched) => {
                if let Change::Deleted(deletion) = &watched.change {
                    elector.is_gone(&deletion.key, deletion.at);
                }
            }
            Event::Yielded(term) => {
                if let Some(work) = self.work_of(elector, term) {
                    work.works = false;
                }
            }
            Event::Wake
            | Event::Proclaim(_)
            | Event::Write(_)
            | Event::Resign(_)
            | Event::Leave(_)
            | Event::Limit(_)
            | Event::Close => {}
        }
    }

    /// An answer to a grant or a renewal bounds the deadline.
    fn acknowledged(&mut self, lease: LeaseId, sent: Mark, ttl: u64, margin: u64) {
        let until = sent.saturating_add(ttl).saturating_sub(margin.max(ttl / 100));
        let lease = self.leases.entry(lease).or_default();
        if lease.until < until {
            lease.until = until;
            lease.stretch += u32::from(!lease.is_valid);
            lease.is_valid = true;
        }
    }

    // What it does.

    fn called(
        &mut self,
        elector: &mut Elector,
        id: RequestId,
        operation: &Operation,
    ) -> Result<(), String> {
        match operation {
            Operation::Grant(grant) => elector.asks(id, grant.lease, self.now),
            Operation::KeepAlive(lease) => elector.asks(id, *lease, self.now),
            Operation::Revoke(lease) => self.gives_back(*lease)?,
            Operation::Read(selections) => {
                let lease = elector.lease;
                let stretch = self.leases.get(&lease).map_or(0, |lease| lease.stretch);
                let selections = selections.clone();
                elector.call(id, Asked::Read { lease, stretch, selections });
            }
            Operation::Guarded(guarded) => self.guarded(elector, guarded)?,
            Operation::Claim(_) => {}
        }
        Ok(())
    }

    fn gives_back(&mut self, lease: LeaseId) -> Result<(), String> {
        let goes_on = |(part, work): (&Part, &Work)| part.lease == lease && self.is_at_work(work);
        if self.parts.iter().any(goes_on) {
            let id = in_hex(lease);
            return Err(format!("the lease {id} is given back, and work on it may go on"));
        }
        self.leases.entry(lease).or_default().is_given_back = true;
        Ok(())
    }

    fn guarded(&mut self, elector: &Elector, guarded: &Guarded) -> Result<(), String> {
        let Guarded { guard, mutations, .. } = guarded;
        if guard.key.starts_with(WISHES) {
            return Ok(());
        }
        let epoch = guard.epoch;
        let leases = elector.leases.iter().filter(|it| guard.lease.is_none_or(|only| only == **it));
        let parts: Vec<Part> =
            leases.flat_map(|lease| elector.parts_of(&guard.key, *lease)).collect();
        for mutation in mutations {
            match mutation {
                Mutation::Delete(key) if *key == guard.key => {
                    if !elector.may_own(key) {
                        let key = shown_bytes(key);
                        return Err(format!("`{key}` is removed, which is another candidate's"));
                    }
                    for part in &parts {
                        let work = self.parts.get(part);
                        if work.is_some_and(|it| it.epoch == epoch && self.is_at_work(it)) {
                            return Err(format!(
                                "the key of epoch {epoch} goes, and the work of its term may go on"
                            ));
                        }
                    }
                    for part in &parts {
                        self.parts.entry(part.clone()).or_default().over.insert(epoch);
                    }
                }
                Mutation::Put(_) | Mutation::Delete(_) => {
                    let leads = |part: &Part| {
                        self.parts.get(part).is_some_and(|it| it.leads && it.epoch == epoch)
                            && self.is_valid(part.lease)
                    };
                    if !parts.iter().any(leads) {
                        return Err(format!(
                            "something is written in epoch {epoch}, which does not lead"
                        ));
                    }
                }
                Mutation::Proclaim(_) => {}
            }
        }
        Ok(())
    }

    fn told(&mut self, elector: &Elector, notice: &Notice) -> Result<(), String> {
        match notice {
            Notice::Elected(leadership) => self.elected(elector, leadership),
            Notice::Extended(extension) => {
                let until = extension.valid_until;
                if until <= self.now || self.until(extension.lease) < until {
                    return Err("a term is extended beyond what was acknowledged".into());
                }
                let is_on_it = |part: &Part| part.lease == extension.lease;
                let parts =
                    self.parts.iter_mut().filter(|(part, work)| is_on_it(part) && work.leads);
                parts.for_each(|(_, work)| work.until = until);
                Ok(())
            }
            Notice::Demoted(demotion) => {
                if let Some(work) = self.work_of(elector, &demotion.term) {
                    work.leads = false;
                }
                Ok(())
            }
            Notice::Joined(_)
            | Notice::Endangered(_)
            | Notice::HandOver(_)
            | Notice::Leader(_)
            | Notice::Listed(_)
            | Notice::Written(_)
            | Notice::Withdrawn(_)
            | Notice::Trouble(_)
            | Notice::Closed => Ok(()),
        }
    }

    fn elected(&mut self, elector: &Elector, leadership: &Leadership) -> Result<(), String> {
        let Leadership { term: Term { epoch, .. }, key, lease, valid_until } = leadership;
        let Some(part) = elector.parts_of(key, *lease).into_iter().next() else {
            return Err(format!("epoch {epoch} is of a key that no candidate of this elector has"));
        };
        let name = shown_bytes(part.election.as_bytes());
        let known = self.leases.get(lease);
        let is_ready = known.is_some_and(|lease| !lease.is_given_back && self.now < lease.until);
        let is_shown = elector.places.get(&(part.clone(), *epoch)).is_some_and(|shown| {
            known.is_some_and(|lease| Some(lease.stretch) == shown.stretch)
                && shown.answers.iter().any(|(in_front, _)| in_front.is_empty())
        });
        let is_new = self
            .parts
            .get(&part)
            .is_none_or(|work| !work.over.contains(epoch) && !self.is_at_work(work));
        if !is_ready || !is_shown || !is_new {
            return Err(format!("nothing shows that `{name}` is led in epoch {epoch}"));
        }
        if *valid_until <= self.now || self.until(*lease) < *valid_until {
            return Err(format!("epoch {epoch} is told to last beyond what was acknowledged"));
        }
        let newest = self.newest.get(&part.election).copied().unwrap_or_default();
        if *epoch <= newest {
            return Err(format!("epoch {epoch} of `{name}` comes after {newest}"));
        }
        if self.parts_in(&part.election).any(|(_, work)| self.is_at_work(work)) {
            return Err(format!(
                "`{name}` is led in epoch {epoch}, and the work of another term may go on"
            ));
        }
        self.newest.insert(part.election.clone(), *epoch);
        let work = self.parts.entry(part).or_default();
        (work.leads, work.works, work.epoch, work.until) = (true, true, *epoch, *valid_until);
        work.over.insert(*epoch);
        Ok(())
    }

    // What stands.

    fn until(&self, lease: LeaseId) -> Mark {
        self.leases.get(&lease).map_or(0, |lease| lease.until)
    }

    fn is_valid(&self, lease: LeaseId) -> bool {
        self.now < self.until(lease)
    }

    /// Whether the work of a term may run.
    fn is_at_work(&self, work: &Work) -> bool {
        work.works && self.now < work.until
    }

    /// The parts in an election. There may be ten thousand elections.
    fn parts_in(&self, election: &str) -> impl Iterator<Item = (&Part, &Work)> {
        let first = Part { election: election.to_owned(), lease: LeaseId::MIN, elector: 0 };
        self.parts.range(first..).take_while(move |(part, _)| part.election == election)
    }

    fn part_of(&self, elector: &Elector, term: &Term) -> Option<Part> {
        let name = elector.elections.get(&term.election)?;
        let mut leases = elector.leases.iter();
        leases.find_map(|lease| {
            let part = Part { election: name.clone(), lease: *lease, elector: elector.serial };
            let work = self.parts.get(&part)?;
            (work.works && work.epoch == term.epoch).then_some(part)
        })
    }

    fn work_of(&mut self, elector: &Elector, term: &Term) -> Option<&mut Work> {
        let part = self.part_of(elector, term)?;
        self.parts.get_mut(&part)
    }
}

impl Elector {
    fn new(serial: u32, config: &Config) -> Self {
        Self {
            serial,
            margin: config.safety_margin,
            calls: BTreeMap::new(),
            leases: BTreeSet::new(),
            lease: 0,
            elections: BTreeMap::new(),
            contests: BTreeMap::new(),
            places: BTreeMap::new(),
            fronts: BTreeMap::new(),
            gone: BTreeMap::new(),
            pages: BTreeMap::new(),
        }
    }

    fn knows(&mut self, election: ElectionId, name: &str, contest: Contest) {
        self.elections.entry(election).or_insert_with(|| name.to_owned());
        let contests = self.contests.entry(name.to_owned()).or_default();
        if !contests.contains(&contest) {
            contests.push(contest);
        }
    }

    fn call(&mut self, id: RequestId, asked: Asked) {
        self.calls.insert(id, asked);
        if self.calls.len() > CALLS {
            self.calls.pop_first();
        }
    }

    fn asks(&mut self, id: RequestId, lease: LeaseId, now: Mark) {
        self.leases.insert(lease);
        self.lease = lease;
        self.call(id, Asked::Lease(lease, now));
    }

    fn holds(&self, name: &str, contest: Contest) -> bool {
        self.contests.get(name).is_some_and(|contests| contests.contains(&contest))
    }

    /// The parts of this elector that a key may be of, on this lease.
    fn parts_of(&self, key: &[u8], lease: LeaseId) -> Vec<Part> {
        if !self.leases.contains(&lease) {
            return Vec::new();
        }
        let whole = String::from_utf8_lossy(key);
        let parent = whole.rsplit_once('/').map_or("", |(parent, _)| parent);
        [(&*whole, Contest::Race), (parent, Contest::Queue)]
            .into_iter()
            .filter(|(name, contest)| self.holds(name, *contest))
            .map(|(name, _)| Part { election: name.to_owned(), lease, elector: self.serial })
            .collect()
    }

    /// Whether a key may be of this elector: in a queue, it ends in one of its leases.
    fn may_own(&self, key: &[u8]) -> bool {
        let whole = String::from_utf8_lossy(key);
        let parent = whole.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.holds(&whole, Contest::Race)
            || self.leases.iter().any(|lease| is_key_of(parent, key, *lease))
    }

    fn is_ours(&self, entry: &Entry) -> bool {
        !self.parts_of(&entry.key, entry.lease).is_empty()
    }

    /// What a read shows of the places of this elector's keys.
    fn places_are(
        &mut self,
        selections: &[Selection],
        snapshot: &Snapshot,
        lease: LeaseId,
        stretch: u32,
    ) {
        let at = snapshot.at;
        let asked = Some((lease, stretch));
        for (selection, found) in selections.iter().zip(&snapshot.found) {
            let key = String::from_utf8_lossy(&selection.key);
            if !selection.prefix {
                // An older key is gone where there is none, or since before a newer one was made.
                let since = found.first().map_or(at, |entry| entry.created);
                self.is_gone(&selection.key, since);
                if self.holds(&key, Contest::Race) {
                    for entry in found {
                        self.shows(&key, entry, BTreeSet::new(), at, asked);
                    }
                }
                continue;
            }
            let Some(name) = key.strip_suffix('/') else { continue };
            if !self.holds(name, Contest::Queue) {
                continue;
            }
            let is_complete = found.len() < selection.limit as usize;
            if let Some(before) = selection.created_before {
                let created = before.saturating_sub(1);
                let own = found.iter().find(|it| it.created == created && self.is_ours(it));
                let front = || found.iter().filter(|it| it.created < created);
                // Other data hide how many there are.
                let is_known = is_complete && front().all(|it| counts(name, it));
                if let Some(own) = own.filter(|_| is_known) {
                    let keys = front().map(|it| it.key.clone()).collect();
                    self.shows(name, own, keys, at, asked);
                }
            } else if selection.order == Order::ByKey {
                let points = selections.iter().zip(&snapshot.found);
                let points = points.filter(|(it, _)| !it.prefix).flat_map(|(_, found)| found);
                let own: Vec<&Entry> = points.filter(|it| self.is_ours(it)).collect();
                for own in own {
                    self.page_shows(name, own, selection, found, at, asked);
                }
            }
        }
    }

    /// A page of the keys below a name was read together with a key of this elector.
    fn page_shows(
        &mut self,
        name: &str,
        own: &Entry,
        selection: &Selection,
        found: &[Entry],
        at: Revision,
        asked: Option<(LeaseId, u32)>,
    ) {
        let place = (own.key.clone(), own.created);
        if selection.from.as_ref() == Some(&selection.key) {
            self.pages.insert(place.clone(), (BTreeSet::new(), at));
        }
        let (seen, first) = self.pages.entry(place).or_insert_with(|| (BTreeSet::new(), at));
        let older = found.iter().filter(|it| it.created < own.created && counts(name, it));
        seen.extend(older.map(|it| it.key.clone()));
        if found.len() < selection.limit as usize && seen.len() <= MOST_IN_FRONT {
            let (seen, first) = (seen.clone(), *first);
            self.shows(name, own, seen, first, asked);
        }
    }

    /// A read has shown a key of this elector, and all that is in front of it.
    fn shows(
        &mut self,
        name: &str,
        own: &Entry,
        front: BTreeSet<Vec<u8>>,
        first: Revision,
        asked: Option<(LeaseId, u32)>,
    ) {
        let part = self.parts_of(&own.key, own.lease).into_iter().next();
        let Some(part) = part.filter(|part| part.election == name) else { return };
        let place = (part, own.created);
        let stretch = asked.filter(|(lease, _)| *lease == own.lease).map(|(_, stretch)| stretch);
        // The news of a deletion may come before the answer to a read that was sent before it.
        let is_there = |key: &Vec<u8>| self.gone.get(key).is_none_or(|gone| *gone <= first);
        let in_front: BTreeSet<Vec<u8>> = front.into_iter().filter(is_there).collect();
        for key in &in_front {
            self.fronts.entry(key.clone()).or_default().insert(place.clone());
        }
        let shown = self.places.entry(place).or_default();
        // An older answer that comes late says less.
        if shown.stretch <= stretch {
            shown.stretch = stretch;
        }
        shown.answers.push_back((in_front, first));
        if shown.answers.len() > ANSWERS {
            shown.answers.pop_front();
        }
    }

    /// A key was gone at this revision, for some places one in front.
    fn is_gone(&mut self, key: &[u8], at: Revision) {
        let last = self.gone.entry(key.to_vec()).or_default();
        *last = at.max(*last);
        let Some(mut places) = self.fronts.remove(key) else { return };
        places.retain(|place| {
            let Some(shown) = self.places.get_mut(place) else { return false };
            for (in_front, first) in &mut shown.answers {
                if at > *first {
                    in_front.remove(key);
                }
            }
            shown.answers.iter().any(|(in_front, _)| in_front.contains(key))
        });
        if !places.is_empty() {
            self.fronts.insert(key.to_vec(), places);
        }
    }
}

/// Whether a key is a candidate's in the queue of this name: it ends in its own lease's id.
fn counts(name: &str, entry: &Entry) -> bool {
    is_key_of(name, &entry.key, entry.lease)
}

fn is_key_of(name: &str, key: &[u8], lease: LeaseId) -> bool {
    let (sign, id) = (if lease < 0 { "-" } else { "" }, lease.unsigned_abs());
    let is = |id: String| key == format!("{name}/{sign}{id}").as_bytes();
    lease != 0 && (is(format!("{id:x}")) || is(format!("{id:016x}")) || is(id.to_string()))
}

fn in_hex(lease: LeaseId) -> String {
    format!("{}{:x}", if lease < 0 { "-" } else { "" }, lease.unsigned_abs())
}
