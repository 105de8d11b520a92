//! Simulated elections, by seeds: `just sim --seeds 1000000`, `just sim --seed 7`,
//! `just sim --elections 10000 --seconds 60`, `just sim --seeds 1000 --record DIR`.

use std::process::ExitCode;
use std::time::Duration;

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
    #[arg(long, conflicts_with_all = ["seeds", "first", "seconds"])]
    seed: Option<u64>,
    /// Begin no seed after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Have every process campaign in so many elections, instead of in as many as the seed draws.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    elections: Option<u32>,
    /// Run the component, step by step beside the native elector.
    #[cfg(feature = "component")]
    #[arg(long, conflicts_with = "seed")]
    component: bool,
    /// Write what each process's elector was told to this directory, which is made, for
    /// `incumbent replay` and `just judge --each`. Of several seeds, each has a directory in it.
    #[cfg(feature = "component")]
    #[arg(long, conflicts_with_all = ["component", "seconds"], value_name = "DIR")]
    record: Option<std::path::PathBuf>,
    /// Of one seed, only what this process has to do with: a transcript.
    #[arg(long, requires = "seed")]
    process: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let draw = |seed| match arguments.elections {
        Some(elections) => Plan::draw_many(seed, elections as usize),
        None => Plan::draw(seed),
    };
    if let Some(seed) = arguments.seed {
        let plan = draw(seed);
        #[cfg(feature = "component")]
        if let Some(dir) = &arguments.record {
            if let Err(error) = incumbent_simulation::write_recordings(&plan, dir) {
                println!("nothing is recorded in {}: {error}", dir.display());
                return ExitCode::FAILURE;
            }
            println!(
                "recorded: `incumbent replay {}` tells what the electors say to it",
                dir.display()
            );
        }
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
    let seeds = arguments.first..arguments.first.saturating_add(arguments.seeds);
    #[cfg(feature = "component")]
    if let Some(dir) = &arguments.record {
        for seed in seeds {
            let dir = dir.join(seed.to_string());
            if let Err(error) = incumbent_simulation::write_recordings(&draw(seed), &dir) {
                println!("seed {seed} is not recorded in {}: {error}", dir.display());
                return ExitCode::FAILURE;
            }
        }
        println!(
            "recorded: `just judge --each {}` holds it to the model that is proved",
            dir.display()
        );
        return ExitCode::SUCCESS;
    }
    let time = arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
    match seeds::run_within(time, seeds, draw, run) {
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
