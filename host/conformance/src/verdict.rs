//! How a check ends, and keys as its sentences show them.

use incumbent::types::Entry;

/// Why a check went no further.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// A sentence that says what the contract demands, and what the store did.
    Breach(String),
    /// Why the check proves nothing here.
    Skip(String),
}

/// Why a check of a short lease may prove nothing.
pub(super) const TOO_SLOW: &str = "the machine was too slow to keep a lease alive";

pub(super) type Verdict<T = ()> = Result<T, Stop>;

/// Ends the check with a breach, unless this holds.
macro_rules! ensure {
    ($holds:expr, $($sentence:tt)+) => {
        if !$holds {
            return Err($crate::verdict::Stop::Breach(format!($($sentence)+)));
        }
    };
}

/// Binds the parts of an answer, or ends the check with a breach that says what the answer
/// should have been.
macro_rules! expect {
    ($answer:expr, $pattern:pat, $($sentence:tt)+) => {
        let answer = $answer;
        let $pattern = answer.clone() else {
            return Err($crate::verdict::Stop::Breach(format!(
                "{}, but the store said {answer:?}",
                format_args!($($sentence)+),
            )));
        };
    };
}

/// The names of the keys that a selection found, with blanks between them.
pub(super) fn names(found: &[Entry]) -> String {
    let names: Vec<_> = found.iter().map(|entry| name(&entry.key)).collect();
    names.join(" ")
}

pub(super) fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
