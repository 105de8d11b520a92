//! Transcripts: what an elector is told, and what it says, as stories.
//!
//! A transcript is a text of lines.
//!
//! - `# …` and empty lines are for the reader.
//! - `config …` opens an elector, with any of `ttl=10s`, `margin=100ms`,
//!   `timeout=5s`, `seed=1,2`; the values shown stand where nothing is said, and are
//!   those of a story that begins without one.
//! - `at 3.5s` calls `handle` at that mark, with the events that follow, one a
//!   line.
//! - `> …` is what came of it: the commands in order, and at the end when the
//!   elector wants to be woken.
//!
//! Leases are written `L1`, `L2`, … in the order in which they were first asked
//! for, also inside keys; `L?` never stands for one. Bytes are quoted, and escaped
//! as in Rust. A key of the store is `["KEY"="VALUE" LEASE CREATED MODIFIED]`, with
//! `-` for no lease. `transcript/codec.rs` lists the events and commands.

use std::fmt::Write as _;
use std::path::Path;

mod text;
mod writer;

pub use native_codec::step as said;
pub use text::{Leases, Words, seconds};
pub use writer::{opened, written};

/// An elector behind its texts: the native one, or the component.
pub trait Subject {
    /// Opens an elector, or says why it is refused.
    fn open(&mut self, config: Config) -> Result<(), String>;

    /// Gives the elector its events, and returns what it says, a line each.
    fn handle(&mut self, now: u64, events: &[String]) -> Result<Vec<String>, String>;
}

/// How an elector is opened.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Nanoseconds.
    pub ttl: u64,
    /// Nanoseconds.
    pub margin: u64,
    /// Nanoseconds.
    pub timeout: u64,
    /// As it is.
    pub seed: (u64, u64),
}

impl Default for Config {
    fn default() -> Config {
        Config { ttl: 10_000_000_000, margin: 100_000_000, timeout: 5_000_000_000, seed: (1, 2) }
    }
}

/// The texts of one set of generated types: events to be read, steps to be
/// written. Included once for the native elector's types and once for the
/// component's, which are the same in all but the path.
macro_rules! codec {
    ($name:ident, $types:path) => {
        mod $name {
            use $types as types;
            include!("transcript/codec.rs");
        }
    };
}

codec!(native_codec, incumbent_guest::types);
#[cfg(feature = "component")]
codec!(component_codec, crate::component_types);

/// The elector as a Rust library.
#[derive(Debug, Default)]
pub struct Native {
    elector: Option<incumbent_guest::Elector>,
    leases: Leases,
}

impl Subject for Native {
    fn open(&mut self, config: Config) -> Result<(), String> {
        let elector = incumbent_guest::Elector::open(native_codec::config(config), 0);
        self.elector = Some(elector.map_err(|error| native_codec::refused(&error))?);
        self.leases = Leases::default();
        Ok(())
    }

    fn handle(&mut self, now: u64, events: &[String]) -> Result<Vec<String>, String> {
        let events = native_codec::events(events, &self.leases)?;
        let elector = self.elector.as_mut().ok_or("no elector was opened")?;
        let step = elector.handle(now, events);
        Ok(native_codec::step(&step, &mut self.leases))
    }
}

/// The elector as a component in its runtime.
#[cfg(feature = "component")]
#[derive(Debug)]
pub struct Wasm {
    component: incumbent::Component,
    elector: Option<incumbent::Elector>,
    leases: Leases,
}

#[cfg(feature = "component")]
impl Wasm {
    /// Runs the component that the library carries.
    pub fn embedded() -> Result<Wasm, String> {
        let component = incumbent::Component::embedded();
        Ok(Wasm {
            component: component.map_err(|error| error.to_string())?,
            elector: None,
            leases: Leases::default(),
        })
    }

    /// The configuration as the component takes it.
    pub fn config(config: Config) -> incumbent::types::Config {
        component_codec::config(config)
    }

    /// Reads events, a line each, with the leases that its elector has asked for. Refuses a
    /// line that is no event.
    pub fn events(&self, lines: &[String]) -> Result<Vec<incumbent::types::Event>, String> {
        component_codec::events(lines, &self.leases)
    }
}

#[cfg(feature = "component")]
impl Subject for Wasm {
    fn open(&mut self, config: Config) -> Result<(), String> {
        let elector = incumbent::Elector::open(&self.component, Wasm::config(config), 0);
        self.elector = Some(elector.map_err(|error| match error {
            incumbent::ComponentError::Config(error) => component_codec::refused(&error),
            error => error.to_string(),
        })?);
        self.leases = Leases::default();
        Ok(())
    }

    fn handle(&mut self, now: u64, events: &[String]) -> Result<Vec<String>, String> {
        let events = self.events(events)?;
        let elector = self.elector.as_mut().ok_or("no elector was opened")?;
        let step = elector.handle(now, &events).map_err(|error| error.to_string())?;
        Ok(component_codec::step(&step, &mut self.leases))
    }
}

