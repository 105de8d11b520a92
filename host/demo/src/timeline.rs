//! A candidate's life as stretches and points on a line of time.

use incumbent::Mark;

use super::picture::{Blow, Candidate};

/// What goes on for a while. Those that come later lie above the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from: Mark,
    pub to: Mark,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Alive, and not leading.
    Waiting,
    /// Paused.
    Asleep,
    /// Leads, in this epoch.
    Leading(i64),
    /// Dead or asleep, and its lease still keeps the others out.
    Lapsing,
}

/// What happens at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub at: Mark,
    pub kind: Happening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    Stopped,
    Killed,
    Refused,
}

pub fn stretches(candidate: &Candidate, now: Mark) -> Vec<Stretch> {
    let mut all = Vec::new();
    let mut push = |from: Mark, to: Mark, kind| {
        let to = to.min(now);
        if from < to {
            all.push(Stretch { from, to, kind });
        }
    };
    for life in &candidate.lives {
        push(life.from, life.end().unwrap_or(now), Kind::Waiting);
    }
    for pause in candidate.lives.iter().flat_map(|life| &life.pauses) {
        push(pause.from, pause.to.unwrap_or(now), Kind::Asleep);
    }
    for term in &candidate.terms {
        let end = term.end();
        let led_to = match term.blow {
            Some(Blow::Kill(at) | Blow::Pause(at)) => at.min(end),
            Some(Blow::Stop(_)) | None => end,
        };
        push(term.from, led_to, Kind::Leading(term.epoch));
        push(led_to, end, Kind::Lapsing);
    }
    all
}

pub fn points(candidate: &Candidate) -> Vec<Point> {
    let mut all = Vec::new();
    for life in &candidate.lives {
        if let Some(at) = life.killed {
            all.push(Point { at, kind: Happening::Killed });
        } else if let Some(at) = life.ended {
            all.push(Point { at, kind: Happening::Stopped });
        }
    }
    for write in candidate.writes.iter().filter(|write| write.is_refused()) {
        all.push(Point { at: write.at, kind: Happening::Refused });
    }
    all
}
