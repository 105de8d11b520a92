//! A process that answers each line of its input with a line, and ends with its input.

use std::io::{self, BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process. Its input is closed at the end, and its end waited for.
#[derive(Debug)]
pub struct LineProcess {
    name: &'static str,
    process: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl LineProcess {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If it does not start.
    ///
    /// # Panics
    ///
    /// Never: its output is piped.
    pub fn start(name: &'static str, command: &mut Command) -> io::Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::other(format!("{name} does not start: {error}")))?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("piped")).lines();
        Ok(Self { name, process, input, output })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes a line to it, and reads the answer.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        if let Some(input) = &mut self.input {
            writeln!(input, "{line}")?;
        }
        self.answer()
    }

    /// Reads a line of it.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn answer(&mut self) -> io::Result<String> {
        let ended = || Err(io::Error::other(format!("{} has ended", self.name)));
        self.output.next().unwrap_or_else(ended)
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}
