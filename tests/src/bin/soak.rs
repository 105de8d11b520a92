//! Elections of real processes under faults: `just soak --minutes 10`,
//! `just soak --false-alarms --minutes 15`.

use std::error::Error;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use incumbent_tests::netns;
use incumbent_tests::soak::host::RECORDINGS;
use incumbent_tests::soak::run::{ADVISORY, Options, run};
use incumbent_tests::soak::terms::{self, Report};
use incumbent_tests::soak::{log, recordings};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// Has three hosts count together on an etcd of three members, or on a PostgreSQL, while hosts, members and links
/// fail, and judges their logs. The exit status is 1 if a claim proves false.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Leave the logs in this directory, which must be new or empty. Otherwise they stay
    /// only where something was wrong.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Run nothing, and judge the logs (*.jsonl) that a soak has left in this directory.
    #[arg(long, value_name = "DIR", exclusive = true)]
    judge: Option<PathBuf>,
}

fn main() -> ExitCode {
    match soak(&Arguments::parse()) {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every claim has held.
fn soak(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if let Some(logs) = &arguments.judge {
        let is_good = judge(logs)?.is_good() & is_held_to_the_model(logs);
        beside(logs)?;
        return Ok(is_good);
    }
    // Before there are threads: a namespace is for a whole program.
    if arguments.options.false_alarms && !netns::is_inside() {
        let arguments = std::env::args_os().skip(1);
        return Err(netns::this_program_inside()?.args(arguments).exec().into());
    }
    let temporary = TempDir::with_prefix("incumbent-soak-")?;
    let logs = arguments.keep.as_deref().unwrap_or(temporary.path());
    log::directory(logs)?;
    let result = tokio::runtime::Runtime::new()?.block_on(run_or_signal(&arguments.options, logs));
    let is_good = judge(logs)?.is_good() && !matches!(result, Some(Err(_)));
    let is_good = is_good & is_held_to_the_model(logs);
    beside(logs)?;
    match &result {
        None => println!("interrupted: the logs were judged as far as they go"),
        Some(Err(error)) => println!("not carried through: {error}"),
        Some(Ok(())) => {}
    }
    if !is_good {
        let logs = arguments.keep.clone().unwrap_or_else(|| temporary.keep());
        println!("the logs are in {}", logs.display());
        println!("`incumbent replay {}` tells the story", logs.join(RECORDINGS).display());
    }
    Ok(is_good && result.is_some())
}

/// Whether the hosts' recordings keep to the model.
fn is_held_to_the_model(logs: &Path) -> bool {
    let told = recordings::judge(&logs.join(RECORDINGS));
    let (Ok(text) | Err(text)) = &told;
    print!("held to the model: {text}");
    told.is_ok()
}

/// None if it was interrupted.
async fn run_or_signal(options: &Options, logs: &Path) -> Option<std::io::Result<()>> {
    let [mut interrupt, mut terminate] =
        [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).expect("Unix"));
    let counter = std::env::current_exe().expect("this program").with_file_name("counter");
    tokio::select! {
        result = run(options, logs, &counter) => Some(result),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    }
}

/// The same of the hosts by advisory lock, if there were any: they are counted, and not held to anything.
fn beside(logs: &Path) -> Result<(), String> {
    let logs = logs.join(ADVISORY);
    if logs.is_dir() {
        println!(
            "\nbeside it, under the same faults, an election by advisory lock as people write it:"
        );
        judge(&logs)?;
    }
    Ok(())
}

/// Judges the logs in a directory, and prints what they show.
fn judge(logs: &Path) -> Result<Report, String> {
    let lines = log::read(logs)
        .map_err(|error| format!("cannot read the logs in {}: {error}", logs.display()))?;
    let report = terms::judge(&lines);
    print!("{report}");
    Ok(report)
}
