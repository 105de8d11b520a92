//! The record, and what is told of it: each thing is told before it changes the record.

use incumbent::Mark;

use crate::notes::{self, Kind, Note};
use crate::record::{Action, Record};
use crate::report::Report;

#[derive(Clone, Debug)]
pub struct Journal {
    pub record: Record,
    pub notes: Vec<Note>,
    /// How many of the notes have been told.
    told: usize,
}

impl Journal {
    pub fn new(start: Mark) -> Self {
        Self { record: Record { start, ..Record::default() }, notes: Vec::new(), told: 0 }
    }

    /// The notes that nobody has asked for before.
    pub fn untold(&mut self) -> &[Note] {
        let told = std::mem::replace(&mut self.told, self.notes.len());
        self.notes.get(told..).unwrap_or_default()
    }

    pub fn done(&mut self, who: usize, action: Action, at: Mark) {
        self.notes.extend(notes::done(&self.record, who, action, at));
        self.record.done(who, action, at);
    }

    pub fn resumed(&mut self, who: usize, at: Mark) {
        self.notes.extend(notes::resumed(&self.record, who, at));
        self.record.resumed(who, at);
    }

    pub fn told_to_write_late(&mut self, who: usize, at: Mark) {
        self.notes.extend(notes::told_to_write_late(&self.record, who, at));
    }

    /// `now` is when the report was read.
    pub fn reported(&mut self, who: usize, report: &Report, now: Mark) {
        self.notes.extend(notes::reported(&self.record, who, report, now));
        self.record.reported(who, report, now);
    }

    /// Notes a sentence for the user.
    pub fn remark(&mut self, at: Mark, sentence: impl Into<String>) {
        self.notes.push(Note { at, kind: Kind::Remark, what: sentence.into(), why: None });
    }
}
