//! The picture: what has been observed, and nothing else. It is fed with what the
//! candidates report, with what was done to them, and with what the store says; the
//! terminal, the story and the SVG are drawn from it.

use std::time::Duration;

use incumbent::Mark;

use super::notes::{self, Note};
use super::report::{Outcome, Report};

/// Marks are those of the boot clock.
#[derive(Clone, Debug)]
pub struct Picture {
    pub start: Mark,
    pub candidates: Vec<Candidate>,
    pub notes: Vec<Note>,
    /// Who leads, as the store has it.
    pub leader: Option<Place>,
    /// The line, as the store has it, the leader first.
    pub line: Vec<Place>,
    /// The counter, as it was last read.
    pub counter: Option<u64>,
}

/// A place in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub name: String,
    pub epoch: i64,
}

/// A candidate, over all of its lives.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    pub pid: u32,
    pub lives: Vec<Life>,
    pub terms: Vec<Term>,
    pub writes: Vec<Write>,
}

/// One process, from its start to its end.
#[derive(Clone, Debug)]
pub struct Life {
    pub from: Mark,
    /// When it was in line for the first time.
    pub joined: Option<Mark>,
    pub pauses: Vec<Pause>,
    /// When it was asked to stop.
    pub asked: Option<Mark>,
    pub killed: Option<Mark>,
    /// When it was seen to have ended.
    pub ended: Option<Mark>,
}

#[derive(Clone, Copy, Debug)]
pub struct Pause {
    pub from: Mark,
    pub to: Option<Mark>,
}

/// A term of leadership, as the candidate has it.
#[derive(Clone, Debug)]
pub struct Term {
    pub epoch: i64,
    pub from: Mark,
    /// Its own deadline, as extended until now.
    pub valid_until: Mark,
    /// What it had ahead when it was last extended.
    pub length: Duration,
    /// When its work had stopped, of its own accord.
    pub stopped: Option<Mark>,
    /// What was done to it that ended the term.
    pub blow: Option<Blow>,
}

/// What ends a term, and when it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    Stop(Mark),
    Kill(Mark),
    Pause(Mark),
}

/// A write of the counter.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Mark,
    pub epoch: i64,
    pub value: u64,
    /// In a term that its own candidate held to be over.
    pub is_late: bool,
    /// None if nobody has heard of it, perhaps yet.
    pub outcome: Option<Outcome>,
}

/// What a candidate is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    Waiting,
    Leading,
    Asleep,
    Stopping,
    Killed,
    Stopped,
}

impl Term {
    /// When the candidate itself stopped regarding itself as leader, or will: the
    /// deadline, unless its work stopped before. A candidate that was killed is not
    /// given credit for its death.
    pub fn end(&self) -> Mark {
        self.stopped.map_or(self.valid_until, |stopped| stopped.min(self.valid_until))
    }

    pub fn is_on(&self, now: Mark) -> bool {
        now < self.end()
    }
}

impl Life {
    /// When nothing more was to be expected of it.
    pub fn end(&self) -> Option<Mark> {
        self.killed.or(self.ended)
    }

    pub fn is_asleep(&self) -> bool {
        self.pauses.last().is_some_and(|pause| pause.to.is_none())
    }
}

impl Write {
    pub fn is_accepted(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Accepted { .. }))
    }

    pub fn is_refused(&self) -> bool {
        self.outcome == Some(Outcome::Refused)
    }
}

impl Candidate {
    pub fn life(&self) -> Option<&Life> {
        self.lives.last()
    }

    /// Its process runs, or sleeps.
    pub fn is_alive(&self) -> bool {
        self.life().is_some_and(|life| life.end().is_none())
    }

    pub fn is_asleep(&self) -> bool {
        self.is_alive() && self.life().is_some_and(Life::is_asleep)
    }

    /// Nothing is left of it: it may start again.
    pub fn is_gone(&self) -> bool {
        self.life().is_none_or(|life| life.ended.is_some())
    }

