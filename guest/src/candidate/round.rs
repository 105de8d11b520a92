//! The round in which a candidate lets others lead, because its session leads enough.
//!
//! It gets back in line when it comes first. Where all others do the same, the lead goes round once,
//! and then the candidate leads after all: a limit is no reason to have no leader. If it comes first
//! later than that, somebody has led meanwhile, and it lets others lead again.

use crate::layout::NEWEST;
use crate::timers::FAR;
use crate::types::{Duration, Mark};

/// So much longer than its own turn may the turns of others take.
const LONGER: u64 = 4;
/// There may be so many in line where no more of them are counted.
const MANY: u64 = 10_000;

/// When it began, and when it is over at the latest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Round {
    began: Mark,
    /// How long the turn of another one takes at most.
    turn: Duration,
    ends: Mark,
}

impl Round {
    /// Its candidate leaves the first place.
    pub fn begin(now: Mark) -> Round {
        Round { began: now, turn: 0, ends: FAR }
    }

    /// Whether its candidate comes back to the first place before it is over.
    pub fn is_on(&self, now: Mark) -> bool {
        now < self.ends
    }

    /// Whether its candidate has not been behind anybody since. If it comes first then, nobody else is
    /// in line, and the term goes on to the next one who comes.
    pub fn is_open(&self) -> bool {
        self.ends == FAR
    }

    /// Its candidate is in line again. So many turns of others pass until it sees one of them end.
    pub fn set_end(&mut self, now: Mark, turns: u64) {
        self.turn = LONGER * now.saturating_sub(self.began);
        self.ends = now.saturating_add(self.turn.saturating_mul(turns));
    }

    /// How many turns of others pass until a candidate at the end of such a line sees one of them end: it
    /// follows the two in front of its own key.
    pub fn unseen_turns(in_line: usize) -> u64 {
        let in_line = if in_line < NEWEST as usize { in_line as u64 } else { MANY };
        in_line.saturating_sub(2).max(1)
    }

    /// Whoever was first in line has gone, and was there for a turn, or longer because it led.
    pub fn turn_is_over(&mut self, now: Mark) {
        if !self.is_open() {
            self.ends = if self.is_on(now) { now.saturating_add(self.turn) } else { 0 };
        }
    }
}
