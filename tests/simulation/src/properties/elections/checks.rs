//! A step of the elector, and all that must be true of it.

use incumbent_guest::types::*;

use super::*;

impl World {
    pub(super) fn handle(&mut self) {
        let events = std::mem::take(&mut self.events);
        let many = events.len() + self.parts.len() + self.asked.len();
        let delivered = std::mem::take(&mut self.delivered);
        self.renewals.pass(self.now);
        for Reply { id, outcome } in &delivered {
            self.renewals.hear(*id, outcome);
            if let (Ok(Response::Snapshot(snapshot)), Some(Operation::Read(selections))) =
                (outcome, self.asked.get(id))
            {
                self.evidence.read(selections.clone(), snapshot.clone());
            }
        }
        for event in &events {
            if let Event::Watched(watched) = event {
                self.evidence.told(&watched.change);
            }
        }
        let lost_races: Vec<(ElectionId, Ticket)> = events
            .iter()
            .filter_map(|event| match event {
                Event::Proclaim(it) => Some((it.election, it.ticket)),
                _ => None,
            })
            .filter(|(election, _)| self.parts.get(election).is_some_and(|part| part.rival))
            .collect();
        let closed = self.closed;
        let step = self.elector.handle(self.now, events);
        assert!(step.commands.len() <= 60 + 30 * many, "a step is bounded");
        for command in step.commands {
            match command {
                Command::Call(call) => self.called(call),
                Command::Watch(watch) => {
                    self.new_request(watch.id);
                    self.watches.push(OpenWatch::new(watch));
                }
                Command::Unwatch(id) => self.watches.retain(|open| open.watch.id != id),
                Command::Notify(notice) => self.noticed(notice),
            }
        }
        // Otherwise there is more to be done at once.
        if step.deadline != Some(self.now + 1) {
            self.evidence.end_step();
        }
        self.deadline = step.deadline;
        if let Some(deadline) = step.deadline {
            assert!(deadline > self.now, "the next deadline lies ahead");
        }
        if closed {
            assert_eq!(step.deadline, None, "who is closed waits for nothing");
        }
        for (election, ticket) in lost_races {
            assert!(
                step.deadline == Some(self.now + 1)
                    || !self.parts[&election].rival
                    || !self.open_tickets.contains(&ticket),
                "in a race that somebody else leads a proclamation is answered at once"
            );
        }
        for held in self.parts.values().filter_map(|part| part.terms.last()) {
            if !held.over {
                let until = held.leadership.valid_until;
                assert!(until > self.now, "a term is over at its deadline");
                // Or is about to be: there is more to be done at once.
                let more = step.deadline == Some(self.now + 1);
                assert!(
                    held.endangered
                        || more
                        || self.honesty == Honesty::Nonsense
                        || !self.renewals.endanger(self.now, held.leadership.lease, until),
                    "who leads while renewals fail is told so: {held:?}"
                );
                assert!(step.deadline.is_some_and(|mark| mark <= until), "and that is not missed");
                self.check_alone(held);
            }
        }
    }

    /// Law 1, as far as one elector's view goes: who leads has its key, and nobody is
    /// in front.
    fn check_alone(&self, held: &HeldTerm) {
        if self.honesty != Honesty::Honest {
            return;
        }
        let Leadership { term, key, lease, .. } = &held.leadership;
        let entry = self.store.key(key).expect("who leads has a key");
        assert_eq!((entry.created, entry.lease), (term.epoch, *lease), "and it is its own");
        let name = self.parts[&term.election].name;
        if key != name.as_bytes() {
            let first = self.store.keys().filter(|entry| counts(name, entry));
            let first = first.min_by_key(|entry| entry.created).expect("there is one");
            assert_eq!(first.key, *key, "who leads is the first in the queue");
        }
    }

    pub(super) fn new_request(&mut self, id: RequestId) {
        assert!(id > self.last_request, "an id is never used again");
        self.last_request = id;
    }

