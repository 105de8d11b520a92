//! The laws, as assertions that name themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use incumbent_guest::types::*;

use super::application::Part;
use super::plan::{Office, Plan};
use super::store::Store;
use super::world::Process;

/// A law, by its number in the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// 1: at most one regards itself as leader at any instant.
    OneLeader,
    /// 2: a deadline counts from the sending of what was acknowledged.
    ValidUntil,
    /// 3: elected only after a read has shown it.
    ElectedByARead,
    /// 4: the clock decides who leads, before all else.
    ByTheClock,
    /// 5: writes carry the guard of their term.
    Guarded,
    /// 6: epochs rise.
    EpochsRise,
    /// 7: neither key nor lease goes while work may go on.
    ReleasedAfterWork,
    /// 8: no campaign before the work has stopped.
    YieldedFirst,
    /// 9: the same history gives the same steps.
    SameSteps,
    /// 10: when faults end, there is a leader again.
    LeaderReturns,
    /// 11: a waiter keeps its place.
    PlaceIsKept,
    /// 11: no order of dropping a candidacy and campaigning again ends in an error.
    Admitted,
    /// 13: nothing spins.
    NothingSpins,
    /// 14: nothing stays behind.
    NothingStays,
    /// Who leads while renewals fail, and has less than half of its time left, was told.
    Endangered,
    /// Every proclamation is answered, and at once by who has no key to put it into.
    Answered,
    /// Observers see who leads, and never an older epoch after a newer one.
    Observed,
    /// What leaders count together is counted once each.
    Linearizable,
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Its number and its words.
    pub fn title(self) -> &'static str {
        match self {
            Law::OneLeader => "law 1, at most one leader at any instant",
            Law::ValidUntil => "law 2, a deadline counts from the sending",
            Law::ElectedByARead => "law 3, elected only after a read has shown it",
            Law::ByTheClock => "law 4, the clock decides",
            Law::Guarded => "law 5, writes carry the guard of their term",
            Law::EpochsRise => "law 6, epochs rise",
            Law::ReleasedAfterWork => "law 7, neither key nor lease goes while work may go on",
            Law::YieldedFirst => "law 8, no campaign before the work has stopped",
            Law::SameSteps => "law 9, the same history gives the same steps",
            Law::LeaderReturns => "law 10, when faults end there is a leader",
            Law::Admitted => "law 11, who campaigns again is let in",
            Law::Endangered => "a leader in danger is told",
            Law::Answered => "every proclamation is answered",
            Law::PlaceIsKept => "law 11, a waiter keeps its place",
            Law::NothingSpins => "law 13, nothing spins",
            Law::NothingStays => "law 14, nothing stays behind",
            Law::Observed => "what observers are told",
            Law::Linearizable => "the guarded counter is linearizable",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken: {}", self.law.title(), self.sentence)
    }
}

/// What has to be known of the past to judge a step.
#[derive(Debug)]
pub struct Laws {
    offices: Vec<Office>,
    margin: Duration,
    lease_ttl: Duration,
    electors: Vec<Asked>,
    /// The newest epoch of each election.
    newest: Vec<Epoch>,
    /// Keys that were removed or changed by others than their owner and expiry: law
    /// 1 does not speak of them. By create revision.
    meddled: BTreeSet<Epoch>,
    /// Revisions went back: no bound holds for the time until they are beyond.
    pub went_back: bool,
    /// The store lost what it had acknowledged.
    pub lost_data: bool,
}

/// What one elector has asked and heard.
#[derive(Debug, Default)]
struct Asked {
    calls: BTreeMap<RequestId, Call>,
    /// The longest deadline that the acknowledged calls allow, for each lease.
    allowed: BTreeMap<LeaseId, Mark>,
    /// Leases of which the store said that they are gone.
    gone: BTreeSet<LeaseId>,
    /// Reads that were answered in this step.
    shown: Vec<(Vec<Selection>, Snapshot)>,
    /// Terms whose guard was refused in this step.
    refused: Vec<(Vec<u8>, Epoch)>,
    renewals: Renewals,
}

/// Which renewals of an elector failed, as it has to know.
#[derive(Debug, Default)]
pub struct Renewals {
    asked: BTreeMap<RequestId, Renewal>,
    leases: BTreeMap<LeaseId, Renewed>,
}

