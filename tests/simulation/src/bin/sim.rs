//! Simulated elections, by seeds: `just sim --seeds 1000000`, `just sim --seed 7`.

use std::process::ExitCode;

use clap::Parser;
use incumbent_simulation::plan::Plan;
use incumbent_simulation::{run, seeds, tell};

/// Simulates elections under faults, and judges the laws.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run this one alone, and tell its story.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Run the component, step by step beside the native elector.
    #[cfg(feature = "component")]
    #[arg(long, conflicts_with = "seed")]
    component: bool,
    /// Of one seed, only what this process has to do with: a transcript.
    #[arg(long, requires = "seed")]
    process: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        let plan = Plan::draw(seed);
        return match tell(&plan, arguments.process) {
            (Ok(_), told) => {
                println!("{told}\nseed {seed} keeps the laws: {plan:#?}");
                ExitCode::SUCCESS
            }
            (Err(broken), told) if arguments.process.is_some() => {
                println!("{told}\n{broken}");
                ExitCode::FAILURE
            }
            (Err(broken), _) => {
                println!("{}", seeds::Found { seed, broken }.story(&plan));
                ExitCode::FAILURE
            }
        };
    }
    #[cfg(feature = "component")]
    let run = if arguments.component { incumbent_simulation::run_component } else { run };
    match seeds::run_all(arguments.first..arguments.first + arguments.seeds, Plan::draw, run) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(found) => {
            println!("{found}");
            ExitCode::FAILURE
        }
    }
}
