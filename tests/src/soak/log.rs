//! What is written down of a soak, as it happens: one JSON object a line, each process
//! in a file of its own, and every mark by the machine's one clock, `CLOCK_BOOTTIME`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use incumbent::{BootClock, Clock, Mark};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::faults::Fault;
use incumbent_simulation::history::Outcome;

/// How the files are named: `*.jsonl`.
const EXTENSION: &str = "jsonl";

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// To whom: `worker-1`, or the `soak` itself.
    pub process: String,
    /// When, in nanoseconds.
    pub mark: Mark,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    // Of a host.
    /// It leads from now on.
    Elected {
        /// In this election.
        election: String,
        /// The term's.
        epoch: i64,
        /// The term's deadline.
        valid_until: Mark,
    },
    /// It leads on.
    Extended {
        /// In this election.
        election: String,
        /// The term's.
        epoch: i64,
        /// The term's deadline.
        valid_until: Mark,
    },
    /// It leads no more, and knows it.
    Demoted {
        /// In this election.
        election: String,
        /// The term's.
        epoch: i64,
        /// The term's last deadline.
        valid_until: Mark,
        /// Why, as the library says it; `resigned` is as it pleased.
        reason: String,
    },
    /// It is about to read the counter, to write it one higher.
    Invoke {
        /// That of this election's leaders.
        election: String,
        /// Counts this process's.
        increment: u64,
        /// The term that guards it.
        epoch: i64,
        /// At this mark, it regarded itself as leader.
        leads: bool,
    },
    /// The counter was read.
    Read {
        /// By this increment.
        increment: u64,
        /// What it was.
        value: u64,
    },
    /// The increment is over.
    Return {
        /// Which one.
        increment: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// The library said that something is wrong, and carried on.
    Trouble {
        /// What.
        text: String,
    },

    // Of the soak.
    /// It begins.
    Began(Settings),
    /// All hosts are up, and nothing is wrong.
    Ready,
    /// Something goes wrong from now on.
    Fault {
        /// Names this one.
        id: u64,
        /// What.
        fault: Fault,
    },
    /// It goes wrong no more.
    Healed {
        /// Which one.
        id: u64,
    },
    /// So much was lost on the network.
    Lost {
        /// Packets between hosts and members.
        packets: u64,
    },
    /// No more is to be judged: all is being ended.
    Ended,
    /// What a counter came to in the end.
    Counted {
        /// That of this election's leaders.
        election: String,
        /// Its value.
        value: u64,
    },
}

/// How a soak was set up: what is judged depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What the faults were drawn from.
    pub seed: u64,
    /// Which etcd.
    pub etcd: String,
    /// The lease time, in nanoseconds.
    pub ttl: u64,
    /// How long an election may be without a leader when nothing is wrong, in
    /// nanoseconds.
    pub bound: u64,
}

/// Writes a process's own lines. A cheap clone.
#[derive(Clone, Debug)]
pub struct Log {
    process: Arc<str>,
    file: Arc<Mutex<File>>,
}

impl Log {
    /// Begins a file `NAME.jsonl` in `directory`, of `process`.
    ///
    /// # Errors
    ///
    /// Where it is there already, or cannot be made.
    pub fn create(directory: &Path, name: &str, process: &str) -> io::Result<Self> {
        let path = directory.join(name).with_added_extension(EXTENSION);
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Self { process: process.into(), file: Arc::new(Mutex::new(file)) })
    }

    /// Writes a line, marked now.
    pub fn write(&self, event: Event) -> Mark {
        let mark = BootClock.now();
        self.write_at(mark, event);
        mark
    }

    /// Writes a line of something that happened at `mark`. It is with the kernel when
    /// this returns: the death of the process does not take it away.
    pub fn write_at(&self, mark: Mark, event: Event) {
        let line = Line { process: self.process.to_string(), mark, event };
        let mut text = serde_json::to_string(&line).expect("a line has no keys but strings");
        text.push('\n');
        let mut file = self.file.lock();
        file.write_all(text.as_bytes()).expect("the disk is not full");
    }
}

/// All lines of a directory by their marks, those of one file in their order.
///
/// # Errors
///
/// Where it cannot be read, or something in it is no line. The last line of a process
/// that was killed while it wrote is left out.
pub fn read(directory: &Path) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (number, line) in (1..).zip(whole.lines()) {
            lines.push(serde_json::from_str::<Line>(line).map_err(|error| {
                io::Error::other(format!(
                    "{}:{number} is no line of a log: {error}",
                    path.display()
                ))
            })?);
        }
    }
    lines.sort_by_key(|line| line.mark);
    Ok(lines)
}

/// Makes a directory for logs, unless it is there already.
///
/// # Errors
///
/// Where that fails, or there is something in it.
pub fn directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    if fs::read_dir(path)?.next().is_some() {
        let sentence = format!("{} is not empty: name another directory", path.display());
        return Err(io::Error::other(sentence));
    }
    Ok(())
}
