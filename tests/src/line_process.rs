//! A process that answers each line of its input with a line, and ends with its input.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The process. Its input is closed at the end, and its end waited for.
#[derive(Debug)]
pub struct LineProcess {
    name: &'static str,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    deadline: Option<Instant>,
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
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Ok(Self { name, process, input, output, deadline: None })
    }

    /// Kills it if an answer has not come by then.
    pub fn answers_until(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
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
    /// If it has ended, and [`ErrorKind::TimedOut`] if it had to be killed.
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
    /// If it has ended, and [`ErrorKind::TimedOut`] if it had to be killed.
    pub fn answer(&mut self) -> io::Result<String> {
        if let Some(deadline) = self.deadline
            && self.output.buffer().is_empty()
            && !self.answers_by(deadline)?
        {
            self.process.kill()?;
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("{} took too long", self.name),
            ));
        }
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other(format!("{} has ended", self.name)));
        }
        Ok(line.trim_end_matches('\n').to_owned())
    }

    /// Waits until there is something to read.
    fn answers_by(&self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut output = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        Ok(poll(&mut output, Some(&left))? > 0)
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}
