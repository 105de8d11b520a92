//! The demonstration: candidates as processes of their own, for a user to watch, kill, pause and
//! stop.
//!
//! | modules | what is in them |
//! | --- | --- |
//! | `candidate`, `counter` | one candidate, a process, and what it does while it leads |
//! | `report`, `process` | what candidates report, and their processes |
//! | `record`, `journal` | what has been observed, and what is told of it |
//! | `timeline`, `verdict` | how that looks, and whether it is as promised |
//! | `controller` | starts the candidates, and does to them what is asked for |
//! | `script`, `live`, `screen`, `svg` | as a story, in the terminal, and as a file |
//! | `end` | what the program says at its end |

mod candidate;
mod controller;
mod counter;
mod end;
mod journal;
mod live;
mod process;
mod record;
mod report;
#[cfg(test)]
mod sample;
mod screen;
mod script;
mod svg;
mod timeline;
mod verdict;

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use incumbent::StoreUrl;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::candidate::{Part, candidate};
use crate::controller::{Controller, now};
use crate::end::{End, cannot, say};

/// Three candidates of one election, as processes of this machine: kill them, pause them, and try
/// to get two leaders, or a late write through
#[derive(Debug, Parser)]
#[command(
    name = "incumbent-demo",
    version,
    after_help = "Exit status: 0 as promised; 1 not so; 2 bad usage; 4 the store was not \
        reached, or refuses; 128 + n where signal n broke the story off."
)]
struct Args {
    /// Tell a fixed story as plain text, and exit with 1 if any claim proves false
    #[arg(long)]
    script: bool,
    /// Draw the story into this file as well, as an SVG picture (with --script)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Where the store is: local, sqlite:PATH, or etcd://HOST:PORT
    #[arg(
        long,
        env = "INCUMBENT_STORE",
        hide_env_values = true,
        value_name = "URL",
        allow_hyphen_values = true,
        default_value = "local"
    )]
    store: String,
    /// How long a lease lives without renewals: a killed leader is replaced that much later
    #[arg(
        long,
        env = "INCUMBENT_TTL",
        hide_env_values = true,
        value_name = "DURATION",
        // A time below zero has a sentence of its own.
        allow_hyphen_values = true,
        default_value = "2s",
        value_parser = lease_time
    )]
    ttl: Duration,
}

fn main() -> ExitCode {
    let end = match Part::from_arguments(env::args_os().skip(1)) {
        Some(part) => run(candidate(part)),
        None => match Args::try_parse() {
            Ok(args) => run(demonstrate(&args)),
            Err(error) => explain(&error),
        },
    };
    let Err(End { status, sentence }) = end else { return ExitCode::SUCCESS };
    if let Some(sentence) = sentence {
        say(&sentence);
    }
    status.into()
}

fn run(program: impl Future<Output = Result<(), End>>) -> Result<(), End> {
    // One thread: candidates are killed when the thread that started them ends, so they are
    // started on the one that lives longest.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("start"))?;
    let end = runtime.block_on(program);
    // Without this, the end would wait for a name that is still being looked up.
    runtime.shutdown_background();
    end
}

/// Prints help as clap writes it, and makes one sentence of an error.
fn explain(error: &clap::Error) -> Result<(), End> {
    if !error.use_stderr() {
        // Fails where nobody reads.
        let _ = error.print();
        return Ok(());
    }
    // clap writes paragraphs: the error, perhaps a hint, the usage, and where help is.
    let rendered = error.render().to_string();
    let fault = rendered.split("\nUsage:").next().unwrap_or_default();
    let fault = fault.split("\nFor more information").next().unwrap_or_default();
    let fault: Vec<&str> = fault.trim_start_matches("error: ").split_whitespace().collect();
    let fault = fault.join(" ");
    let fault = fault.trim_end_matches('.');
    Err(End::bad_input(format!("{fault} (`incumbent-demo --help` tells more)")))
}

async fn demonstrate(args: &Args) -> Result<(), End> {
    let store = check(args)?;
    let mut signals = Signals::listen().map_err(cannot("listen to signals"))?;
    let mut controller = tokio::select! {
        controller = Controller::open(store, args.ttl) => controller?,
        _ = signals.next() => return Ok(()),
    };
    let played = tokio::select! {
        played = async {
            if args.script {
                script::play(&mut controller).await
            } else {
                live::show(&mut controller).await
            }
        } => played,
        // A story that was broken off proves nothing; in the terminal there is no story.
        status = signals.next() => {
            if args.script { Err(End { status, sentence: None }) } else { Ok(()) }
        }
    };
    // A second signal ends the program at once, and the candidates with it.
    let counter = tokio::select! {
        counter = controller.close() => counter,
        status = signals.next() => return Err(End { status, sentence: None }),
    };
    played?;
    if args.script {
        script::tell(&mut controller.journal);
    }
    let record = &controller.journal.record;
    script::conclude(record, counter)?;
    // Only a story that was true is drawn.
    if let Some(file) = &args.svg {
        fs::write(file, svg::draw(record, now())).map_err(|error| unwritable(file, &error))?;
    }
    Ok(())
}

/// Checks what can be checked before anything is started.
fn check(args: &Args) -> Result<StoreUrl, End> {
    let store: StoreUrl =
        args.store.parse().map_err(|error| End::bad_input(format!("--store: {error}")))?;
    if matches!(store, StoreUrl::Memory(_)) {
        return Err(End::bad_input(format!(
            "--store {store} is of one process, and the demonstration runs three: leave it out"
        )));
    }
    if let Some(file) = &args.svg {
        if !args.script {
            let sentence = "--svg draws the story that --script tells: add --script";
            return Err(End::bad_input(sentence));
        }
        // Checked now, not after the story. The file is not changed before there is a picture.
        let writable = OpenOptions::new().write(true).create(true).truncate(false).open(file);
        writable.map_err(|error| unwritable(file, &error))?;
    }
    let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !args.script && !has_terminal {
        return Err(End::bad_input(
            "the demonstration needs a terminal as standard input and output: `just demo --script` \
             tells a story as plain text",
        ));
    }
    Ok(store)
}

fn unwritable(file: &Path, error: &io::Error) -> End {
    End::bad_input(format!(
        "--svg {} cannot be written ({error}): give a file that we may write",
        file.display()
    ))
}

fn lease_time(text: &str) -> Result<Duration, String> {
    let is_negative = text.strip_prefix('-').is_some_and(|rest| rest.starts_with(char::is_numeric));
    match humantime::parse_duration(text) {
        Err(_) if is_negative => Err("a time cannot be negative: leave out the minus".into()),
        Err(_) => Err("write a number and its unit, as in 500ms, 10s or 1m 30s".into()),
        Ok(ttl) if ttl < Duration::from_secs(1) => {
            Err("a lease lives for a second at least: give 2s or more".into())
        }
        Ok(ttl) if ttl > Duration::from_hours(24) => {
            Err("in the demonstration a lease lives for a day at most: give less".into())
        }
        Ok(ttl) => Ok(ttl),
    }
}

/// The signals that ask the program to end.
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> io::Result<Self> {
        let [one, two, three] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self([one?, two?, three?]))
    }

    /// Waits for the next one, and returns the status of a process that it ends.
    async fn next(&mut self) -> u8 {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => 128 + 2,
            _ = terminate.recv() => 128 + 15,
            _ = hangup.recv() => 128 + 1,
        }
    }
}
