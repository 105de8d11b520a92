//! What the elector tells its application.

use incumbent_guest::types::*;

use super::{Act, Habit};
use crate::client::HeldTerm;
use crate::history::Outcome;
use crate::laws::{Broken, Law};
use crate::world::World;
use crate::{MILLISECOND, SECOND};

impl World<'_> {
    /// Takes what an elector tells its application.
    pub fn notice(&mut self, process: usize, now: Mark, notice: Notice) -> Result<(), Broken> {
        match notice {
            Notice::Joined(joined) => {
                self.run.joined += 1;
                if let Some(part) = self.current(process, joined.election) {
                    let it = &mut self.processes[process].parts[part];
                    let place = it.place.replace(joined.clone());
                    it.rival &= joined.created == 0;
                    self.laws.joined(process, self.now, place, &joined, &self.cluster.store)?;
                }
            }
            Notice::Elected(leadership) => self.elected(process, now, leadership)?,
            Notice::Extended(extension) => {
                self.laws.extended(process, now, extension.lease, extension.valid_until)?;
                self.processes[process].terms.extend(now, &extension)?;
            }
            Notice::Demoted(Demotion { term, reason }) => {
                self.run.ended(&reason);
                if let Some(part) = self.part(process, term.election)
                    && self.processes[process].terms.change(part, term.epoch, |it| it.over = true)
                {
                    self.stop_soon(process, part, term.epoch);
                }
            }
            Notice::Written(Written { ticket, outcome }) => {
                let it = &mut self.processes[process];
                it.tickets.remove(&ticket);
                if let Some(increment) = it.writes.remove(&ticket) {
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
            Notice::Withdrawn(Withdrawal { election, cause }) => {
                self.withdrawn(process, election, cause)?;
            }
            Notice::Closed => {
                let it = &mut self.processes[process];
                it.closed = true;
                if let Some(ticket) = it.tickets.keys().next() {
                    return Err(Law::Answered.broken(format!(
                        "process {process} has closed, and ticket {ticket} is open"
                    )));
                }
                if !self.closing {
                    self.reopen_later(process);
                }
            }
            Notice::Endangered(Leadership { term, .. }) => {
                if let Some(part) = self.part(process, term.election) {
                    let terms = &mut self.processes[process].terms;
                    terms.change(part, term.epoch, |it| it.endangered = true);
                }
            }
            Notice::HandOver(term) => {
                self.run.hand_overs += 1;
                let part = self.part(process, term.election);
                if let Some(part) = part {
                    let next = self.first_two(part).get(1).copied();
                    let terms = &mut self.processes[process].terms;
                    terms.change(part, term.epoch, |it| it.hands_over_to = next);
                }
                if let Some(part) = part
                    && self.term(process, part, term.epoch).is_some_and(|term| !term.over)
                    && !self.calm
                {
                    self.tell(process, Event::Resign(term));
                }
            }
            Notice::Leader(sighting) => self.sighted(process, sighting)?,
            Notice::Listed(_) | Notice::Trouble(_) => {}
        }
        Ok(())
    }

    fn withdrawn(
        &mut self,
        process: usize,
        election: ElectionId,
        cause: Option<Failure>,
    ) -> Result<(), Broken> {
        // Nobody campaigns twice at once, and no name or value is out of bounds.
        if let Some(Failure::Invalid(sentence)) = cause
            && !self.processes[process].closing
        {
            return Err(Law::Admitted.broken(format!(
                "process {process} campaigns as {election}, and is refused: {sentence}"
            )));
        }
        let it = &mut self.processes[process];
        if let Some(part) = it.part(election) {
            it.parts[part].left.retain(|left| *left != election);
        }
        if let Some(part) = self.current(process, election) {
            let it = &mut self.processes[process].parts[part];
            it.election = None;
            it.place = None;
            it.rival = false;
            let pause = self.rng.u64(..if self.calm { 100 * MILLISECOND } else { 5 * SECOND });
            self.later(process, pause, Act::Campaign(part));
        }
        Ok(())
    }

    fn sighted(&mut self, process: usize, sighting: Sighting) -> Result<(), Broken> {
        let it = &mut self.processes[process];
        if let Some(part) = it.current(sighting.election) {
            it.parts[part].rival = sighting.leader.is_some();
            return Ok(());
        }
        let Some(part) = it.part(sighting.election) else { return Ok(()) };
        let sight = &mut it.parts[part].sight;
        if sight.observation != Some(sighting.election) {
            return Ok(());
        }
        sight.leader = sighting.leader.map(|leader| leader.created);
        if let Some(epoch) = sight.leader {
            // Who was never told of the first key takes the second one for the leader's.
            if epoch < sight.newest && !self.laws.lost_data && self.run.lost_news == 0 {
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
    pub fn check_sights(&self, election: usize) -> Result<(), Broken> {
        let leader = self.candidates(election).first().map(|entry| entry.created);
        for (process, it) in self.processes.iter().enumerate() {
            let sight = &it.parts[election].sight;
            if sight.observation.is_some() && sight.leader != leader {
                return Err(Law::Observed.broken(format!(
                    "process {process} sees {:?} lead, and it is {leader:?}",
                    sight.leader
                )));
            }
        }
        Ok(())
    }

    /// The part whose present candidacy this is.
    pub fn current(&self, process: usize, election: ElectionId) -> Option<usize> {
        self.processes[process].current(election)
    }

    /// The part whose candidacy this is or was, as long as it has not ended.
    pub(super) fn part(&self, process: usize, election: ElectionId) -> Option<usize> {
        let it = &self.processes[process];
        let of = |term: &HeldTerm| !term.orphan && term.leadership.term.election == election;
        it.part(election).filter(|&part| {
            it.parts[part].election == Some(election)
                || it.parts[part].left.contains(&election)
                || it.terms.of(part).is_some_and(of)
        })
    }

    fn elected(&mut self, process: usize, now: Mark, leadership: Leadership) -> Result<(), Broken> {
        self.run.terms += 1;
        let Term { election, epoch } = leadership.term;
        let Some(part) = self.part(process, election) else { return Ok(()) };
        let newest = self.processes[process].parts[part].newest;
        if let Some(term) = self.processes[process].terms.of(part) {
            return Err(Law::YieldedFirst.broken(format!(
                "process {process} leads in epoch {epoch}, and its work of epoch {} has not \
                 stopped",
                term.leadership.term.epoch
            )));
        }
        self.laws.elected(process, now, part, newest, &leadership)?;
        self.check_alone(process, part, epoch)?;
        if part == 0 {
            self.note_elected();
        }
        let dropped = self.processes[process].parts[part].election != Some(election);
        let habit = self.processes[process].parts[part].habit;
        let drops = habit == Habit::Drops && !dropped && !self.calm && self.rng.bool();
        let it = &mut self.processes[process].parts[part];
        (it.newest, it.led_as) = (epoch, Some(election));
        if dropped || drops {
            // Nobody has heard of this term or works in it, and the host says so.
            let first = self.rng.bool();
            if drops && first {
                self.drop_candidacy(process, part);
            }
            self.tell(process, Event::Yielded(leadership.term));
            if drops && !first {
                self.drop_candidacy(process, part);
            }
            return Ok(());
        }
        self.processes[process].terms.begin(part, HeldTerm::new(leadership));
        let hold = self.rng.u64(..2 * self.plan.term);
        self.later(process, hold, Act::Retire(part, epoch));
        let pause = self.rng.u64(..100 * MILLISECOND);
        self.later(process, pause, Act::Work(part, epoch));
        Ok(())
    }
}
