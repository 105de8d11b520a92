//! The record, with a note of each thing that happened: a line says what, another one why that was
//! safe. Every number in them was observed.

use std::mem;

use incumbent::Mark;

use crate::record::{Action, Candidate, Record};
use crate::report::{Outcome, Report};

/// One thing worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub at: Mark,
    pub kind: Kind,
    pub what: String,
    /// Why that was safe, or what follows.
    pub why: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Journal {
    pub record: Record,
    pub notes: Vec<Note>,
    /// How many of the notes have been told.
    told: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody leads.
    Elected,
    /// Something was done to a candidate.
    Done,
    /// A write was refused, as it had to be.
    Refused,
    /// What else a candidate does.
    News,
    /// For the person who watches.
    Remark,
    /// What must never be.
    Wrong,
}

impl Note {
    fn new(at: Mark, kind: Kind, what: String) -> Self {
        Self { at, kind, what, why: None }
    }

    fn because(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }
}

/// From one mark to another, in milliseconds.
pub fn ms(from: Mark, to: Mark) -> String {
    let all = (to.saturating_sub(from) + 500_000) / 1_000_000;
    match all {
        0 => "less than 1 ms".into(),
        1..1000 => format!("{all} ms"),
        1000.. => format!("{},{:03} ms", all / 1000, all % 1000),
    }
}

impl Journal {
    pub fn new(start: Mark) -> Self {
        Self { record: Record { start, ..Record::default() }, notes: Vec::new(), told: 0 }
    }

    /// The notes that nobody has asked for before.
    pub fn untold(&mut self) -> &[Note] {
        let told = mem::replace(&mut self.told, self.notes.len());
        self.notes.get(told..).unwrap_or_default()
    }

    pub fn done(&mut self, who: usize, action: Action, at: Mark) {
        self.notes.extend(self.record.get(who).map(|it| done(&self.record, it, action, at)));
        self.record.done(who, action, at);
    }

    /// `now` is when the report was read.
    pub fn reported(&mut self, who: usize, report: &Report, now: Mark) {
        let candidate = self.record.get(who);
        let note = candidate.and_then(|it| reported(&self.record, it, report, now));
        self.notes.extend(note);
        self.record.reported(who, report, now);
    }

    /// Notes a sentence for the user.
    pub fn remark(&mut self, at: Mark, sentence: impl Into<String>) {
        self.notes.push(Note::new(at, Kind::Remark, sentence.into()));
    }
}

fn done(record: &Record, candidate: &Candidate, action: Action, at: Mark) -> Note {
    let name = &candidate.name;
    let note = |what: String| Note::new(at, Kind::Done, format!("{name} {what}"));
    let (is_done, consequence) = match action {
        Action::Kill => ("is killed (SIGKILL)", "Its place in line goes with its lease"),
        Action::Stop => ("is asked to stop (SIGTERM)", "It leaves the line"),
        Action::Pause => {
            ("is paused (SIGSTOP)", "If it sleeps through its lease, it loses its place in line")
        }
        Action::Resume => return resumed(candidate, at),
        Action::WriteLate => {
            let what = if candidate.is_paused() {
                "will find a write of its dead term to be sent when it wakes up"
            } else {
                "is told to write in its dead term"
            };
            let why = "As if the write had been on its way: it does not ask its clock before";
            return note(what.into()).because(why);
        }
    };
    let Some(term) = candidate.leads(at) else {
        let does_not = if action == Action::Kill { "did not" } else { "does not" };
        let leader = record.leading(at).map_or(String::new(), |(_, leader, term)| {
            format!("; {} leads on in epoch {}", leader.name, term.epoch)
        });
        let note = note(format!("{is_done}, while it {does_not} lead"));
        return note.because(format!("{consequence}{leader}"));
    };
    let left = ms(at, term.valid_until);
    let note = note(format!("{is_done}, leading in epoch {}", term.epoch));
    match action {
        Action::Kill => note.because(format!(
            "It could give nothing back. The others wait for its lease: {left} by its own clock, \
             and a moment more in the store"
        )),
        Action::Pause => note.because(format!(
            "It cannot renew its lease, nor notice. By its own clock its term ends in {left}"
        )),
        Action::Stop | Action::Resume | Action::WriteLate => note.because(
            "First its work stops, and only then its key goes: the next one may lead at once",
        ),
    }
}

