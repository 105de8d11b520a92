//! The laws, as assertions that name themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use incumbent_guest::types::*;

use super::application::{Standing, Terms};
use super::client::{HeldTerm, Renewals};
use super::evidence::Evidence;
use super::plan::{Election, Plan};
use super::store::Store;
use super::world::Process;

macro_rules! laws {
    ($($law:ident: $title:literal,)*) => {
        /// A law that the elector has to keep.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Law {
            $(#[doc = $title] $law,)*
        }

        impl Law {
            /// Its words.
            pub fn title(self) -> &'static str {
                match self {
                    $(Law::$law => $title,)*
                }
            }
        }
    };
}

laws! {
    OneLeader: "at most one leader at any instant",
    ValidUntil: "a deadline counts from the sending of what was acknowledged",
    ElectedWhenShown: "elected only once a read has shown it, or the news that all in front have gone",
    ByTheClock: "the clock decides who leads, before all else",
    Guarded: "writes carry the guard of their term",
    EpochsRise: "epochs rise",
    ReleasedAfterWork: "neither key nor lease goes while work may go on",
    YieldedFirst: "no campaign before the work has stopped",
    SameSteps: "the same history gives the same steps",
    LeaderReturns: "when faults end there is a leader again",
    PlaceIsKept: "a waiter keeps its place",
    InOrder: "the line is in the order of priorities",
    Preempted: "a leader with a lower priority is told to hand over to who is next",
    Drained: "who is drained is not elected",
    Admitted: "a candidate that drops its candidacy and campaigns again is let in",
    NothingSpins: "nothing spins",
    NothingStays: "nothing stays behind",
    Endangered: "a leader whose renewals fail is told when half of its time is over",
    Answered: "every proclamation is answered, and in a lost race at once",
    Observed: "observers see who leads, and never an older epoch after a newer one",
    Linearizable: "what leaders count together is counted once each",
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broken {
    /// Which.
    pub law: Law,
    /// How.
    pub sentence: String,
}

impl Law {
    /// Says how it was broken.
    pub fn broken(self, sentence: String) -> Broken {
        Broken { law: self, sentence }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is broken ({}): {}", self.law, self.law.title(), self.sentence)
    }
}

/// What has to be known of the past to judge a step.
#[derive(Debug)]
pub struct Laws {
    elections: Vec<Election>,
    /// Where each name is among them.
    names: BTreeMap<Vec<u8>, usize>,
    margin: Duration,
    lease_ttl: Duration,
    electors: Vec<Asked>,
    /// The newest epoch of each election.
    newest: Vec<Epoch>,
    /// Keys that were removed or changed by others than their owner and expiry:
    /// [`Law::OneLeader`] does not speak of them. By create revision.
    meddled: BTreeSet<Epoch>,
    /// Revisions went back: no bound holds for the time until they are beyond.
    pub went_back: bool,
    /// The store lost what it had acknowledged.
    pub lost_data: bool,
}

/// What one elector has asked and heard.
#[derive(Debug)]
struct Asked {
    calls: BTreeMap<RequestId, Call>,
    /// Those that were not found unanswered yet, by when they are given up.
    open: BTreeSet<(Mark, RequestId)>,
    /// The others.
    lapsed: BTreeSet<(Mark, RequestId)>,
    /// Leases of which the store said that they are gone, or that the elector has given back: it does so if
    /// answers take longer than they live.
    gone: BTreeSet<LeaseId>,
    /// It was told that its session is drained.
    drained: bool,
    /// It was told so before this step, and nothing else in it.
    stays_drained: bool,
    evidence: Evidence,
    /// Guards that were refused in this step.
    refused: Vec<Guard>,
    renewals: Renewals,
}

impl Asked {
    fn nothing(margin: Duration) -> Asked {
        Asked {
            calls: BTreeMap::new(),
            open: BTreeSet::new(),
            lapsed: BTreeSet::new(),
            gone: BTreeSet::new(),
            drained: false,
            stays_drained: false,
            evidence: Evidence::default(),
            refused: Vec::new(),
            renewals: Renewals::new(margin),
        }
    }
}

impl Laws {
    /// Nothing has happened yet.
    pub fn new(plan: &Plan) -> Laws {
        Laws {
            elections: plan.elections.clone(),
            names: plan.elections.iter().enumerate().rev().map(named).collect(),
            margin: plan.safety_margin,
            lease_ttl: plan.lease_ttl,
            electors: (0..plan.processes).map(|_| Asked::nothing(plan.safety_margin)).collect(),
            newest: vec![0; plan.elections.len()],
            meddled: BTreeSet::new(),
            went_back: false,
            lost_data: false,
        }
    }

    /// A process has a new elector.
    pub fn opened(&mut self, process: usize) {
        self.electors[process] = Asked::nothing(self.margin);
    }

    // What others than electors do.

    /// Somebody changed or removed the key of this create revision.
    pub fn meddled_with(&mut self, created: Epoch) {
        self.meddled.insert(created);
    }

    /// Somebody ends this lease, and with it the keys that it has.
    pub fn meddled_with_lease(&mut self, lease: LeaseId, store: &Store) {
        self.meddled.extend(store.keys().filter(|key| key.lease == lease).map(|key| key.created));
    }

    /// The store is put back: keys are there again that were gone, and others gone.
    pub fn restored(&mut self, stores: [&Store; 2], processes: &[Process], bumped: bool) {
        for store in stores {
            self.meddled.extend(store.keys().map(|key| key.created));
        }
        let terms = processes.iter().flat_map(|process| process.terms.held());
        self.meddled.extend(terms.map(|term| term.leadership.term.epoch));
        self.lost_data = true;
        if !bumped {
            self.went_back = true;
            self.newest.fill(0);
        }
    }

    /// Whether [`Law::OneLeader`] does not speak of this term.
    pub fn is_meddled_with(&self, epoch: Epoch) -> bool {
        self.meddled.contains(&epoch)
    }

    // What an elector hears and asks.

    /// Notes what an elector is about to hear.
    pub fn hear(&mut self, process: usize, now: Mark, events: &[Event]) {
        let asked = &mut self.electors[process];
        asked.renewals.pass(now);
        // What has fallen due comes before what it is told.
        asked.stays_drained = asked.drained;
        for event in events {
            if let Event::Limit(limit) = event {
                asked.drained = limit.is_some_and(|limit| limit.at_most == 0);
                asked.stays_drained &= asked.drained;
            }
            if let Event::Watched(watched) = event {
                asked.evidence.told(&watched.change);
            }
            let Event::Reply(Reply { id, outcome }) = event else { continue };
            asked.renewals.hear(*id, outcome);
            let Some(call) = asked.calls.remove(id) else { continue };
            asked.open.remove(&(call.give_up, call.id));
            asked.lapsed.remove(&(call.give_up, call.id));
            match (call.operation, outcome) {
                (
                    Operation::KeepAlive(lease) | Operation::Claim(Claim { lease, .. }),
                    Ok(Response::Expired),
                ) => {
                    asked.gone.insert(lease);
                }
                (Operation::Read(selections), Ok(Response::Snapshot(snapshot))) => {
                    asked.evidence.read(selections, snapshot.clone());
                }
                // What was given up is answered no more.
                (Operation::Guarded(guarded), Ok(Response::Stale))
                    if now < call.give_up && writes(&guarded) =>
                {
                    asked.refused.push(guarded.guard);
                }
                _ => {}
            }
        }
    }

    /// Judges what an elector asks of the store.
    pub fn call(
        &mut self,
        process: usize,
        now: Mark,
        call: &Call,
        terms: &Terms,
    ) -> Result<(), Broken> {
        if let Operation::Revoke(lease) = call.operation {
            self.electors[process].gone.insert(lease);
        }
        match &call.operation {
            Operation::Claim(claim) => {
                let index = self.election_of(&claim.key);
                if let Some(term) = index.and_then(|index| terms.of(index)) {
                    return Err(Law::YieldedFirst.broken(format!(
                        "process {process} claims a key, and its work of epoch {} has not stopped",
                        term.leadership.term.epoch
                    )));
                }
            }
            // Only terms of its epoch can have this key.
            operation @ Operation::Guarded(guarded) => {
                judge(now, operation, terms.unheard_of(guarded.guard.epoch))?;
            }
            operation => judge(now, operation, terms.unheard())?,
        }
        let asked = &mut self.electors[process];
        asked.renewals.ask(now, call);
        asked.open.insert((call.give_up, call.id));
        asked.calls.insert(call.id, call.clone());
        Ok(())
    }

    /// Whether a call was not answered in time since this was last asked.
    pub fn unanswered(&mut self, process: usize, now: Mark) -> bool {
        let Asked { calls, open, lapsed, .. } = &mut self.electors[process];
        let awaited = open.split_off(&(now, 0));
        let mut unanswered = std::mem::replace(open, awaited);
        let found = !unanswered.is_empty();
        lapsed.append(&mut unanswered);
        let forgotten = 4 * self.lease_ttl;
        while let Some((give_up, id)) = lapsed.first().copied()
            && give_up + forgotten <= now
        {
            lapsed.pop_first();
            calls.remove(&id);
        }
        found
    }

    // What an elector tells.

    /// Judges a place in line.
    pub fn joined(
        &self,
        process: usize,
        now: Mark,
        before: Option<Joined>,
        joined: &Joined,
        store: &Store,
    ) -> Result<(), Broken> {
        if let Some(before) = before
            && before.created != 0
            && before.created != joined.created
            && let Some(entry) = store.key(&before.key)
            && entry.created == before.created
            && entry.key != joined.key
            && store.lives(entry.lease, now)
            && !self.electors[process].gone.contains(&entry.lease)
            // A backup may have brought an old place back.
            && !self.lost_data
        {
            return Err(Law::PlaceIsKept.broken(format!(
                "a place of revision {} is given up for one of revision {}",
                before.created, joined.created
            )));
        }
        Ok(())
    }

    /// Judges the beginning of a term.
    pub fn elected(
        &mut self,
        process: usize,
        now: Mark,
        election: usize,
        newest: Epoch,
        leadership: &Leadership,
    ) -> Result<(), Broken> {
        let epoch = leadership.term.epoch;
        self.extended(process, now, leadership.lease, leadership.valid_until)?;
        let name = &self.elections[election].name;
        let Asked { evidence, stays_drained, .. } = &self.electors[process];
        if *stays_drained {
            return Err(
                Law::Drained.broken(format!("process {process} leads `{name}` in epoch {epoch}"))
            );
        }
        if !evidence.shows(name, leadership) {
            return Err(Law::ElectedWhenShown
                .broken(format!("nothing shows that process {process} leads in epoch {epoch}")));
        }
        // What was read before the store was put back may be told after it.
        let before = if self.is_meddled_with(epoch) { 0 } else { self.newest[election] };
        let term = |epoch| incumbent_terms::Term { id: (), epoch, from: now, until: now };
        let newest = term(newest.max(before));
        if !term(epoch).rises_above(&newest) {
            return Err(Law::EpochsRise.broken(format!(
                "process {process} leads in epoch {epoch}, after one of {}",
                newest.epoch
            )));
        }
        if !self.is_meddled_with(epoch) {
            self.newest[election] = epoch;
        }
        Ok(())
    }

    /// Judges a deadline.
    pub fn extended(
        &self,
        process: usize,
        now: Mark,
        lease: LeaseId,
        until: Mark,
    ) -> Result<(), Broken> {
        self.electors[process].renewals.judge(now, lease, until)
    }

    /// Judges what a step leaves behind, once nothing more is to be done at once.
    pub fn after_step(&mut self, process: usize, now: Mark, terms: &Terms) -> Result<(), Broken> {
        let asked = &mut self.electors[process];
        asked.evidence.end_step();
        let refused = std::mem::take(&mut asked.refused);
        // Most often none of them is in question, and they are not looked at one by one.
        let is_in_question = |Standing { lease, valid_until, endangered }| {
            let endangers = || asked.renewals.endanger(now, lease, valid_until);
            valid_until <= now || !endangered && endangers()
        };
        if refused.is_empty() && !terms.standing().any(is_in_question) {
            return Ok(());
        }
        for term in terms.held() {
            let Leadership { term: id, lease, valid_until, .. } = &term.leadership;
            if term.over || term.orphan {
                continue;
            }
            if *valid_until <= now {
                return Err(Law::ByTheClock.broken(format!(
                    "process {process} is not told at {now} that epoch {} is over",
                    id.epoch
                )));
            }
            if refused.iter().any(|guard| term.is_of(guard)) {
                return Err(Law::Guarded.broken(format!(
                    "a guard of epoch {} was refused, and process {process} leads on",
                    id.epoch
                )));
            }
            if !term.endangered && asked.renewals.endanger(now, *lease, *valid_until) {
                return Err(Law::Endangered.broken(format!(
                    "process {process} leads in epoch {} until {valid_until}, its renewals fail, \
                     and it is not told so by {now}",
                    id.epoch
                )));
            }
        }
        Ok(())
    }

    fn election_of(&self, key: &[u8]) -> Option<usize> {
        let slash = key.iter().rposition(|byte| *byte == b'/');
        let names = [Some(key), slash.map(|slash| &key[..slash])].into_iter().flatten();
        let is_of = |index: &usize| match &self.elections[*index] {
            Election { name, contest: Contest::Queue } => in_queue(name, key),
            Election { name, contest: Contest::Race } => key == name.as_bytes(),
        };
        names.filter_map(|name| self.names.get(name).copied()).filter(is_of).min()
    }
}

fn named((index, election): (usize, &Election)) -> (Vec<u8>, usize) {
    (election.name.clone().into_bytes(), index)
}

/// Judges what an elector asks, or the host of one that broke, by the terms that its
/// applications hold. Fails if a lease or a key goes while work may go on, or a write
/// belongs to no term.
pub fn judge<'a>(
    now: Mark,
    operation: &Operation,
    mut terms: impl Iterator<Item = &'a HeldTerm>,
) -> Result<(), Broken> {
    let (works, what) = match operation {
        Operation::Revoke(lease) => {
            let works = |term: &&HeldTerm| term.leadership.lease == *lease && term.may_work(now);
            (terms.find(works), "its lease")
        }
        Operation::Guarded(guarded) if writes(guarded) => {
            let stands = |term: &HeldTerm| {
                term.stands(now)
                    && term.is_of(&guarded.guard)
                    && Some(term.leadership.lease) == guarded.guard.lease
            };
            return match terms.any(stands) {
                true => Ok(()),
                false => Err(Law::Guarded.broken(format!("no term stands for {guarded:?}"))),
            };
        }
        Operation::Guarded(Guarded { guard, mutations, .. }) => {
            let removes = mutations.contains(&Mutation::Delete(guard.key.clone()));
            if !removes && guard.lease.is_none() {
                let sentence = "a proclamation's guard does not carry the lease";
                return Err(Law::Guarded.broken(sentence.into()));
            }
            let works = |term: &&HeldTerm| removes && term.is_of(guard) && term.may_work(now);
            (terms.find(works), "its key")
        }
        Operation::Grant(_)
        | Operation::KeepAlive(_)
        | Operation::Claim(_)
        | Operation::Read(_) => return Ok(()),
    };
    match works {
        Some(term) => Err(Law::ReleasedAfterWork
            .broken(format!("{what} goes, and the work of {:?} may go on", term.leadership.term))),
        None => Ok(()),
    }
}

/// Whether this is an application's write.
fn writes(guarded: &Guarded) -> bool {
    guarded.mutations.iter().any(|mutation| match mutation {
        Mutation::Put(_) => true,
        Mutation::Delete(key) => *key != guarded.guard.key,
        Mutation::Proclaim(_) => false,
    })
}

/// Whether a key looks like a candidate's in the queue of this name.
pub fn in_queue(name: &str, key: &[u8]) -> bool {
    let Some(id) = key.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"))
    else {
        return false;
    };
    let digits = id.strip_prefix(b"-").unwrap_or(id);
    (1..=16).contains(&digits.len())
        && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
