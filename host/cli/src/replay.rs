//! `incumbent replay`: runs recordings again, and tells what happened.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `source` | the files, and their lines |
//! | `judge` | whether the elector kept to the model that is proved |
//! | `story` | what one recording tells |
//! | `merge` | several instances' stories as one |
//! | `timeline` | a picture of them |

mod judge;
mod merge;
mod source;
mod story;
mod timeline;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use incumbent::Component;
use incumbent::recording::{Compared, Head, Line, Replay};
use serde_json::Value;

use self::judge::Judge;
use self::merge::{Merged, Told};
use self::source::{Lines, Source};
use self::story::{Story, rfc3339};
use super::args::{self, Common, Form};
use super::exit::{End, Status, bad_input, say};
use super::output::print;
use super::text::{field, json, shown_bytes};

/// How the commands of one recording compare.
#[derive(Debug, Default)]
struct Comparison {
    same: u64,
    differ: u64,
    incomparable: u64,
    /// The first difference, as a sentence.
    first: Option<String>,
    /// From when to when nothing could be compared.
    gap: Option<(u64, u64)>,
    /// The first law that it breaks, as a sentence.
    fault: Option<String>,
}

pub fn replay(common: &Common, replay: &args::Replay) -> Result<Status, End> {
    let sources = source::find(&replay.recordings)?;
    let component = Component::embedded().map_err(|error| bad_input(error.to_string()))?;
    if let (Some(path), Some(first)) = (&replay.transcript, sources.first()) {
        write(path, "--transcript", &transcript(path, first)?)?;
    }
    let mut stories = Vec::new();
    let mut comparisons = Vec::new();
    for source in sources {
        let (story, comparison) = play(source, &component)?;
        stories.push(story);
        comparisons.push(comparison);
    }
    let merged = Merged::new(&stories);
    if let Some(path) = &replay.svg {
        write(path, "--svg", &timeline::draw(&merged))?;
    }
    let mut lines: Vec<String> =
        merged.told().iter().map(|told| line(common.output, &merged, told)).collect();
    for (story, comparison) in stories.iter().zip(&comparisons) {
        lines.push(comparison.line(common.output, story, Component::SHA256));
    }
    print(lines.join("\n"))?;
    let is_wrong = |it: &Comparison| it.differ > 0 || it.fault.is_some();
    Ok(if comparisons.iter().any(is_wrong) { Status::NotFound } else { Status::Done })
}

/// Reads a recording: tells its story, and compares.
fn play(source: Source, component: &Component) -> Result<(Story, Comparison), End> {
    let mut replay = Replay::new(component.clone());
    let mut story = Story::new(source.head);
    let mut judge = Judge::default();
    let mut comparison = Comparison::default();
    let mut expected = None;
    for (segment, path) in source.files {
        if expected.is_some_and(|expected| expected != segment) {
            say(&format!("the segments before {} are missing", path.display()));
            replay = Replay::new(component.clone());
            story.is_interrupted();
            judge.is_interrupted();
        }
        expected = Some(segment.saturating_add(1));
        let mut lines = Lines::open(&path)?;
        while let Some((number, line)) = lines.next()? {
            let compared = replay.compare(&line);
            let place = || format!("{}, line {number}", path.display());
            comparison.add(&line, &compared, place);
            // In a transcript, another elector has nothing to do with the one before.
            if story.head.recording.is_empty() && matches!(line, Line::Open { .. }) {
                judge = Judge::default();
            }
            if comparison.fault.is_none() {
                comparison.fault =
                    judge.line(&line).err().map(|fault| format!("{}: {fault}", place()));
            }
            story.line(&line);
            if story.is_too_long() {
                return Err(bad_input(format!(
                    "{} tells more than a story can hold: name fewer files",
                    path.display()
                )));
            }
        }
    }
    story.finish();
    Ok((story, comparison))
}

impl Comparison {
    fn add(&mut self, line: &Line, compared: &Compared, place: impl Fn() -> String) {
        match compared {
            Compared::Nothing => {}
            Compared::Same => self.same += 1,
            Compared::Incomparable => {
                self.incomparable += 1;
                if let Line::Step { now, .. } = line {
                    self.gap = Some((self.gap.map_or(*now, |(from, _)| from), *now));
                }
            }
            Compared::Differs(said) => {
                self.differ += 1;
                let (was, is) = match (line, said) {
                    (Line::Step { step: Some(was), .. }, Ok(is)) => {
                        let differing = was.commands.iter().zip(&is.commands);
                        let first = differing.clone().take_while(|(was, is)| was == is).count();
                        match (was.commands.get(first), is.commands.get(first)) {
                            (None, None) => {
                                (format!("{:?}", was.deadline), format!("{:?}", is.deadline))
                            }
                            (was, is) => (format!("{was:?}"), format!("{is:?}")),
                        }
                    }
                    (Line::Step { step: None, .. }, Ok(_)) => {
                        ("that it broke".into(), "a step".into())
                    }
                    (_, Err(error)) => ("something else".into(), error.clone()),
                    (_, Ok(is)) => ("something else".into(), format!("{is:?}")),
                };
                let [was, is] = [was, is].map(|text| shown_bytes(text.as_bytes()));
                let sentence = || format!("{}: recorded is {was}, and now it says {is}", place());
                self.first.get_or_insert_with(sentence);
            }
        }
    }