    pub(super) fn called(&mut self, call: Call) {
        self.new_request(call.id);
        assert!(call.give_up > self.now, "a call is given some time");
        assert!(!self.closed, "who is closed asks for nothing");
        if let Operation::Guarded(Guarded { guard, mutations, .. }) = &call.operation {
            let removes_another =
                |it: &Mutation| matches!(it, Mutation::Delete(key) if *key != guard.key);
            assert!(!mutations.iter().any(removes_another), "a removal removes what guards it");
        }
        // A term that has yielded in this step may have written before.
        let terms = self.parts.values().flat_map(|part| &part.terms);
        judge(self.now, &call.operation, terms).expect("the elector may ask that");
        self.renewals.ask(self.now, &call);
        self.asked.insert(call.id, call.operation.clone());
        self.calls.push(Pending { call, done: None });
    }

    pub(super) fn noticed(&mut self, notice: Notice) {
        match notice {
            Notice::Elected(leadership) => self.elected(leadership),
            Notice::Extended(extension) => self.extended(&extension),
            Notice::Endangered(leadership) => {
                let held = self.held(leadership.term);
                assert!(!held.over, "only a term that stands is endangered");
                assert_eq!(
                    held.leadership, leadership,
                    "the danger names the leadership as it was told"
                );
                held.endangered = true;
            }
            Notice::HandOver(term) => {
                assert!(!self.held(term).over, "only a term that stands is handed over");
            }
            Notice::Demoted(demotion) => {
                let held = self.held(demotion.term);
                assert!(!held.over, "a term ends once");
                held.over = true;
            }
            Notice::Written(written) => {
                assert!(self.open_tickets.remove(&written.ticket), "a ticket is answered once");
            }
            Notice::Withdrawn(withdrawal) => {
                let part = self.parts.get_mut(&withdrawal.election).expect("there was one");
                assert!(!part.withdrawn, "an election is over once");
                part.withdrawn = true;
                part.rival = false;
                let over = part.terms.last().is_none_or(|held| held.over);
                assert!(over, "a term ends before its candidacy");
                let refused = matches!(withdrawal.cause, Some(Failure::Invalid(_)));
                let may_be = part.second || self.closing || self.honesty == Honesty::Nonsense;
                assert!(!refused || may_be, "who campaigns again is let in: {withdrawal:?}");
            }
            Notice::Listed(listing) => {
                self.parts.get_mut(&listing.election).expect("there was one").withdrawn = true;
            }
            Notice::Closed => {
                assert!(self.closing && !self.closed, "it was asked for, and is said once");
                assert!(self.watches.is_empty(), "no watch is left");
                self.closed = true;
            }
            Notice::Joined(joined) => {
                let part = self.parts.get_mut(&joined.election).expect("there was one");
                part.rival &= joined.created == 0;
            }
            Notice::Leader(sighting) => {
                let part = self.parts.get_mut(&sighting.election).expect("there was one");
                part.rival = part.candidate && sighting.leader.is_some();
            }
            Notice::Trouble(_) => {}
        }
    }

    pub(super) fn held(&mut self, term: Term) -> &mut HeldTerm {
        let part = self.parts.get_mut(&term.election).expect("there was a campaign");
        let held = part.terms.last_mut().expect("somebody was elected");
        assert_eq!(held.leadership.term, term, "the news is of the last term");
        held
    }

    fn extended(&mut self, extension: &Extension) {
        let Extension { lease, valid_until } = *extension;
        self.renewals.judge(self.now, lease, valid_until).expect("the deadline is granted");
        let terms = self.parts.values_mut().filter_map(|part| part.terms.last_mut());
        let moved = extend(terms, self.now, extension).expect("a deadline only moves forwards");
        assert!(moved > 0, "{extension:?} extends nothing");
    }