#[derive(Debug)]
struct Renewal {
    lease: LeaseId,
    sent: Mark,
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
}

impl Renewals {
    /// Notes what an elector asks.
    pub fn ask(&mut self, now: Mark, call: &incumbent_guest::types::Call) {
        let (lease, give_up) = match &call.operation {
            Operation::Grant(grant) => (grant.lease, None),
            Operation::KeepAlive(lease) => (*lease, Some(call.give_up)),
            Operation::Revoke(_)
            | Operation::Claim(_)
            | Operation::Read(_)
            | Operation::Guarded(_) => return,
        };
        self.asked.insert(call.id, Renewal { lease, sent: now, give_up });
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
        let Some(Renewal { lease, sent, give_up }) = self.asked.remove(&id) else { return };
        let renewed = self.leases.entry(lease).or_default();
        match outcome {
            Ok(Response::Granted(ttl) | Response::Renewed(ttl)) => {
                if renewed.acknowledged.is_none_or(|acknowledged| acknowledged < sent) {
                    *renewed = Renewed { acknowledged: Some(sent), ttl: *ttl, fails: false };
                }
            }
            Ok(_) | Err(_) => renewed.fails |= give_up.is_some(),
        }
    }

    /// Whether renewals fail, and less than half of a term's time is left.
    pub fn endanger(&self, now: Mark, leadership: &Leadership) -> bool {
        let Leadership { lease, valid_until, .. } = leadership;
        self.leases.get(lease).is_some_and(|it| it.fails && now + it.ttl / 2 > *valid_until)
    }
}

#[derive(Debug)]
struct Call {
    sent: Mark,
    give_up: Mark,
    lapsed: bool,
    what: What,
}

#[derive(Debug)]
enum What {
    Lease(LeaseId),
    Claim(LeaseId),
    Read(Vec<Selection>),
    Write(Vec<u8>, Epoch),
    Other,
}

impl Laws {
    /// Nothing has happened yet.
    pub fn new(plan: &Plan) -> Laws {
        Laws {
            offices: plan.offices.clone(),
            margin: plan.safety_margin,
            lease_ttl: plan.lease_ttl,
            electors: (0..plan.processes).map(|_| Asked::default()).collect(),
            newest: vec![0; plan.offices.len()],
            meddled: BTreeSet::new(),
            went_back: false,
            lost_data: false,
        }
    }

    /// A process has a new elector.
    pub fn opened(&mut self, process: usize) {
        self.electors[process] = Asked::default();
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
        let terms = processes.iter().flat_map(|process| &process.parts);
        self.meddled.extend(
            terms.filter_map(|part| part.term.as_ref()).map(|term| term.leadership.term.epoch),
        );
        self.lost_data = true;
        if !bumped {
            self.went_back = true;
            self.newest.fill(0);
        }
    }

    /// Whether law 1 does not speak of this term.
    pub fn is_meddled_with(&self, epoch: Epoch) -> bool {
        self.meddled.contains(&epoch)
    }

    // What an elector hears and asks.

    /// Notes what an elector is about to hear.
    pub fn hear(&mut self, process: usize, now: Mark, events: &[Event]) {
        let asked = &mut self.electors[process];
        asked.renewals.pass(now);
        for event in events {
            let Event::Reply(Reply { id, outcome }) = event else { continue };
            asked.renewals.hear(*id, outcome);
            let Some(call) = asked.calls.remove(id) else { continue };
            match (call.what, outcome) {
                (What::Lease(lease), Ok(Response::Granted(ttl) | Response::Renewed(ttl))) => {
                    let margin = self.margin.max(ttl / 100);
                    let until = call.sent + ttl.saturating_sub(margin);
                    let allowed = asked.allowed.entry(lease).or_default();
                    *allowed = until.max(*allowed);
                }
                (What::Lease(lease) | What::Claim(lease), Ok(Response::Expired)) => {
                    asked.gone.insert(lease);
                }
                (What::Read(selections), Ok(Response::Snapshot(snapshot))) => {
                    asked.shown.push((selections, snapshot.clone()));
                }
                // What was given up is answered no more.
                (What::Write(key, epoch), Ok(Response::Stale)) if now < call.give_up => {
                    asked.refused.push((key, epoch));
                }
                (
                    What::Lease(_) | What::Claim(_) | What::Read(_) | What::Write(..) | What::Other,
                    _,
                ) => {}
            }
        }
    }