    /// What came of it, at the end.
    fn line(&self, form: Form, story: &Story, own: &str) -> String {
        let Self { same, differ, incomparable, first, gap, fault } = self;
        let other_bytes = !story.head.component.is_empty() && story.head.component != own;
        if form == Form::Json {
            return json(&Value::from_iter([
                field("event", "replayed"),
                field("instance", story.identity()),
                field("same", *same),
                field("differ", *differ),
                field("incomparable", *incomparable),
                field("first_difference", first.clone()),
                field("broken_law", fault.clone()),
                field("other_component", other_bytes),
            ]));
        }
        let mut text = format!("{}: ", story.identity());
        text += &match (same, differ) {
            (_, 0) => format!("{same} steps were run again, and all of them are the same"),
            (_, _) => format!("{differ} of {} steps that were run again differ", same + differ),
        };
        if let Some((from, to)) = gap {
            text += &format!(
                "; {incomparable} steps from {} to {} could not be run again, because what the \
                 elector was told before is missing",
                story.clock(*from),
                story.clock(*to)
            );
        }
        if other_bytes {
            let short = |hash: &str| hash.chars().take(12).collect::<String>();
            text += &format!(
                "; the recording was made by other bytes of the component ({}, this program has \
                 {}), which may say something else",
                shown_bytes(short(&story.head.component).as_bytes()),
                short(own)
            );
        }
        if let Some(first) = first {
            text += &format!("\nthe first difference: {first}");
        }
        if let Some(fault) = fault {
            text += &format!("\na law is broken at {fault}");
        }
        text
    }
}

/// One sentence.
fn line(form: Form, merged: &Merged<'_>, told: &Told) -> String {
    let Told { time, instance, sentence } = told;
    let story = instance.and_then(|instance| merged.stories.get(instance));
    let instance = story.map(Story::identity);
    match form {
        Form::People => {
            let of_first = || {
                merged.stories.first().map(|first| {
                    if first.has_times() {
                        rfc3339(*time).get(11..23).unwrap_or_default().to_owned()
                    } else {
                        String::new()
                    }
                })
            };
            let at = story.map(|story| story.clock(sentence.at)).or_else(of_first);
            let at = at.unwrap_or_default();
            match instance {
                Some(instance) => format!("{at}  {instance}: {}", sentence.text),
                None => format!("{at}  {}", sentence.text),
            }
        }
        Form::Json => json(&Value::from_iter([
            field("event", sentence.event),
            field("time", rfc3339(*time)),
            field("instance", instance),
            field("election", Some(sentence.election.clone()).filter(|name| !name.is_empty())),
            field("epoch", sentence.epoch),
            field("revision", sentence.revision),
            field("text", sentence.text.as_str()),
        ])),
    }
}

/// The first elector's part, from its opening on, as data for the tests.
fn transcript(path: &Path, source: &Source) -> Result<String, End> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut head = Head::default();
    head.about = format!("Recorded by version {} of the library.", source.head.version);
    head.name = name;
    let mut text = Line::Head(head).text();
    let mut wanted = None;
    for (_, file) in &source.files {
        let mut lines = Lines::open(file)?;
        while let Some((number, line)) = lines.next()? {
            let (Line::Open { elector, .. }
            | Line::Step { elector, .. }
            | Line::Host { elector, .. }) = &line
            else {
                continue;
            };
            if matches!(line, Line::Open { .. }) {
                wanted.get_or_insert(*elector);
            }
            if wanted != Some(*elector) {
                continue;
            }
            let line = match line {
                Line::Head(_) => continue,
                Line::Open { now, config, error, .. } => {
                    Line::Open { elector: 0, now, config, error }
                }
                Line::Step { now, events, step, .. } => {
                    Line::Step { elector: 0, now, events, step }
                }
                Line::Host { action: incumbent::recording::HostAction::Gap(_), .. } => {
                    say(&format!("the transcript ends at the gap in line {number}"));
                    return Ok(text);
                }
                Line::Host { .. } => continue,
            };
            text += &line.text();
        }
    }
    if wanted.is_none() {
        return Err(bad_input(
            "no elector was opened in what is left of the recording, so it makes no transcript",
        ));
    }
    Ok(text)
}

/// Writes a file for its owner alone, as the recordings are.
fn write(path: &PathBuf, flag: &str, text: &str) -> Result<(), End> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        bad_input(format!(
            "{flag} {} cannot be written ({error}): give a file that can",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests;
