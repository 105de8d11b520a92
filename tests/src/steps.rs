//! The transcripts as data: what any host replays to prove that it carries the component's
//! types over whole. `tests/transcripts/README.md` has the format; nothing here knows the
//! types, which are read off the component.

use serde_json::{Value, json};

use incumbent_simulation::transcript::{Config, Recorder, Subject, Wasm, replay};

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

/// Makes data of a story: an elector beside the one of the story is given the same events, as the
/// library's types, and all of it is written as the library writes a recording. Refuses a line that
/// is no event, with its number.
pub fn recorded(name: &str, story: &str) -> Result<String, String> {
    let recorder = Recorder::begin(name, &about(story))?;
    let mut beside = Beside { texts: Wasm::embedded()?, recorder };
    replay(story, &mut beside)?;
    Ok(beside.recorder.text())
}

struct Beside {
    texts: Wasm,
    recorder: Recorder,
}

impl Subject for Beside {
    fn open(&mut self, config: Config) -> Result<(), String> {
        self.recorder.open(Wasm::config(config), 0)?;
        self.texts.open(config)
    }

    fn handle(&mut self, now: u64, lines: &[String]) -> Result<Vec<String>, String> {
        self.recorder.handle(now, self.texts.events(lines)?)?;
        self.texts.handle(now, lines)
    }
}