/// Writes a recording as the library does: of an elector that is given events, as texts.
#[cfg(feature = "component")]
#[derive(Debug)]
pub struct Recorder {
    component: incumbent::Component,
    elector: Option<incumbent::Elector>,
    recorded: String,
}

#[cfg(feature = "component")]
impl Recorder {
    /// Loads the component that the library carries, and writes the head of the recording.
    pub fn begin(name: &str, about: &str) -> Result<Recorder, String> {
        let component = incumbent::Component::embedded().map_err(|error| error.to_string())?;
        let mut head = incumbent::recording::Head::default();
        (head.name, head.about) = (name.into(), about.into());
        let recorded = incumbent::recording::Line::Head(head).text();
        Ok(Recorder { component, elector: None, recorded })
    }

    /// Opens an elector as a line of a transcript says.
    pub fn opened(&mut self, line: &str, now: u64) -> Result<(), String> {
        let config = text::config(line.strip_prefix("config").unwrap_or_default())?;
        self.open(Wasm::config(config), now)
    }

    /// Opens an elector, or writes down why it is refused.
    pub fn open(&mut self, config: incumbent::types::Config, now: u64) -> Result<(), String> {
        let opened = incumbent::Elector::open(&self.component, config, now);
        let (opened, error) = match opened {
            Ok(opened) => (Some(opened), None),
            Err(incumbent::ComponentError::Config(error)) => (None, Some(error)),
            Err(error) => return Err(error.to_string()),
        };
        self.elector = opened;
        let line = incumbent::recording::Line::Open { elector: 0, now, config, error };
        self.recorded += &line.text();
        Ok(())
    }

    /// Gives it events whose leases are as they are.
    pub fn told(&mut self, now: u64, events: &[String]) -> Result<(), String> {
        self.handle(now, component_codec::events(events, &Leases::default())?)
    }

    /// Gives it events, and writes down its step.
    pub fn handle(&mut self, now: u64, events: Vec<incumbent::types::Event>) -> Result<(), String> {
        let elector = self.elector.as_mut().ok_or("no elector was opened")?;
        let step = elector.handle(now, &events).map_err(|error| error.to_string())?;
        let (elector, step) = (0, Some(step));
        self.recorded += &incumbent::recording::Line::Step { elector, now, events, step }.text();
        Ok(())
    }

    /// All of it.
    pub fn text(self) -> String {
        self.recorded
    }
}

/// Plays a transcript anew: what a subject says in place of the `>` lines. Refuses a line
/// that is no event, with its number.
pub fn replay(transcript: &str, subject: &mut dyn Subject) -> Result<String, String> {
    let mut written = String::new();
    let mut pending: Option<(u64, Vec<String>)> = None;
    // Empty lines and comments belong to what comes after them.
    let mut aside = String::new();
    let mut opened = false;
    for (number, line) in transcript.lines().enumerate() {
        let trouble = |error: String| format!("line {}: {error}", number + 1);
        let line = line.trim();
        if line.is_empty() || line == "#" || line.starts_with("# ") {
            let _ = writeln!(aside, "{line}");
            continue;
        }
        // What was said another time.
        if line.starts_with('>') {
            continue;
        }
        let (mark, settings) = (line.strip_prefix("at "), line.strip_prefix("config"));
        if mark.is_some() || settings.is_some() {
            answer(&mut written, pending.take(), subject).map_err(trouble)?;
        }
        written.push_str(&std::mem::take(&mut aside));
        let _ = writeln!(written, "{line}");
        if let Some(mark) = mark {
            if !std::mem::replace(&mut opened, true) {
                subject.open(Config::default())?;
            }
            pending = Some((text::duration(mark).map_err(trouble)?, Vec::new()));
        } else if let Some(settings) = settings {
            opened = true;
            if let Err(refused) = subject.open(text::config(settings).map_err(trouble)?) {
                let _ = writeln!(written, "> refused: {refused}");
            }
        } else {
            let (_, events) = pending.as_mut().ok_or_else(|| trouble("no `at` before".into()))?;
            events.push(line.to_owned());
        }
    }
    let end = transcript.lines().count();
    answer(&mut written, pending, subject).map_err(|error| format!("line {end}: {error}"))?;
    written.push_str(&aside);
    Ok(written)
}

fn answer(
    written: &mut String,
    pending: Option<(u64, Vec<String>)>,
    subject: &mut dyn Subject,
) -> Result<(), String> {
    if let Some((now, events)) = pending {
        for line in subject.handle(now, &events)? {
            let _ = writeln!(written, "> {line}");
        }
    }
    Ok(())
}

/// All files of a folder whose names end so, by name. Panics if they cannot be read.
pub fn all(folder: &Path, extension: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).expect("the folder of transcripts can be read");
    let mut found: Vec<(String, String)> = entries
        .map(|entry| entry.expect("the folder of transcripts can be read").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("the transcript can be read"))
        })
        .collect();
    found.sort();
    found
}
