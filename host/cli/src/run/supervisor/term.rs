//! One term of a command, decided without I/O: when the command is asked to stop, when it is
//! killed, and how the term has ended.
//!
//! [`Term::next`] takes the time and what has happened since the last call, and returns what
//! to do now. The supervisor does that, and calls again when something happens, or at the mark
//! of [`Action::Wake`]. `term/edges.txt` shows what each input does in each phase,
//! `term/stories.txt` how whole terms go.

use std::io;
use std::mem;
use std::process::ExitStatus;
use std::time::Duration;

use incumbent::Mark;

use super::super::outcome::{Ended, Outcome};
use super::super::program;
use super::super::schedule::{LAST_MOMENT, Schedule};
use crate::signals::Asked;

/// How soon to look again for the killed processes.
const LOOK_AGAIN: Mark = 20_000_000;

/// How long a guard may take to report that the killed processes have ended.
const GUARD_KNOWS: Mark = 50_000_000;

/// What has happened.
#[derive(Debug)]
pub enum Input {
    /// The leadership is valid until then, as far as is known now.
    ValidUntil(Mark),
    /// The leadership is lost.
    Lost,
    /// Somebody wants the leadership to be given back.
    Resign,
    /// A signal asks us to end.
    Signal(Asked),
    /// The command runs.
    Started,
    NotStarted(io::Error),
    /// The command has ended. Some of its processes may be left.
    Ended {
        status: ExitStatus,
        had_terminal: bool,
    },
    /// The command was stopped, in a way that was meant for us too.
    Paused,
    /// We stopped ourselves, and have been continued.
    Continued,
    /// The guard's deadline has passed, and it kills the work.
    Overdue,
    /// The guard is dead.
    GuardLost,
    /// Nothing of the work is left.
    Gone,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Tell the guard its deadline.
    GuardUntil(Mark),
    /// Ask the work to stop: SIGTERM.
    Ask,
    /// Kill the work.
    Kill,
    /// If nothing of the work seems to run: the guard does not report that, so it hangs. Kill it.
    KillStuckGuard,
    /// Reap what the guard has left; if that was all, the next input is [`Input::Gone`].
    Reap,
    /// Stop ourselves; the next input is [`Input::Continued`].
    Pause,
    /// Continue the command, in the foreground.
    Resume,
    /// Tell people.
    Remark(&'static str),
    /// Call again at this mark.
    Wake(Mark),
    /// The term is over. Always the last action.
    End(Outcome),
}

/// A term of a command.
#[derive(Debug)]
pub struct Term {
    started: Mark,
    schedule: Schedule,
    valid_until: Mark,
    /// The deadline that the guard has been told.
    guard_until: Mark,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The guard is starting the command.
    Starting,
    /// The command runs.
    Working(Job),
    /// The work has to stop, and has until the stop time-out, or its last moment.
    Stopping(Stop, Request),
    /// The work is being killed, since this mark.
    Killing(Stop, Mark),
    /// The guard is dead: we kill and reap what it has left.
    Reaping(Stop),
}

/// Job control: what there is to do about it.
#[derive(Clone, Copy, Debug)]
enum Job {
    Runs,
    Paused,
    Continued,
}

/// Why the work stops, and since when.
#[derive(Clone, Copy, Debug)]
struct Stop {
    cause: Cause,
    since: Mark,
}

#[derive(Clone, Copy, Debug)]
enum Cause {
    /// The command ended by itself.
    Own(Ended),
    GuardLost,
    TermOver,
    Resigned,
    Asked,
}

/// The request to stop, SIGTERM.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// The command does not run yet, and could not hear it.
    Early,
    Due,
    Sent,
}

impl Term {
    /// None if there is no time left to work in.
    pub fn begin(now: Mark, valid_until: Mark, stop_timeout: Duration) -> Option<Self> {
        let schedule = Schedule::new(stop_timeout, LAST_MOMENT);
        (now < schedule.stop_at(valid_until)).then(|| Self {
            started: now,
            schedule,
            valid_until,
            guard_until: schedule.guard_at(valid_until, None),
            phase: Phase::Starting,
        })
    }

    /// The guard's deadline.
    pub fn guard_until(&self) -> Mark {
        self.guard_until
    }

    /// What to do now. What has happened comes before the clock: a command that ended in time
    /// has ended by itself, however long we slept.
    pub fn next(&mut self, now: Mark, inputs: impl IntoIterator<Item = Input>) -> Vec<Action> {
        let mut actions = Vec::new();
        for input in inputs {
            if let Some(outcome) = self.handle(now, input, &mut actions) {
                actions.push(Action::End(outcome));
                return actions;
            }
        }
        if now >= self.schedule.stop_at(self.valid_until) {
            self.stop(now, Cause::TermOver);
        }
        if let Phase::Stopping(stop, _) = self.phase
            && now >= self.kill_at()
        {
            self.phase = Phase::Killing(stop, now);
        }
        self.act(now, &mut actions);
        actions
    }