    /// Judges what an elector asks of the store.
    pub fn call(
        &mut self,
        process: usize,
        now: Mark,
        call: &incumbent_guest::types::Call,
        parts: &[Part],
    ) -> Result<(), Broken> {
        let what = match &call.operation {
            Operation::Grant(grant) => What::Lease(grant.lease),
            Operation::KeepAlive(lease) => What::Lease(*lease),
            Operation::Read(selections) => What::Read(selections.clone()),
            Operation::Claim(claim) => {
                let part = self.office(&claim.key).and_then(|office| parts.get(office));
                if let Some(term) = part.and_then(|part| part.term.as_ref()) {
                    return Err(Law::YieldedFirst.broken(format!(
                        "process {process} claims a key, and its work of epoch {} has not stopped",
                        term.leadership.term.epoch
                    )));
                }
                What::Claim(claim.lease)
            }
            Operation::Revoke(lease) => {
                self.revoked(process, now, *lease, parts)?;
                What::Other
            }
            Operation::Guarded(guarded) => self.guarded(process, now, guarded, parts)?,
        };
        let asked = &mut self.electors[process];
        asked.renewals.ask(now, call);
        let sent = now;
        asked.calls.insert(call.id, Call { sent, give_up: call.give_up, lapsed: false, what });
        Ok(())
    }

    /// Judges that an elector, or the host of one that broke, revokes a lease.
    pub fn revoked(
        &self,
        process: usize,
        now: Mark,
        lease: LeaseId,
        parts: &[Part],
    ) -> Result<(), Broken> {
        for term in parts.iter().filter_map(|part| part.term.as_ref()) {
            let Leadership { term: id, lease: of, .. } = &term.leadership;
            if *of == lease && term.may_work(now) {
                return Err(Law::ReleasedAfterWork.broken(format!(
                    "process {process} revokes its lease, and its work of epoch {} may go on",
                    id.epoch
                )));
            }
        }
        Ok(())
    }

    fn guarded(
        &self,
        process: usize,
        now: Mark,
        guarded: &Guarded,
        parts: &[Part],
    ) -> Result<What, Broken> {
        let Guard { key, epoch, lease } = &guarded.guard;
        let terms = || parts.iter().filter_map(|part| part.term.as_ref());
        let stopped = || parts.iter().filter_map(|part| part.stopped.as_ref());
        let mut what = What::Other;
        for mutation in &guarded.mutations {
            match mutation {
                Mutation::Delete(deleted) if deleted == key => {
                    for term in terms() {
                        let Leadership { term, key: of, valid_until, .. } = &term.leadership;
                        if of == key && term.epoch == *epoch && now < *valid_until {
                            return Err(Law::ReleasedAfterWork.broken(format!(
                                "process {process} deletes its key in epoch {epoch}"
                            )));
                        }
                    }
                }
                Mutation::Proclaim(_) => {}
                Mutation::Put(_) | Mutation::Delete(_) => {
                    what = What::Write(key.clone(), *epoch);
                    let stands = terms().chain(stopped()).any(|term| {
                        let Leadership { term: id, key: of, lease: under, .. } = &term.leadership;
                        term.stands(now)
                            && id.epoch == *epoch
                            && of == key
                            && Some(*under) == *lease
                    });
                    if !stands {
                        return Err(Law::Guarded.broken(format!(
                            "process {process} writes under a guard of epoch {epoch}, which is \
                             not its term"
                        )));
                    }
                }
            }
        }
        Ok(what)
    }

