//! A candidate's life on a line of time.

use incumbent::Mark;

use crate::record::{Action, Candidate};

/// What goes on from one mark to another, or happens at one. Those that come later lie above
/// the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Alive, and not leading.
    Waiting,
    Paused,
    /// Leads, in this epoch.
    Leading(i64),
    /// Dead or paused, and its lease still keeps the others out.
    Expiring,
    Stopped,
    Killed,
    Refused,
}

pub fn timeline(candidate: &Candidate, now: Mark) -> Vec<(Mark, Mark, Kind)> {
    let mut all = Vec::new();
    let mut during = |from: Mark, to: Mark, kind| {
        let to = to.min(now);
        if from < to {
            all.push((from, to, kind));
        }
    };
    for life in &candidate.lives {
        during(life.from, life.end().unwrap_or(now), Kind::Waiting);
    }
    for pause in candidate.lives.iter().flat_map(|life| &life.pauses) {
        during(pause.from, pause.to.unwrap_or(now), Kind::Paused);
    }
    for term in &candidate.terms {
        let end = term.end();
        let abrupt = term.ended_by.filter(|(action, _)| *action != Action::Stop);
        let led_to = abrupt.map_or(end, |(_, at)| at.min(end));
        during(term.from, led_to, Kind::Leading(term.epoch));
        during(led_to, end, Kind::Expiring);
    }
    for life in &candidate.lives {
        let kind = if life.killed.is_some() { Kind::Killed } else { Kind::Stopped };
        all.extend(life.end().map(|at| (at, at, kind)));
    }
    let refused = candidate.writes.iter().filter(|write| write.is_refused());
    all.extend(refused.map(|write| (write.at, write.at, Kind::Refused)));
    all
}
