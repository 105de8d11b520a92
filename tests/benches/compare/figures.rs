//! What the measurements come to: each figure of both peers, with its goal.

use std::time::Duration;

use crate::peers::Side;
use crate::rounds::{Measured, OnEtcd, Shift};

/// What is wanted of a figure.
#[derive(Clone, Copy)]
pub enum Goal {
    /// Ours at most so many times the other.
    Ratio(f64),
    /// Ours at most so much.
    AtMost(f64),
    None,
}

pub struct Figure {
    pub what: String,
    pub unit: &'static str,
    /// Whom ours is compared with.
    pub other: &'static str,
    pub theirs: f64,
    pub ours: f64,
    pub goal: Goal,
}

impl Figure {
    pub fn ratio(&self) -> f64 {
        self.ours / self.theirs
    }

    /// The goal in words, and whether it is met.
    pub fn goal(&self) -> (String, bool) {
        match self.goal {
            Goal::Ratio(most) => (format!("≤ {most} times"), self.ratio() <= most),
            Goal::AtMost(most) => (format!("≤ {most} {}", self.unit), self.ours <= most),
            Goal::None => (String::new(), true),
        }
    }
}

/// All of them, in the order of the page.
pub fn of(measured: &OnEtcd, sessions: usize) -> Vec<Figure> {
    let (go, ours) = (&measured.go, &measured.ours);
    let most = go.counts().last().copied().unwrap_or_default();
    let elections = grouped(most);
    let figure = |what: String, unit, goal, of: &dyn Fn(&Measured) -> f64| Figure {
        what,
        unit,
        other: "Go",
        theirs: of(go),
        ours: of(ours),
        goal,
    };
    vec![
        figure(
            format!("{elections} elections won by one process"),
            "s",
            Goal::Ratio(0.5),
            &|peer| peer.won(most),
        ),
        figure(
            format!("{elections} elections change hands at a close, until all are led"),
            "s",
            Goal::Ratio(0.4),
            &|peer| peer.taken_over(most, 100),
        ),
        figure("… until half are led".into(), "s", Goal::None, &|peer| peer.taken_over(most, 50)),
        figure(
            format!("memory for each of {elections} elections led"),
            "KiB",
            Goal::AtMost(2.0),
            &|peer| peer.memory_each(most) / 1_024.0,
        ),
        figure(
            format!("memory for each of {} candidates with their own sessions", grouped(sessions)),
            "KiB",
            Goal::AtMost(120.0),
            &|peer| peer.session / 1_024.0,
        ),
        figure(
            format!("handover in a queue of {} sessions, p50", grouped(sessions)),
            "ms",
            Goal::Ratio(1.0),
            &|peer| percentile(&peer.herd, 50),
        ),
        figure("quiet handover, p50".into(), "ms", Goal::Ratio(1.0), &|peer| {
            percentile(&peer.quiet, 50)
        }),
        Figure {
            what: "quiet handover against delete, event and read alone, p50".into(),
            unit: "ms",
            other: "etcd-client",
            theirs: percentile(&measured.floor, 50),
            ours: percentile(&ours.quiet, 50),
            goal: Goal::Ratio(1.2),
        },
        figure("quiet handover, p99".into(), "ms", Goal::None, &|peer| percentile(&peer.quiet, 99)),
        figure(
            "resignation 20 ms after the successor joined, p50".into(),
            "ms",
            Goal::Ratio(0.05),
            &|peer| percentile(&peer.fresh, 50),
        ),
    ]
}

/// A peer's name on the page.
pub fn name(side: Side) -> &'static str {
    match side {
        Side::Go => "Go",
        Side::Ours => "Incumbent",
    }
}

impl Measured {
    /// The numbers of elections that were measured.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts: Vec<_> = self.shifts.iter().map(|shift| shift.count).collect();
        counts.dedup();
        counts
    }

    /// In seconds.
    pub fn won(&self, count: usize) -> f64 {
        self.median(count, |shift| shift.won.as_secs_f64())
    }

    /// Until so many percent were led again, in seconds.
    pub fn taken_over(&self, count: usize, percent: usize) -> f64 {
        self.median(count, |shift| percentile(&shift.taken_over, percent) / 1e3)
    }

    /// In bytes.
    pub fn resident(&self, count: usize) -> f64 {
        self.median(count, |shift| shift.resident)
    }

    /// What each election adds, from the fewest that were measured to so many, in bytes.
    fn memory_each(&self, count: usize) -> f64 {
        let least = self.counts().first().copied().unwrap_or_default();
        (self.resident(count) - self.resident(least)) / (count - least) as f64
    }

    fn median(&self, count: usize, of: impl Fn(&Shift) -> f64) -> f64 {
        let mut all: Vec<f64> =
            self.shifts.iter().filter(|shift| shift.count == count).map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }
}

/// In milliseconds.
pub fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3
}

/// With commas between thousands.
pub fn grouped(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}