    /// Whether a call was not answered in time since this was last asked.
    pub fn unanswered(&mut self, process: usize, now: Mark) -> bool {
        let calls = &mut self.electors[process].calls;
        let mut found = false;
        for call in calls.values_mut() {
            found |= call.give_up < now && !std::mem::replace(&mut call.lapsed, call.give_up < now);
        }
        let forgotten = 4 * self.lease_ttl;
        calls.retain(|_, call| !call.lapsed || call.give_up + forgotten > now);
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
        office: usize,
        newest: Epoch,
        leadership: &Leadership,
    ) -> Result<(), Broken> {
        let epoch = leadership.term.epoch;
        self.extended(process, now, leadership.lease, leadership.valid_until)?;
        let name = &self.offices[office].name;
        let shown = &self.electors[process].shown;
        if !shown.iter().any(|(selections, snapshot)| shows(name, leadership, selections, snapshot))
        {
            return Err(Law::ElectedByARead
                .broken(format!("no read shows that process {process} leads in epoch {epoch}")));
        }
        // What was read before the store was put back may be told after it.
        let before = if self.is_meddled_with(epoch) { 0 } else { self.newest[office] };
        if epoch <= newest || epoch <= before {
            return Err(Law::EpochsRise.broken(format!(
                "process {process} leads in epoch {epoch}, after one of {}",
                newest.max(before)
            )));
        }
        if !self.is_meddled_with(epoch) {
            self.newest[office] = epoch;
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
        let allowed = self.electors[process].allowed.get(&lease).copied();
        if until > allowed.unwrap_or(0) {
            return Err(Law::ValidUntil.broken(format!(
                "process {process} leads until {until}, and may until {allowed:?}"
            )));
        }
        if until <= now {
            return Err(Law::ByTheClock.broken(format!(
                "process {process} is told at {now} that it leads until {until}"
            )));
        }
        Ok(())
    }

    /// Judges what a step leaves behind, once nothing more is to be done at once.
    pub fn after_step(&mut self, process: usize, now: Mark, parts: &[Part]) -> Result<(), Broken> {
        let asked = &mut self.electors[process];
        asked.shown.clear();
        let refused = std::mem::take(&mut asked.refused);
        for term in parts.iter().filter_map(|part| part.term.as_ref()) {
            let Leadership { term: id, key, valid_until, .. } = &term.leadership;
            if term.over || term.orphan {
                continue;
            }
            if *valid_until <= now {
                return Err(Law::ByTheClock.broken(format!(
                    "process {process} is not told at {now} that epoch {} is over",
                    id.epoch
                )));
            }
            if refused.iter().any(|(of, epoch)| of == key && *epoch == id.epoch) {
                return Err(Law::Guarded.broken(format!(
                    "a guard of epoch {} was refused, and process {process} leads on",
                    id.epoch
                )));
            }
            if !term.endangered && asked.renewals.endanger(now, &term.leadership) {
                return Err(Law::Endangered.broken(format!(
                    "process {process} leads in epoch {} until {valid_until}, its renewals fail, \
                     and it is not told so by {now}",
                    id.epoch
                )));
            }
        }
        Ok(())
    }

    fn office(&self, key: &[u8]) -> Option<usize> {
        self.offices.iter().position(|office| match office.contest {
            Contest::Queue => in_queue(&office.name, key),
            Contest::Race => key == office.name.as_bytes(),
        })
    }
}

/// Whether a key is a candidate's in the queue of this name.
pub fn in_queue(name: &str, key: &[u8]) -> bool {
    let Some(id) = key.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"))
    else {
        return false;
    };
    let digits = id.strip_prefix(b"-").unwrap_or(id);
    (1..=16).contains(&digits.len())
        && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a read shows the leader's own key, and nobody in front.
pub fn shows(
    name: &str,
    leadership: &Leadership,
    selections: &[Selection],
    snapshot: &Snapshot,
) -> bool {
    let Leadership { term, key, lease, .. } = leadership;
    let mut own = false;
    let mut free = key == name.as_bytes();
    for (selection, found) in selections.iter().zip(&snapshot.found) {
        if !selection.prefix && selection.key == *key {
            own = found
                .first()
                .is_some_and(|entry| entry.created == term.epoch && entry.lease == *lease);
        } else if selection.created_before == Some(term.epoch) {
            free = !found.iter().any(|entry| in_queue(name, &entry.key))
                && (selection.limit == 0 || found.len() < selection.limit as usize);
        } else if selection.order == Order::ByKey && selection.key == format!("{name}/").as_bytes()
        {
            // The last page: whoever is in front on an earlier one would be found by law 1.
            free =
                !found.iter().any(|entry| in_queue(name, &entry.key) && entry.created < term.epoch)
                    && found.len() < selection.limit as usize;
        }
    }
    own && free
}
