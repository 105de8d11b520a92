//! What the measurements come to: each figure of both peers, with its goal.

use std::time::Duration;

use crate::peers::Side;
use crate::rounds::{Extent, MANY, Measured, OnEtcd};
use crate::supervisors::Supervised;

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
            Goal::Ratio(most) => (format!("a ratio ≤ {most}"), self.ratio() <= most),
            Goal::AtMost(most) => (format!("≤ {most} {}", self.unit), self.ours <= most),
            Goal::None => ("–".into(), true),
        }
    }

    /// What it is, of the other, of ours, and the ratio.
    pub fn cells(&self) -> [String; 4] {
        let Self { what, unit, other, theirs, ours, .. } = self;
        let ratio =
            if self.ratio().is_normal() { format!("{:.2}", self.ratio()) } else { "–".into() };
        [
            what.clone(),
            format!("{} ({other})", amount(*theirs, 2, unit)),
            amount(*ours, 2, unit),
            ratio,
        ]
    }
}

/// All of them, in the order of the page.
pub fn of(measured: &OnEtcd, extent: Extent) -> Vec<Figure> {
    let most = measured.go.counts().last().copied().unwrap_or_default();
    let mut figures = elections(measured, MANY.min(most), true);
    if most > MANY {
        figures.extend(elections(measured, most, false));
    }
    figures.extend(handovers(measured, extent.sessions));
    figures.extend(programs(measured));
    figures
}

/// Of one number of elections in one process. The goals are for [`MANY`].
fn elections(measured: &OnEtcd, count: usize, with_goals: bool) -> Vec<Figure> {
    let elections = grouped(count);
    let goal = |goal| if with_goals { goal } else { Goal::None };
    let against_go = against(measured, "Go");
    vec![
        against_go(
            format!("{elections} elections won by one process"),
            "s",
            goal(Goal::Ratio(0.5)),
            &|peer| peer.won(count),
        ),
        against_go(
            format!("{elections} elections change hands at a close, until all are led"),
            "s",
            goal(Goal::Ratio(0.4)),
            &|peer| peer.taken_over(count, 100),
        ),
        against_go(
            format!("{elections} elections change hands at a close, until half are led"),
            "s",
            Goal::None,
            &|peer| peer.taken_over(count, 50),
        ),
        against_go(
            format!("memory for each of {elections} elections led"),
            "KiB",
            goal(Goal::AtMost(2.0)),
            &|peer| peer.memory_each(count) / 1_024.0,
        ),
    ]
}

fn handovers(measured: &OnEtcd, sessions: usize) -> Vec<Figure> {
    let sessions = grouped(sessions);
    let against_go = against(measured, "Go");
    let killed = grouped(measured.go.killed.first().map_or(0, Vec::len));
    let killed = format!("{killed} elections change hands at a kill -9, lease of 2 s,");
    let dropped = grouped(measured.go.dropped.first().map_or(0, Vec::len));
    vec![
        against_go(format!("{killed} until all are led"), "s", Goal::None, &|peer| {
            peer.killed(|times| percentile(times, 100))
        }),
        against_go(format!("{killed} from the first led to the last"), "s", Goal::None, &|peer| {
            peer.killed(|times| percentile(times, 100) - percentile(times, 0))
        }),
        against_go(
            format!(
                "{dropped} elections change hands as their terms are dropped, until all are led"
            ),
            "s",
            Goal::Ratio(0.5),
            &|peer| peer.dropped(|times| percentile(times, 100)),
        ),
        against_go(
            format!("memory for each of {sessions} candidates with their own sessions"),
            "KiB",
            Goal::AtMost(120.0),
            &|peer| peer.session / 1_024.0,
        ),
        against_go(
            format!("handover in a queue of {sessions} sessions, p50"),
            "ms",
            Goal::Ratio(1.0),
            &|peer| percentile(&peer.herd, 50),
        ),
        against_go("quiet handover, p50".into(), "ms", Goal::Ratio(0.85), &|peer| {
            percentile(&peer.quiet, 50)
        }),
        against_go(
            "quiet handover on three members, p50".into(),
            "ms",
            Goal::Ratio(0.75),
            &|peer| percentile(&peer.on_three, 50),
        ),
        Figure {
            what: "quiet handover against delete, event and read alone, p50".into(),
            unit: "ms",
            other: "etcd-client",
            theirs: percentile(&measured.floor, 50),
            ours: percentile(&measured.ours.quiet, 50),
            goal: Goal::Ratio(1.2),
        },
        against_go("quiet handover, p99".into(), "ms", Goal::None, &|peer| {
            percentile(&peer.quiet, 99)
        }),
        against_go("handover without a rest, p50".into(), "ms", Goal::None, &|peer| {
            percentile(&peer.churn, 50)
        }),
        against_go(
            "resignation 20 ms after the successor joined, p50".into(),
            "ms",
            Goal::Ratio(0.05),
            &|peer| percentile(&peer.fresh, 50),
        ),
    ]
}

/// `etcdctl lock` and `incumbent run`.
fn programs(measured: &OnEtcd) -> Vec<Figure> {
    let against_etcdctl = against(measured, "etcdctl");
    let figure = |what: &str, unit, of: &dyn Fn(&Supervised) -> f64| {
        against_etcdctl(what.into(), unit, Goal::None, &|peer| of(&peer.supervised))
    };
    vec![
        figure("program: from its start until its work runs, p50", "ms", &|program| {
            percentile(&program.start, 50)
        }),
        figure("program: memory while its work runs", "MiB", &|program| {
            median(&program.leading) / 1_048_576.0
        }),
        figure("program: memory while it waits", "MiB", &|program| {
            median(&program.waiting) / 1_048_576.0
        }),
        figure("program: from Ctrl-C until the next work runs, p50", "ms", &|program| {
            percentile(&program.interrupted, 50)
        }),
        figure(
            "program: from its kill -9 until the next work runs, lease of 2 s, p50",
            "ms",
            &|program| percentile(&program.killed, 50),
        ),
    ]
}

type Value<'a> = &'a dyn Fn(&Measured) -> f64;

/// Makes figures of both peers; the other one is called so.
fn against(
    measured: &OnEtcd,
    other: &'static str,
) -> impl Fn(String, &'static str, Goal, Value<'_>) -> Figure {
    move |what, unit, goal, of| Figure {
        what,
        unit,
        other,
        theirs: of(&measured.go),
        ours: of(&measured.ours),
        goal,
    }
}

/// A peer's name on the page.
pub fn name(side: Side) -> &'static str {
    match side {
        Side::Go => "Go",
        Side::Ours => "Incumbent",
    }
}

/// Infinite is what took too long.
pub fn amount(value: f64, decimals: usize, unit: &str) -> String {
    if value.is_finite() { format!("{value:.decimals$} {unit}") } else { "too long".into() }
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}
