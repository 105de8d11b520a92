//! The tables of what was measured on one etcd.

use std::fmt::Write as _;
use std::time::Duration;

use crate::figures::{self, Goal, amount, grouped, median, name, percentile};
use crate::requests::{Requests, Work};
use crate::rounds::{Extent, Measured, OnEtcd};
use crate::supervisors::Supervised;

/// All of them, as Markdown.
pub fn all(measured: &OnEtcd, extent: Extent) -> String {
    format!(
        "### Ratios\n\n{}\n### Handovers\n\n{}\n### Very many elections in one process\n\n{}\n\
         ### What etcd is asked\n\n{}\n### The programs `etcdctl lock` and `incumbent run`\n\n{}",
        ratios(measured, extent),
        handovers(measured),
        elections(measured),
        requests(measured),
        programs(measured),
    )
}

fn ratios(measured: &OnEtcd, extent: Extent) -> String {
    let mut rows = vec![["what", "other", "Incumbent", "ratio", "goal", "met"].map(String::from)];
    for figure in figures::of(measured, extent) {
        let (goal, met) = figure.goal();
        let met = match (figure.goal, met) {
            (Goal::None, _) => "–",
            (Goal::Ratio(_) | Goal::AtMost(_), true) => "yes",
            (Goal::Ratio(_) | Goal::AtMost(_), false) => "**no**",
        };
        let [what, theirs, ours, ratio] = figure.cells();
        rows.push([what, theirs, ours, ratio, goal, met.into()]);
    }
    markdown(&rows)
}

/// Which handovers of a peer.
type Handovers<'a> = &'a dyn Fn(&Measured) -> &[Duration];

fn handovers(measured: &OnEtcd) -> String {
    let kinds: [(&str, Handovers<'_>); 5] = [
        ("quiet", &|peer| &peer.quiet),
        ("quiet, on three members", &|peer| &peer.on_three),
        ("20 ms after joining", &|peer| &peer.fresh),
        ("without a rest", &|peer| &peer.churn),
        ("in a queue", &|peer| &peer.herd),
    ];
    let mut rows = vec![["handover", "by", "p50", "p90", "p99", "slowest"].map(String::from)];
    let mut row = |kind: &str, by: &str, times: &[Duration]| {
        let at = |percent| format!("{:.2} ms", percentile(times, percent));
        rows.push([kind.into(), by.into(), at(50), at(90), at(99), at(100)]);
    };
    row("the least that etcd allows", "etcd-client", &measured.floor);
    for (kind, times) in kinds {
        for (side, peer) in measured.both() {
            row(kind, name(side), times(peer));
        }
    }
    markdown(&rows)
}

fn elections(measured: &OnEtcd) -> String {
    let mut rows = vec![
        [
            "elections",
            "by",
            "won",
            "taken over",
            "half of them",
            "resident memory",
            "etcd's data for each candidate",
        ]
        .map(String::from),
    ];
    for count in measured.go.counts() {
        for (side, peer) in measured.both() {
            // etcd's file grows by pages.
            let data = match count {
                1_000.. => amount(peer.data(count) / 1_024.0, 2, "KiB"),
                _ => "–".into(),
            };
            rows.push([
                grouped(count),
                name(side).into(),
                amount(peer.won(count), 3, "s"),
                amount(peer.taken_over(count, 100), 3, "s"),
                amount(peer.taken_over(count, 50), 3, "s"),
                amount(peer.resident(count) / 1_048_576.0, 1, "MiB"),
                data,
            ]);
        }
    }
    markdown(&rows)
}

fn requests(measured: &OnEtcd) -> String {
    let mut rows = vec![
        ["for", "by", "requests", "writes", "reads", "watches", "keep-alives", "by method"]
            .map(String::from),
    ];
    for work in Work::ALL {
        for (side, peer) in measured.both() {
            let asked = peer.asked(work);
            let [writes, reads, watches, keep_alives] = counts(&asked);
            let methods = asked.methods.iter().filter(|(_, count)| **count >= 0.005);
            let methods: Vec<_> =
                methods.map(|(method, count)| format!("{method} {count:.2}")).collect();
            rows.push([
                work.name().into(),
                name(side).into(),
                format!("{:.2}", asked.total()),
                writes,
                reads,
                watches,
                keep_alives,
                methods.join(", "),
            ]);
        }
    }
    markdown(&rows)
}

/// Writes, reads, watches and keep-alives.
pub fn counts(asked: &Requests) -> [String; 4] {
    [asked.writes, asked.reads(), asked.watches(), asked.keep_alives()]
        .map(|count| format!("{count:.2}"))
}

fn programs(measured: &OnEtcd) -> String {
    let mut rows = vec![["median", "`etcdctl lock`", "`incumbent run`"].map(String::from)];
    let mut row = |what: &str, of: &dyn Fn(&Supervised) -> String| {
        let [theirs, ours] = measured.both().map(|(_, peer)| of(&peer.supervised));
        rows.push([what.into(), theirs, ours]);
    };
    let milliseconds = |times: &[Duration]| format!("{:.1} ms", percentile(times, 50));
    let mebibytes = |sizes: &[f64]| format!("{:.1} MiB", median(sizes) / 1_048_576.0);
    let of_all = |count, program: &Supervised| format!("{count} of {}", program.killed.len());
    row("from its start until its work runs", &|program| milliseconds(&program.start));
    row("resident memory while its work runs", &|program| mebibytes(&program.leading));
    row("resident memory while it waits", &|program| mebibytes(&program.waiting));
    row("from Ctrl-C until the next work runs", &|program| milliseconds(&program.interrupted));
    row("from `kill -9` of the program until the next work runs", &|program| {
        milliseconds(&program.killed)
    });
    row("then both works ran side by side", &|program| of_all(program.side_by_side, program));
    row("a SIGTERM to the program alone ended its work within 1 s", &|program| {
        of_all(program.heeded, program)
    });
    markdown(&rows)
}

/// A table whose columns stand in line.
pub fn markdown<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<_> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if number == 0 {
            let rules = widths.map(|width| "-".repeat(width));
            let _ = writeln!(text, "| {} |", rules.join(" | "));
        }
    }
    text
}
