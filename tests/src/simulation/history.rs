//! What leaders count together: a counter that each of them reads, and writes one
//! higher, under its guard. Was each increment that was acknowledged made once, and
//! none by anyone who was refused?

use std::collections::HashSet;

use incumbent_guest::types::Mark;

/// Increments of any number of counters.
#[derive(Debug, Default)]
pub struct History {
    increments: Vec<Increment>,
}

#[derive(Clone, Copy, Debug)]
struct Increment {
    process: usize,
    counter: usize,
    began: Mark,
    /// When it was read, and what.
    read: Option<(Mark, u64)>,
    ended: Option<(Mark, Outcome)>,
}

/// What became of an increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Applied,
    /// It may have been made, or be made yet.
    Unknown,
    /// It was not made.
    Nothing,
}

/// Something that has to fit into one order: it took effect between two marks.
#[derive(Clone, Copy, Debug)]
struct Action {
    began: Mark,
    /// None if it may take effect at any time, or never.
    ended: Option<Mark>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The counter had this value.
    Read(u64),
    /// The counter had this value, and was one higher from then on.
    Increment(u64),
}

impl History {
    /// Somebody is about to read a counter, to write it one higher.
    pub fn begin(&mut self, process: usize, counter: usize, now: Mark) -> usize {
        self.increments.push(Increment { process, counter, began: now, read: None, ended: None });
        self.increments.len() - 1
    }

    /// It had this value.
    pub fn read(&mut self, increment: usize, now: Mark, value: u64) {
        if let Some(increment) = self.increments.get_mut(increment) {
            increment.read = Some((now, value));
        }
    }

    /// This is what became of it.
    pub fn end(&mut self, increment: usize, now: Mark, outcome: Outcome) {
        if let Some(increment) = self.increments.get_mut(increment) {
            increment.ended.get_or_insert((now, outcome));
        }
    }

    /// A process is gone: what it did not hear of may have happened, or happen yet.
    pub fn abandon(&mut self, process: usize, now: Mark) {
        for increment in &mut self.increments {
            if increment.process == process {
                increment.ended.get_or_insert((now, Outcome::Unknown));
            }
        }
    }

    /// How many increments were acknowledged.
    pub fn applied(&self) -> usize {
        let applied = |increment: &&Increment| {
            increment.ended.is_some_and(|(_, outcome)| outcome == Outcome::Applied)
        };
        self.increments.iter().filter(applied).count()
    }

    /// Whether there is an order in which each acknowledged increment was made once,
    /// every read saw what was true, and the counter ended at `last`.
    pub fn is_linearizable(&self, counter: usize, last: u64) -> bool {
        let mut actions = Vec::new();
        for increment in self.increments.iter().filter(|increment| increment.counter == counter) {
            let Some((read, value)) = increment.read else { continue };
            actions.push(Action {
                began: increment.began,
                ended: Some(read),
                kind: Kind::Read(value),
            });
            let ended = match increment.ended {
                Some((at, Outcome::Applied)) => Some(at),
                Some((_, Outcome::Nothing)) => continue,
                Some((_, Outcome::Unknown)) | None => None,
            };
            actions.push(Action { began: read, ended, kind: Kind::Increment(value) });
        }
        let end = actions.iter().flat_map(|action| [Some(action.began), action.ended]).flatten();
        let end = end.max().unwrap_or(0) + 1;
        actions.push(Action { began: end, ended: Some(end + 1), kind: Kind::Read(last) });
        is_linearizable(actions)
    }
}

/// Wing and Gong's search, which remembers where it was: one by one, takes any
/// action that began before all others that are left have ended.
fn is_linearizable(mut actions: Vec<Action>) -> bool {
    actions.sort_by_key(|action| action.began);
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0_u64; actions.len().div_ceil(64)], 0_u64)];
    while let Some((taken, value)) = open.pop() {
        let is_taken = |index: usize| taken[index / 64] >> (index % 64) & 1 == 1;
        let left = || (0..actions.len()).filter(|&index| !is_taken(index));
        let Some(first_end) = left().filter_map(|index| actions[index].ended).min() else {
            return true;
        };
        for index in left().take_while(|&index| actions[index].began < first_end) {
            let next = match actions[index].kind {
                Kind::Read(read) if read == value => value,
                Kind::Increment(from) if from == value => value + 1,
                Kind::Read(_) | Kind::Increment(_) => continue,
            };
            let mut taken = taken.clone();
            taken[index / 64] |= 1 << (index % 64);
            if seen.insert((taken.clone(), next)) {
                open.push((taken, next));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(increments: &[(usize, Mark, Mark, u64, Mark, Outcome)]) -> History {
        let mut history = History::default();
        for &(process, began, read, value, ended, outcome) in increments {
            let increment = history.begin(process, 0, began);
            history.read(increment, read, value);
            history.end(increment, ended, outcome);
        }
        history
    }

    #[test]
    fn one_after_the_other() {
        let history =
            history(&[(0, 1, 2, 0, 3, Outcome::Applied), (1, 4, 5, 1, 6, Outcome::Applied)]);
        assert!(history.is_linearizable(0, 2));
        assert!(!history.is_linearizable(0, 1), "the second one would be lost");
    }

    #[test]
    fn two_that_saw_the_same_cannot_both_have_been_made() {
        let history =
            history(&[(0, 1, 2, 0, 9, Outcome::Applied), (1, 1, 3, 0, 9, Outcome::Applied)]);
        assert!(!history.is_linearizable(0, 1));
        assert!(!history.is_linearizable(0, 2));
    }

    #[test]
    fn one_of_unknown_outcome_may_be_made_late_or_never() {
        let history =
            history(&[(0, 1, 2, 0, 3, Outcome::Unknown), (1, 4, 5, 0, 6, Outcome::Nothing)]);
        assert!(history.is_linearizable(0, 0));
        assert!(history.is_linearizable(0, 1));
        assert!(!history.is_linearizable(0, 2));
    }

    #[test]
    fn what_was_refused_was_not_made() {
        let history = history(&[(0, 1, 2, 0, 3, Outcome::Nothing)]);
        assert!(history.is_linearizable(0, 0));
        assert!(!history.is_linearizable(0, 1));
    }
}
