//! How the program ends: its status, and perhaps an error.

use std::io::{self, Write};
use std::process::ExitCode;

use incumbent::{Error, Failure, WriteError};

/// The status of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done as asked.
    Done,
    /// Not found, lost, or not in time.
    NotFound,
    /// Bad usage or configuration.
    BadInput,
    /// The epoch is stale.
    Fenced,
    /// The store cannot be reached, or refuses.
    Store,
    /// The status of a command, or of the signal that ended it, as shells count.
    Passed(u8),
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => Self::SUCCESS,
            Status::NotFound => 1.into(),
            Status::BadInput => 2.into(),
            Status::Fenced => 3.into(),
            Status::Store => 4.into(),
            Status::Passed(status) => status.into(),
        }
    }
}

/// An end for which something went wrong.
#[derive(Debug)]
pub struct End {
    pub status: Status,
    /// One sentence for people; none if the status says everything.
    sentence: Option<String>,
}

impl End {
    pub fn new(status: Status, sentence: impl Into<String>) -> Self {
        Self { status, sentence: Some(sentence.into()) }
    }

    /// With the status alone.
    pub fn quiet(status: Status) -> Self {
        Self { status, sentence: None }
    }

    /// What it says to people.
    pub fn sentence(&self) -> &str {
        self.sentence.as_deref().unwrap_or_default()
    }

    /// Prints the sentence, if there is one.
    pub fn print(self) -> Status {
        if let Some(sentence) = &self.sentence {
            say(sentence);
        }
        self.status
    }
}

/// A fault in what was asked for: the sentence says what to do instead.
pub fn bad_input(sentence: impl Into<String>) -> End {
    End::new(Status::BadInput, sentence)
}

/// Prints a sentence on standard error. If that is closed, nobody wants it.
pub fn say(sentence: &str) {
    let line = format!("incumbent: {}\n", super::text::shown(sentence));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        let is_configuration = match &error {
            Error::Connect(error) => error.is_configuration(),
            Error::Sqlite(error) => error.is_configuration(),
            Error::Withdrawn(failure) => return failure.clone().into(),
            Error::Configuration(_) | Error::Url(_) | Error::Thread(_) => true,
            Error::Component(_) | Error::Lost(_) | Error::Proclaim(_) | Error::Closed => false,
            // Of a later version of the library. In an arm of its own, so that clippy finds a
            // variant that is missing here.
            _ => false,
        };
        let status = if is_configuration { Status::BadInput } else { Status::Store };
        Self::new(status, error.to_string())
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        let status = match failure {
            Failure::Invalid(_) => Status::BadInput,
            Failure::Timeout
            | Failure::Unavailable
            | Failure::Compacted(_)
            | Failure::Denied(_)
            | Failure::Other(_) => Status::Store,
        };
        Self::new(status, failure.to_string())
    }
}

impl From<WriteError> for End {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stale => Self::new(
                Status::Fenced,
                "the epoch is stale: it does not lead, and nothing was changed",
            ),
            WriteError::Failed(failure) => failure.into(),
            WriteError::Conflict | WriteError::Unknown | WriteError::Closed => {
                Self::new(Status::Store, error.to_string())
            }
            _ => Self::new(Status::Store, error.to_string()),
        }
    }
}
