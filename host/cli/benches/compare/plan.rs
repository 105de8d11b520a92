//! The plan for capacity: what etcd is asked for each work, against what it carries.

use std::collections::BTreeMap;

use crate::capacity::{Capacity, PLANNED, Point, VERSION};
use crate::figures::{grouped, percentile};
use crate::requests::{Requests, Work};
use crate::rounds::{Measured, OnEtcd};
use crate::tables::{counts, markdown};

/// How often a session checks its places, in seconds, and how many with one read: the elector's
/// `RECHECK` and half of its `MOST_CHECKED`, because a candidate in line relies on two keys or three. One
/// more read is of all wishes.
const CHECKS: f64 = 30.0;
const CHECKED: f64 = 32.0;
/// How often an election of the table changes hands, in seconds.
const HOUR: f64 = 3_600.0;

pub struct Plan<'a> {
    ours: &'a Measured,
    capacity: &'a Capacity,
}

/// So many processes on one etcd.
struct Deployment {
    elections: usize,
    /// All of them, in all elections.
    candidates: usize,
    /// Each has one lease.
    processes: usize,
}

const DEPLOYMENTS: [Deployment; 5] = [
    Deployment { elections: 1_000, candidates: 3_000, processes: 3_000 },
    Deployment { elections: 10_000, candidates: 30_000, processes: 30_000 },
    Deployment { elections: 100_000, candidates: 300_000, processes: 300_000 },
    Deployment { elections: 10_000, candidates: 30_000, processes: 30 },
    Deployment { elections: 100_000, candidates: 300_000, processes: 300 },
];

impl<'a> Plan<'a> {
    pub fn new(measured: &'a [OnEtcd], capacity: &'a Capacity) -> Option<Self> {
        let on_etcd = measured.iter().find(|on_etcd| on_etcd.version == VERSION)?;
        Some(Self { ours: &on_etcd.ours, capacity })
    }

    /// What the cluster answers.
    pub fn rates(&self) -> String {
        let rates = &self.capacity.rates;
        let rows = [
            ("writes", &rates.writes),
            ("linearizable reads", &rates.reads),
            ("watches opened or closed", &rates.watches),
            ("keep-alives", &rates.keep_alives),
        ];
        let header = ["alone", "a second", "the members' processor time for each"];
        let mut table = vec![header.map(String::from)];
        table.extend(rows.map(|(kind, rate)| {
            [kind.into(), whole(rate.each_second), format!("{:.0} µs", rate.processor * 1e6)]
        }));
        markdown(&table)
    }

    /// What each work costs, and how much of it alone is planned for.
    pub fn costs(&self) -> String {
        let header =
            ["work", "writes", "reads", "watches", "keep-alives", "carried at a load of ½"];
        let mut table = vec![header.map(String::from)];
        let mut row = |work: String, cost: &Requests, unit: &str| {
            let [writes, reads, watches, keep_alives] = counts(cost);
            let carried = whole(PLANNED / self.capacity.rates.load(cost));
            table.push([work, writes, reads, watches, keep_alives, format!("{carried} {unit}")]);
        };
        for work in [Work::Won, Work::TakenOver, Work::Pair, Work::Queue] {
            row(work.name().into(), &self.ours.asked(work), "a second");
        }
        for ttl in [2.0, 10.0, 60.0] {
            let work = format!("a second of a process at rest: one election, a lease of {ttl} s");
            row(work, &self.at_rest(1.0, ttl), "processes");
        }
        markdown(&table)
    }

    /// How much of an etcd some deployments take, and how many etcds that makes.
    pub fn deployments(&self) -> String {
        let header = [
            "elections",
            "candidates",
            "processes",
            "load, lease of 10 s",
            "etcds",
            "load, lease of 60 s",
            "etcds",
            "etcd's data",
        ];
        let mut table = vec![header.map(String::from)];
        let most = self.ours.most().map_or(0, |shift| shift.count);
        for deployment in &DEPLOYMENTS {
            let [(load, etcds), (longer, fewer)] = [10.0, 60.0].map(|ttl| {
                let load = self.load(deployment, ttl);
                (format!("{:.1} %", load * 100.0), whole((load / PLANNED).ceil()))
            });
            let Deployment { elections, candidates, processes } = deployment;
            let data = *candidates as f64 * self.ours.data(most) / 1_048_576.0;
            let [elections, candidates, processes] =
                [elections, candidates, processes].map(|count| grouped(*count));
            let data = format!("{} MiB", whole(data));
            table.push([elections, candidates, processes, load, etcds, longer, fewer, data]);
        }
        markdown(&table)
    }

    /// What the formula says of handovers, and what was measured.
    pub fn check(&self) -> String {
        let Capacity { predicted, processor, points: [planned, most], .. } = self.capacity;
        let milliseconds = |seconds| format!("{:.2} ms", seconds * 1e3);
        let values = |point: &Point| {
            let at = |percent| format!("{:.1} ms", percentile(&point.times, percent));
            let [total, writes] =
                [point.asked.total(), point.asked.writes].map(|count| format!("{count:.2}"));
            let processor = milliseconds(point.processor);
            [whole(point.carried), processor, total, writes, at(50), at(99)]
        };
        let handover = self.ours.asked(Work::Pair);
        let counted = [handover.total(), handover.writes].map(|count| format!("{count:.2}"));
        let rows = [
            "handovers a second",
            "the members' processor time for each",
            "requests for each",
            "of them writes",
            "handover, p50",
            "handover, p99",
        ];
        let [total, writes] = counted;
        let formula =
            [whole(*predicted), milliseconds(*processor), total, writes, "–".into(), "–".into()];
        let header = ["", "by the formula, at a load of 1", "as planned", "as many as they can"];
        let mut table = vec![header.map(String::from)];
        let [planned, most] = [planned, most].map(values);
        for (((row, formula), planned), most) in
            rows.into_iter().zip(formula).zip(planned).zip(most)
        {
            table.push([row.into(), formula, planned, most]);
        }
        markdown(&table)
    }

    fn load(&self, deployment: &Deployment, ttl: f64) -> f64 {
        let Deployment { elections, candidates, processes } = *deployment;
        let each = self.at_rest(candidates as f64 / processes as f64, ttl);
        let rates = &self.capacity.rates;
        let handovers = elections as f64 / HOUR * rates.load(&self.ours.asked(Work::Pair));
        processes as f64 * rates.load(&each) + handovers
    }

    /// What a process with so many elections asks for in a second.
    fn at_rest(&self, elections: f64, ttl: f64) -> Requests {
        let measured = self.ours.asked(Work::AtRest);
        let methods = [
            ("LeaseKeepAlive".to_owned(), measured.keep_alives() / ttl),
            ("Range".to_owned(), ((elections / CHECKED).ceil() + 1.0) / CHECKS),
        ];
        Requests { methods: BTreeMap::from(methods), writes: 0.0 }
    }
}

fn whole(number: f64) -> String {
    grouped(number.round() as usize)
}
