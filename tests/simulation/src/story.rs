//! What happened, as transcripts that a person reads, and `tests/transcripts` can
//! keep.

use std::fmt::Write as _;

use incumbent_guest::types::{Config, Event, Mark, Step};

use crate::transcript::{self, Leases, seconds, written};

/// Keeps what happens, or does not care.
#[derive(Debug, Default)]
pub struct Story {
    /// None where nobody will read it.
    leases: Option<Leases>,
    chapters: Vec<Chapter>,
    inputs: Vec<Input>,
}

/// What a process's elector was given, for a recording.
#[derive(Debug)]
pub struct Input {
    /// Whose it is.
    pub process: usize,
    /// By its clock.
    pub mark: Mark,
    /// How it was opened, or the events, with leases as they are.
    pub given: Result<Config, Vec<String>>,
}

#[derive(Debug)]
struct Chapter {
    /// The true time.
    at: Mark,
    /// Whose it is; none for what happens to all.
    process: Option<usize>,
    text: String,
}

impl Story {
    /// One that is told.
    pub fn told_later() -> Story {
        Story { leases: Some(Leases::default()), ..Story::default() }
    }

    /// Something happened to all.
    pub fn note(&mut self, at: Mark, text: &str) {
        if self.leases.is_some() {
            let text = format!("# {text}\n");
            self.chapters.push(Chapter { at, process: None, text });
        }
    }

    /// A process has a new elector, when its clock shows `mark`.
    pub fn opened(&mut self, at: Mark, process: usize, config: Config, mark: Mark) {
        if self.leases.is_some() {
            let opened = transcript::opened(config);
            let text = format!("# an elector opens at {}\n{opened}\n", seconds(mark));
            self.inputs.push(Input { process, mark, given: Ok(config) });
            self.chapters.push(Chapter { at, process: Some(process), text });
        }
    }

    /// A process's elector is told something.
    pub fn told(&mut self, at: Mark, process: usize, mark: Mark, events: &[Event]) {
        if let Some(leases) = &self.leases {
            let mut text = format!("at {}\n", seconds(mark));
            for event in events {
                let _ = writeln!(text, "{}", leases.name(written(event)));
            }
            let given = Err(events.iter().map(written).collect());
            self.inputs.push(Input { process, mark, given });
            self.chapters.push(Chapter { at, process: Some(process), text });
        }
    }

    /// It says something.
    pub fn said(&mut self, process: usize, step: &Step) {
        if let Some(leases) = &mut self.leases {
            let lines = transcript::said(step, leases);
            if let Some(chapter) = self.chapters.last_mut()
                && chapter.process == Some(process)
            {
                for line in lines {
                    let _ = writeln!(chapter.text, "> {line}");
                }
            }
        }
    }

    /// What all electors were given, in order.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// All of it, or what one process has to do with.
    pub fn tell(&self, only: Option<usize>) -> String {
        let mut told = String::new();
        for Chapter { at, process, text } in &self.chapters {
            if only.is_some() && process.is_some() && *process != only {
                continue;
            }
            if let (Some(process), None) = (process, only) {
                let _ = writeln!(told, "# {}: process {process}", seconds(*at));
            }
            let _ = writeln!(told, "{text}");
        }
        told
    }
}
