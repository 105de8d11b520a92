//! How much a session leads, where that is limited: nothing while it is drained, so many terms, or its
//! fair part. What is beyond that goes to others in line, so many terms at a time.

use crate::layout::NameHash;
use crate::table::Table;
use crate::timers::SECOND;
use crate::types::{Duration, ElectionId, Limit, Mark};

/// How many terms without anybody else in line are looked at in a round, which begins each second.
const IN_VAIN: u32 = 1_024;
/// Of so few elections, who is in line is counted without waiting for the next round.
const FEW: u32 = 64;
/// So many elections are counted before the older counts fade.
const OLDER: u32 = 512;
/// For how long a term stays at most that has come back, unless others come or go.
const LONGEST_COOL_DOWN: Duration = 300 * SECOND;
/// So many terms are known to have been handed on.
const MOST_HANDED_ON: usize = 10_000;

/// How much it leads, and how far it is with handing over what is beyond that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    pub limit: Option<Limit>,
    /// Terms that are handed over, until their keys are gone.
    pub under_way: u32,
    /// Those of them that still stand.
    pub leaving: u32,
    /// A read of who else is in line is under way.
    pub asks: bool,
    /// The next look counts the candidates in line, whether or not the session leads too much.
    counts: bool,
    /// The read that is under way does so.
    is_counting: bool,
    /// What was seen before it.
    seen_before: (u32, u32),
    /// The election with which the next look begins.
    pub next: ElectionId,
    /// How many more terms are looked at in vain in this round.
    pub left: u32,
    /// The elections whose terms were handed on. One that comes back stays, because all others in
    /// line have enough as well.
    handed_on: Table<(NameHash, u64), ()>,
    /// When that is forgotten, because others may have counted anew.
    forgets_at: Mark,
    /// For how long it was remembered. That doubles as long as the session leads too much.
    cool_down: Duration,
    /// The line's length in sixteenths when candidates came or went last.
    in_line: u32,
    /// How many elections were looked at lately, and how many candidates were in line in them.
    seen: (u32, u32),
}

impl Share {
    pub fn is_drained(&self) -> bool {
        self.limit.is_some_and(|limit| limit.at_most == 0)
    }

    /// How many terms it may lead, with so many candidacies.
    pub fn most(&self, candidacies: u32) -> u32 {
        match (self.limit, self.seen) {
            (None, _) => u32::MAX,
            (Some(limit), (elections, candidates @ 1..)) if limit.is_fair => {
                limit.at_most.min((candidacies * elections).div_ceil(candidates))
            }
            (Some(limit), _) => limit.at_most,
        }
    }

    /// How many terms are beyond that.
    fn surplus(&self, leads: u32, candidacies: u32) -> u32 {
        leads.saturating_sub(self.leaving).saturating_sub(self.most(candidacies))
    }

    /// How many more terms the session hands over now.
    pub fn wanted(&self, leads: u32, candidacies: u32) -> u32 {
        let at_once = self.limit.map_or(0, |limit| limit.at_once.max(1));
        let free = at_once.saturating_sub(self.under_way);
        if self.left > 0 { free.min(self.surplus(leads, candidacies)) } else { 0 }
    }

    pub fn is_fair(&self) -> bool {
        self.limit.is_some_and(|limit| limit.is_fair && limit.at_most > 0)
    }

    /// Whether terms go to others. A session may lead more than its fair part by a sixteenth, divided
    /// by the length of the line: otherwise terms would go to and fro.
    fn is_too_much(&self, leads: u32, candidacies: u32) -> bool {
        let (elections, candidates) = self.seen;
        let most = self.most(candidacies);
        let tolerated = match self.limit {
            Some(limit) if most < limit.at_most => most * elections / (16 * candidates).max(1),
            Some(_) | None => 0,
        };
        self.surplus(leads, candidacies) > tolerated
    }