    /// It has ended by itself.
    pub fn fell(&self) -> bool {
        self.life().is_some_and(|life| {
            life.ended.is_some() && life.asked.is_none() && life.killed.is_none()
        })
    }

    /// Its newest term, if that is of its present life.
    pub fn term(&self) -> Option<&Term> {
        let life = self.life()?;
        self.terms.last().filter(|term| term.from >= life.from)
    }

    /// Whether it has a term that is over, to write late in.
    pub fn has_past_term(&self, now: Mark) -> bool {
        let Some(life) = self.life() else { return false };
        self.is_alive() && self.terms.iter().any(|term| term.from >= life.from && !term.is_on(now))
    }

    pub fn state(&self, now: Mark) -> State {
        let Some(life) = self.life() else { return State::Stopped };
        if life.killed.is_some() {
            State::Killed
        } else if life.ended.is_some() {
            State::Stopped
        } else if life.is_asleep() {
            State::Asleep
        } else if life.asked.is_some() {
            State::Stopping
        } else if self.term().is_some_and(|term| term.is_on(now)) {
            State::Leading
        } else if life.joined.is_some() {
            State::Waiting
        } else {
            State::Starting
        }
    }

    pub fn accepted(&self) -> usize {
        self.writes.iter().filter(|write| write.is_accepted()).count()
    }

    pub fn refused(&self) -> usize {
        self.writes.iter().filter(|write| write.is_refused()).count()
    }

    fn living(&mut self) -> Option<&mut Life> {
        self.lives.last_mut().filter(|life| life.end().is_none())
    }

    /// What was done ends the term that stands, the first such thing.
    fn strike(&mut self, now: Mark, blow: Blow) {
        let from = self.lives.last().map_or(0, |life| life.from);
        if let Some(term) = self.terms.last_mut()
            && term.from >= from
            && term.is_on(now)
            && term.blow.is_none()
        {
            term.blow = Some(blow);
        }
    }
}

impl Picture {
    pub fn new(start: Mark) -> Self {
        Self {
            start,
            candidates: Vec::new(),
            notes: Vec::new(),
            leader: None,
            line: Vec::new(),
            counter: None,
        }
    }

    pub fn get(&self, who: usize) -> Option<&Candidate> {
        self.candidates.get(who)
    }

    /// All terms, the oldest first, and whose they are.
    pub fn terms(&self) -> Vec<(&Candidate, &Term)> {
        let mut terms: Vec<_> = self
            .candidates
            .iter()
            .flat_map(|candidate| candidate.terms.iter().map(move |term| (candidate, term)))
            .collect();
        terms.sort_by_key(|(_, term)| term.from);
        terms
    }

    /// Who leads by its own clock.
    pub fn leading(&self, now: Mark) -> Option<usize> {
        // The newest: one that sleeps may have a while left that it cannot use.
        let standing = self.candidates.iter().enumerate().filter_map(|(who, candidate)| {
            let term = candidate.term().filter(|term| term.is_on(now))?;
            candidate.is_alive().then_some((term.epoch, who))
        });
        standing.max().map(|(_, who)| who)
    }

    pub fn accepted(&self) -> usize {
        self.candidates.iter().map(Candidate::accepted).sum()
    }

    pub fn refused(&self) -> usize {
        self.candidates.iter().map(Candidate::refused).sum()
    }

    // What was done.

    /// A process was started: of a candidate that is new, or back.
    pub fn started(&mut self, name: &str, pid: u32, at: Mark) -> usize {
        let life = Life {
            from: at,
            joined: None,
            pauses: Vec::new(),
            asked: None,
            killed: None,
            ended: None,
        };
        let known = self.candidates.iter().position(|candidate| candidate.name == name);
        let who = known.unwrap_or(self.candidates.len());
        match self.candidates.get_mut(who) {
            Some(candidate) => {
                candidate.pid = pid;
                candidate.lives.push(life);
            }
            None => self.candidates.push(Candidate {
                name: name.to_owned(),
                pid,
                lives: vec![life],
                terms: Vec::new(),
                writes: Vec::new(),
            }),
        }
        who
    }