fn resumed(candidate: &Candidate, at: Mark) -> Note {
    let pause = candidate.life().and_then(|life| life.pauses.last());
    let from = pause.map_or(at, |pause| pause.from);
    let what = format!("{} wakes up (SIGCONT), after {}", candidate.name, ms(from, at));
    let note = Note::new(at, Kind::Done, what);
    let led = candidate.term().filter(|term| term.ended_by == Some((Action::Pause, from)));
    match led {
        Some(term) if term.is_on(at) => note.because(format!(
            "Its term has {} left by its own clock: it leads on, and renews",
            ms(at, term.valid_until)
        )),
        Some(term) => note.because(format!(
            "Its term was over {} ago by its own clock, which it asks before it acts",
            ms(term.end(), at)
        )),
        None => note,
    }
}

fn reported(record: &Record, candidate: &Candidate, report: &Report, now: Mark) -> Option<Note> {
    let name = &candidate.name;
    let news = |at, what| Some(Note::new(at, Kind::News, what));
    match *report {
        Report::Joined { at, .. } if candidate.life()?.joined.is_none() => {
            news(at, format!("{name} is in line (process {})", candidate.pid))
        }
        Report::Joined { at, epoch } => {
            let before = candidate.term()?.epoch;
            news(
                at,
                format!(
                    "{name} is back in line, at its end, with a new key: for epoch {epoch}; \
                     {before} is over for good"
                ),
            )
        }
        Report::Elected { at, epoch, valid_until } => {
            Some(elected(record, name, at, epoch, valid_until))
        }
        Report::Demoted { at, epoch, ref reason } => {
            let ended_by = candidate.term().filter(|term| term.epoch == epoch)?.ended_by;
            // After a stop, the note of the next leader says it.
            let is_stop = matches!(ended_by, Some((Action::Stop, _)));
            let what = format!("{name} knows that epoch {epoch} is over: {reason}");
            if is_stop { None } else { news(at, what) }
        }
        Report::Written { at, epoch, value, ref outcome } => match outcome {
            Outcome::Refused => Some(refused(record, candidate, at, epoch, value, now)),
            Outcome::Accepted { .. } => is_late(candidate, epoch, value).then(|| {
                let what = format!("The store took {name}'s write in epoch {epoch}, which is over");
                Note::new(at, Kind::Wrong, what)
            }),
            Outcome::Unclear { why } => {
                news(at, format!("{name} does not know of a write in epoch {epoch}: {why}"))
            }
        },
        Report::NothingToWriteLate { at } => {
            let mend = "pause it until another leads, and wake it";
            let what = format!("{name} has no term that is over: {mend}");
            Some(Note::new(at, Kind::Remark, what))
        }
        Report::Trouble(ref sentence) => news(now, format!("{name}: {sentence}")),
        Report::Ended => {
            let life = candidate.life()?;
            match life.asked {
                // A kill has been told already.
                _ if life.end().is_some() => None,
                Some(asked) => {
                    news(now, format!("{name} has ended, {} after it was asked", ms(asked, now)))
                }
                None => news(now, format!("{name} has ended, unasked")),
            }
        }
        Report::Extended { .. } | Report::Stopped { .. } | Report::Writing { .. } => None,
    }
}

fn refused(
    record: &Record,
    candidate: &Candidate,
    at: Mark,
    epoch: i64,
    value: u64,
    now: Mark,
) -> Note {
    let name = &candidate.name;
    if !is_late(candidate, epoch, value) {
        // The fence refused it, which asks the clock first.
        let what = format!("{name}'s write in epoch {epoch} is refused: the term is over");
        return Note::new(at, Kind::Refused, what);
    }
    let other = record.leading(now).filter(|(.., term)| term.epoch != epoch);
    let and = other.map_or(String::new(), |(_, leader, term)| {
        format!(", and {} leads in epoch {}", leader.name, term.epoch)
    });
    let what = format!("The store refuses {name}'s write in epoch {epoch}");
    Note::new(at, Kind::Refused, what)
        .because(format!("It is made only if the key of epoch {epoch} is there. That is gone{and}"))
}

/// Whether this write was made without asking the clock.
fn is_late(candidate: &Candidate, epoch: i64, value: u64) -> bool {
    let mut writes = candidate.writes.iter();
    writes.any(|write| write.is_late && (write.epoch, write.value) == (epoch, value))
}

