//! How the program ends where it does not end well: with a status, and a sentence.

use std::io::{self, Write};

use incumbent::{Error, Failure};

use crate::text::shown;

/// What was promised did not hold.
pub const NOT_SO: u8 = 1;
/// Bad usage or configuration.
pub const BAD_INPUT: u8 = 2;
/// The store was not reached, or refuses.
pub const STORE: u8 = 4;

#[derive(Debug)]
pub struct End {
    pub status: u8,
    /// None where the status says it all.
    pub sentence: Option<String>,
}

impl End {
    pub fn new(status: u8, sentence: impl Into<String>) -> Self {
        Self { status, sentence: Some(sentence.into()) }
    }

    pub fn bad_input(sentence: impl Into<String>) -> Self {
        Self::new(BAD_INPUT, sentence)
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        // A withdrawal is told by its reason.
        if let Error::Withdrawn(failure) = error {
            let is_bad_input = matches!(failure, Failure::Invalid(_));
            return Self::new(if is_bad_input { BAD_INPUT } else { STORE }, failure.to_string());
        }
        let is_bad_input = matches!(&error, Error::Configuration(_))
            || matches!(&error, Error::Connect(error) if error.is_configuration())
            || matches!(&error, Error::Sqlite(error) if error.is_configuration());
        Self::new(if is_bad_input { BAD_INPUT } else { STORE }, error.to_string())
    }
}

/// A sentence on standard error. If that is closed, nobody wants it.
pub fn say(sentence: &str) {
    let line = format!("incumbent-demo: {}\n", shown(sentence));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}
