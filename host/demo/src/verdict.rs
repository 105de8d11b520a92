//! Judges by the record alone whether the promises were kept.

use std::collections::BTreeMap;

use incumbent_terms::{Fault, judge};

use crate::journal::ms;
use crate::record::{Record, Write};
use crate::report::Outcome;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// One sentence for each promise that was broken.
    pub faults: Vec<String>,
    /// One sentence for each promise that was kept.
    pub held: Vec<String>,
}

impl Verdict {
    /// `counter` is what the store said after all writers had ended.
    pub fn of(record: &Record, counter: u64) -> Self {
        let mut verdict = Self::so_far(record);
        verdict.count(record, counter);
        verdict
    }

    /// While things still happen, the counter cannot be judged.
    pub fn so_far(record: &Record) -> Self {
        let mut verdict = Self::default();
        verdict.terms(record);
        verdict.dead_epochs(record);
        verdict
    }

    fn judge(&mut self, faults: Vec<String>, held: impl FnOnce() -> String) {
        if faults.is_empty() {
            self.held.push(held());
        }
        self.faults.extend(faults);
    }

    fn terms(&mut self, record: &Record) {
        let terms = record.terms();
        let judged = terms.iter().map(|&(candidate, term)| incumbent_terms::Term {
            id: candidate.name.as_str(),
            epoch: term.epoch,
            from: term.from,
            until: term.end(),
        });
        let (mut epochs, mut overlaps) = (Vec::new(), Vec::new());
        for fault in judge(judged) {
            match fault {
                Fault::Epoch { earlier, later } => epochs.push(format!(
                    "the epoch did not rise: {} led in {}, and after that {} in {}",
                    earlier.id, earlier.epoch, later.id, later.epoch
                )),
                Fault::Overlap { earlier, later } => overlaps.push(format!(
                    "two at once: {} led from epoch {} on while {} still led in epoch {}, for {}",
                    later.id,
                    later.epoch,
                    earlier.id,
                    earlier.epoch,
                    ms(later.from, earlier.until)
                )),
            }
        }
        let all = record.epochs();
        self.judge(epochs, || match terms.len() {
            0 => "nobody led".into(),
            1 => format!("1 term, in epoch {all}"),
            many => format!("{many} terms, and each epoch above the one before: {all}"),
        });
        let pairs = terms.iter().zip(terms.iter().skip(1));
        let gaps = pairs.map(|((_, before), (_, after))| after.from.saturating_sub(before.end()));
        let closest = gaps.min();
        self.judge(overlaps, || match closest {
            Some(free) => format!(
                "never two at once, each by its own deadline; the closest came {} after the \
                 other's end",
                short(free)
            ),
            None => "never two at once".into(),
        });
    }

    fn dead_epochs(&mut self, record: &Record) {
        let mut accepted: Vec<(i64, &str, &Write)> = Vec::new();
        for candidate in &record.candidates {
            for write in &candidate.writes {
                if let Some(Outcome::Accepted { revision }) = write.outcome {
                    accepted.push((revision, &candidate.name, write));
                }
            }
        }
        accepted.sort_by_key(|(revision, ..)| *revision);
        let mut faults = Vec::new();
        let mut newest = i64::MIN;
        for (_, name, write) in accepted {
            if write.epoch < newest || write.is_late {
                faults.push(format!(
                    "the store took {name}'s write in epoch {}, which was over",
                    write.epoch
                ));
            }
            newest = newest.max(write.epoch);
        }
        let refused = record.refused();
        self.judge(faults, || format!("no write in a dead epoch was made; {refused} refused"));
    }

    /// Each number from 1 to the counter was written by one write, and no other number.
    fn count(&mut self, record: &Record, counter: u64) {
        let mut accepted: BTreeMap<u64, u64> = BTreeMap::new();
        let mut unheard: BTreeMap<u64, u64> = BTreeMap::new();
        for write in record.candidates.iter().flat_map(|candidate| &candidate.writes) {
            let outcomes = match &write.outcome {
                Some(Outcome::Accepted { .. }) => &mut accepted,
                Some(Outcome::Unclear { .. }) | None => &mut unheard,
                Some(Outcome::Refused) => continue,
            };
            *outcomes.entry(write.value).or_default() += 1;
        }
        let total: u64 = accepted.values().sum();
        let mut faults = Vec::new();
        for (value, times) in accepted.iter().filter(|(_, times)| **times > 1) {
            faults.push(format!("{times} accepted writes of number {value}: one undid the other"));
        }
        if let Some((highest, _)) = accepted.last_key_value().filter(|(value, _)| **value > counter)
        {
            faults.push(format!("number {highest} was written, but the counter says {counter}"));
        }
        // Their writers were killed before they heard of them.
        let silent: Vec<u64> =
            (1..=counter).filter(|value| !accepted.contains_key(value)).collect();
        for value in silent.iter().filter(|value| !unheard.contains_key(value)) {
            faults.push(format!("the counter says {counter}, but nobody wrote number {value}"));
        }
        self.judge(faults, || {
            let of_these = match silent.len() {
                0 => String::new(),
                some => format!(", and {some} whose writer ended before it heard of it"),
            };
            format!("{total} writes accepted{of_these}; the counter in the store says {counter}")
        });
    }
}

