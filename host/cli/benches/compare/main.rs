//! Incumbent and the `concurrency` package of etcd's Go client side by side, and `incumbent run`
//! and `etcdctl lock`, in turns, on both versions of etcd: elections won and taken over by the
//! thousand, memory, handovers, and what etcd is asked. Then, how many handovers an etcd of three
//! members carries. With `--write` the figures become BENCHMARKS.md and its charts.
//!
//! `just bench compare [quick] [HANDOVERS] [--write]`

#![expect(clippy::indexing_slicing, reason = "what is measured has a first and a last")]

mod capacity;
mod charts;
mod elections;
mod figures;
mod handovers;
mod page;
mod peer;
mod peers;
mod plan;
mod rates;
mod requests;
mod rounds;
mod store;
mod supervisors;
mod tables;

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use incumbent_tests::etcd::Version;
use tokio::runtime::Runtime;

use self::peers::Programs;
use self::plan::Plan;
use self::requests::Work;
use self::rounds::Extent;

const ALL: Extent =
    Extent { handovers: 100, repeats: 3, elections: 100_000, sessions: 1_000, supervisors: 5 };
const QUICK: Extent =
    Extent { handovers: 20, repeats: 1, elections: 1_000, sessions: 100, supervisors: 2 };

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let runtime = Runtime::new()?;
    if let [role, url, ttl] = &arguments[..]
        && role == "peer"
    {
        // On the threads that the session's tasks are on, as in Go.
        let peer = runtime.spawn(peer::run(url.clone(), Duration::from_secs(ttl.parse()?)));
        return runtime.block_on(peer)?;
    }
    let (mut extent, mut write) = (ALL, false);
    for argument in &arguments {
        match argument.as_str() {
            "quick" => extent = QUICK,
            "--write" => write = true,
            // Cargo adds it.
            "--bench" => {}
            count => {
                extent.handovers = count.parse().with_context(|| {
                    format!("there are quick, --write and a number of handovers, not {count}")
                })?;
            }
        }
    }
    if let Some(lack) = Programs::lack() {
        println!("{lack}");
        return Ok(());
    }
    let programs = Programs::build()?;
    let since = Instant::now();
    let mut measured = Vec::new();
    for version in Version::ALL {
        let on_etcd = runtime.block_on(rounds::measure(&programs, version, extent))?;
        println!("## etcd {version}\n\n{}", tables::all(&on_etcd, extent));
        measured.push(on_etcd);
    }
    let on_etcd = measured.iter().find(|on_etcd| on_etcd.version == capacity::VERSION);
    let handover = on_etcd.context("both versions are measured")?.ours.asked(Work::Pair);
    let capacity = runtime.block_on(capacity::measure(&programs, &handover))?;
    let plan = Plan::new(&measured, &capacity).context("both versions are measured")?;
    println!("## Three members\n\n{}\n{}", plan.rates(), plan.check());
    println!("measured in {:.0} s", since.elapsed().as_secs_f64());
    if write {
        page::write(&programs, &measured, &plan, extent)?;
    }
    Ok(())
}
