//! BENCHMARKS.md with its charts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result};
use incumbent_tests::etcd::Version;

use crate::capacity;
use crate::charts;
use crate::elections;
use crate::figures::{self, grouped};
use crate::peers::Programs;
use crate::plan::Plan;
use crate::rounds::{Extent, OnEtcd};
use crate::tables;

const TEMPLATE: &str = include_str!("page.md");

/// BENCHMARKS.md, and `benchmarks/` with the charts.
pub fn write(
    programs: &Programs,
    measured: &[OnEtcd],
    plan: &Plan<'_>,
    extent: Extent,
) -> Result<()> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("in the workspace")?;
    fs::create_dir_all(root.join("benchmarks"))?;
    let mut sections = String::new();
    for on_etcd in measured {
        let version = on_etcd.version;
        let handovers = format!("benchmarks/handovers-{version}.svg");
        let elections = format!("benchmarks/elections-{version}.svg");
        charts::handovers(&root.join(&handovers), on_etcd)?;
        charts::elections(&root.join(&elections), on_etcd)?;
        let tables = tables::all(on_etcd, extent);
        write!(
            sections,
            "## On etcd {version}\n\n\
             ![Handovers: the share that was over after a time]({handovers})\n\n\
             ![Time and memory against the number of elections]({elections})\n\n{tables}\n"
        )?;
    }
    let page = TEMPLATE
        .replace("{{machine}}", &machine()?)
        .replace("{{versions}}", &versions(programs)?)
        .replace("{{measured}}\n", &sections)
        .replace("{{losses}}\n", &losses(measured, extent))
        .replace("{{rates}}\n", &plan.rates())
        .replace("{{costs}}\n", &plan.costs())
        .replace("{{deployments}}\n", &plan.deployments())
        .replace("{{check}}\n", &plan.check())
        .replace("{{handovers}}", &extent.handovers.to_string())
        .replace("{{sessions}}", &grouped(extent.sessions))
        .replace("{{repeats}}", &extent.repeats.to_string())
        .replace("{{limit}}", &elections::LIMIT.as_secs().to_string())
        .replace("{{dropped}}", &grouped(elections::DROPPED.min(extent.elections)))
        .replace("{{supervisors}}", &extent.supervisors.to_string())
        .replace("{{carriers}}", &capacity::CARRIERS.to_string())
        .replace("{{carried}}", &(capacity::CARRIERS * capacity::ELECTIONS_EACH).to_string())
        .replace("{{time}}", &capacity::TIME.as_secs().to_string());
    fs::write(root.join("BENCHMARKS.md"), page)?;
    println!("BENCHMARKS.md and benchmarks/ are written");
    Ok(())
}

/// Where ours takes more than the other, and which goals are missed.
fn losses(measured: &[OnEtcd], extent: Extent) -> String {
    let mut rows = vec![["etcd", "what", "other", "Incumbent", "ratio", "goal"].map(String::from)];
    for on_etcd in measured {
        for figure in figures::of(on_etcd, extent) {
            let (goal, met) = figure.goal();
            if !met || figure.ratio() > 1.0 || !figure.ours.is_finite() {
                let [what, theirs, ours, ratio] = figure.cells();
                rows.push([on_etcd.version.to_string(), what, theirs, ours, ratio, goal]);
            }
        }
    }
    if rows.len() == 1 { "Nothing, in this run.\n".into() } else { tables::markdown(&rows) }
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
