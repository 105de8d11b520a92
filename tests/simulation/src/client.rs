//! What everyone keeps who drives an elector, in the simulation, the model checker and the
//! properties: its renewals, its open watches and its terms.

use std::collections::BTreeMap;

use incumbent_guest::types::*;

use super::laws::{Broken, Law};
use super::store::Store;

/// Times beyond are cut down to it: see `guest/src/timers.rs`.
pub const FAR: u64 = u64::MAX / 8;

/// What was asked about an elector's leases, and what came of it.
#[derive(Debug)]
pub struct Renewals {
    margin: Duration,
    asked: BTreeMap<RequestId, Renewal>,
    leases: BTreeMap<LeaseId, Renewed>,
}

#[derive(Debug)]
struct Renewal {
    lease: LeaseId,
    sent: Mark,
    grants: bool,
    /// None for a grant, and once it has passed: a late answer is no second failure.
    give_up: Option<Mark>,
}

#[derive(Debug, Default)]
struct Renewed {
    /// When the newest acknowledged request was sent.
    acknowledged: Option<Mark>,
    ttl: Duration,
    /// A renewal has failed since.
    fails: bool,
    /// The longest deadline that the acknowledged requests allow.
    allowed: Option<Mark>,
}

impl Renewals {
    /// Nothing was asked yet by an elector with this safety margin.
    pub fn new(margin: Duration) -> Renewals {
        Renewals { margin, asked: BTreeMap::new(), leases: BTreeMap::new() }
    }

    /// Notes what an elector asks.
    pub fn ask(&mut self, now: Mark, call: &Call) {
        let (lease, grants) = match &call.operation {
            Operation::Grant(grant) => (grant.lease, true),
            Operation::KeepAlive(lease) => (*lease, false),
            _ => return,
        };
        let give_up = (!grants).then_some(call.give_up);
        self.asked.insert(call.id, Renewal { lease, sent: now, grants, give_up });
    }

    /// Lets time pass: what was not answered by now has failed.
    pub fn pass(&mut self, now: Mark) {
        for renewal in self.asked.values_mut() {
            if renewal.give_up.take_if(|give_up| *give_up <= now).is_some() {
                self.leases.entry(renewal.lease).or_default().fails = true;
            }
        }
    }

    /// Notes an answer.
    pub fn hear(&mut self, id: RequestId, outcome: &Result<Response, Failure>) {
        let Some(Renewal { lease, sent, grants, give_up }) = self.asked.remove(&id) else { return };
        let renewed = self.leases.entry(lease).or_default();
        let ttl = match (grants, outcome) {
            (true, Ok(Response::Granted(ttl))) | (false, Ok(Response::Renewed(ttl))) => *ttl,
            _ => {
                renewed.fails |= give_up.is_some();
                return;
            }
        };
        if renewed.acknowledged.is_none_or(|acknowledged| acknowledged < sent) {
            (renewed.acknowledged, renewed.ttl, renewed.fails) = (Some(sent), ttl, false);
        }
        let ttl = ttl.min(FAR);
        let until = (sent + ttl).saturating_sub(self.margin.max(ttl / 100));
        renewed.allowed = renewed.allowed.max(Some(until));
    }

    /// Until when one may lead on a lease; none for one that the store has not granted.
    pub fn allowed(&self, lease: LeaseId) -> Option<Mark> {
        self.leases.get(&lease)?.allowed
    }

    /// Judges a deadline that an elector tells. Fails if it is over, or later than the
    /// store granted.
    pub fn judge(&self, now: Mark, lease: LeaseId, until: Mark) -> Result<(), Broken> {
        let allowed = self.allowed(lease);
        if Some(until) > allowed {
            let sentence = format!("told to lead until {until}, and may until {allowed:?}");
            return Err(Law::ValidUntil.broken(sentence));
        }
        if until <= now {
            let sentence = format!("told at {now} to lead until {until}");
            return Err(Law::ByTheClock.broken(sentence));
        }
        Ok(())
    }

    /// Whether renewals fail, and less than half of a term's time is left.
    pub fn endanger(&self, now: Mark, lease: LeaseId, valid_until: Mark) -> bool {
        self.leases.get(&lease).is_some_and(|it| it.fails && now + it.ttl / 2 > valid_until)
    }
}

