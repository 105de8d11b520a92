//! How the program ends if it does not succeed, and what it says then.

use std::fmt::Display;
use std::io::{self, Write};

use incumbent::{Error, Failure};

/// What was promised did not hold.
pub const NOT_SO: u8 = 1;
/// Bad usage or configuration.
pub const BAD_INPUT: u8 = 2;
/// The store was not reached, or refuses.
pub const STORE: u8 = 4;

#[derive(Debug)]
pub struct End {
    pub status: u8,
    /// None if the status says it all.
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

/// Makes an end of an error of the system.
pub fn cannot<E: Display>(what: &str) -> impl FnOnce(E) -> End {
    move |error| End::bad_input(format!("the program cannot {what}: {error}"))
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        let is_bad_input =
            matches!(&error, Error::Configuration(_) | Error::Url(_) | Error::Thread(_))
                || matches!(&error, Error::Withdrawn(Failure::Invalid(_)))
                || matches!(&error, Error::Connect(error) if error.is_configuration())
                || matches!(&error, Error::Sqlite(error) if error.is_configuration());
        Self::new(if is_bad_input { BAD_INPUT } else { STORE }, error.to_string())
    }
}

/// Writes a sentence to standard error, if that is open.
pub fn say(sentence: &str) {
    let line = format!("incumbent-demo: {}\n", shown(sentence));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The text on one line, with all control characters escaped.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '\'' | '"' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

/// The same for a text of others, which may be long.
pub fn shortened(text: impl ToString) -> String {
    shown(&text.to_string()).chars().take(500).collect()
}
