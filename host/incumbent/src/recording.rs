//! What a session's electors were told and what they said, in files: for a person who wants to
//! know why something happened, and for a test that makes it happen again.
//!
//! A thread of its own writes the files. The driver hands it each step and never waits for it. A
//! line is written at once and whole, but not synced: after a crash of the process all lines are
//! there up to the last few milliseconds, and after a crash of the machine the last seconds may
//! be missing.
//!
//! `tests/transcripts/README.md` has the form of the lines. [`Line`] reads and writes them, and
//! [`Replay`] has the component say again what it said.

use std::path::PathBuf;

mod action;
mod ended;
mod json;
mod line;
mod recorder;
mod replay;
mod writer;

pub use action::{HostAction, KnownElection, NamedTerm};
pub use line::{Head, Line};
pub(crate) use recorder::{Recorder, Stream};
pub use replay::{Compared, Replay};

/// Where and how a session is recorded.
///
/// ```
/// use std::time::UNIX_EPOCH;
/// use incumbent::Options;
/// use incumbent::recording::Recording;
///
/// // What to write as the time is yours to say: RFC 3339, as the crate `humantime` makes it.
/// let recording = Recording::new("recordings", || {
///     humantime::format_rfc3339_millis(UNIX_EPOCH + UNIX_EPOCH.elapsed().unwrap_or_default())
///         .to_string()
/// });
/// let options = Options { recording: Some(recording), ..Options::default() };
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// The directory of the files, which is made if it is not there. Several processes may share
    /// one.
    pub dir: PathBuf,
    /// How many bytes all files of this recording may have together, with those of recordings in
    /// the same directory that have ended: 64 MiB by default, and 64 KiB at least. The oldest files
    /// go first.
    pub limit: u64,
    /// Whether to write the values of candidates and of keys. By default something else stands in
    /// the place of each value, the same for the same value. Names and keys are always written, and so
    /// are the numbers of wishes, and the texts of failures: those of this library's stores hold no values.
    pub values: bool,
    /// Tells the time by the wall clock, as RFC 3339. The library itself does not read that clock.
    pub time: fn() -> String,
}

impl Recording {
    /// A recording in this directory, whose times are told by `time`.
    pub fn new(dir: impl Into<PathBuf>, time: fn() -> String) -> Self {
        Self { dir: dir.into(), limit: 64 << 20, values: false, time }
    }
}
