//! What the work of a term is given, how the term went, and what follows.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use incumbent::{Leadership, Mark};
use rustix::process::Signal;

use super::lease::Lease;
use crate::event::Reporter;
use crate::exit::{End, Status};
use crate::instance::InstanceView;
use crate::signals::Asked;
use crate::text::in_seconds;

/// What the work of one term is given.
#[derive(Debug)]
pub struct Assignment<'a> {
    pub leadership: &'a Leadership,
    pub environment: &'a [(&'static str, OsString)],
    /// For the guard, which gives it back when the supervisor is dead.
    pub lease: Lease,
    pub reporter: &'a Reporter,
    /// Tells whether somebody wants the term to be resigned.
    pub view: &'a InstanceView,
}

/// How a term went. Nothing of the work runs any more, unless it says so.
#[derive(Debug)]
pub enum Outcome {
    /// The work ended by itself.
    Ended(Ended),
    /// The work was stopped because the leadership was over, or nearly.
    Stopped,
    /// The guard died, or the work ended without a cause.
    Broken { after: Duration },
    /// The work was stopped because we were asked to resign.
    Resigned,
    /// The work was stopped because we were asked to end.
    Asked,
    /// We were asked to end, and the work does not end: nothing can interrupt what it does.
    Stuck,
    /// The work was killed because we were asked twice.
    AtOnce(Asked),
    /// The work did not start, and will not.
    NotStarted(End),
}

/// What follows a term.
#[derive(Debug)]
pub enum Next {
    /// The next term of this candidacy. Work that ran for a lease time has no restart delay
    /// behind it any more.
    Campaign {
        has_lived: bool,
    },
    /// A new candidacy after the restart delay: others have their turn.
    Delay,
    End(Result<Status, End>),
    /// The end, without another word to the store.
    AtOnce(Status),
}

impl Outcome {
    /// `once`: the work is run once. `lease_time`: work that ends sooner has to wait. In a race,
    /// there is no line in which others come first.
    pub fn next(self, once: bool, lease_time: Duration, is_race: bool) -> Next {
        let again = |after| {
            if after < lease_time { Next::Delay } else { Next::Campaign { has_lived: true } }
        };
        match self {
            Self::Ended(ended) if once => Next::End(Ok(Status::Passed(ended.status))),
            Self::Ended(ended) if ended.by_keyboard => Next::End(Ok(Status::Done)),
            Self::Ended(ended) => again(ended.after),
            Self::Broken { .. } | Self::Stopped if once => Next::End(Ok(Status::NotFound)),
            Self::Broken { after } => again(after),
            Self::Resigned if once => Next::End(Ok(Status::Done)),
            Self::Resigned if is_race => Next::Delay,
            Self::Stopped | Self::Resigned => Next::Campaign { has_lived: false },
            Self::Asked => Next::End(Ok(Status::Done)),
            Self::AtOnce(asked) => Next::AtOnce(asked.status()),
            Self::Stuck => Next::AtOnce(Status::Done),
            Self::NotStarted(end) => Next::End(Err(end)),
        }
    }
}

/// The work's own end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// As a shell says it.
    pub status: u8,
    /// How long it had run.
    pub after: Duration,
    /// Somebody pressed Ctrl-C or Ctrl-\.
    pub by_keyboard: bool,
}

impl Ended {
    /// Of a command.
    pub fn new(status: ExitStatus, after: Mark, had_terminal: bool) -> Self {
        let status = match (status.code(), status.signal()) {
            (Some(status), _) => status,
            (None, Some(signal)) => 128_i32.saturating_add(signal),
            (None, None) => 255,
        };
        let status = u8::try_from(status).unwrap_or(u8::MAX);
        // Shells, and programs that behave like them, end with the number only.
        let keys = [Signal::INT, Signal::QUIT].map(|key| i32::from(status) == 128 + key.as_raw());
        Self {
            status,
            after: Duration::from_nanos(after),
            by_keyboard: had_terminal && keys.contains(&true),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended with status {} after {}", self.status, in_seconds(self.after))
    }
}

#[cfg(test)]
mod tests {
    use tokio::signal::unix::SignalKind;

    use super::*;
    use crate::exit::bad_input;

    #[test]
    fn what_follows_depends_on_once_and_on_how_long_it_ran() {
        let (soon, late) = (Duration::from_secs(9), Duration::from_secs(10));
        let ended =
            |after, by_keyboard| move || Outcome::Ended(Ended { status: 7, after, by_keyboard });
        let broken = |after| move || Outcome::Broken { after };
        let campaign = |has_lived| format!("Campaign {{ has_lived: {has_lived} }}");
        let end = |status| format!("End(Ok({status}))");
        let table: [(&dyn Fn() -> Outcome, String, String); 12] = [
            (&ended(soon, false), "Delay".into(), end("Passed(7)")),
            (&ended(late, false), campaign(true), end("Passed(7)")),
            (&ended(soon, true), end("Done"), end("Passed(7)")),
            (&ended(late, true), end("Done"), end("Passed(7)")),
            (&broken(soon), "Delay".into(), end("NotFound")),
            (&broken(late), campaign(true), end("NotFound")),
            (&|| Outcome::Stopped, campaign(false), end("NotFound")),
            (&|| Outcome::Resigned, campaign(false), end("Done")),
            (&|| Outcome::Asked, end("Done"), end("Done")),
            (&|| Outcome::Stuck, "AtOnce(Done)".into(), "AtOnce(Done)".into()),
            (
                &|| Outcome::AtOnce(Asked(SignalKind::terminate())),
                "AtOnce(Passed(143))".into(),
                "AtOnce(Passed(143))".into(),
            ),
            (
                &|| Outcome::NotStarted(bad_input("no")),
                format!("End(Err({:?}))", bad_input("no")),
                format!("End(Err({:?}))", bad_input("no")),
            ),
        ];
        for (outcome, again, once) in table {
            let next = |once| format!("{:?}", outcome().next(once, late, false));
            assert_eq!((next(false), next(true)), (again, once), "{:?}", outcome());
        }
        let in_a_race = Outcome::Resigned.next(false, late, true);
        assert!(matches!(in_a_race, Next::Delay), "others would not have a chance");
    }
}
