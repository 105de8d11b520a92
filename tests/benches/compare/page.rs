//! The tables, and BENCHMARKS.md with its charts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result};
use incumbent_tests::etcd::Version;

use crate::charts;
use crate::figures::{self, grouped, name};
use crate::peers::{Programs, Side};
use crate::rounds::{Extent, OnEtcd};
use crate::store::Requests;

const TEMPLATE: &str = include_str!("page.md");

/// What was measured on one etcd, as Markdown.
pub fn table(measured: &OnEtcd, extent: Extent) -> String {
    let mut rows = vec![["work", "other", "ours", "ours / other", "goal", "met"].map(String::from)];
    for figure in figures::of(measured, extent.sessions) {
        let (goal, met) = figure.goal();
        rows.push([
            figure.what.clone(),
            format!("{:.2} {} ({})", figure.theirs, figure.unit, figure.other),
            format!("{:.2} {}", figure.ours, figure.unit),
            format!("{:.2}", figure.ratio()),
            if goal.is_empty() { "–".into() } else { goal.clone() },
            if goal.is_empty() {
                "–"
            } else if met {
                "yes"
            } else {
                "no"
            }
            .into(),
        ]);
    }
    let mut text = markdown(&rows);
    let mut rows = vec![
        ["elections", "peer", "won", "taken over", "half of them", "resident memory"]
            .map(String::from),
    ];
    for count in measured.go.counts() {
        for (side, peer) in Side::ALL.into_iter().zip([&measured.go, &measured.ours]) {
            rows.push([
                grouped(count),
                name(side).into(),
                format!("{:.3} s", peer.won(count)),
                format!("{:.3} s", peer.taken_over(count, 100)),
                format!("{:.3} s", peer.taken_over(count, 50)),
                format!("{:.1} MiB", peer.resident(count) / 1_048_576.0),
            ]);
        }
    }
    let _ = write!(text, "\n{}", markdown(&rows));
    let mut rows = vec![
        ["etcd is asked, for each handover in the queue", "Go", "Incumbent"].map(String::from),
    ];
    let (go, ours) = (&measured.go.requests, &measured.ours.requests);
    let mut methods: Vec<_> = go.keys().chain(ours.keys()).collect();
    methods.sort();
    methods.dedup();
    for method in methods {
        let count = |requests: &Requests| {
            format!("{:.2}", requests.get(method).copied().unwrap_or_default())
        };
        rows.push([method.clone(), count(go), count(ours)]);
    }
    let _ = write!(text, "\n{}", markdown(&rows));
    text
}

/// BENCHMARKS.md, and `benchmarks/` with the charts.
pub fn write(programs: &Programs, measured: &[OnEtcd], extent: Extent) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("in the workspace")?;
    fs::create_dir_all(root.join("benchmarks"))?;
    let mut sections = String::new();
    for on_etcd in measured {
        let version = on_etcd.version;
        let handovers = format!("benchmarks/handovers-{version}.svg");
        let elections = format!("benchmarks/elections-{version}.svg");
        charts::handovers(&root.join(&handovers), on_etcd)?;
        charts::elections(&root.join(&elections), on_etcd)?;
        let tables = table(on_etcd, extent);
        write!(
            sections,
            "## etcd {version}\n\n{tables}\n\
             ![Handovers: how many were over by then]({handovers})\n\n\
             ![Time and memory against the number of elections]({elections})\n\n"
        )?;
    }
    let most = measured.iter().flat_map(|on_etcd| on_etcd.go.counts()).max().unwrap_or_default();
    let page = TEMPLATE
        .replace("{{machine}}", &machine()?)
        .replace("{{versions}}", &versions(programs)?)
        .replace("{{measured}}\n", &sections)
        .replace("{{losses}}\n", &losses(measured, extent))
        .replace("{{handovers}}", &extent.handovers.to_string())
        .replace("{{repeats}}", &extent.repeats.to_string())
        .replace("{{most}}", &grouped(most));
    fs::write(root.join("BENCHMARKS.md"), page)?;
    println!("BENCHMARKS.md and benchmarks/ are written");
    Ok(())
}

/// Where ours takes more than the other, and which goals are missed.
fn losses(measured: &[OnEtcd], extent: Extent) -> String {
    let mut lines = String::new();
    for on_etcd in measured {
        for figure in figures::of(on_etcd, extent.sessions) {
            let (goal, met) = figure.goal();
            if met && figure.ratio() <= 1.0 {
                continue;
            }
            let missed = if met { String::new() } else { format!(" (the goal is {goal})") };
            let _ = writeln!(
                lines,
                "- etcd {}, {}: {:.2} {} against {:.2} of {}, {:.2} times{missed}.",
                on_etcd.version,
                figure.what,
                figure.ours,
                figure.unit,
                figure.theirs,
                figure.other,
                figure.ratio(),
            );
        }
    }
    if lines.is_empty() { "Nothing, in this run.\n\n".into() } else { lines + "\n" }
}

/// Its processor, cores, memory and kernel.
fn machine() -> Result<String> {
    let line = |path: &str, field: &str| -> Result<String> {
        let text = fs::read_to_string(path)?;
        let value = text.lines().find_map(|line| line.strip_prefix(field));
        Ok(value.context(field.to_owned())?.trim_start_matches([' ', '\t', ':']).trim().into())
    };
    let processor = line("/proc/cpuinfo", "model name").unwrap_or_else(|_| "unknown".into());
    let memory: f64 = line("/proc/meminfo", "MemTotal")?.trim_end_matches(" kB").parse()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!(
        "{} cores ({processor}), {:.0} GiB of memory, Linux {}",
        available_parallelism()?,
        memory / 1_048_576.0,
        kernel.trim()
    ))
}

fn versions(programs: &Programs) -> Result<String> {
    let first_line = |command: &mut Command| -> Result<String> {
        let output = command.output()?.stdout;
        Ok(String::from_utf8(output)?.lines().next().unwrap_or_default().to_owned())
    };
    let profile = if cfg!(debug_assertions) { "not optimised" } else { "release" };
    let mut versions = vec![format!("Incumbent {} ({profile})", env!("CARGO_PKG_VERSION"))];
    versions.push(first_line(Command::new("rustc").arg("--version"))?);
    versions.push(programs.go_version.clone());
    let package = ["--showformat=golang-etcd-server-dev ${Version}", "--show"];
    versions
        .push(first_line(Command::new("dpkg-query").args(package).arg("golang-etcd-server-dev"))?);
    for version in Version::ALL {
        versions.push(first_line(Command::new(version.programs().join("etcd")).arg("--version"))?);
    }
    Ok(versions.join("; "))
}

/// A table whose columns stand in line.
fn markdown<const N: usize>(rows: &[[String; N]]) -> String {
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
