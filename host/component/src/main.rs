//! Writes the component to standard output; with `--source`, the hash of its sources.

use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut output = stdout().lock();
    if output.is_terminal() && std::env::args().count() == 1 {
        eprintln!(
            "these are bytes: send them to a file, as in `incumbent-component >incumbent.wasm`"
        );
        return ExitCode::from(2);
    }
    let answer = match std::env::args().nth(1).as_deref() {
        None => incumbent_component::BYTES,
        Some("--source") => incumbent_component::SOURCE_SHA256.as_bytes(),
        Some(other) => {
            eprintln!("there is only --source, and no {other}");
            return ExitCode::from(2);
        }
    };
    match output.write_all(answer).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the component cannot be written to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