fn elected(record: &Record, name: &str, at: Mark, epoch: i64, valid_until: Mark) -> Note {
    let leads = format!("{name} leads in epoch {epoch}");
    let before = record.terms().into_iter().rfind(|(_, term)| term.from <= at);
    let Some((former, term)) = before else {
        return Note::new(at, Kind::Elected, leads).because(format!(
            "Its key in the store is the oldest. Its lease has {} ahead, and is renewed while it \
             lives",
            ms(at, valid_until)
        ));
    };
    let whose = &former.name;
    let since = term.ended_by.map_or(String::new(), |(action, done)| {
        let was = match action {
            Action::Stop => "asked to stop",
            Action::Kill => "killed",
            Action::Pause | Action::Resume | Action::WriteLate => "paused",
        };
        format!(", {} after {whose} was {was}", ms(done, at))
    });
    if at < term.end() {
        let what = format!("{leads}{since}: TWO AT ONCE");
        return Note::new(at, Kind::Wrong, what).because(format!(
            "{whose} regards itself as leader in epoch {} for {} more",
            term.epoch,
            ms(at, term.end())
        ));
    }
    let free = ms(term.end(), at);
    let why = match (term.ended_by.map(|(action, _)| action), term.stopped) {
        (Some(Action::Stop), Some(stopped)) if at < term.valid_until => format!(
            "{whose}'s work had stopped {} before. Nobody had to wait for the {} left of its lease",
            ms(stopped, at),
            ms(at, term.valid_until)
        ),
        (Some(Action::Kill), _) => format!(
            "{whose}'s own deadline was {free} before: had it lived, it would have stopped by then"
        ),
        (Some(Action::Pause), _) => format!(
            "{whose}'s own deadline was {free} before: whenever it wakes up, it does not lead"
        ),
        (Some(Action::Stop | Action::Resume | Action::WriteLate) | None, _) => {
            format!("{whose}'s term in epoch {} had ended {free} before", term.epoch)
        }
    };
    Note::new(at, Kind::Elected, format!("{leads}{since}")).because(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{SECOND, elected, story};

    fn told(journal: &Journal) -> Vec<String> {
        let told = |note: &Note| match &note.why {
            Some(why) => format!("{}. {why}.", note.what),
            None => note.what.clone(),
        };
        journal.notes.iter().map(told).collect()
    }

    #[test]
    fn a_pause_is_told_with_its_numbers() {
        assert_eq!(
            told(&story()),
            [
                "ada is in line (process 1)",
                "ben is in line (process 2)",
                "ada leads in epoch 10. Its key in the store is the oldest. Its lease has 3,000 ms \
                 ahead, and is renewed while it lives.",
                "ada is paused (SIGSTOP), leading in epoch 10. It cannot renew its lease, nor \
                 notice. By its own clock its term ends in 2,000 ms.",
                "ben leads in epoch 20, 3,000 ms after ada was paused. ada's own deadline was \
                 1,000 ms before: whenever it wakes up, it does not lead.",
                "ada wakes up (SIGCONT), after 4,000 ms. Its term was over 2,000 ms ago by its own \
                 clock, which it asks before it acts.",
                "The store refuses ada's write in epoch 10. It is made only if the key of epoch 10 \
                 is there. That is gone, and ben leads in epoch 20.",
            ]
        );
    }

    #[test]
    fn a_stop_and_a_kill_are_told_with_their_numbers() {
        let mut journal = story();
        let before = journal.notes.len();
        let ms = SECOND / 1000;
        journal.done(1, Action::Stop, 6 * SECOND);
        journal.reported(1, &Report::Stopped { at: 6 * SECOND + 2 * ms, epoch: 20 }, 6 * SECOND);
        elected(&mut journal, 0, 6 * SECOND + 5 * ms, 30, 8 * SECOND);
        journal.reported(1, &Report::Ended, 6 * SECOND + 9 * ms);
        journal.done(0, Action::Kill, 7 * SECOND);
        journal.reported(0, &Report::Ended, 7 * SECOND + ms);
        let cleo = journal.record.started("cleo", 3, 0);
        elected(&mut journal, cleo, 8 * SECOND + 20 * ms, 40, 9 * SECOND);
        assert_eq!(
            told(&journal)[before..],
            [
                "ben is asked to stop (SIGTERM), leading in epoch 20. First its work stops, and \
                 only then its key goes: the next one may lead at once.",
                "ada leads in epoch 30, 5 ms after ben was asked to stop. ben's work had stopped \
                 3 ms before. Nobody had to wait for the 995 ms left of its lease.",
                "ben has ended, 9 ms after it was asked",
                "ada is killed (SIGKILL), leading in epoch 30. It could give nothing back. The \
                 others wait for its lease: 1,000 ms by its own clock, and a moment more in the \
                 store.",
                "cleo leads in epoch 40, 1,020 ms after ada was killed. ada's own deadline was \
                 20 ms before: had it lived, it would have stopped by then.",
            ]
        );
    }

    #[test]
    fn who_does_not_lead_disturbs_nobody() {
        let mut journal = story();
        journal.done(0, Action::Kill, 6 * SECOND);
        let told = told(&journal);
        assert_eq!(
            told.last().unwrap(),
            "ada is killed (SIGKILL), while it did not lead. Its place in line goes with its \
             lease; ben leads on in epoch 20."
        );
    }
}