/// A watch, and how much of the store's history it has told.
#[derive(Clone, Debug)]
pub struct OpenWatch {
    /// As it was asked for.
    pub watch: Watch,
    /// None before it is on.
    pub told: Option<usize>,
}

impl OpenWatch {
    /// One that is not on yet.
    pub fn new(watch: Watch) -> OpenWatch {
        OpenWatch { watch, told: None }
    }

    /// Is on from now on.
    pub fn start(&mut self, store: &Store) -> Event {
        self.told = Some(store.changes());
        self.event(Change::Started(store.revision()))
    }

    /// Tells the next change, if there is one.
    pub fn tell(&mut self, store: &Store) -> Option<Event> {
        let changes = store.changes_after(self.told?);
        let next = changes.iter().position(|(_, change)| concerns(&self.watch, change));
        let passed = next.map_or(changes.len(), |next| next + 1);
        self.told = self.told.map(|told| told + passed);
        next.map(|next| self.event(changes[next].1.clone()))
    }

    /// What it has not told yet.
    pub fn news<'a>(&'a self, store: &'a Store) -> impl Iterator<Item = &'a Change> {
        let told = self.told.unwrap_or_else(|| store.changes());
        let changes = store.changes_after(told).iter().map(|(_, change)| change);
        changes.filter(|change| concerns(&self.watch, change))
    }

    /// A change as the elector is told of it.
    pub fn event(&self, change: Change) -> Event {
        Event::Watched(Watched { id: self.watch.id, change })
    }
}

/// Whether a change is of a key that is watched.
pub fn concerns(watch: &Watch, change: &Change) -> bool {
    let key = match change {
        Change::Put(entry) => &entry.key,
        Change::Deleted(deletion) => &deletion.key,
        Change::Started(_) | Change::Ended(_) => return false,
    };
    *key == watch.key || watch.prefix && key.starts_with(&watch.key)
}

/// A term, as its application knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldTerm {
    /// As it was told.
    pub leadership: Leadership,
    /// The application was told that it is over.
    pub over: bool,
    /// The work has stopped.
    pub yielded: bool,
    /// The application was told that renewals fail, since the last one that did not.
    pub endangered: bool,
    /// Who was next when the application was told to hand over last, by the create revision of its key.
    pub hands_over_to: Option<Epoch>,
    /// The elector that gave it is gone.
    pub orphan: bool,
}

impl HeldTerm {
    /// A term that begins.
    pub fn new(leadership: Leadership) -> HeldTerm {
        HeldTerm {
            leadership,
            over: false,
            yielded: false,
            endangered: false,
            hands_over_to: None,
            orphan: false,
        }
    }

    /// Whether the application regards itself as leader, at a mark of its clock.
    pub fn stands(&self, mark: Mark) -> bool {
        !self.over && mark < self.leadership.valid_until
    }

    /// Whether its work may go on: nobody else leads until then.
    pub fn may_work(&self, mark: Mark) -> bool {
        !self.yielded && mark < self.leadership.valid_until
    }

    /// Whether a guard is of this term's key.
    pub fn is_of(&self, guard: &Guard) -> bool {
        self.leadership.key == guard.key && self.leadership.term.epoch == guard.epoch
    }
}

/// Moves the deadlines of the terms that an extension is for. Returns how many have moved.
/// Fails if it revives a term, or takes time from it.
pub fn extend<'a>(
    terms: impl Iterator<Item = &'a mut HeldTerm>,
    now: Mark,
    extension: &Extension,
) -> Result<usize, Broken> {
    let Extension { lease, valid_until } = *extension;
    let mut moved = 0;
    for term in terms.filter(|term| !term.over && term.leadership.lease == lease) {
        let before = term.leadership.valid_until;
        if before <= now || valid_until < before {
            let sentence = format!("{extension:?} comes at {now}, for {term:?}");
            return Err(Law::ByTheClock.broken(sentence));
        }
        moved += usize::from(valid_until > before);
        term.leadership.valid_until = valid_until;
        term.endangered = false;
    }
    Ok(moved)
}
