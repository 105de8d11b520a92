//! What has been observed, and nothing else: what the candidates report, what was done to
//! them, and what the store says. Marks are those of the boot clock.

use incumbent::Mark;

use crate::report::{Outcome, Report};

#[derive(Clone, Debug, Default)]
pub struct Record {
    pub start: Mark,
    pub candidates: Vec<Candidate>,
    /// The queue, as the store has it, the leader first.
    pub queue: Vec<Place>,
    /// The counter, as it was last read.
    pub counter: Option<u64>,
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub name: String,
    pub epoch: i64,
}

/// A candidate, over all of its lives.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    pub name: String,
    pub pid: u32,
    pub lives: Vec<Life>,
    pub terms: Vec<Term>,
    pub writes: Vec<Write>,
}

/// One process, from its start to its end.
#[derive(Clone, Debug, Default)]
pub struct Life {
    pub from: Mark,
    /// When it was in line for the first time.
    pub joined: Option<Mark>,
    pub pauses: Vec<Pause>,
    /// When it was asked to stop.
    pub asked: Option<Mark>,
    pub killed: Option<Mark>,
    /// When its end was seen.
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
    /// How much it had ahead when it was last extended, in nanoseconds.
    pub length: u64,
    /// When its work had stopped, of its own accord.
    pub stopped: Option<Mark>,
    /// What was done to its candidate that ended the term, and when.
    pub ended_by: Option<(Action, Mark)>,
}

/// What is done to a candidate. The first three end its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Stop,
    Kill,
    Pause,
    Resume,
    WriteLate,
}

/// A write of the counter.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Mark,
    pub epoch: i64,
    pub value: u64,
    /// Made in a term that was over by the candidate's own clock.
    pub is_late: bool,
    /// None if it is not known, perhaps yet.
    pub outcome: Option<Outcome>,
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

    fn extend(&mut self, at: Mark, valid_until: Mark) {
        self.valid_until = self.valid_until.max(valid_until);
        self.length = valid_until.saturating_sub(at);
    }
}

impl Life {
    /// When it was killed, or else ended.
    pub fn end(&self) -> Option<Mark> {
        self.killed.or(self.ended)
    }

    fn is_paused(&self) -> bool {
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

    pub fn is_paused(&self) -> bool {
        self.is_alive() && self.life().is_some_and(Life::is_paused)
    }

    /// Its process has ended: it may start again.
    pub fn is_gone(&self) -> bool {
        self.life().is_none_or(|life| life.ended.is_some())
    }

    /// It has ended, and nobody has asked for that.
    pub fn has_failed(&self) -> bool {
        self.is_gone()
            && self.life().is_some_and(|life| life.asked.is_none() && life.killed.is_none())
    }

    /// Its newest term, if that is of its present life.
    pub fn term(&self) -> Option<&Term> {
        let life = self.life()?;
        self.terms.last().filter(|term| term.from >= life.from)
    }

    /// The term in which it leads by its own clock, whether it is awake or not.
    pub fn leads(&self, now: Mark) -> Option<&Term> {
        self.term().filter(|term| term.is_on(now))
    }

    /// Whether it has a term that is over, to write late in.
    pub fn has_past_term(&self, now: Mark) -> bool {
        let Some(life) = self.life() else { return false };
        self.is_alive() && self.terms.iter().any(|term| term.from >= life.from && !term.is_on(now))
    }

    pub fn accepted(&self) -> usize {
        self.writes.iter().filter(|write| write.is_accepted()).count()
    }

    pub fn refused(&self) -> usize {
        self.writes.iter().filter(|write| write.is_refused()).count()
    }
}

impl Record {
    pub fn get(&self, who: usize) -> Option<&Candidate> {
        self.candidates.get(who)
    }

    pub fn named(&self, name: &str) -> Option<usize> {
        self.candidates.iter().position(|candidate| candidate.name == name)
    }

    /// All terms, the oldest first, and whose they are.
    pub fn terms(&self) -> Vec<(&Candidate, &Term)> {
        let of = |candidate| move |term| (candidate, term);
        let all = self.candidates.iter();
        let mut terms: Vec<_> = all.flat_map(|one| one.terms.iter().map(of(one))).collect();
        terms.sort_by_key(|(_, term)| term.from);
        terms
    }

