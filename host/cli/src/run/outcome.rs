//! How a term of the work went.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use incumbent::Mark;
use rustix::process::Signal;

use crate::event::in_seconds;
use crate::exit::End;
use crate::signals::Asked;

/// Nothing of the work runs any more, unless it says so.
#[derive(Debug)]
pub enum Outcome {
    /// It ended by itself.
    Ended(Ended),
    /// It was stopped, for the leadership is over, or nearly was.
    Stopped,
    /// What looked after it has ended, or its end has no cause.
    Broken { after: Duration },
    /// It was stopped because we were asked to end.
    Asked,
    /// We were asked to end, and it does not end: nobody can stop what it has begun.
    Stuck,
    /// It was killed, for we were asked twice.
    AtOnce(Asked),
    /// It did not start, and will not.
    NotStarted(End),
}

/// The work's own end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// As a shell says it.
    pub status: u8,
    /// How long it had run.
    pub after: Duration,
    /// Somebody pressed Ctrl-C or Ctrl-\.
    pub by_keyboard: bool,
}

impl Ended {
    /// Of a command.
    pub fn new(status: ExitStatus, after: Mark, had_keyboard: bool) -> Self {
        let status = match (status.code(), status.signal()) {
            (Some(status), _) => status,
            (None, Some(signal)) => 128_i32.saturating_add(signal),
            (None, None) => 255,
        };
        let status = u8::try_from(status).unwrap_or(u8::MAX);
        // Shells, and what behaves like them, end with the number only.
        let keys = [Signal::INT, Signal::QUIT].map(|key| i32::from(status) == 128 + key.as_raw());
        Self {
            status,
            after: Duration::from_nanos(after),
            by_keyboard: had_keyboard && keys.contains(&true),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended with status {} after {}", self.status, in_seconds(self.after))
    }
}
