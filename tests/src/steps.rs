//! The transcripts as data: what any host replays to prove that it carries the component's
//! types over whole. `tests/transcripts/README.md` has the format; nothing here knows the
//! types, which are read off the component.

use std::fmt::Write as _;

use serde_json::{Value, json};

use incumbent_simulation::transcript::{Config, Subject, Wasm, replay};

mod elector;
mod mailbox;
mod values;

pub use elector::Dynamic;
use mailbox::Mailbox;

/// The version of the format.
const FORMAT: u32 = 1;

/// Replays what was recorded, by the data alone. The error is the first line that is not to
/// be read, or whose step is another one here.
pub fn replayed(recorded: &str, elector: &mut Dynamic) -> Result<(), String> {
    for (number, line) in recorded.lines().enumerate() {
        let read = serde_json::from_str(line).map_err(|error| error.to_string());
        read.and_then(|line| same(&line, number == 0, elector))
            .map_err(|error| format!("line {}: {error}", number + 1))?;
    }
    if recorded.is_empty() { Err("it is empty".into()) } else { Ok(()) }
}

fn same(line: &Value, first: bool, elector: &mut Dynamic) -> Result<(), String> {
    let (expected, said) = if first {
        let head = json!({ "format": FORMAT, "package": elector.package() });
        (json!({ "format": line["format"], "package": line["package"] }), head)
    } else if line.get("open").is_some() {
        (line["error"].clone(), elector.open(&line["open"], &line["now"])?.into())
    } else {
        (line["step"].clone(), elector.handle(&line["now"], &line["events"])?)
    };
    if expected == said { Ok(()) } else { Err(format!("{expected} is expected, and {said} came")) }
}

/// The first paragraph of a story, up to the numbers of what it shows.
fn about(story: &str) -> String {
    let words = |line: &&str| !line.starts_with("Edge case") && !line.starts_with("Law: ");
    let lines = story.lines().map_while(|line| line.strip_prefix("# ")).take_while(words);
    lines.collect::<Vec<_>>().join(" ")
}

/// Goes between a story and the component: the story's texts become the component's
/// types by the codec, those become JSON by way of the mailbox, and an elector that is
/// given nothing but this JSON says what the step is.
pub struct Recorder {
    texts: Wasm,
    mailbox: Mailbox,
    elector: Dynamic,
    recorded: String,
}

impl Recorder {
    /// Loads the component that the library carries.
    pub fn open() -> Result<Recorder, String> {
        let (texts, elector) = (Wasm::embedded()?, Dynamic::embedded()?);
        Ok(Recorder { texts, mailbox: Mailbox::open(), elector, recorded: String::new() })
    }

    /// Plays a story, and writes down as data what goes in and what comes out. Refuses a
    /// line that is no event, with its number.
    pub fn record(&mut self, name: &str, story: &str) -> Result<String, String> {
        self.write(&json!({
            "format": FORMAT,
            "package": self.elector.package(),
            "name": name,
            "about": about(story),
        }));
        let played = replay(story, self);
        let recorded = std::mem::take(&mut self.recorded);
        played.map(|_| recorded)
    }

    fn write(&mut self, line: &Value) {
        let _ = writeln!(self.recorded, "{line}");
    }
}

impl Subject for Recorder {
    fn open(&mut self, config: Config) -> Result<(), String> {
        let (data, mark) = (self.mailbox.config(Wasm::config(config)), json!("0"));
        let mut line = json!({ "open": data, "now": mark });
        if let Some(error) = self.elector.open(&data, &mark)? {
            line["error"] = error;
        }
        self.write(&line);
        self.texts.open(config)
    }

    fn handle(&mut self, now: u64, events: &[String]) -> Result<Vec<String>, String> {
        let data = self.mailbox.events(&self.texts.events(events)?);
        let mark = json!(now.to_string());
        let step = self.elector.handle(&mark, &data)?;
        self.write(&json!({ "now": mark, "events": data, "step": step }));
        self.texts.handle(now, events)
    }
}
