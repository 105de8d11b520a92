//! What the applications do: they campaign, work while they lead, and stop, more or
//! less quickly, when they are told to.

use incumbent_guest::types::*;

use super::client::HeldTerm;
use super::history::Outcome;
use super::laws::{Broken, Law, judge};
use super::plan::{Election, Flaw};
use super::world::{Process, Request, Sender, World};
use super::{MILLISECOND, SECOND};

mod notices;
mod terms;

pub use terms::{Standing, Terms};

/// A process's part in one election.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The candidacy; none while the process takes no part.
    pub election: Option<ElectionId>,
    /// Candidacies that were dropped, or whose term is over, and have not ended yet.
    left: Vec<ElectionId>,
    habit: Habit,
    /// It will not campaign again.
    retired: bool,
    /// The last place in line that was announced.
    pub place: Option<Joined>,
    /// Somebody else has the one key of a race, as its candidacy was told.
    pub rival: bool,
    /// The last epoch in which it led, with its present elector.
    pub newest: Epoch,
    /// The last candidacy in which it led.
    pub led_as: Option<ElectionId>,
    /// What it sees as an observer.
    pub sight: Sight,
    /// A try to increment that reads, and when it is given up.
    pub reading: Option<(usize, Mark)>,
}

/// How an application campaigns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Habit {
    /// It stays in line, or campaigns again once its candidacy has ended.
    #[default]
    Stays,
    /// A candidacy for each term; the next one begins as soon as the work of the last
    /// one has stopped, as the library's `lead` has it.
    Loops,
    /// It drops its candidacy at any moment, and campaigns again.
    Drops,
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

/// What an application does by itself.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// It campaigns, if it does not.
    Campaign(usize),
    /// It drops this candidacy.
    Drop(usize, ElectionId),
    /// It changes what others read of it.
    Proclaim(usize),
    /// It works in a term.
    Work(usize, Epoch),
    /// It has led for long enough.
    Retire(usize, Epoch),
    /// Its work has stopped.
    Stopped(usize, Epoch),
    /// A term without an elector has come to its deadline, however it ended.
    Orphaned(usize, Epoch),
}

