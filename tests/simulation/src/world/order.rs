//! The order of the line, where processes have priorities.

use incumbent_guest::types::*;

use super::World;
use crate::SECOND;
use crate::laws::{Broken, Law};
use crate::plan::Election;

/// How long a candidate may stand in front of one that should come before it.
const SETTLES: Duration = 10 * SECOND;

/// A candidate in line: whose it is, and the create revision of its key.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    process: usize,
    created: Revision,
}

impl World<'_> {
    /// Waits, and judges the order of those who have stood in line all the time.
    pub fn check_order(&mut self) -> Result<(), Broken> {
        let spared = self.run.silent || self.laws.lost_data || !self.plan.limits.is_empty();
        if self.plan.priorities.is_empty() || spared {
            return Ok(());
        }
        let before = self.lines();
        self.pass(self.now + SETTLES)?;
        for (election, (before, now)) in before.iter().zip(self.lines()).enumerate() {
            self.check_line(election, before, &now)?;
        }
        Ok(())
    }

    fn lines(&self) -> Vec<Vec<Place>> {
        let queue = |election: &usize| self.plan.elections[*election].contest == Contest::Queue;
        let line = |election| {
            let entries = self.candidates(election).into_iter();
            let place = |Entry { lease, created, .. }| {
                let process = self.processes.iter().position(|it| it.leases.contains(&lease))?;
                Some(Place { process, created })
            };
            entries.filter_map(place).collect()
        };
        (0..self.plan.elections.len())
            .map(|election| if queue(&election) { line(election) } else { Vec::new() })
            .collect()
    }

    fn priority(&self, place: Place) -> i32 {
        self.plan.priorities.get(place.process).copied().unwrap_or_default()
    }

    /// Those of priority 0 write no wishes, so nobody makes room for them.
    fn comes_before(&self, one: Place, other: Place) -> bool {
        let (one, other) = (self.priority(one), self.priority(other));
        one > other && one != 0
    }

    fn check_line(&self, election: usize, before: &[Place], now: &[Place]) -> Result<(), Broken> {
        let stayed: Vec<Place> =
            now.iter().skip(1).copied().filter(|it| before.contains(it)).collect();
        for (at, front) in stayed.iter().enumerate() {
            if let Some(behind) = stayed[at..].iter().find(|it| self.comes_before(**it, *front)) {
                return Err(self.disorder(election, *behind, *front));
            }
        }
        Ok(())
    }

    fn disorder(&self, election: usize, behind: Place, front: Place) -> Broken {
        let Election { name, .. } = &self.plan.elections[election];
        Law::Preferred.broken(format!(
            "process {} of priority {} stays in line behind process {} of {} for `{name}`",
            behind.process,
            self.priority(behind),
            front.process,
            self.priority(front)
        ))
    }
}
