//! Records of a story, for tests.

use crate::journal::Journal;
use crate::record::Action;
use crate::report::{Outcome, Report};

pub const SECOND: u64 = 1_000_000_000;

/// Ada leads from 1 s on and is paused at 2 s; its deadline is at 4 s. Ben leads from
/// 5 s on, until 7 s unless renewed. Each writes twice; at 6 s ada wakes up, and its
/// late write is refused.
pub fn story() -> Journal {
    let mut journal = Journal::new(0);
    let (ada, ben) = (journal.record.started("ada", 1, 0), journal.record.started("ben", 2, 0));
    for (who, epoch) in [(ada, 10), (ben, 20)] {
        journal.reported(who, &Report::Joined { at: SECOND / 2, epoch }, SECOND / 2);
    }
    elected(&mut journal, ada, SECOND, 10, 4 * SECOND);
    wrote(&mut journal, ada, 10, 1, 11);
    wrote(&mut journal, ada, 10, 2, 12);
    journal.done(ada, Action::Pause, 2 * SECOND);
    elected(&mut journal, ben, 5 * SECOND, 20, 7 * SECOND);
    wrote(&mut journal, ben, 20, 3, 21);
    wrote(&mut journal, ben, 20, 4, 22);
    journal.done(ada, Action::Resume, 6 * SECOND);
    asked(&mut journal, ada, 10, 3, true);
    answered(&mut journal, ada, 10, 3, Outcome::Refused);
    journal
}

pub fn elected(journal: &mut Journal, who: usize, at: u64, epoch: i64, valid_until: u64) {
    journal.reported(who, &Report::Elected { at, epoch, valid_until }, at);
}

pub fn wrote(journal: &mut Journal, who: usize, epoch: i64, value: u64, revision: i64) {
    asked(journal, who, epoch, value, false);
    answered(journal, who, epoch, value, Outcome::Accepted { revision });
}

/// At the time that the journal has come to.
pub fn asked(journal: &mut Journal, who: usize, epoch: i64, value: u64, is_late: bool) {
    let at = now(journal);
    journal.reported(who, &Report::Writing { at, epoch, value, is_late }, at);
}

pub fn answered(journal: &mut Journal, who: usize, epoch: i64, value: u64, outcome: Outcome) {
    let at = now(journal);
    journal.reported(who, &Report::Written { at, epoch, value, outcome }, at);
}

fn now(journal: &Journal) -> u64 {
    journal.notes.last().map_or(0, |note| note.at)
}