/// A time to a tenth of a millisecond, if it is short.
fn short(nanoseconds: u64) -> String {
    let micros = nanoseconds / 1000;
    if micros < 10_000 {
        format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
    } else {
        ms(0, nanoseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Action;
    use crate::report::Report;
    use crate::sample::{SECOND, answered, asked, elected, story, wrote};

    #[track_caller]
    fn finds(record: &Record, counter: u64, fault: &str) {
        let faults = Verdict::of(record, counter).faults;
        assert!(faults.iter().any(|found| found.contains(fault)), "{faults:?}");
    }

    #[test]
    fn a_true_story_has_no_fault() {
        let verdict = Verdict::of(&story().record, 4);
        assert_eq!(verdict.faults, Vec::<String>::new());
        assert_eq!(
            verdict.held,
            [
                "2 terms, and each epoch above the one before: 10 < 20",
                "never two at once, each by its own deadline; the closest came 1,000 ms after \
                 the other's end",
                "no write in a dead epoch was made; 1 refused",
                "4 writes accepted; the counter in the store says 4",
            ]
        );
    }

    #[test]
    fn terms_that_overlap_are_found() {
        let mut journal = story();
        elected(&mut journal, 0, 7 * SECOND - 1, 30, 9 * SECOND);
        finds(&journal.record, 4, "two at once: ada led from epoch 30 on while ben still led");
        // Ben's work had stopped before its deadline.
        let stopped = Report::Stopped { at: 6 * SECOND, epoch: 20 };
        journal.reported(1, &stopped, 7 * SECOND);
        assert_eq!(Verdict::of(&journal.record, 4).faults, Vec::<String>::new());
    }

    #[test]
    fn a_death_is_no_excuse_for_an_overlap() {
        let mut journal = story();
        journal.done(1, Action::Kill, 6 * SECOND);
        elected(&mut journal, 0, 6 * SECOND + 1, 30, 9 * SECOND);
        finds(&journal.record, 4, "two at once");
    }

    #[test]
    fn an_epoch_that_went_back_is_found() {
        for epoch in [19, 20] {
            let mut journal = story();
            elected(&mut journal, 0, 8 * SECOND, epoch, 9 * SECOND);
            finds(&journal.record, 4, "the epoch did not rise: ben led in 20");
        }
    }

    #[test]
    fn an_accepted_write_in_a_dead_epoch_is_found() {
        let mut journal = story();
        asked(&mut journal, 0, 10, 3, true);
        answered(&mut journal, 0, 10, 3, Outcome::Accepted { revision: 13 });
        finds(&journal.record, 4, "the store took ada's write in epoch 10");
        assert!(journal.notes.iter().any(|note| note.kind == crate::journal::Kind::Wrong));
        // Also where its candidate did not know that it was late.
        let mut journal = story();
        wrote(&mut journal, 0, 10, 5, 23);
        finds(&journal.record, 5, "the store took ada's write in epoch 10");
    }

    #[test]
    fn a_counter_that_is_off_is_found() {
        finds(&story().record, 3, "number 4 was written, but the counter says 3");
        finds(&story().record, 5, "the counter says 5, but nobody wrote number 5");
        let mut journal = story();
        wrote(&mut journal, 1, 20, 4, 23);
        finds(&journal.record, 4, "2 accepted writes of number 4");
    }

    #[test]
    fn a_write_that_nobody_heard_of_may_have_been_made_or_not() {
        let mut journal = story();
        asked(&mut journal, 1, 20, 5, false);
        assert_eq!(Verdict::of(&journal.record, 4).faults, Vec::<String>::new());
        let verdict = Verdict::of(&journal.record, 5);
        assert_eq!(verdict.faults, Vec::<String>::new());
        let held = verdict.held.join("\n");
        assert!(held.contains("4 writes accepted, and 1 whose writer ended"), "{held}");
        finds(&journal.record, 6, "nobody wrote number 6");
    }
}
