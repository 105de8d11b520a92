//! The program `incumbent`: parses the command line, and runs one command.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `args`, `parse`, `checks` | the command line: its flags, their values, what they mean together |
//! | `campaign`, `run`, `observe`, `leader`, `candidates`, `put`, `get`, `depose`, `transfer` | the commands |
//! | `version`, `completions` | which build this is; completions for shells, and manual pages |
//! | `doctor` | the command that checks, before an election, whether its store serves |
//! | `replay` | the command that runs recordings again, and tells their story |
//! | `session` | the connection to the store, and its end |
//! | `event`, `text`, `output`, `stdout` | what is printed, in which form, and where |
//! | `instance`, `http` | what is known of this instance, and the endpoint that tells it |
//! | `systemd` | what systemd is told of this instance, where it wants to know |
//! | `limits` | whether the system grants the files and threads that we need |
//! | `signals`, `exit` | how the program ends, and with which status |

mod args;
mod campaign;
mod candidates;
mod checks;
mod completions;
mod depose;
mod doctor;
mod drain;
mod event;
mod exit;
mod get;
mod http;
mod instance;
mod leader;
mod limits;
mod observe;
mod output;
mod parse;
mod put;
mod replay;
mod run;
mod session;
mod signals;
mod sql;
mod stdout;
mod systemd;
mod text;
mod transfer;
mod version;

use std::process::ExitCode;

use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

use self::args::{Cli, Command};
use self::exit::{End, Status, bad_input, say};
use self::output::Output;

fn main() -> ExitCode {
    if let Some(end) = run::part() {
        return end;
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error).into(),
    };
    program(&cli).unwrap_or_else(|end| end.print()).into()
}

/// Runs the command, once it is clear that the system grants what it needs.
fn program(cli: &Cli) -> Result<Status, End> {
    let is_run = matches!(cli.command, Command::Run(_));
    if !is_run {
        stdout::check()?;
    }
    limits::check()?;
    // One thread: CMD is killed when the thread that started it ends, so the thread that lives
    // longest has to start it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        bad_input(format!(
            "the program cannot start ({error}): allow it more open files (ulimit -n)"
        ))
    })?;
    if is_run {
        run::may_write_from_the_background();
    }
    let log = log(cli)?;
    let status = runtime.block_on(perform(cli)).unwrap_or_else(|end| end.print());
    runtime.block_on(log.flush());
    // Does not wait for a name that is still being looked up.
    runtime.shutdown_background();
    Ok(status)
}

async fn perform(cli: &Cli) -> Result<Status, End> {
    let common = &cli.common;
    match &cli.command {
        Command::Run(run) => run::run(common, run).await,
        Command::Campaign(campaign) => campaign::campaign(common, campaign).await,
        Command::Observe(named) => observe::observe(common, named).await,
        Command::Leader(named) => leader::leader(common, named).await,
        Command::Candidates(named) => candidates::candidates(common, named).await,
        Command::Put(put) => put::put(common, put).await,
        Command::Get(get) => get::get(common, get).await,
        Command::Depose(depose) => depose::depose(common, depose).await,
        Command::Transfer(transfer) => transfer::transfer(common, transfer).await,
        Command::Drain(drain) => drain::drain(common, drain).await,
        Command::Replay(replay) => replay::replay(common, replay),
        Command::Sql(sql) => sql::sql(common, sql),
        Command::Version => version::version(common),
        Command::Completions(shell) => completions::completions(shell),
        Command::Man(pages) => completions::manual_pages(pages),
        Command::Doctor(doctor) => doctor::doctor(common, doctor).await,
    }
}

/// Prints help as it is, and an error as one sentence.
fn not_parsed(error: &clap::Error) -> Status {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Fails if nobody reads it.
        let _ = error.print();
        return Status::Done;
    }
    say(&sentence(&error.render().to_string()));
    Status::BadInput
}

/// The first of clap's paragraphs: the error, and perhaps a hint.
fn sentence(rendered: &str) -> String {
    let (fault, _) = rendered
        .split_once("\nUsage:")
        .or_else(|| rendered.split_once("\nFor more information"))
        .unwrap_or((rendered, ""));
    let fault: Vec<&str> = fault.trim_start_matches("error: ").split_whitespace().collect();
    format!("{} (`incumbent --help` tells more)", fault.join(" ").trim_end_matches('.'))
}

/// The log, on standard error: warnings that nothing else reports, and more if asked for.
fn log(cli: &Cli) -> Result<Output, End> {
    let filter = match cli.common.verbose {
        0 => "incumbent::store=warn,incumbent::recording=warn,incumbent_plugin=warn",
        1 => "incumbent=info,incumbent_plugin=info",
        2 => "incumbent=debug,incumbent_plugin=debug",
        _ => "trace",
    };
    let gap = |many| format!("incumbent: lines of the log are missing here: {many}");
    let output = Output::to_stderr(Box::new(gap))?;
    let writer = output.clone();
    // Fails if a log is set already, which nothing does.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .try_init();
    Ok(output)
}
