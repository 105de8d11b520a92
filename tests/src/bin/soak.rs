//! Elections of real processes under faults: `just soak --minutes 10`,
//! `just soak --false-alarms --minutes 15`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use incumbent_tests::etcd::Version;
use incumbent_tests::soak::{false_alarms, log, run, terms};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// Has three hosts count together on an etcd of three members, while what can go wrong
/// does, and judges what they write down. The exit status is 1 if something is not as it
/// has to be.
#[derive(Parser)]
struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 2.0, value_parser = minutes)]
    minutes: f64,
    /// Which etcd: 3.4 or 3.5.
    #[arg(long, default_value = "3.5", value_name = "VERSION")]
    etcd: Version,
    /// What the faults are drawn from; a new one unless given. The times at which they
    /// come are real: no two runs are the same.
    #[arg(long)]
    seed: Option<u64>,
    /// How long leases live, in seconds: 3 unless given, 5 for false alarms.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..))]
    ttl: Option<u64>,
    /// Leave the logs in this directory, which must be new or empty. Otherwise they stay
    /// only where something was wrong.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// An operator removes leaders as well: then two may believe that they lead, for a
    /// moment, and only what they write is judged.
    #[arg(long, conflicts_with = "false_alarms")]
    operator: bool,
    /// No faults but 1% loss and 50 ms jitter between hosts and members: four elections,
    /// and no leader may lose its term. Wants root, or user namespaces; ip and nft.
    #[arg(long, conflicts_with = "seed")]
    false_alarms: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "is no number")?;
    // Longer ones would be cut short by the memory that their judgement takes.
    if (0.0..=1440.0).contains(&minutes) { Ok(minutes) } else { Err("0 to 1440".into()) }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.false_alarms
        && let Err(sentence) = false_alarms::enter()
    {
        eprintln!("packets can be lost only in a network namespace: {sentence}");
        return ExitCode::from(2);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(soak(&arguments)) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all was as it has to be.
async fn soak(arguments: &Arguments) -> io::Result<bool> {
    let temporary = TempDir::with_prefix("incumbent-soak-")?;
    let logs = arguments.keep.as_deref().unwrap_or(temporary.path());
    log::directory(logs)?;
    let [mut interrupt, mut terminate] =
        [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).expect("Unix"));
    let result = tokio::select! {
        result = run(arguments, logs) => Some(result),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    let report = terms::judge(&log::read(logs)?);
    print!("{report}");
    let is_good = report.is_good() && !matches!(result, Some(Err(_)));
    match &result {
        None => println!("interrupted: this is what it came to"),
        Some(Err(error)) => println!("not carried through: {error}"),
        Some(Ok(())) => {}
    }
    if !is_good {
        let logs = arguments.keep.clone().unwrap_or_else(|| temporary.keep());
        println!("the logs are in {}", logs.display());
    }
    Ok(is_good && result.is_some())
}

async fn run(arguments: &Arguments, logs: &Path) -> io::Result<()> {
    let Arguments { minutes, etcd, seed, ttl, operator, false_alarms, .. } = *arguments;
    let counter = std::env::current_exe()?.with_file_name("counter");
    let length = Duration::from_secs_f64(60.0 * minutes);
    let ttl = Duration::from_secs(ttl.unwrap_or(if false_alarms { 5 } else { 3 }));
    let logs = logs.to_owned();
    if false_alarms {
        let (loss, jitter) = (1, Duration::from_millis(50));
        let version = etcd;
        false_alarms::run(&false_alarms::Options {
            version,
            ttl,
            length,
            loss,
            jitter,
            logs,
            counter,
        })
        .await
    } else {
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        println!("seed {seed}");
        let version = etcd;
        run::run(&run::Options { version, ttl, length, seed, operator, logs, counter }).await
    }
}
