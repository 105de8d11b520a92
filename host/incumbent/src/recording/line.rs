//! The lines of a recording.

use std::collections::hash_map::RandomState;

use serde_json::Value;

use super::action::HostAction;
use super::json::{Json, Reader, Writer};
use crate::types::{Config, ConfigError, Event, Mark, Step};

/// The version of the format.
const FORMAT: u32 = 1;
/// The package of the types.
const PACKAGE: &str = "incumbent:election@0.1.0";

/// One line of a recording, or of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// The first line of a file.
    Head(Head),
    /// An elector was opened in place of the one before, unless it was refused with this error.
    Open {
        /// Which of the process's electors: each lease has one, which others may follow.
        elector: u32,
        /// When.
        now: Mark,
        /// How.
        config: Config,
        /// Why it was refused.
        error: Option<ConfigError>,
    },
    /// An elector was told of events.
    Step {
        /// Which elector.
        elector: u32,
        /// When.
        now: Mark,
        /// What it was told.
        events: Vec<Event>,
        /// What it said; none if it broke.
        step: Option<Step>,
    },
    /// What its host did beside the elector.
    Host {
        /// Which elector.
        elector: u32,
        /// When.
        now: Mark,
        /// What.
        action: HostAction,
    },
}

/// The first line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The transcript's name.
    pub name: String,
    /// What it shows.
    pub about: String,
    /// The instance that was recorded; as all that follows, empty in a transcript.
    pub identity: String,
    /// Which recording it is a segment of.
    pub recording: String,
    /// Which segment, from 0 on.
    pub segment: u32,
    /// The version of the library.
    pub version: String,
    /// The SHA-256 of the component.
    pub component: String,
}

impl Line {
    /// How many bytes a line has at most, so that a reader knows what it needs. A longer step is left
    /// out of a recording, as a gap.
    pub const LONGEST: usize = 16 << 20;

    /// As JSON, with a line feed.
    #[must_use]
    pub fn text(&self) -> String {
        self.written(None)
    }

    /// The line as text. If `hide` is given, stand-ins take the place of values.
    pub(super) fn written(&self, hide: Option<&RandomState>) -> String {
        let mut to = Writer::new(hide);
        to.open();
        match self {
            Self::Head(head) => head.write(&mut to),
            Self::Open { elector, now, config, error } => {
                which(&mut to, *elector);
                to.field("open", config);
                to.field("now", now);
                if error.is_some() {
                    to.field("error", error);
                }
            }
            Self::Step { elector, now, events, step } => {
                which(&mut to, *elector);
                to.field("now", now);
                to.field("events", events);
                to.field("step", step);
            }
            Self::Host { elector, now, action } => {
                which(&mut to, *elector);
                to.field("now", now);
                to.name("host");
                action.write(&mut to);
            }
        }
        to.close();
        to.text.push('\n');
        to.text
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a sentence.
    pub fn read(text: &str) -> Result<Self, String> {
        let json: Value =
            serde_json::from_str(text).map_err(|error| format!("this is no JSON ({error})"))?;
        if json.get("format").is_some() {
            return Head::read(&json).map(Self::Head);
        }
        let mut from = Reader::default();
        let elector = match json.get("elector") {
            Some(elector) => Json::read(&mut from, elector)?,
            None => 0,
        };
        let now = from.field(&json, "now")?;
        if json.get("open").is_some() {
            let config = from.field(&json, "open")?;
            let error = json.get("error").map(|error| Json::read(&mut from, error)).transpose()?;
            Ok(Self::Open { elector, now, config, error })
        } else if let Some(host) = json.get("host") {
            Ok(Self::Host { elector, now, action: HostAction::read(&mut from, host)? })
        } else {
            let events = from.field(&json, "events")?;
            Ok(Self::Step { elector, now, events, step: from.field(&json, "step")? })
        }
    }
}

/// The first elector is not named, as in a transcript.
fn which(to: &mut Writer<'_>, elector: u32) {
    if elector > 0 {
        to.field("elector", &elector);
    }
}

impl Head {
    fn write(&self, to: &mut Writer<'_>) {
        let Self { name, about, identity, recording, segment, version, component } = self;
        to.field("format", &FORMAT);
        to.field("package", &PACKAGE.to_owned());
        to.field("name", name);
        to.field("about", about);
        if !recording.is_empty() {
            to.field("identity", identity);
            to.field("recording", recording);
            to.field("segment", segment);
            to.field("version", version);
            to.field("component", component);
        }
    }

    fn read(json: &Value) -> Result<Self, String> {
        if json["format"] != FORMAT {
            return Err(format!("it is of format {}, and this reads {FORMAT}", json["format"]));
        }
        if json["package"] != PACKAGE {
            return Err(format!("it is of {}, and this is {PACKAGE}", json["package"]));
        }
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            name: text("name"),
            about: text("about"),
            identity: text("identity"),
            recording: text("recording"),
            segment: json["segment"].as_u64().and_then(|at| at.try_into().ok()).unwrap_or(0),
            version: text("version"),
            component: text("component"),
        })
    }
}
