//! The transcripts as data: what any host replays to prove that it carries the component's
//! types over whole. `tests/transcripts/README.md` has the format; nothing here knows the
//! types, which are read off the component.

use incumbent::recording::{Head, Line};
use incumbent::{Component, ComponentError, Elector};
use serde_json::{Value, json};

use incumbent_simulation::transcript::{Config, Subject, Wasm, replay};

mod elector;
mod values;

pub use elector::Dynamic;

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

/// Makes data of stories: an elector beside the one of the story is given the same events, as the
/// library's types, and the library writes them down as it writes a recording.
pub struct Recorder {
    texts: Wasm,
    component: Component,
    elector: Option<Elector>,
    recorded: String,
}

impl Recorder {
    /// Loads the component that the library carries.
    pub fn open() -> Result<Recorder, String> {
        let component = Component::embedded().map_err(|error| error.to_string())?;
        Ok(Recorder { texts: Wasm::embedded()?, component, elector: None, recorded: String::new() })
    }

    /// Plays a story, and writes down as data what goes in and what comes out. Refuses a
    /// line that is no event, with its number.
    pub fn record(&mut self, name: &str, story: &str) -> Result<String, String> {
        let mut head = Head::default();
        (head.name, head.about) = (name.into(), about(story));
        self.recorded = Line::Head(head).text();
        replay(story, self)?;
        Ok(std::mem::take(&mut self.recorded))
    }
}

impl Subject for Recorder {
    fn open(&mut self, config: Config) -> Result<(), String> {
        let (elector, now, typed) = (0, 0, Wasm::config(config));
        let (opened, error) = match Elector::open(&self.component, typed, now) {
            Ok(opened) => (Some(opened), None),
            Err(ComponentError::Config(error)) => (None, Some(error)),
            Err(error) => return Err(error.to_string()),
        };
        self.elector = opened;
        self.recorded += &Line::Open { elector, now, config: typed, error }.text();
        self.texts.open(config)
    }

    fn handle(&mut self, now: u64, lines: &[String]) -> Result<Vec<String>, String> {
        let events = self.texts.events(lines)?;
        let elector = self.elector.as_mut().ok_or("no elector was opened")?;
        let step = elector.handle(now, &events).map_err(|error| error.to_string())?;
        self.recorded += &Line::Step { elector: 0, now, events, step: Some(step) }.text();
        self.texts.handle(now, lines)
    }
}