    /// The epochs of all terms, as people read them.
    pub fn epochs(&self) -> String {
        let terms = self.terms();
        let epochs: Vec<_> = terms.iter().map(|(_, term)| term.epoch.to_string()).collect();
        epochs.join(" < ")
    }

    /// Who leads by its own clock, and in which term. The newest: a paused one may have a
    /// while left that it cannot use.
    pub fn leading(&self, now: Mark) -> Option<(usize, &Candidate, &Term)> {
        let alive = self.candidates.iter().enumerate().filter(|(_, one)| one.is_alive());
        alive
            .filter_map(|(who, candidate)| Some((who, candidate, candidate.leads(now)?)))
            .max_by_key(|(who, _, term)| (term.epoch, *who))
    }

    pub fn accepted(&self) -> usize {
        self.candidates.iter().map(Candidate::accepted).sum()
    }

    pub fn refused(&self) -> usize {
        self.candidates.iter().map(Candidate::refused).sum()
    }

    /// A process was started: of a candidate that is new, or back.
    pub fn started(&mut self, name: &str, pid: u32, at: Mark) -> usize {
        let who = self.named(name).unwrap_or(self.candidates.len());
        if who == self.candidates.len() {
            self.candidates.push(Candidate { name: name.to_owned(), ..Candidate::default() });
        }
        if let Some(candidate) = self.candidates.get_mut(who) {
            candidate.pid = pid;
            candidate.lives.push(Life { from: at, ..Life::default() });
        }
        who
    }

    pub fn done(&mut self, who: usize, action: Action, at: Mark) {
        let Some(candidate) = self.candidates.get_mut(who) else { return };
        let Some(life) = candidate.lives.last_mut().filter(|life| life.end().is_none()) else {
            return;
        };
        let term = candidate.terms.last_mut();
        let term = term.filter(|term| term.from >= life.from && term.is_on(at));
        match action {
            Action::Stop => life.asked = Some(at),
            Action::Kill => life.killed = Some(at),
            Action::Pause => life.pauses.push(Pause { from: at, to: None }),
            Action::Resume => {
                life.pauses.last_mut().map(|pause| pause.to.get_or_insert(at));
                // A term that is renewed after all was not ended by the pause.
                term.map(|term| term.ended_by.take_if(|(action, _)| *action == Action::Pause));
                return;
            }
            Action::WriteLate => return,
        }
        term.map(|term| term.ended_by.get_or_insert((action, at)));
    }

    /// `now` is when the report was read.
    pub fn reported(&mut self, who: usize, report: &Report, now: Mark) {
        let Some(candidate) = self.candidates.get_mut(who) else { return };
        let life = candidate.lives.last_mut();
        let mut terms = candidate.terms.iter_mut().rev();
        match *report {
            Report::Joined { at, .. } => {
                life.map(|life| life.joined.get_or_insert(at));
            }
            Report::Ended => {
                life.map(|life| life.ended.get_or_insert(now));
            }
            Report::Elected { at, epoch, valid_until } => {
                let (stopped, ended_by) = (None, None);
                let mut term = Term { epoch, from: at, valid_until, length: 0, stopped, ended_by };
                term.extend(at, valid_until);
                candidate.terms.push(term);
            }
            Report::Extended { at, epoch, valid_until } => {
                let term = terms.find(|term| term.epoch == epoch);
                term.into_iter().for_each(|term| term.extend(at, valid_until));
            }
            Report::Stopped { at, epoch } => {
                let term = terms.find(|term| term.epoch == epoch);
                term.map(|term| term.stopped.get_or_insert(at));
            }
            Report::Writing { at, epoch, value, is_late } => {
                candidate.writes.push(Write { at, epoch, value, is_late, outcome: None });
            }
            Report::Written { epoch, value, ref outcome, .. } => {
                let asked = |write: &&mut Write| {
                    (write.epoch, write.value) == (epoch, value) && write.outcome.is_none()
                };
                let write = candidate.writes.iter_mut().rev().find(asked);
                write.into_iter().for_each(|write| write.outcome = Some(outcome.clone()));
            }
            Report::Demoted { .. } | Report::NothingToWriteLate { .. } | Report::Trouble(_) => {}
        }
    }
}
