//! The logs of a soak: one JSON object a line, each process in a file of its own, and every mark
//! by the machine's one clock, `CLOCK_BOOTTIME`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{BootClock, Clock, Mark};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::faults::Fault;
use crate::etcd::Version;
use incumbent_simulation::history::Outcome;

const POSTGRES: &str = "postgres";
/// The file of the soak itself.
pub const OF_SOAK: &str = "soak.jsonl";
/// How the files are named: `*.jsonl`.
const EXTENSION: &str = "jsonl";

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// In which process: `worker-1.1`, or the `soak` itself.
    pub process: String,
    /// When, in nanoseconds.
    pub mark: Mark,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// A term, as its leader knows it at some moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TermState {
    /// The election.
    pub election: String,
    /// The term's epoch.
    pub epoch: i64,
    /// The term's deadline.
    pub valid_until: Mark,
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    // Of a host.
    /// It leads from now on.
    Elected(TermState),
    /// It leads on.
    Extended(TermState),
    /// It leads no more, and knows it.
    Demoted {
        /// With the last deadline.
        #[serde(flatten)]
        term: TermState,
        /// Why, as the library says it; `resigned` if the host gave the term back.
        reason: String,
    },
    /// It is about to read the counter, to write it one higher.
    Invoke {
        /// The counter of this election's leaders.
        election: String,
        /// The number of the increment in this process.
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
        /// On PostgreSQL, the timeline that it was read on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeline: Option<u32>,
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
        /// Tells this one from others: the mark at which it began.
        id: u64,
        /// What.
        fault: Fault,
    },
    /// It goes wrong no more.
    Healed {
        /// Which one.
        id: u64,
    },
    /// Another PostgreSQL has taken over.
    TakenOver {
        /// What was acknowledged since this mark may be lost.
        since: Mark,
        /// From now on.
        timeline: u32,
        /// What had become of each election's counter until then.
        counters: BTreeMap<String, u64>,
    },
    /// So much was lost on the network.
    Lost {
        /// Packets between hosts and members.
        packets: u64,
    },
    /// The hosts are told to leave: what follows is not judged.
    Ended,
    /// What a counter came to in the end.
    Counted {
        /// The counter of this election's leaders.
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
    /// The version of etcd, or `postgres`.
    pub store: String,
    /// The lease time, in nanoseconds.
    pub ttl: u64,
    /// How long an election may be without a leader when nothing is wrong, in
    /// nanoseconds.
    pub bound: u64,
}

impl Settings {
    /// The settings of a soak, with the promised bound.
    pub fn new(version: Version, ttl: Duration, seed: u64) -> Self {
        // The lease of the last leader, which etcd extends by an election time-out when its own
        // leader changes, and how often etcd looks for leases that ran out.
        let lease = ttl + Duration::from_secs(1) + Duration::from_millis(500);
        // An election of etcd's: one to two election time-outs, and once more if it is split.
        let election = Duration::from_secs(4);
        let back_off = Duration::from_secs(1);
        let round_trips = Duration::from_millis(500);
        let bound = nanoseconds(lease + election + back_off + round_trips);
        Self { seed, store: version.to_string(), ttl: nanoseconds(ttl), bound }
    }

    /// The same on PostgreSQL.
    pub fn of_postgres(ttl: Duration, seed: u64) -> Self {
        // A step of the database's clock costs one lease time more.
        let back_off = Duration::from_secs(1);
        let round_trips = Duration::from_millis(500);
        let bound = nanoseconds(2 * ttl + back_off + round_trips);
        Self { seed, store: POSTGRES.into(), ttl: nanoseconds(ttl), bound }
    }

    /// Whether the hosts were on PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.store == POSTGRES
    }
}

/// A span of time as logs have it.
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a soak ends")
}

/// Writes a process's own lines. A cheap clone.
#[derive(Clone, Debug)]
pub struct Log {
    process: Arc<str>,
    file: Arc<Mutex<File>>,
}

impl Log {
    /// Begins the log of a soak with its settings.
    ///
    /// # Errors
    ///
    /// Where the directory has one already, or it cannot be made.
    pub fn of_soak(directory: &Path, settings: Settings) -> io::Result<Self> {
        let log = Self::create(directory, "soak")?;
        log.write(Event::Began(settings));
        Ok(log)
    }

    /// Begins the log of `process`, the file `PROCESS.jsonl` in `directory`.
    ///
    /// # Errors
    ///
    /// Where it is there already, or cannot be made.
    pub fn create(directory: &Path, process: &str) -> io::Result<Self> {
        let path = directory.join(process).with_added_extension(EXTENSION);
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Self { process: process.into(), file: Arc::new(Mutex::new(file)) })
    }

    /// Writes a line, marked now.
    pub fn write(&self, event: Event) {
        self.write_at(BootClock.now(), event);
    }

    /// Writes that something goes wrong from now on. Returns the id of this fault.
    pub fn write_fault(&self, fault: Fault) -> u64 {
        let id = BootClock.now();
        self.write_at(id, Event::Fault { id, fault });
        id
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

/// All lines of a directory by their marks. Lines of one file keep their order.
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