    /// Begins a round.
    pub fn begin(&mut self, now: Mark, leads: u32, candidacies: u32) {
        let in_line = length(self.seen);
        let others_came = self.seen.0 > 0 && differ(in_line, self.in_line);
        if others_came {
            self.in_line = in_line;
        }
        let is_too_much = self.is_too_much(leads, candidacies);
        if others_came || self.forgets_at <= now || self.handed_on.len() >= MOST_HANDED_ON {
            self.handed_on = Table::default();
            self.cool_down = if others_came || !is_too_much {
                SECOND
            } else if self.limit.is_some_and(|it| it.at_most == self.most(candidacies)) {
                // Another count would change nothing.
                LONGEST_COOL_DOWN
            } else {
                LONGEST_COOL_DOWN.min(2 * self.cool_down)
            };
            self.forgets_at = now.saturating_add(self.cool_down);
        }
        self.counts = self.is_fair() || is_too_much && !self.is_drained();
        self.weigh(leads, candidacies);
    }

    /// Has terms looked at if there are too many.
    pub fn weigh(&mut self, leads: u32, candidacies: u32) {
        self.left = if self.is_too_much(leads, candidacies) { IN_VAIN.min(leads) } else { 0 };
    }

    /// A term in a queue has begun. If it is too much, and may go on to the next one in line, it does.
    pub fn gain(&mut self, election: ElectionId, may_go: bool, leads: u32, candidacies: u32) {
        if self.is_fair() {
            // Too little is known to wait for the next round.
            self.counts |= self.seen.0 < FEW;
            if may_go && self.is_too_much(leads, candidacies) {
                self.next = self.next.min(election);
                self.left = IN_VAIN.min(self.left + 1);
            }
        }
    }

    /// A term of this election is handed on.
    pub fn hand_on(&mut self, election: NameHash, now: Mark) {
        self.under_way += 1;
        self.leaving += 1;
        if !self.is_drained() {
            self.remember(election, now.saturating_add(self.cool_down));
        }
    }

    /// A term of this election stays, because all others let it go by.
    pub fn keep(&mut self, election: NameHash, now: Mark) {
        self.remember(election, now.saturating_add(LONGEST_COOL_DOWN));
    }

    fn remember(&mut self, election: NameHash, until: Mark) {
        self.handed_on.insert((election, 0), ());
        self.forgets_at = self.forgets_at.max(until);
    }

    /// Whether a term of this election stays if it comes back, or has come back.
    pub fn has_handed_on(&self, election: NameHash) -> bool {
        self.handed_on.contains_key(&(election, 0))
    }

    /// How many terms are looked at now, if so many can be at a time, and whether they are counted.
    pub fn looks(&mut self, most: u32, leads: u32, candidacies: u32) -> (u32, bool) {
        self.is_counting = core::mem::take(&mut self.counts) && !self.is_drained();
        let looks = if self.is_counting { most } else { self.wanted(leads, candidacies).min(most) };
        (looks, self.is_counting)
    }

    /// A look is over, or its answer is here. If it counts, that begins anew.
    pub fn has_looked(&mut self) -> bool {
        if self.is_counting {
            self.seen_before = core::mem::take(&mut self.seen);
        }
        core::mem::take(&mut self.is_counting)
    }

    /// A count is over. It is added to the ones before, unless others came or went since.
    pub fn counted(&mut self, leads: u32, candidacies: u32) {
        let (elections, candidates) = self.seen_before;
        // Where one count looks at all terms, the older ones add nothing but what has changed since.
        if self.seen.0 < leads && !differ(length(self.seen), length(self.seen_before)) {
            // The older ones fade.
            let share = if elections < OLDER { 1 } else { 2 };
            self.seen.0 += elections / share;
            self.seen.1 += candidates.div_ceil(share);
        }
        self.weigh(leads, candidacies);
    }

    /// Nobody else is in line for a term that was looked at.
    pub fn in_vain(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// So many candidates are in line in one more election.
    pub fn count(&mut self, candidates: u32) {
        self.seen.0 += 1;
        self.seen.1 += candidates;
    }
}

/// How many candidates are in line in an election on average, in sixteenths.
fn length((elections, candidates): (u32, u32)) -> u32 {
    16 * candidates / elections.max(1)
}

/// Whether lines of these lengths are half a candidate apart.
fn differ(one: u32, other: u32) -> bool {
    one.abs_diff(other) > 8
}
