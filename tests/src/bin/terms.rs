//! Reads the logs of a soak, and says whether two terms of one election overlap, and
//! what else they show.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use incumbent_tests::soak::{log, terms};

/// Reads the logs of a soak, and says whether two terms of one election overlap, and
/// what else they show. The exit status is 1 if something is not as it has to be.
#[derive(Parser)]
struct Arguments {
    /// The directory of the logs: *.jsonl.
    directory: PathBuf,
}

fn main() -> ExitCode {
    let directory = Arguments::parse().directory;
    match log::read(&directory) {
        Ok(lines) => {
            let report = terms::judge(&lines);
            print!("{report}");
            ExitCode::from(u8::from(!report.is_good()))
        }
        Err(error) => {
            eprintln!("the logs in {} cannot be read: {error}", directory.display());
            ExitCode::from(2)
        }
    }
}