    pub fn killed(&mut self, who: usize, at: Mark) {
        self.note(notes::killed(self, who, at));
        let Some(candidate) = self.candidates.get_mut(who) else { return };
        candidate.strike(at, Blow::Kill(at));
        if let Some(life) = candidate.living() {
            life.killed = Some(at);
        }
    }

    pub fn asked(&mut self, who: usize, at: Mark) {
        self.note(notes::asked(self, who, at));
        let Some(candidate) = self.candidates.get_mut(who) else { return };
        candidate.strike(at, Blow::Stop(at));
        if let Some(life) = candidate.living() {
            life.asked = Some(at);
        }
    }

    pub fn paused(&mut self, who: usize, at: Mark) {
        self.note(notes::paused(self, who, at));
        let Some(candidate) = self.candidates.get_mut(who) else { return };
        candidate.strike(at, Blow::Pause(at));
        if let Some(life) = candidate.living() {
            life.pauses.push(Pause { from: at, to: None });
        }
    }

    pub fn resumed(&mut self, who: usize, at: Mark) {
        self.note(notes::resumed(self, who, at));
        let Some(candidate) = self.candidates.get_mut(who) else { return };
        if let Some(pause) = candidate.living().and_then(|life| life.pauses.last_mut()) {
            pause.to.get_or_insert(at);
        }
        // A term that is renewed after all was not ended by it.
        if let Some(term) = candidate.terms.last_mut()
            && matches!(term.blow, Some(Blow::Pause(_)))
            && term.is_on(at)
        {
            term.blow = None;
        }
    }

    pub fn told_to_write_late(&mut self, who: usize, at: Mark) {
        self.note(notes::told_to_write_late(self, who, at));
    }

    /// What was asked for cannot be done.
    pub fn remark(&mut self, at: Mark, sentence: impl Into<String>) {
        self.note(Some(Note::remark(at, sentence)));
    }

    // What was observed.

    pub fn reported(&mut self, who: usize, report: Report, at: Mark) {
        self.note(notes::reported(self, who, &report, at));
        let Some(candidate) = self.candidates.get_mut(who) else { return };
        match report {
            Report::Joined { at, .. } => {
                if let Some(life) = candidate.lives.last_mut() {
                    life.joined.get_or_insert(at);
                }
            }
            Report::Elected { at, epoch, valid_until } => candidate.terms.push(Term {
                epoch,
                from: at,
                valid_until,
                length: Duration::from_nanos(valid_until.saturating_sub(at)),
                stopped: None,
                blow: None,
            }),
            Report::Extended { at, epoch, valid_until } => {
                if let Some(term) = last(&mut candidate.terms, |term| term.epoch == epoch) {
                    term.valid_until = term.valid_until.max(valid_until);
                    term.length = Duration::from_nanos(valid_until.saturating_sub(at));
                }
            }
            Report::Stopped { at, epoch } => {
                if let Some(term) = last(&mut candidate.terms, |term| term.epoch == epoch) {
                    term.stopped.get_or_insert(at);
                }
            }
            Report::Writing { at, epoch, value, is_late } => {
                candidate.writes.push(Write { at, epoch, value, is_late, outcome: None });
            }
            Report::Written { epoch, value, outcome, .. } => {
                let asked = |write: &Write| {
                    write.epoch == epoch && write.value == value && write.outcome.is_none()
                };
                if let Some(write) = last(&mut candidate.writes, asked) {
                    write.outcome = Some(outcome);
                }
            }
            Report::Ended => {
                if let Some(life) = candidate.lives.last_mut() {
                    life.ended.get_or_insert(at);
                }
            }
            Report::Demoted { .. } | Report::NothingToWriteLate { .. } | Report::Trouble(_) => {}
        }
    }

    fn note(&mut self, note: Option<Note>) {
        self.notes.extend(note);
    }
}

fn last<T>(all: &mut [T], is_it: impl Fn(&T) -> bool) -> Option<&mut T> {
    all.iter_mut().rev().find(|one| is_it(one))
}
