//! The end of a run: all is well, everybody leaves, and what is left is judged.

use incumbent_guest::types::*;

use super::watches::SILENCE;
use super::{Process, World};
use crate::SECOND;
use crate::application::{Part, counter};
use crate::cluster::{ELECTION_TIMEOUT, STORE_ELECTION};
use crate::laws::{Broken, Law};
use crate::store::{EXPIRY_TICK, SHORTEST_LEASE};

impl World<'_> {
    /// No more faults: all that is stopped, cut or away comes back.
    pub fn heal(&mut self) {
        self.calm = true;
        self.story.note(self.now, "all is well from now on");
        assert_eq!(self.faults, [], "faults end with the unrest");
        self.forget_wishes();
        self.be_calm();
    }

    /// When a leader has to be there, by the law `LeaderReturns`.
    pub fn recovery_bound(&self) -> Duration {
        let ttl = self.plan.lease_ttl.max(SHORTEST_LEASE);
        let check = self.run.silent || self.laws.lost_data;
        let silent = if check { 30 * SECOND } else { 0 };
        let store = EXPIRY_TICK + STORE_ELECTION + ELECTION_TIMEOUT;
        let elector = SECOND + self.plan.request_timeout;
        // A stream that was given up as silent, and a few round trips.
        let host = 2 * SILENCE + 2 * SECOND;
        ttl + store + elector + host + silent
    }

    /// How many regard themselves as leader.
    pub fn leaders(&self, election: usize) -> usize {
        let leads = |process: &&Process| {
            let mark = process.clock.at(self.now);
            process.terms.of(election).is_some_and(|term| term.stands(mark))
        };
        self.processes.iter().filter(leads).count()
    }

    /// How many elections those processes lead that lead least and most.
    pub fn led(&self) -> (usize, usize) {
        let led = |process: &Process| {
            let mark = process.clock.at(self.now);
            let leads = |part: &usize| process.terms.of(*part).is_some_and(|it| it.stands(mark));
            (0..self.plan.elections.len()).filter(leads).count()
        };
        let led = || self.processes.iter().map(led);
        (led().min().unwrap_or(0), led().max().unwrap_or(0))
    }

    /// A race's key without a lease, which an operator left, stands in the way.
    pub fn is_blocked(&self, election: usize) -> bool {
        self.candidates(election).iter().any(|entry| entry.lease == 0)
    }

    /// Law 14, for those who stay: a key of a living elector belongs to a candidacy that
    /// knows of it. Any other would stand in a queue for as long as the elector lives.
    pub fn check_no_strays(&self) -> Result<(), Broken> {
        // A backup brings keys back that were removed.
        if self.laws.lost_data {
            return Ok(());
        }
        match (0..self.plan.elections.len()).find_map(|election| self.stray(election)) {
            Some(entry) => Err(Law::NothingStays.broken(format!(
                "no candidacy knows of {entry:?}, and its elector lives, {} s after the last fault",
                self.recovery_bound() / SECOND
            ))),
            None => Ok(()),
        }
    }

    /// A key under the lease of a living elector, none of whose candidacies knows of it.
    pub fn stray(&self, election: usize) -> Option<Entry> {
        self.candidates(election).into_iter().find(|entry| {
            let of = |it: &&Process| it.elector.is_some() && it.leases.contains(&entry.lease);
            self.processes.iter().find(of).is_some_and(|it| {
                let Part { election, place, .. } = &it.parts[election];
                let knows = place.as_ref().is_some_and(|place| place.created == entry.created);
                election.is_none() || !knows
            })
        })
    }

    /// After which time without a fault priorities have taken effect: the regular check has shown what no
    /// watch told, who made room of late does so again, and who wants to take over has waited for long enough. Zero
    /// where nobody has a priority.
    pub fn preference_bound(&self) -> Duration {
        if self.plan.priorities.iter().all(|priority| *priority == 0) {
            return 0;
        }
        // The more wishes there are, the less often the check reads them.
        let wishes = (self.plan.elections.len() * self.plan.processes) as u64;
        let checks = (1 + wishes / 100) * 30 * SECOND;
        // For each level once, at most.
        let moves = 2 * self.plan.lease_ttl.max(SHORTEST_LEASE) * self.plan.processes as u64;
        checks + moves + 5 * SECOND + self.plan.preempt_after.unwrap_or_default()
    }

    /// The keys of who leads and of who is next, by their create revisions.
    pub fn first_two(&self, election: usize) -> Vec<Epoch> {
        self.candidates(election).iter().map(|entry| entry.created).take(2).collect()
    }

    /// Whether a queue's line is in the order of priorities, and its leader knows of who wants to take
    /// over, if these two were the first all the time.
    pub fn check_preferences(&self, election: usize, first: &[Epoch]) -> Result<(), Broken> {
        // A backup brings candidates back behind which others stand, and takes wishes away.
        if self.laws.lost_data || self.plan.elections[election].contest == Contest::Race {
            return Ok(());
        }
        let name = &self.plan.elections[election].name;
        let priority = |process: usize| self.plan.priorities.get(process).copied().unwrap_or(0);
        let are_the_same = self.first_two(election) == first;
        let mut processes = Vec::new();
        for entry in self.candidates(election) {
            let has_it = |it: &Process| {
                let place = it.parts[election].place.as_ref();
                place.is_some_and(|place| place.created == entry.created)
            };
            processes.extend(self.processes.iter().position(has_it));
        }
        let [leader, waiting @ ..] = processes.as_slice() else { return Ok(()) };
        // Zero is what all have who know of no priorities. They ask nobody to make room.
        let disorder =
            |pair: &&[usize]| priority(pair[0]) < priority(pair[1]) && priority(pair[1]) != 0;
        if let Some([front, behind]) = waiting.windows(2).find(disorder) {
            return Err(Law::InOrder.broken(format!(
                "process {behind} waits in `{name}` behind process {front}, {} s after the last fault",
                (self.recovery_bound() + self.preference_bound()) / SECOND
            )));
        }
        let Some(&next) = waiting.first() else { return Ok(()) };
        let part = &self.processes[next].parts[election];
        // Once in each candidacy, and not beyond its limit.
        let wants_to = are_the_same
            && self.plan.preempt_after.is_some()
            && priority(next) > priority(*leader)
            && part.led_as != part.election
            && self.plan.limits.is_empty();
        let mark = self.processes[*leader].clock.at(self.now);
        let term = self.processes[*leader].terms.of(election);
        match term.filter(|term| wants_to && term.stands(mark) && term.hands_over_to != first.get(1).copied()) {
            Some(term) => Err(Law::Preempted.broken(format!(
                "process {leader} leads `{name}` in epoch {}, and is not told that process {next} wants to",
                term.leadership.term.epoch
            ))),
            None => Ok(()),
        }
    }

    /// No proclamation waits for ever.
    pub fn check_answers(&self) -> Result<(), Broken> {
        if self.laws.went_back {
            return Ok(());
        }
        let long_ago = self.now.saturating_sub(2 * self.plan.request_timeout + SECOND);
        for (process, it) in self.processes.iter().enumerate() {
            if let Some((ticket, _)) = it.tickets.iter().find(|&(_, &given)| given < long_ago) {
                return Err(Law::Answered.broken(format!(
                    "process {process} was given ticket {ticket} long ago, and has not answered"
                )));
            }
        }
        Ok(())
    }

    /// Everybody leaves.
    pub fn dismiss(&mut self) {
        self.closing = true;
        self.story.note(self.now, "everybody leaves");
        for process in 0..self.processes.len() {
            self.close(process);
        }
    }

    /// Law 14, the first half: an orderly end leaves nothing.
    pub fn check_nobody_stays(&self) -> Result<(), Broken> {
        for (process, it) in self.processes.iter().enumerate() {
            if !it.closed && it.elector.is_some() {
                return Err(Law::NothingStays.broken(format!("process {process} does not close")));
            }
            let left = it
                .leases
                .iter()
                .find(|lease| self.cluster.store.keys().any(|entry| entry.lease == **lease));
            if let Some(lease) = left {
                return Err(Law::NothingStays.broken(format!(
                    "process {process} has closed, and a key of its lease {lease:x} is there"
                )));
            }
        }
        Ok(())
    }

    /// Law 14, the second half: what a process left is gone after a lease time.
    pub fn check_nothing_stays(&self) -> Result<(), Broken> {
        if let Some(lease) = self.cluster.store.leases().next() {
            return Err(Law::NothingStays.broken(format!("the lease {lease:x} is still there")));
        }
        let store = &self.cluster.store;
        match store.keys().find(|entry| !entry.key.starts_with(b"/counter/") && entry.lease != 0) {
            Some(entry) => Err(Law::NothingStays.broken(format!("{entry:?} is still there"))),
            None => Ok(()),
        }
    }

    /// Whether what leaders counted together is right.
    pub fn check_counters(&self) -> Result<(), Broken> {
        if self.laws.lost_data {
            return Ok(());
        }
        for election in 0..self.plan.elections.len() {
            let last = self
                .cluster
                .store
                .key(&counter(election))
                .map_or(0, |entry| String::from_utf8_lossy(&entry.value).parse().unwrap_or(0));
            if !self.history.is_linearizable(election, last) {
                return Err(Law::Linearizable.broken(format!(
                    "no order of the increments of `{}` explains what was seen, and {last} at \
                     the end",
                    self.plan.elections[election].name
                )));
            }
        }
        Ok(())
    }
}