    /// One input. The outcome, if it ends the term.
    fn handle(&mut self, now: Mark, input: Input, actions: &mut Vec<Action>) -> Option<Outcome> {
        match input {
            Input::ValidUntil(until) => self.valid_until = until,
            Input::Lost => self.stop(now, Cause::TermOver),
            Input::Resign => self.stop(now, Cause::Resigned),
            Input::Signal(asked) => match self.phase.stop() {
                Some(Stop { cause: Cause::Asked, .. }) => {
                    // Ended processes are reaped first, because the system may give their
                    // numbers to others.
                    actions.extend([Action::Reap, Action::Kill]);
                    return Some(Outcome::AtOnce(asked));
                }
                Some(stop) => stop.cause = Cause::Asked,
                None => self.stop(now, Cause::Asked),
            },
            Input::Started => self.begun(),
            Input::NotStarted(error) => {
                return Some(match self.phase {
                    // We have killed it, and that is why it did not start.
                    Phase::Killing(..) => self.outcome(now),
                    Phase::Starting
                    | Phase::Working(_)
                    | Phase::Stopping(..)
                    | Phase::Reaping(_) => Outcome::NotStarted(program::not_started(&error)),
                });
            }
            Input::Ended { status, had_terminal } => {
                self.begun();
                let after = now.saturating_sub(self.started);
                self.stop(now, Cause::Own(Ended::new(status, after, had_terminal)));
            }
            Input::Paused => self.job(Job::Paused),
            Input::Continued => self.job(Job::Continued),
            Input::Overdue => {
                actions.push(Action::Remark(
                    "the command ran on to its last moment, and its guard kills it",
                ));
                self.stop(now, Cause::TermOver);
                if let Phase::Stopping(stop, _) = self.phase {
                    self.phase = Phase::Killing(stop, now);
                }
            }
            Input::GuardLost => {
                actions.push(Action::Remark(
                    "the guard of the command has ended, and the command with it",
                ));
                self.stop(now, Cause::GuardLost);
                if let Some(stop) = self.phase.stop() {
                    self.phase = Phase::Reaping(*stop);
                }
            }
            Input::Gone => return Some(self.outcome(now)),
        }
        None
    }

    /// The command runs, or has run.
    fn begun(&mut self) {
        match &mut self.phase {
            Phase::Starting => self.phase = Phase::Working(Job::Runs),
            Phase::Stopping(_, request @ Request::Early) => *request = Request::Due,
            Phase::Working(_) | Phase::Stopping(..) | Phase::Killing(..) | Phase::Reaping(_) => {}
        }
    }

    /// The work has to stop, unless it has to already.
    fn stop(&mut self, now: Mark, cause: Cause) {
        let request = match self.phase {
            Phase::Starting => Request::Early,
            Phase::Working(_) => Request::Due,
            Phase::Stopping(..) | Phase::Killing(..) | Phase::Reaping(_) => return,
        };
        self.phase = Phase::Stopping(Stop { cause, since: now }, request);
    }

    fn job(&mut self, change: Job) {
        if let Phase::Working(job) = &mut self.phase {
            *job = change;
        }
    }

    /// What this phase does at this moment, and when it wants to be called again.
    fn act(&mut self, now: Mark, actions: &mut Vec<Action>) {
        let guard_until = self.schedule.guard_at(self.valid_until, self.phase.stopping_since());
        let is_guarded = !matches!(self.phase, Phase::Reaping(_));
        if is_guarded && self.guard_until != guard_until {
            self.guard_until = guard_until;
            actions.push(Action::GuardUntil(guard_until));
        }
        let (stop_at, kill_at) = (self.schedule.stop_at(self.valid_until), self.kill_at());
        let wake = match &mut self.phase {
            Phase::Starting => stop_at,
            Phase::Working(job) => {
                match mem::replace(job, Job::Runs) {
                    Job::Runs => {}
                    Job::Paused => actions.push(Action::Pause),
                    Job::Continued => actions.push(Action::Resume),
                }
                stop_at
            }
            Phase::Stopping(_, request) => {
                if let Request::Due = request {
                    *request = Request::Sent;
                    actions.push(Action::Ask);
                }
                kill_at
            }
            Phase::Killing(_, since) => {
                actions.push(Action::Kill);
                if now >= since.saturating_add(GUARD_KNOWS) {
                    actions.push(Action::KillStuckGuard);
                }
                now.saturating_add(LOOK_AGAIN)
            }
            Phase::Reaping(_) => {
                actions.extend([Action::Kill, Action::Reap]);
                now.saturating_add(LOOK_AGAIN)
            }
        };
        actions.push(Action::Wake(wake));
    }

    fn kill_at(&self) -> Mark {
        self.schedule.kill_at(self.valid_until, self.phase.stopping_since())
    }

    /// How a term whose work has gone has ended.
    fn outcome(&mut self, now: Mark) -> Outcome {
        match self.phase.stop().map(|stop| stop.cause) {
            Some(Cause::Own(ended)) => Outcome::Ended(ended),
            Some(Cause::TermOver) => Outcome::Stopped,
            Some(Cause::Resigned) => Outcome::Resigned,
            Some(Cause::Asked) => Outcome::Asked,
            Some(Cause::GuardLost) | None => {
                Outcome::Broken { after: Duration::from_nanos(now.saturating_sub(self.started)) }
            }
        }
    }
}

impl Phase {
    fn stop(&mut self) -> Option<&mut Stop> {
        match self {
            Self::Starting | Self::Working(_) => None,
            Self::Stopping(stop, _) | Self::Killing(stop, _) | Self::Reaping(stop) => Some(stop),
        }
    }

    fn stopping_since(mut self) -> Option<Mark> {
        self.stop().map(|stop| stop.since)
    }
}

#[cfg(test)]
mod tests;