impl World<'_> {
    /// Takes part in an election again, with a new elector.
    pub fn come_in(&mut self, process: usize, part: usize) {
        let it = &mut self.processes[process].parts[part];
        it.election = None;
        it.left.clear();
        it.place = None;
        it.rival = false;
        it.newest = 0;
        it.led_as = None;
        let pause = self.rng.u64(..if self.calm { 100 * MILLISECOND } else { SECOND });
        self.later(process, pause, Act::Campaign(part));
    }

    /// Follows who leads in an election.
    pub fn look_on(&mut self, process: usize, part: usize) {
        let election = self.next_election(process, part);
        let Election { name, contest } = self.plan.elections[part].clone();
        let sight = Sight { observation: Some(election), ..Sight::default() };
        self.processes[process].parts[part].sight = sight;
        self.tell(process, Event::Observe(Observation { election, name, contest }));
    }

    /// Does what an application has in mind.
    pub fn act(&mut self, process: usize, act: Act) -> Result<(), Broken> {
        match act {
            Act::Campaign(part) => self.campaign(process, part),
            Act::Drop(part, election) => {
                if self.processes[process].parts[part].election == Some(election) {
                    self.drop_candidacy(process, part);
                }
            }
            Act::Proclaim(part) => self.proclaim(process, part),
            Act::Work(part, epoch) => return self.work(process, part, epoch),
            Act::Retire(part, epoch) => return self.retire(process, part, epoch),
            Act::Stopped(part, epoch) => return self.stopped(process, part, epoch),
            Act::Orphaned(part, epoch) => {
                let terms = &mut self.processes[process].terms;
                if let Some(term) = terms.of_epoch(part, epoch).filter(|term| term.orphan) {
                    if !term.over {
                        terms.change(part, epoch, |term| term.over = true);
                        self.stop_soon(process, part, epoch);
                    }
                    return self.give_back_orphaned(process);
                }
            }
        }
        Ok(())
    }

    fn term(&self, process: usize, part: usize, epoch: Epoch) -> Option<&HeldTerm> {
        self.processes[process].terms.of_epoch(part, epoch)
    }

    fn campaign(&mut self, process: usize, part: usize) {
        let it = &self.processes[process];
        if it.elector.is_none() || it.closing || self.closing {
            return;
        }
        let Part { election, retired, .. } = &it.parts[part];
        // The work of the last term has to stop first, also where its elector is gone.
        let works =
            it.terms.of(part).is_some() && self.plan.flaw != Some(Flaw::CampaignsBesideItsWork);
        if election.is_some() || works || *retired {
            return;
        }
        let election = self.next_election(process, part);
        let habit = match self.rng.u8(..8) {
            _ if self.calm => Habit::Stays,
            0..=4 => Habit::Stays,
            _ if !self.plan.drops => Habit::Stays,
            5 => Habit::Loops,
            _ => Habit::Drops,
        };
        let rejoin = self.calm || habit == Habit::Stays && self.rng.u8(..4) > 0;
        let Election { name, contest } = self.plan.elections[part].clone();
        let candidacy = Candidacy {
            election,
            name,
            contest,
            value: match self.plan.one_identity {
                true => b"process".into(),
                false => format!("process-{process}").into_bytes(),
            },
            rejoin,
            priority: self.plan.priorities.get(process).copied().unwrap_or_default(),
            preempt_after: self.plan.preempt_after,
        };
        let it = &mut self.processes[process].parts[part];
        it.election = Some(election);
        it.habit = habit;
        it.place = None;
        it.rival = false;
        self.tell(process, Event::Campaign(candidacy));
        if habit == Habit::Drops {
            // Most often while it claims and looks, else while it waits.
            let most = [10 * MILLISECOND, 100 * MILLISECOND, 20 * SECOND][self.rng.usize(..3)];
            let pause = self.rng.u64(..most);
            self.later(process, pause, Act::Drop(part, election));
        }
        if self.plan.writes && self.rng.u8(..4) == 0 {
            let pause = self.rng.u64(..10 * SECOND);
            self.later(process, pause, Act::Proclaim(part));
        }
    }

    /// Drops a candidacy that does not lead, and campaigns again: at once, soon, or never.
    fn drop_candidacy(&mut self, process: usize, part: usize) {
        if self.calm || self.processes[process].terms.of(part).is_some() {
            return;
        }
        let it = &mut self.processes[process].parts[part];
        let Some(election) = it.election.take() else { return };
        it.left.push(election);
        it.place = None;
        self.run.drops += 1;
        self.tell(process, Event::Leave(election));
        match self.rng.u8(..8) {
            0..=3 => self.campaign(process, part),
            4 => self.leave(process, part),
            _ => {
                let pause = self.rng.u64(..300 * MILLISECOND);
                self.later(process, pause, Act::Campaign(part));
            }
        }
    }

    /// Drops a candidacy for good. The first process always comes back: every election has
    /// a candidate.
    pub fn leave(&mut self, process: usize, part: usize) {
        self.processes[process].parts[part].retired |= process > 0;
        self.drop_candidacy(process, part);
    }

    /// Drops all candidacies and terms of a process at once, all terms in the same way.
    pub fn drop_all(&mut self, process: usize) -> Result<(), Broken> {
        let how = self.rng.u8(..3);
        for part in 0..self.plan.elections.len() {
            let term = self.processes[process].terms.of(part);
            match term.map(|term| (term.leadership.term, term.over || term.orphan)) {
                None => self.drop_candidacy(process, part),
                Some((_, true)) => {}
                Some((term, false)) => match how {
                    0 => self.tell(process, Event::Resign(term)),
                    1 => self.stopped(process, part, term.epoch)?,
                    _ => self.tell(process, Event::Leave(term.election)),
                },
            }
        }
        Ok(())
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
                from: None,
                created_before: None,
                order: Order::OldestFirst,
                limit: 0,
                keys_only: false,
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

    /// Law 1: nobody else regards itself as leader of the same election at this instant, or
    /// may still work as if it were.
    pub fn check_alone(&self, process: usize, part: usize, epoch: Epoch) -> Result<(), Broken> {
        if self.laws.is_meddled_with(epoch) {
            return Ok(());
        }
        for (other, it) in self.processes.iter().enumerate() {
            let Some(term) = it.terms.of(part) else { continue };
            let theirs = term.leadership.term.epoch;
            // Each deadline is a mark of its own process's clock.
            let from = it.clock.at(self.now);
            let own = incumbent_terms::Term { id: process, epoch, from, until: Mark::MAX };
            let until = term.leadership.valid_until;
            let earlier = incumbent_terms::Term { id: other, epoch: theirs, from: 0, until };
            if other != process && own.overlaps(&earlier) && !self.laws.is_meddled_with(theirs) {
                return Err(Law::OneLeader.broken(format!(
                    "process {process} leads `{}` in epoch {epoch}, and process {other} may \
                     still work in epoch {theirs}",
                    self.plan.elections[part].name
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
        let ticket = self.next_ticket(process);
        self.processes[process].writes.insert(ticket, increment);
        let modified = entry.map_or(0, |entry| entry.modified);
        let expect = Expectation { key: counter(part), modified };
        let expect = if self.plan.expectations { vec![expect] } else { Vec::new() };
        let value = (value + 1).to_string().into_bytes();
        let mutations = vec![Mutation::Put(Put { key: counter(part), value })];
        self.tell(process, Event::Write(GuardedWrite { term, ticket, expect, mutations }));
    }

    fn proclaim(&mut self, process: usize, part: usize) {
        let it = &self.processes[process];
        let Some(election) = it.parts[part].election.filter(|_| it.elector.is_some()) else {
            return;
        };
        let ticket = self.next_ticket(process);
        let value = format!("process-{process} at {}", self.now).into_bytes();
        self.tell(process, Event::Proclaim(Proclamation { election, ticket, value }));
    }

    // The ends of a term.

    fn retire(&mut self, process: usize, part: usize, epoch: Epoch) -> Result<(), Broken> {
        if self.calm {
            return Ok(());
        }
        let Some(term) = self.term(process, part, epoch).filter(|term| !term.over) else {
            return Ok(());
        };
        let (term, orphan) = (term.leadership.term, term.orphan);
        match self.rng.u8(..10) {
            6 | 7 => return self.stopped(process, part, epoch),
            // There is no elector that could be told.
            _ if orphan => {}
            8 => self.tell(process, Event::Leave(term.election)),
            9 => self.close(process),
            _ => self.tell(process, Event::Resign(term)),
        }
        Ok(())
    }

    /// Leaves everything.
    pub fn close(&mut self, process: usize) {
        let it = &mut self.processes[process];
        it.closing |= it.elector.is_some();
        self.tell(process, Event::Close);
    }

    fn stop_soon(&mut self, process: usize, part: usize, epoch: Epoch) {
        let most = if self.calm { 50 * MILLISECOND } else { self.plan.stopping };
        let pause = self.rng.u64(..most);
        self.later(process, pause, Act::Stopped(part, epoch));
    }

    fn stopped(&mut self, process: usize, part: usize, epoch: Epoch) -> Result<(), Broken> {
        let Some(stopped) = self.processes[process].terms.stop(part, epoch) else {
            return Ok(());
        };
        let term = stopped.leadership.term;
        if stopped.orphan {
            self.give_back_orphaned(process)?;
            self.come_in(process, part);
            return Ok(());
        }
        self.tell(process, Event::Yielded(term));
        self.processes[process].terms.tell_stopped(part, stopped);
        let it = &mut self.processes[process].parts[part];
        if it.habit == Habit::Loops && it.election.take_if(|it| *it == term.election).is_some() {
            it.left.push(term.election);
            it.place = None;
        }
        // Does nothing where the candidacy goes on.
        self.campaign(process, part);
        Ok(())
    }

    /// The elector is gone: terms go on to their deadlines, and its leases are given back
    /// after them.
    pub fn orphan(&mut self, process: usize) -> Result<(), Broken> {
        for (part, leadership) in self.processes[process].terms.orphan() {
            let Leadership { term, valid_until, .. } = leadership;
            self.at_mark(process, valid_until, Act::Orphaned(part, term.epoch));
        }
        self.give_back_orphaned(process)
    }

    /// Revokes the leases of an elector that broke that no term needs any more: the work
    /// of each has stopped, or its deadline has passed.
    fn give_back_orphaned(&mut self, process: usize) -> Result<(), Broken> {
        let Process { clock, terms, orphaned, .. } = &mut self.processes[process];
        let mark = clock.at(self.now);
        let needs = |term: &HeldTerm| match self.plan.flaw {
            Some(Flaw::RevokesOnceTold) => !term.over,
            Some(Flaw::CampaignsBesideItsWork) | None => term.may_work(mark),
        };
        let free = |lease: &mut LeaseId| {
            !terms.held().any(|term| term.leadership.lease == *lease && needs(term))
        };
        let free: Vec<LeaseId> = orphaned.extract_if(.., free).collect();
        for lease in free {
            let operation = Operation::Revoke(lease);
            judge(mark, &operation, self.processes[process].terms.held())?;
            self.send(Request { process, from: Sender::Host, operation });
        }
        Ok(())
    }

    /// No more faults: work stops quickly, and all who are out come in.
    pub fn be_calm(&mut self) {
        for process in 0..self.processes.len() {
            for part in 0..self.plan.elections.len() {
                let term = self.processes[process].terms.of(part);
                if let Some(term) = term.filter(|term| term.over) {
                    let epoch = term.leadership.term.epoch;
                    self.stop_soon(process, part, epoch);
                }
                self.later(process, 100 * MILLISECOND, Act::Campaign(part));
            }
        }
    }
}

/// The key of an election's counter.
pub fn counter(part: usize) -> Vec<u8> {
    format!("/counter/{part}").into_bytes()
}