    pub(super) fn elected(&mut self, leadership: Leadership) {
        let Leadership { lease, valid_until, .. } = leadership;
        self.renewals.judge(self.now, lease, valid_until).expect("the deadline is granted");
        let term = leadership.term;
        let shown = self.evidence.shows(self.parts[&term.election].name, &leadership);
        assert!(shown, "nothing has shown that {leadership:?} may begin");
        let honest = self.honesty != Honesty::Nonsense;
        let part = self.parts.get_mut(&term.election).expect("there was a campaign");
        assert!(!part.withdrawn, "who has withdrawn is not elected");
        if let Some(last) = part.terms.last() {
            assert!(last.over, "a term begins after the last one has ended");
            assert!(last.yielded, "and after its work has stopped");
            let before = last.leadership.term.epoch;
            assert!(before < term.epoch, "epochs rise");
        }
        if honest {
            let before = self.epochs.insert(part.name, term.epoch);
            assert!(before < Some(term.epoch), "epochs of a name rise");
        }
        part.terms.push(HeldTerm::new(leadership));
    }

    // The end: no more faults.

    /// Every call is answered, every watch tells all, work stops when it is told to.
    pub(super) fn be_well(&mut self, until: Mark) {
        while self.now < until {
            for _ in 0..200 {
                self.hear_all();
                let stopping: Vec<Term> = self
                    .parts
                    .values()
                    .flat_map(|part| &part.terms)
                    .filter(|held| held.over && !held.yielded)
                    .map(|held| held.leadership.term)
                    .collect();
                for term in stopping {
                    self.stop_work(term);
                }
                if self.events.is_empty() {
                    break;
                }
                self.handle();
            }
            assert!(self.events.is_empty(), "it comes to rest");
            let next = self.deadline.map_or(until, |deadline| deadline.min(until));
            self.pass(next);
            self.handle();
        }
    }

    pub(super) fn end(mut self) {
        self.handle();
        for key in self.rivals() {
            self.store.delete(&key);
        }
        // One lease time, until the last keep-alive is sent, and a few pauses; another one
        // until a lease that was granted late has run out with what was claimed under it.
        let is_grant = |it: &Pending| matches!(it.call.operation, Operation::Grant(_));
        let may_revive = !self.revived.is_empty() || self.calls.iter().any(is_grant);
        let leases = if may_revive { 2 } else { 1 };
        self.be_well(self.now + leases * TTL + 3_000 * MS);
        for (election, part) in &self.parts {
            // It, or another candidacy of its name for whose end it waits.
            let leads = self.parts.values().any(|other| {
                other.name == part.name && other.terms.last().is_some_and(|held| !held.over)
            });
            assert!(
                part.withdrawn || !part.candidate || leads || self.blocked(part.name),
                "{election}, for `{}`, gets in when all is well",
                part.name
            );
        }
        for operation in std::mem::take(&mut self.stragglers) {
            let _ = self.perform(&operation, true);
            self.be_well(self.now + 1);
        }
        self.be_well(self.now + 3_000 * MS);
        for entry in self.ours() {
            let led =
                self.parts.values().filter(|part| !part.withdrawn).any(|part| {
                    part.terms.last().is_some_and(|held| held.leadership.key == entry.key)
                });
            assert!(led, "what landed late is removed: {entry:?}");
        }
        let late = self.closing;
        if !late {
            self.closing = true;
            self.events.push(Event::Close);
            self.handle();
        }
        self.be_well(self.now + if late { 2 * TTL } else { 100 * MS });
        assert!(self.closed, "it closes");
        assert!(self.ours().is_empty(), "no key is left: {:?}", self.ours());
        let ours = |lease: &LeaseId| *lease > self.last_rival && !self.revived.contains(lease);
        let leases: Vec<LeaseId> = self.store.leases().filter(ours).collect();
        assert!(late || leases.is_empty(), "no lease is left");
        assert!(self.open_tickets.is_empty(), "every write has an outcome");
    }

    /// The keys under leases that are or were ours.
    pub(super) fn ours(&self) -> Vec<&Entry> {
        let ours = |lease| self.renewals.allowed(lease).is_some() && !self.revived.contains(&lease);
        self.store.keys().filter(|entry| ours(entry.lease)).collect()
    }

    /// A race's key without a lease, which an operator left, stands in the way.
    pub(super) fn blocked(&self, name: &str) -> bool {
        self.store.keys().any(|entry| entry.lease == 0 && entry.key == name.as_bytes())
    }
}
