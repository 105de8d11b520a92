//! What the applications do: they campaign, work while they lead, and stop, more or
//! less quickly, when they are told to.

use incumbent_guest::types::*;

use super::history::Outcome;
use super::laws::{Broken, Law};
use super::world::{Request, Sender, World};
use super::{MILLISECOND, SECOND};

/// A process's part in one election.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The candidacy; none while the process takes no part.
    pub election: Option<ElectionId>,
    /// The last term, until its work has stopped.
    pub term: Option<Tenure>,
    /// A term whose work has stopped: its elector has not heard of it yet.
    pub stopped: Option<Tenure>,
    /// The last place in line that was announced.
    pub place: Option<Joined>,
    /// The last epoch in which it led, with its present elector.
    pub newest: Epoch,
    /// What it sees as an observer.
    pub sight: Sight,
    /// Writes without an outcome: the ticket, and the increment in the history.
    writes: Vec<(Ticket, usize)>,
    /// A try to increment that reads, and when it is given up.
    pub reading: Option<(usize, Mark)>,
    last_ticket: Ticket,
}

/// What a process sees of an election that it follows.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// The observation; none while there is no elector.
    observation: Option<ElectionId>,
    /// Who leads, as it was last told.
    pub leader: Option<Epoch>,
    /// The newest epoch that it was told of.
    newest: Epoch,
}

/// A term, as its application knows it. It is gone once its work has stopped.
#[derive(Clone, Debug)]
pub struct Tenure {
    /// As it was told.
    pub leadership: Leadership,
    /// The application was told that it is over.
    pub over: bool,
    /// The elector that gave it is gone.
    pub orphan: bool,
}

impl Tenure {
    /// Whether the application regards itself as leader, at a mark of its clock.
    pub fn stands(&self, mark: Mark) -> bool {
        !self.over && mark < self.leadership.valid_until
    }
}

/// What an application does by itself.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// It campaigns, if it does not.
    Campaign(usize),
    /// It works in a term.
    Work(usize, Epoch),
    /// It has led for long enough.
    Retire(usize, Epoch),
    /// Its work has stopped.
    Stopped(usize, Epoch),
    /// A term without an elector has come to its deadline.
    Orphaned(usize, Epoch),
}

