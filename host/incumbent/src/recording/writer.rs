//! The thread that writes the files of a recording.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, process, thread};

use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::action::{HostAction, KnownElection};
use super::line::{Head, Line};
use super::recorder::{Recorder, Shared};
use super::{Recording, ended};
use crate::clock::Clock;
use crate::elector::Component;
use crate::error::Error;
use crate::types::{Command, ElectionId, Event, Mark, Notice};

/// A recording is cut into so many segments, the oldest of which go.
const SEGMENTS: u64 = 16;
/// The least that a recording may take.
const LEAST: u64 = 64 << 10;
/// How many bytes are gathered for one write.
const GATHERED: usize = 1 << 20;
/// How often the wall clock is told, so that its steps show.
const CLOCK_EVERY: Mark = 10_000_000_000;

/// The SHA-256 of a component, in hex, as `sha256sum` prints it.
#[must_use]
fn sha256(component: &[u8]) -> String {
    Sha256::digest(component).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Recorder {
    /// Begins a recording, with its first file.
    pub(crate) fn start(
        recording: Recording,
        identity: String,
        component: Option<Arc<[u8]>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let time: String = (recording.time)().chars().filter(char::is_ascii_alphanumeric).collect();
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("{time}-{}-{serial}", process::id());
        let dir = recording.dir.clone();
        let unusable = |error: io::Error| {
            Error::Configuration(format!(
                "nothing can be recorded in {} ({error}): give a directory that we may write, or \
                 that we may make",
                dir.display()
            ))
        };
        fs::create_dir_all(&dir).map_err(unusable)?;
        let first = path(&dir, &name, 0);
        let shared = Arc::new(Shared::default());
        let mut writer = Writer {
            hide: (!recording.values).then(RandomState::new),
            limit: recording.limit.max(LEAST),
            head: Head { identity, recording: name, ..Head::default() },
            file: create(&first).map_err(unusable)?,
            time: recording.time,
            clock: Arc::clone(&clock),
            dir: recording.dir,
            path: first,
            bytes: 0,
            written: 0,
            buffer: String::new(),
            closed: ended::Files::new(),
            closed_bytes: 0,
            known: BTreeMap::new(),
            clock_told: None,
        };
        let queue = Arc::clone(&shared);
        let write = move || {
            let component = component.as_deref().unwrap_or(Component::EMBEDDED);
            writer.head.component = sha256(component);
            env!("CARGO_PKG_VERSION").clone_into(&mut writer.head.version);
            if let Err(error) = writer.write_all(&queue) {
                warn!(
                    "the recording has ended, and the election goes on: {} cannot be written \
                     ({error})",
                    writer.path.display()
                );
            }
            queue.finish();
        };
        thread::Builder::new()
            .name("incumbent-recorder".into())
            .spawn(write)
            .map_err(Error::Thread)?;
        Ok(Self::new(shared, clock))
    }
}

/// What the thread has.
struct Writer {
    /// The key of the stand-ins, if values are not written.
    hide: Option<RandomState>,
    limit: u64,
    /// Of the segment that is being written.
    head: Head,
    file: File,
    time: fn() -> String,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    path: PathBuf,
    /// How many bytes the segment has, with those in the buffer; and how many are written.
    bytes: u64,
    written: u64,
    buffer: String,
    /// The files of earlier starts, and then the segments before, with all their bytes.
    closed: ended::Files,
    closed_bytes: u64,
    /// What the electors know, for the beginning of a segment.
    known: BTreeMap<u32, BTreeMap<ElectionId, KnownElection>>,
    clock_told: Option<Mark>,
}

impl Writer {
    fn write_all(&mut self, queue: &Shared) -> io::Result<()> {
        self.begin();
        self.flush()?;
        // Only those that are there count: what cannot be listed stays.
        self.closed = ended::files(&self.dir).unwrap_or_default();
        self.closed_bytes = self.closed.iter().map(|(_, bytes)| bytes).sum();
        self.keep_to_limit()?;
        while let Some(taken) = queue.next(|| self.clock.now()) {
            for line in taken.lines {
                self.line(&line)?;
            }
            self.flush()?;
            for done in taken.flushed {
                // The session may have gone.
                let _ = done.send(());
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        let now = self.clock.now();
        let mut text = line.written(self.hide.as_ref());
        if (text.len() as u64 > self.limit / 4 || text.len() > Line::LONGEST)
            && let Line::Open { elector, .. } | Line::Step { elector, .. } = line
        {
            text = Line::Host { elector: *elector, now, action: HostAction::Gap(1) }.text();
        }
        if self.bytes + text.len() as u64 > self.limit / SEGMENTS && self.bytes > 0 {
            self.rotate()?;
        } else if self.clock_told.is_none_or(|told| told.saturating_add(CLOCK_EVERY) <= now) {
            self.tell_clock();
        }
        self.learn(line);
        self.push(&text);
        self.keep_to_limit()?;
        if self.buffer.len() > GATHERED { self.flush() } else { Ok(()) }
    }

    /// Removes the oldest files, as long as there is too much.
    fn keep_to_limit(&mut self) -> io::Result<()> {
        while self.closed_bytes + self.bytes > self.limit
            && let Some((oldest, bytes)) = self.closed.pop_front()
        {
            self.closed_bytes -= bytes;
            match fs::remove_file(oldest) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Closes the segment, and begins the next one.
    fn rotate(&mut self) -> io::Result<()> {
        self.flush()?;
        self.head.segment += 1;
        let next = path(&self.dir, &self.head.recording, self.head.segment);
        self.file = create(&next)?;
        let closed = mem::replace(&mut self.path, next);
        let bytes = mem::take(&mut self.bytes);
        self.closed.push_back((closed, bytes));
        self.closed_bytes += bytes;
        self.written = 0;
        self.begin();
        Ok(())
    }

    /// What makes a segment readable without those before.
    fn begin(&mut self) {
        self.push(&Line::Head(self.head.clone()).text());
        self.tell_clock();
        let (mut left, now) = (self.limit / SEGMENTS / 2, self.clock.now());
        let mut lines = Vec::new();
        for (elector, known) in &self.known {
            let mut elections: Vec<_> = known.values().cloned().collect();
            elections.retain(|known| {
                let bytes = 100 + known.name.len() + 2 * known.key.len();
                left = left.saturating_sub(bytes as u64);
                left > 0
            });
            let action = HostAction::Elections(elections);
            lines.push(Line::Host { elector: *elector, now, action }.text());
        }
        lines.iter().for_each(|line| self.push(line));
    }

    fn tell_clock(&mut self) {
        let now = self.clock.now();
        self.clock_told = Some(now);
        self.push(&Line::Host { elector: 0, now, action: HostAction::Clock((self.time)()) }.text());
    }

    fn push(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.buffer += text;
    }

    fn flush(&mut self) -> io::Result<()> {
        // A write beyond this limit would end the process by a signal.
        let longest = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if longest.is_some_and(|longest| self.bytes > longest) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let written = self.file.write_all(self.buffer.as_bytes());
        if written.is_err() {
            // So that no line is torn. A file that cannot even be cut is read up to its last line.
            let _ = self.file.set_len(self.written);
        }
        self.written = self.bytes;
        self.buffer.clear();
        written
    }

    /// Keeps the names of the elections of each elector.
    fn learn(&mut self, line: &Line) {
        let (elector, events, step) = match line {
            Line::Open { elector, .. } => {
                self.known.insert(*elector, BTreeMap::new());
                return;
            }
            Line::Step { elector, events, step, .. } => (elector, events, step),
            Line::Host { elector, action: HostAction::Closed, .. } => {
                self.known.remove(elector);
                return;
            }
            Line::Head(_) | Line::Host { .. } => return,
        };
        let known = self.known.entry(*elector).or_default();
        for event in events {
            let (election, name) = match event {
                Event::Campaign(candidacy) => (candidacy.election, &candidacy.name),
                Event::Observe(observation) => (observation.election, &observation.name),
                Event::Wake
                | Event::Inspect(_)
                | Event::Proclaim(_)
                | Event::Write(_)
                | Event::Resign(_)
                | Event::Leave(_)
                | Event::Yielded(_)
                | Event::Limit(_)
                | Event::Close
                | Event::Reply(_)
                | Event::Watched(_) => continue,
            };
            let is = KnownElection { election, name: name.clone(), key: Vec::new() };
            known.insert(election, is);
        }
        for command in step.iter().flat_map(|step| &step.commands) {
            if let Command::Notify(Notice::Withdrawn(withdrawal)) = command {
                known.remove(&withdrawal.election);
            } else if let Command::Notify(Notice::Joined(joined)) = command
                && let Some(known) = known.get_mut(&joined.election)
            {
                known.key.clone_from(&joined.key);
            }
        }
    }
}

fn path(dir: &Path, recording: &str, segment: u32) -> PathBuf {
    dir.join(format!("{recording}-{segment:06}.jsonl"))
}

/// A new file, for its owner alone.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    ended::lock(&file);
    Ok(file)
}
