//! What leaders count together: a counter that each of them reads, and writes one
//! higher, under its guard. Was each increment that was acknowledged made once, and
//! none by anyone who was refused?

use std::collections::BTreeMap;

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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Outcome {
    /// It was made.
    Applied,
    /// It may have been made, or be made yet.
    Unknown,
    /// It was not made.
    Nothing,
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
    ///
    /// The counter only rises, so there is one order to try: the reads of 0, the
    /// increment from 0, the reads of 1, and so on. It holds if nothing in it had ended
    /// when something before it began.
    pub fn is_linearizable(&self, counter: usize, last: u64) -> bool {
        let mut values: BTreeMap<u64, Value> = BTreeMap::new();
        for increment in self.increments.iter().filter(|increment| increment.counter == counter) {
            if let Some((read, value)) = increment.read {
                values.entry(value).or_default().add(increment, read);
            }
        }
        let mut began = 0;
        for value in 0..last {
            // A process that made an increment had read the value.
            let Some(Some(next)) = values.remove(&value).map(|value| value.left(began)) else {
                return false;
            };
            began = next;
        }
        match values.pop_first() {
            None => true,
            Some((value, seen)) => {
                value == last
                    && values.is_empty()
                    && seen.applied.is_empty()
                    && seen.first_read_ended > began
            }
        }
    }
}

/// What happened while a counter had one value.
#[derive(Debug)]
struct Value {
    last_read_began: Mark,
    first_read_ended: Mark,
    /// The increments from it that were acknowledged: from when until when.
    applied: Vec<(Mark, Mark)>,
    /// When the first one began whose outcome nobody knows.
    perhaps: Option<Mark>,
}

impl Default for Value {
    fn default() -> Self {
        Self { last_read_began: 0, first_read_ended: Mark::MAX, applied: Vec::new(), perhaps: None }
    }
}

impl Value {
    /// This one read it, until `read`, and then tried to write it one higher.
    fn add(&mut self, increment: &Increment, read: Mark) {
        self.last_read_began = self.last_read_began.max(increment.began);
        self.first_read_ended = self.first_read_ended.min(read);
        match increment.ended {
            Some((ended, Outcome::Applied)) => self.applied.push((read, ended)),
            Some((_, Outcome::Nothing)) => {}
            Some((_, Outcome::Unknown)) | None => {
                self.perhaps = Some(self.perhaps.map_or(read, |first| first.min(read)));
            }
        }
    }

    /// The last mark at which anything began, up to the increment from this value, given
    /// that of what came before. None if the order does not hold.
    fn left(&self, began: Mark) -> Option<Mark> {
        let (increment, ended) = match *self.applied {
            [] => (self.perhaps?, Mark::MAX),
            [(increment, ended)] => (increment, ended),
            [..] => return None,
        };
        let next = began.max(self.last_read_began).max(increment);
        (self.first_read_ended > began && ended > next).then_some(next)
    }
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
    fn a_read_does_not_see_what_was_gone() {
        let first = (0, 1, 2, 0, 3, Outcome::Applied);
        assert!(history(&[first, (1, 1, 4, 0, 5, Outcome::Nothing)]).is_linearizable(0, 1));
        assert!(!history(&[first, (1, 3, 4, 0, 5, Outcome::Nothing)]).is_linearizable(0, 1));
        assert!(
            !history(&[(1, 1, 2, 1, 9, Outcome::Nothing), (0, 3, 4, 0, 5, Outcome::Applied)])
                .is_linearizable(0, 1)
        );
    }

    #[test]
    fn the_one_order_is_found_where_a_search_finds_one() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut found = 0;
        for _ in 0..200_000 {
            let mut increments = Vec::new();
            for process in 0..rng.usize(1..5) {
                let mut marks: Vec<Mark> = (0..3).map(|_| rng.u64(1..9)).collect();
                marks.sort_unstable();
                // What takes no time at all has no place in an order.
                let [began, read, ended] = [marks[0], marks[1] + 1, marks[2] + 2];
                let outcome = [Outcome::Applied, Outcome::Unknown, Outcome::Nothing];
                let outcome = outcome[rng.usize(..3)];
                increments.push((process, began, read, rng.u64(..3), ended, outcome));
            }
            let history = history(&increments);
            let last = rng.u64(..4);
            let is_linearizable = search(&history, last);
            assert_eq!(history.is_linearizable(0, last), is_linearizable, "{history:?}, {last}");
            found += u64::from(is_linearizable);
        }
        assert!((10_000..190_000).contains(&found), "{found} of the histories have an order");
    }

    /// Tries every order of what overlaps.
    fn search(history: &History, last: u64) -> bool {
        let mut actions = Vec::new();
        for increment in &history.increments {
            let (read, value) = increment.read.expect("was read");
            actions.push((increment.began, read, value, 0));
            match increment.ended.expect("has ended") {
                (ended, Outcome::Applied) => actions.push((read, ended, value, 1)),
                (_, Outcome::Unknown) => actions.push((read, Mark::MAX, value, 1)),
                (_, Outcome::Nothing) => {}
            }
        }
        fn fits(left: &[(Mark, Mark, u64, u64)], value: u64, last: u64) -> bool {
            let first = left.iter().map(|&(_, ended, ..)| ended).min();
            let Some(first) = first.filter(|&ended| ended < Mark::MAX) else {
                let perhaps = left.iter().enumerate().any(|(index, &(_, _, from, _))| {
                    from == value && fits(&without(left, index), value + 1, last)
                });
                return value == last || perhaps;
            };
            left.iter().enumerate().any(|(index, &(began, _, from, by))| {
                began < first && from == value && fits(&without(left, index), value + by, last)
            })
        }
        fn without<T: Copy>(all: &[T], index: usize) -> Vec<T> {
            [&all[..index], &all[index + 1..]].concat()
        }
        fits(&actions, 0, last)
    }

    #[test]
    fn what_was_refused_was_not_made() {
        let history = history(&[(0, 1, 2, 0, 3, Outcome::Nothing)]);
        assert!(history.is_linearizable(0, 0));
        assert!(!history.is_linearizable(0, 1));
    }
}