impl World<'_> {
    /// Takes part in an election again, with a new elector.
    pub fn come_in(&mut self, process: usize, part: usize) {
        let it = &mut self.processes[process].parts[part];
        it.election = None;
        it.place = None;
        it.newest = 0;
        let pause = self.rng.u64(..if self.calm { 100 * MILLISECOND } else { SECOND });
        self.later(process, pause, Act::Campaign(part));
    }

    /// Follows who leads in an election.
    pub fn look_on(&mut self, process: usize, part: usize) {
        let election = self.next_election(process);
        let office = &self.plan.offices[part];
        let (name, contest) = (office.name.clone(), office.contest);
        let sight = Sight { observation: Some(election), ..Sight::default() };
        self.processes[process].parts[part].sight = sight;
        self.tell(process, Event::Observe(Observation { election, name, contest }));
    }

    /// Does what an application has in mind.
    pub fn act(&mut self, process: usize, act: Act) -> Result<(), Broken> {
        match act {
            Act::Campaign(part) => self.campaign(process, part),
            Act::Work(part, epoch) => return self.work(process, part, epoch),
            Act::Retire(part, epoch) => self.retire(process, part, epoch),
            Act::Stopped(part, epoch) => self.stopped(process, part, epoch),
            Act::Orphaned(part, epoch) => {
                if let Some(term) = self.term(process, part, epoch)
                    && term.orphan
                    && !term.over
                {
                    term.over = true;
                    let lease = term.leadership.lease;
                    self.stop_soon(process, part, epoch);
                    self.revoke_orphaned(process, lease);
                }
            }
        }
        Ok(())
    }

    fn term(&mut self, process: usize, part: usize, epoch: Epoch) -> Option<&mut Tenure> {
        self.processes[process].parts[part]
            .term
            .as_mut()
            .filter(|term| term.leadership.term.epoch == epoch)
    }

    fn campaign(&mut self, process: usize, part: usize) {
        let it = &self.processes[process];
        if it.elector.is_none() || it.closed || self.closing {
            return;
        }
        // A term of an elector that broke has to be over first.
        if it.parts[part].election.is_some() || it.parts[part].term.is_some() {
            return;
        }
        let election = self.next_election(process);
        let rejoin = self.calm || self.rng.u8(..4) > 0;
        let office = &self.plan.offices[part];
        let candidacy = Candidacy {
            election,
            name: office.name.clone(),
            contest: office.contest,
            value: match self.plan.one_identity {
                true => b"process".into(),
                false => format!("process-{process}").into_bytes(),
            },
            rejoin,
        };
        self.processes[process].parts[part].election = Some(election);
        self.tell(process, Event::Campaign(candidacy));
    }

    // Work.

    fn work(&mut self, process: usize, part: usize, epoch: Epoch) -> Result<(), Broken> {
        let mark = self.processes[process].clock.at(self.now);
        let Some(term) = self.term(process, part, epoch) else { return Ok(()) };
        if term.stands(mark) {
            // Something that no store guards: by the clock, nobody else may do it now.
            self.check_alone(process, part, epoch)?;
        }
        let reading = self.processes[process].parts[part].reading;
        if self.plan.writes && reading.is_none_or(|(_, until)| until < self.now) {
            let key = counter(part);
            let selections = vec![Selection {
                key,
                prefix: false,
                created_before: None,
                order: Order::OldestFirst,
                limit: 0,
            }];
            let increment = self.history.begin(process, part, self.now);
            self.processes[process].parts[part].reading = Some((increment, self.now + 5 * SECOND));
            let life = self.processes[process].life;
            self.send(Request {
                process,
                from: Sender::Application { life, part, epoch, increment },
                operation: Operation::Read(selections),
            });
        }
        if self.plan.writes && self.rng.u8(..16) == 0 {
            self.proclaim(process, part);
        }
        let pause = 50 * MILLISECOND + self.rng.u64(..2 * SECOND);
        self.later(process, pause, Act::Work(part, epoch));
        Ok(())
    }

    /// Law 1: whoever else regards itself as leader of the same office does not do
    /// so at this instant.
    pub fn check_alone(&self, process: usize, part: usize, epoch: Epoch) -> Result<(), Broken> {
        if self.laws.is_meddled_with(epoch) {
            return Ok(());
        }
        for (other, it) in self.processes.iter().enumerate() {
            let Some(term) = &it.parts[part].term else { continue };
            let theirs = term.leadership.term.epoch;
            if other != process
                && term.stands(it.clock.at(self.now))
                && !self.laws.is_meddled_with(theirs)
            {
                return Err(Law::OneLeader.broken(format!(
                    "process {process} leads `{}` in epoch {epoch}, and process {other} in \
                     epoch {theirs}",
                    self.plan.offices[part].name
                )));
            }
        }
        Ok(())
    }

    /// The counter was read: it is written, one higher, guarded.
    pub fn counter_read(
        &mut self,
        process: usize,
        part: usize,
        epoch: Epoch,
        increment: usize,
        outcome: Result<Response, Failure>,
    ) {
        let Ok(Response::Snapshot(snapshot)) = outcome else {
            return self.history.end(increment, self.now, Outcome::Nothing);
        };
        let entry = snapshot.found.into_iter().flatten().next();
        let value: u64 = entry
            .as_ref()
            .and_then(|entry| String::from_utf8_lossy(&entry.value).parse().ok())
            .unwrap_or(0);
        self.history.read(increment, self.now, value);
        let Some(term) = self.term(process, part, epoch) else {
            return self.history.end(increment, self.now, Outcome::Nothing);
        };
        let (term, orphan) = (term.leadership.term, term.orphan);
        if orphan || self.processes[process].elector.is_none() {
            return self.history.end(increment, self.now, Outcome::Nothing);
        }
        let it = &mut self.processes[process].parts[part];
        it.last_ticket += 1;
        // Tickets of one elector differ, whatever the part.
        let ticket = it.last_ticket * 8 + part as u64;
        it.writes.push((ticket, increment));
        let modified = entry.map_or(0, |entry| entry.modified);
        let expect = Expectation { key: counter(part), modified };
        let expect = if self.plan.expectations { vec![expect] } else { Vec::new() };
        let value = (value + 1).to_string().into_bytes();
        let mutations = vec![Mutation::Put(Put { key: counter(part), value })];
        self.tell(process, Event::Write(GuardedWrite { term, ticket, expect, mutations }));
    }

    fn proclaim(&mut self, process: usize, part: usize) {
        let Some(election) = self.processes[process].parts[part].election else { return };
        let value = format!("process-{process} at {}", self.now).into_bytes();
        // Nobody waits for this ticket.
        self.tell(process, Event::Proclaim(Proclamation { election, ticket: 0, value }));
    }

    // The ends of a term.

    fn retire(&mut self, process: usize, part: usize, epoch: Epoch) {
        if self.calm {
            return;
        }
        let Some(term) = self.term(process, part, epoch) else { return };
        if term.over || term.orphan {
            return;
        }
        let term = term.leadership.term;
        match self.rng.u8(..10) {
            0..=5 => self.tell(process, Event::Resign(term)),
            6 | 7 => self.stopped(process, part, epoch),
            8 => self.tell(process, Event::Leave(term.election)),
            _ => self.close(process),
        }
    }

    /// Leaves everything.
    pub fn close(&mut self, process: usize) {
        self.tell(process, Event::Close);
    }

    fn stop_soon(&mut self, process: usize, part: usize, epoch: Epoch) {
        let most = if self.calm { 50 * MILLISECOND } else { self.plan.stopping };
        let pause = self.rng.u64(..most);
        self.later(process, pause, Act::Stopped(part, epoch));
    }

    fn stopped(&mut self, process: usize, part: usize, epoch: Epoch) {
        let Some(term) = self.term(process, part, epoch) else { return };
        let (term, orphan) = (term.leadership.term, term.orphan);
        let stopped = self.processes[process].parts[part].term.take();
        if orphan {
            self.come_in(process, part);
        } else {
            self.processes[process].parts[part].stopped = stopped;
            self.tell(process, Event::Yielded(term));
        }
    }

    /// The elector that held this lease is gone: terms go on to their deadlines, and
    /// then the lease is given back.
    pub fn orphan(&mut self, process: usize, lease: LeaseId) {
        let mut marks = Vec::new();
        for (part, it) in self.processes[process].parts.iter_mut().enumerate() {
            let of = |term: &&mut Tenure| !term.orphan && term.leadership.lease == lease;
            if let Some(term) = it.term.as_mut().filter(of) {
                term.orphan = true;
                if !term.over {
                    let Leadership { term, valid_until, .. } = &term.leadership;
                    marks.push((*valid_until, Act::Orphaned(part, term.epoch)));
                }
            }
        }
        for (mark, act) in marks {
            self.at_mark(process, mark, act);
        }
        self.revoke_orphaned(process, lease);
    }

    fn revoke_orphaned(&mut self, process: usize, lease: LeaseId) {
        let needed = self.processes[process].parts.iter().any(|part| {
            part.term.as_ref().is_some_and(|term| !term.over && term.leadership.lease == lease)
        });
        if !needed {
            let operation = Operation::Revoke(lease);
            self.send(Request { process, from: Sender::Host, operation });
        }
    }

    /// No more faults: work stops quickly, and all who are out come in.
    pub fn be_calm(&mut self) {
        for process in 0..self.processes.len() {
            for part in 0..self.plan.offices.len() {
                let it = &self.processes[process].parts[part];
                if let Some(term) = it.term.as_ref().filter(|term| term.over) {
                    let epoch = term.leadership.term.epoch;
                    self.stop_soon(process, part, epoch);
                }
                self.later(process, 100 * MILLISECOND, Act::Campaign(part));
            }
        }
    }

    // What the elector tells.

    /// Takes what an elector tells its application.
    pub fn notice(&mut self, process: usize, now: Mark, notice: Notice) -> Result<(), Broken> {
        match notice {
            Notice::Joined(joined) => {
                self.run.joined += 1;
                if let Some(part) = self.part(process, joined.election) {
                    let place = self.processes[process].parts[part].place.replace(joined.clone());
                    self.laws.joined(process, self.now, place, &joined, &self.cluster.store)?;
                }
            }
            Notice::Elected(leadership) => self.elected(process, now, leadership)?,
            Notice::Extended(leadership) => {
                self.laws.extended(process, now, &leadership)?;
                if let Some(part) = self.part(process, leadership.term.election)
                    && let Some(term) = self.term(process, part, leadership.term.epoch)
                {
                    if term.over {
                        return Err(Law::ByTheClock.broken("a term that was over lives on".into()));
                    }
                    term.leadership = leadership;
                }
            }
            Notice::Demoted(Demotion { term, reason }) => {
                self.run.ended(&reason);
                if let Some(part) = self.part(process, term.election)
                    && let Some(it) = self.term(process, part, term.epoch)
                {
                    it.over = true;
                    self.stop_soon(process, part, term.epoch);
                }
            }
            Notice::Written(Written { ticket, outcome }) => {
                let parts = &mut self.processes[process].parts;
                let writes = parts.iter_mut().find_map(|part| {
                    let index = part.writes.iter().position(|(of, _)| *of == ticket)?;
                    Some(part.writes.swap_remove(index).1)
                });
                if let Some(increment) = writes {
                    let outcome = match outcome {
                        WriteOutcome::Applied(_) => Outcome::Applied,
                        WriteOutcome::Unknown => Outcome::Unknown,
                        WriteOutcome::Stale | WriteOutcome::Conflict | WriteOutcome::Failed(_) => {
                            Outcome::Nothing
                        }
                    };
                    self.history.end(increment, self.now, outcome);
                }
            }
            Notice::Withdrawn(Withdrawal { election, .. }) => {
                if let Some(part) = self.part(process, election) {
                    let it = &mut self.processes[process].parts[part];
                    it.election = None;
                    it.place = None;
                    let pause =
                        self.rng.u64(..if self.calm { 100 * MILLISECOND } else { 5 * SECOND });
                    self.later(process, pause, Act::Campaign(part));
                }
            }
            Notice::Closed => {
                self.processes[process].closed = true;
                if !self.closing {
                    self.reopen_later(process);
                }
            }
            Notice::Leader(sighting) => self.sighted(process, sighting)?,
            Notice::Endangered(_) | Notice::Listed(_) | Notice::Trouble(_) => {}
        }
        Ok(())
    }

    fn sighted(&mut self, process: usize, sighting: Sighting) -> Result<(), Broken> {
        let parts = &mut self.processes[process].parts;
        let of = |part: &&mut Part| part.sight.observation == Some(sighting.election);
        let Some(Part { sight, .. }) = parts.iter_mut().find(of) else { return Ok(()) };
        sight.leader = sighting.leader.map(|leader| leader.created);
        if let Some(epoch) = sight.leader {
            if epoch < sight.newest && !self.laws.lost_data {
                return Err(Law::Observed.broken(format!(
                    "process {process} is told of epoch {epoch} after one of {}",
                    sight.newest
                )));
            }
            sight.newest = epoch;
        }
        Ok(())
    }

    /// Whether all who follow an election see who leads.
    ///
    /// # Errors
    ///
    /// Who does not.
    pub fn check_sights(&self, office: usize) -> Result<(), Broken> {
        let leader = self.candidates(office).first().map(|entry| entry.created);
        for (process, it) in self.processes.iter().enumerate() {
            let sight = &it.parts[office].sight;
            if sight.observation.is_some() && sight.leader != leader {
                return Err(Law::Observed.broken(format!(
                    "process {process} sees {:?} lead, and it is {leader:?}",
                    sight.leader
                )));
            }
        }
        Ok(())
    }

    fn part(&self, process: usize, election: ElectionId) -> Option<usize> {
        let of = |part: &Part| {
            part.election == Some(election)
                || part
                    .term
                    .as_ref()
                    .is_some_and(|term| !term.orphan && term.leadership.term.election == election)
        };
        self.processes[process].parts.iter().position(of)
    }

    fn elected(&mut self, process: usize, now: Mark, leadership: Leadership) -> Result<(), Broken> {
        self.run.terms += 1;
        let Term { election, epoch } = leadership.term;
        let Some(part) = self.part(process, election) else { return Ok(()) };
        let it = &self.processes[process].parts[part];
        if let Some(term) = &it.term {
            return Err(Law::YieldedFirst.broken(format!(
                "process {process} leads in epoch {epoch}, and its work of epoch {} has not \
                 stopped",
                term.leadership.term.epoch
            )));
        }
        self.laws.elected(process, now, part, it.newest, &leadership)?;
        let it = &mut self.processes[process].parts[part];
        it.newest = epoch;
        it.term = Some(Tenure { leadership, over: false, orphan: false });
        self.check_alone(process, part, epoch)?;
        let hold = self.rng.u64(..2 * self.plan.term);
        self.later(process, hold, Act::Retire(part, epoch));
        let pause = self.rng.u64(..100 * MILLISECOND);
        self.later(process, pause, Act::Work(part, epoch));
        Ok(())
    }
}

/// The key of an election's counter.
pub fn counter(part: usize) -> Vec<u8> {
    format!("/counter/{part}").into_bytes()
}
