//! What happened, in a line, and why that was safe, in another. Every number in them
//! was observed.

use incumbent::Mark;

use super::picture::{Blow, Candidate, Picture, State, Term};
use super::report::{Outcome, Report};

/// One thing worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub at: Mark,
    pub kind: Kind,
    pub what: String,
    /// Why that was safe, or what follows.
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody leads.
    Elected,
    /// Something was done to a candidate.
    Deed,
    /// A write was refused, as it had to be.
    Refused,
    /// What else a candidate does.
    News,
    /// It is for whoever watches.
    Remark,
    /// What must never be.
    Wrong,
}

impl Note {
    fn new(at: Mark, kind: Kind, what: String, why: Option<String>) -> Self {
        Self { at, kind, what, why }
    }

    pub fn remark(at: Mark, sentence: impl Into<String>) -> Self {
        Self::new(at, Kind::Remark, sentence.into(), None)
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

pub fn killed(picture: &Picture, who: usize, at: Mark) -> Option<Note> {
    let candidate = picture.get(who)?;
    let name = &candidate.name;
    let (what, why) = match standing(candidate, at) {
        Some(term) => (
            format!("{name} is killed (SIGKILL), leading in epoch {}", term.epoch),
            format!(
                "It could give nothing back. The others wait for its lease: {} by its own clock, \
                 and a moment more in the store",
                ms(at, term.valid_until)
            ),
        ),
        None => (
            format!("{name} is killed (SIGKILL), while it did not lead"),
            others(picture, at, "Its place in line goes with its lease"),
        ),
    };
    Some(Note::new(at, Kind::Deed, what, Some(why)))
}

pub fn asked(picture: &Picture, who: usize, at: Mark) -> Option<Note> {
    let candidate = picture.get(who)?;
    let name = &candidate.name;
    let (what, why) = match standing(candidate, at) {
        Some(term) => (
            format!("{name} is asked to stop (SIGTERM), leading in epoch {}", term.epoch),
            "First its work stops, and only then its key goes: the next one may lead at once"
                .to_owned(),
        ),
        None => (
            format!("{name} is asked to stop (SIGTERM), while it does not lead"),
            others(picture, at, "It leaves the line"),
        ),
    };
    Some(Note::new(at, Kind::Deed, what, Some(why)))
}

pub fn paused(picture: &Picture, who: usize, at: Mark) -> Option<Note> {
    let candidate = picture.get(who)?;
    let name = &candidate.name;
    let (what, why) = match standing(candidate, at) {
        Some(term) => (
            format!("{name} is paused (SIGSTOP), leading in epoch {}", term.epoch),
            format!(
                "It cannot renew its lease, nor notice. By its own clock its term ends in {}",
                ms(at, term.valid_until)
            ),
        ),
        None => (
            format!("{name} is paused (SIGSTOP), while it does not lead"),
            others(picture, at, "If it sleeps through its lease, it loses its place in line"),
        ),
    };
    Some(Note::new(at, Kind::Deed, what, Some(why)))
}

pub fn resumed(picture: &Picture, who: usize, at: Mark) -> Option<Note> {
    let candidate = picture.get(who)?;
    let slept = candidate.life()?.pauses.last()?;
    let what = format!("{} wakes up (SIGCONT), after {}", candidate.name, ms(slept.from, at));
    let led = candidate.term().filter(|term| term.blow == Some(Blow::Pause(slept.from)));
    let why = led.map(|term| {
        if term.is_on(at) {
            format!(
                "Its term has {} left by its own clock: it leads on, and renews",
                ms(at, term.valid_until)
            )
        } else {
            format!(
                "Its term was over {} ago by its own clock, which it asks before it acts",
                ms(term.end(), at)
            )
        }
    });
    Some(Note::new(at, Kind::Deed, what, why))
}

pub fn told_to_write_late(picture: &Picture, who: usize, at: Mark) -> Option<Note> {
    let candidate = picture.get(who)?;
    let what = if candidate.is_asleep() {
        format!("{} will find a write of its dead term to be sent when it wakes up", candidate.name)
    } else {
        format!("{} is told to write in its dead term", candidate.name)
    };
    let why = "As if the write had been on its way: it does not ask its clock before";
    Some(Note::new(at, Kind::Deed, what, Some(why.into())))
}

fn ended(picture: &Picture, who: usize, at: Mark) -> Option<Note> {
    let candidate = picture.get(who)?;
    let life = candidate.life()?;
    // A death by our hand was told when it was dealt.
    if life.killed.is_some() || life.ended.is_some() {
        return None;
    }
    let name = &candidate.name;
    Some(match life.asked {
        Some(asked) => {
            let what = format!("{name} has ended, {} after it was asked", ms(asked, at));
            Note::new(at, Kind::News, what, None)
        }
        None => Note::new(at, Kind::News, format!("{name} has ended, unasked"), None),
    })
}

/// `now` is when the report was read.
pub fn reported(picture: &Picture, who: usize, report: &Report, now: Mark) -> Option<Note> {
    let candidate = picture.get(who)?;
    let name = &candidate.name;
    match report {
        Report::Joined { at, epoch } => {
            let note = |what| Some(Note::new(*at, Kind::News, what, None));
            if candidate.life()?.joined.is_none() {
                return note(format!("{name} is in line (process {})", candidate.pid));
            }
            let before = candidate.term()?.epoch;
            note(format!(
                "{name} is back in line, at its end, with a new key: for epoch {epoch}; {before} \
                 is over for good"
            ))
        }
        Report::Elected { at, epoch, valid_until } => {
            Some(elected(picture, candidate, *at, *epoch, *valid_until))
        }
        Report::Demoted { at, epoch, reason } => {
            let struck = candidate.term().filter(|term| term.epoch == *epoch)?.blow;
            // Others read of it when the next one leads.
            if matches!(struck, Some(Blow::Stop(_))) {
                return None;
            }
            let what = format!("{name} knows that epoch {epoch} is over: {reason}");
            Some(Note::new(*at, Kind::News, what, None))
        }
        Report::Written { at, epoch, value, outcome: Outcome::Refused } => {
            Some(refused(picture, candidate, *at, *epoch, *value, now))
        }
        Report::Written { at, epoch, value, outcome: Outcome::Accepted { .. } } => {
            is_late(candidate, *epoch, *value).then(|| {
                let what = format!("The store took {name}'s write in epoch {epoch}, which is over");
                Note::new(*at, Kind::Wrong, what, None)
            })
        }
        Report::Written { at, epoch, outcome: Outcome::Unclear { why }, .. } => {
            let what = format!("{name} does not know of a write in epoch {epoch}: {why}");
            Some(Note::new(*at, Kind::News, what, None))
        }
        Report::NothingToWriteLate { at } => Some(Note::remark(
            *at,
            format!("{name} has no term that is over: pause it until another leads, and wake it"),
        )),
        Report::Trouble(sentence) => {
            Some(Note::new(now, Kind::News, format!("{name}: {sentence}"), None))
        }
        Report::Ended => ended(picture, who, now),
        Report::Extended { .. } | Report::Stopped { .. } | Report::Writing { .. } => None,
    }
}

fn refused(
    picture: &Picture,
    candidate: &Candidate,
    at: Mark,
    epoch: i64,
    value: u64,
    now: Mark,
) -> Note {
    let name = &candidate.name;
    if !is_late(candidate, epoch, value) {
        // By the fence, which asks the clock first.
        let what = format!("{name}'s write in epoch {epoch} is refused: the term is over");
        return Note::new(at, Kind::Refused, what, None);
    }
    let leader = picture.leading(now).and_then(|who| picture.get(who));
    let other = leader.and_then(|leader| Some((&leader.name, leader.term()?.epoch)));
    let and = match other.filter(|(_, other)| *other != epoch) {
        Some((leader, other)) => format!(", and {leader} leads in epoch {other}"),
        None => String::new(),
    };
    let why = format!("It is made only if the key of epoch {epoch} is there. That is gone{and}");
    let what = format!("The store refuses {name}'s write in epoch {epoch}");
    Note::new(at, Kind::Refused, what, Some(why))
}

/// Whether this write went around the clock.
fn is_late(candidate: &Candidate, epoch: i64, value: u64) -> bool {
    candidate
        .writes
        .iter()
        .any(|write| write.is_late && write.epoch == epoch && write.value == value)
}

fn elected(
    picture: &Picture,
    candidate: &Candidate,
    at: Mark,
    epoch: i64,
    valid_until: Mark,
) -> Note {
    let name = &candidate.name;
    let leads = format!("{name} leads in epoch {epoch}");
    let before = picture.terms().into_iter().rfind(|(_, term)| term.from <= at);
    let Some((former, term)) = before else {
        let why = format!(
            "Its key in the store is the oldest. Its lease has {} ahead, and is renewed while it \
             lives",
            ms(at, valid_until)
        );
        return Note::new(at, Kind::Elected, leads, Some(why));
    };
    let whose = &former.name;
    let since = match term.blow {
        Some(Blow::Stop(blow)) => format!(", {} after {whose} was asked to stop", ms(blow, at)),
        Some(Blow::Kill(blow)) => format!(", {} after {whose} was killed", ms(blow, at)),
        Some(Blow::Pause(blow)) => format!(", {} after {whose} was paused", ms(blow, at)),
        None => String::new(),
    };
    if at < term.end() {
        let why = format!(
            "{whose} regards itself as leader in epoch {} for {} more",
            term.epoch,
            ms(at, term.end())
        );
        return Note::new(at, Kind::Wrong, format!("{leads}{since}: TWO AT ONCE"), Some(why));
    }
    let free = ms(term.end(), at);
    let why = match (term.stopped, term.blow) {
        (Some(stopped), Some(Blow::Stop(_))) if at < term.valid_until => format!(
            "{whose}'s work had stopped {} before. Nobody had to wait for the {} left of its lease",
            ms(stopped, at),
            ms(at, term.valid_until)
        ),
        (_, Some(Blow::Kill(_))) => format!(
            "{whose}'s own deadline was {free} before: had it lived, it would have stopped by then"
        ),
        (_, Some(Blow::Pause(_))) => format!(
            "{whose}'s own deadline was {free} before: whenever it wakes up, it does not lead"
        ),
        (_, Some(Blow::Stop(_)) | None) => {
            format!("{whose}'s term in epoch {} had ended {free} before", term.epoch)
        }
    };
    Note::new(at, Kind::Elected, format!("{leads}{since}"), Some(why))
}

/// The term that something is done to.
fn standing(candidate: &Candidate, at: Mark) -> Option<&Term> {
    candidate.term().filter(|term| term.is_on(at))
}

/// Who leads undisturbed.
fn others(picture: &Picture, at: Mark, and: &str) -> String {
    let leader = picture.leading(at).and_then(|who| picture.get(who));
    match leader.and_then(|leader| Some((&leader.name, leader.term()?.epoch))) {
        Some((leader, epoch)) => format!("{and}; {leader} leads on in epoch {epoch}"),
        None => and.to_owned(),
    }
}

/// What a candidate is doing, in a word or two.
pub fn doing(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Waiting => "waiting",
        State::Leading => "LEADS",
        State::Asleep => "paused",
        State::Stopping => "stopping",
        State::Killed => "killed",
        State::Stopped => "gone",
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{SECOND, elected, story};
    use super::*;

    fn told(picture: &Picture) -> Vec<String> {
        let told = |note: &Note| match &note.why {
            Some(why) => format!("{}. {why}.", note.what),
            None => note.what.clone(),
        };
        picture.notes.iter().map(told).collect()
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
        let mut picture = story();
        let before = picture.notes.len();
        let ms = SECOND / 1000;
        picture.asked(1, 6 * SECOND);
        picture.reported(1, Report::Stopped { at: 6 * SECOND + 2 * ms, epoch: 20 }, 6 * SECOND);
        elected(&mut picture, 0, 6 * SECOND + 5 * ms, 30, 8 * SECOND);
        picture.reported(1, Report::Ended, 6 * SECOND + 9 * ms);
        picture.killed(0, 7 * SECOND);
        picture.reported(0, Report::Ended, 7 * SECOND + ms);
        let cleo = picture.started("cleo", 3, 0);
        elected(&mut picture, cleo, 8 * SECOND + 20 * ms, 40, 9 * SECOND);
        assert_eq!(
            told(&picture)[before..],
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
        let mut picture = story();
        picture.killed(0, 6 * SECOND);
        let told = told(&picture);
        assert_eq!(
            told.last().unwrap(),
            "ada is killed (SIGKILL), while it did not lead. Its place in line goes with its \
             lease; ben leads on in epoch 20."
        );
    }
}
