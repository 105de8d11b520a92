//! One term of a command: it is started, watched, and stopped in time.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use incumbent::{BootClock, Clock, Event, Leadership, Mark};
use rustix::process::{Signal, kill_current_process_group};
use tokio::signal::unix::{self, SignalKind, signal};

use super::children::Children;
use super::guard::lease::Lease;
use super::guard::message::Report;
use super::outcome::{Ended, Outcome};
use super::program;
use super::schedule::{LAST_MOMENT, Schedule};
use super::terminal::Terminal;
use super::work::{Heard, Terms, Work};
use crate::event::Teller;
use crate::exit::{End, bad_input};
use crate::signals::{Asked, Signals};

/// How soon to look again for what was killed.
const LOOK_AGAIN: Mark = 20_000_000;

/// How soon a guard tells that what was killed has ended.
const GUARD_KNOWS: Mark = 50_000_000;

/// How long a stop of ourselves takes to happen, if it does.
const STOPPED_BY_THEN: Duration = Duration::from_millis(100);

/// Runs the command, one term after the other.
#[derive(Debug)]
pub struct Supervisor {
    command: Vec<OsString>,
    stop_timeout: Duration,
    isolate: bool,
    terminal: Option<Terminal>,
    children: Children,
    continued: unix::Signal,
    pub signals: Signals,
}

/// Why the command is being stopped.
#[derive(Clone, Copy, Debug)]
enum Cause {
    Own(Ended),
    GuardLost,
    TermOver,
    Asked,
}

/// How a term goes.
#[derive(Debug)]
struct Course {
    started: Mark,
    schedule: Schedule,
    /// The command runs, or has run.
    has_begun: bool,
    /// Why the work has to stop, if it has to.
    cause: Option<Cause>,
    /// It has been asked to.
    has_asked: bool,
    /// When it was first killed.
    killed: Option<Mark>,
    /// The command has been stopped, and we are to go along.
    has_paused: bool,
    /// We went along, and have been continued.
    resumes: bool,
    /// Why the command did not start.
    fault: Option<io::Error>,
    /// Nothing of the work is left.
    is_gone: bool,
    /// Its guard is not there any more.
    is_unguarded: bool,
}

impl Course {
    fn new(started: Mark, stop_timeout: Duration) -> Self {
        Self {
            started,
            schedule: Schedule::new(stop_timeout, LAST_MOMENT),
            has_begun: false,
            cause: None,
            has_asked: false,
            killed: None,
            has_paused: false,
            resumes: false,
            fault: None,
            is_gone: false,
            is_unguarded: false,
        }
    }

    /// Since when the work is being killed.
    fn killed(&mut self, now: Mark) -> Mark {
        *self.killed.get_or_insert(now)
    }

    fn outcome(self) -> Outcome {
        let after = BootClock.now().saturating_sub(self.started);
        match (self.fault, self.cause) {
            // Where we have killed it ourselves, that is why it did not start.
            (Some(error), cause) if self.killed.is_none() || cause.is_none() => {
                Outcome::NotStarted(program::not_started(&error))
            }
            (_, Some(Cause::Own(ended))) => Outcome::Ended(ended),
            (_, Some(Cause::TermOver)) => Outcome::Stopped,
            (_, Some(Cause::Asked)) => Outcome::Asked,
            (_, Some(Cause::GuardLost) | None) => {
                Outcome::Broken { after: Duration::from_nanos(after) }
            }
        }
    }
}

impl Supervisor {
    /// Looks after children from now on.
    pub fn new(
        command: &[OsString],
        stop_timeout: Duration,
        isolate: bool,
        signals: Signals,
    ) -> io::Result<Self> {
        Ok(Self {
            command: command.to_vec(),
            stop_timeout,
            isolate,
            terminal: Terminal::controlling(),
            children: Children::adopt()?,
            continued: signal(SignalKind::from_raw(Signal::CONT.as_raw()))?,
            signals,
        })
    }

    /// Between terms: waits for a signal that asks us to end. Cancel safe.
    pub async fn asked(&mut self) -> Asked {
        tokio::select! {
            asked = self.signals.next() => asked,
            never = self.children.reap() => match never {},
        }
    }

    /// One term. Returns when nothing of the work is left, or nothing can be waited
    /// for. `events` are the candidate's: with each, the deadline may have moved.
    pub async fn term(
        &mut self,
        leadership: &Leadership,
        environment: &[(&'static str, OsString)],
        lease: Lease,
        events: &mut (impl Stream<Item = Event> + Unpin),
        teller: &Teller,
    ) -> Outcome {
        let clock = BootClock;
        let mut course = Course::new(clock.now(), self.stop_timeout);
        let valid_until = leadership.valid_until();
        if course.started >= course.schedule.stop_at(valid_until) {
            return Outcome::Stopped;
        }
        let terminal = self.terminal.as_mut().filter(|terminal| terminal.is_ours());
        let foreground = terminal.map(Terminal::taken).is_some();
        let until = course.schedule.guard_at(valid_until);
        let terms = Terms { until, foreground, isolate: self.isolate, lease };
        let mut work = match Work::start(&self.command, environment, terms) {
            Ok(work) => work,
            Err(error) => {
                self.take_terminal_back();
                return Outcome::NotStarted(unguarded(&error));
            }
        };

        let mut is_lost = false;
        let mut complained = false;
        loop {
            // The clock comes first: nobody knows how long we have slept.
            let now = clock.now();
            let valid_until = leadership.valid_until();
            if now >= course.schedule.stop_at(valid_until) {
                course.cause.get_or_insert(Cause::TermOver);
            }
            // Then what has happened meanwhile: the number of a command that has
            // ended may be somebody else's.
            while !course.is_unguarded
                && let Some(heard) = work.heard()
            {
                self.hear(heard, &mut course, teller);
            }
            if course.has_paused && course.cause.is_none() {
                course.has_paused = false;
                self.pause().await;
                course.resumes = true;
                continue;
            }
            if course.cause.is_some() {
                course.schedule.stopping(now);
            }
            // Before its start there is nobody to hear it.
            let asks = course.cause.is_some() && course.has_begun && !course.has_asked;
            let kills = course.is_unguarded || now >= course.schedule.kill_at(valid_until);
            let signalled = if course.is_gone {
                Ok(())
            } else if kills {
                work.kill()
            } else if asks {
                course.has_asked = true;
                work.stop()
            } else if course.resumes && course.cause.is_none() {
                self.give_terminal(&work);
                work.go_on()
            } else {
                Ok(())
            };
            course.resumes = false;
            if let Err(error) = signalled
                && !complained
            {
                complained = true;
                teller.remark(&format!("the command cannot be signalled: {error}"));
            }
            let is_done = course.is_gone
                || course.fault.is_some()
                || course.is_unguarded && work.is_gone(&self.children);
            if is_done {
                break;
            }
            if kills && now >= course.killed(now).saturating_add(GUARD_KNOWS) && work.is_dead() {
                // All the work has ended, and its guard does not say so: it is stuck.
                work.kill_guard();
            }
            work.until(course.schedule.guard_at(valid_until));

            let wake = if kills {
                now.saturating_add(LOOK_AGAIN)
            } else if course.schedule.is_stopping() {
                course.schedule.kill_at(valid_until)
            } else {
                course.schedule.stop_at(valid_until)
            };
            tokio::select! {
                biased;
                asked = self.signals.next() => {
                    if let Some(Cause::Asked) = course.cause {
                        // First what has ended: its numbers may be somebody else's.
                        while !course.is_unguarded
                            && let Some(heard) = work.heard()
                        {
                            self.hear(heard, &mut course, teller);
                        }
                        work.is_gone(&self.children);
                        // Should it fail, the guard does it.
                        let _ = work.kill();
                        self.take_terminal_back();
                        return Outcome::AtOnce(asked);
                    }
                    course.cause = Some(Cause::Asked);
                }
                heard = work.next(), if !course.is_unguarded => {
                    self.hear(heard, &mut course, teller);
                }
                (child, status) = self.children.next() => work.child_changed(child, status),
                _ = leadership.lost(), if !is_lost => {
                    is_lost = true;
                    course.cause.get_or_insert(Cause::TermOver);
                }
                Some(_) = events.next() => {}
                _ = self.continued.recv() => self.give_terminal(&work),
                () = clock.sleep_until(wake) => {}
            }
        }
        self.take_terminal_back();
        work.over(&mut self.children).await;
        course.outcome()
    }

    /// What the guard has said, or its end, which says enough.
    fn hear(&self, heard: Heard, course: &mut Course, teller: &Teller) {
        match heard {
            Heard::Report(Report::Started(_)) => course.has_begun = true,
            Heard::Report(Report::NotStarted(error)) => course.fault = Some(error),
            Heard::Report(Report::Changed(status)) if status.stopped_signal().is_some() => {
                course.has_paused = self.pauses(status);
            }
            Heard::Report(Report::Changed(status)) => {
                course.has_begun = true;
                let after = BootClock.now().saturating_sub(course.started);
                let ended = Ended::new(status, after, self.has_given_terminal());
                course.cause.get_or_insert(Cause::Own(ended));
            }
            Heard::Report(Report::Overdue) => {
                teller.remark("the command ran on to its last moment, and its guard kills it");
                course.killed(BootClock.now());
                course.cause.get_or_insert(Cause::TermOver);
            }
            Heard::Report(Report::Gone) => course.is_gone = true,
            Heard::GuardLost => {
                course.is_unguarded = true;
                if course.fault.is_none() && !course.is_gone {
                    teller.remark("the guard of the command has ended, and the command with it");
                    course.cause.get_or_insert(Cause::GuardLost);
                }
            }
        }
    }

    /// Whether the stop of the command was meant for us as well: by the keyboard,
    /// or because it wants to use a terminal that is not its own. We do not go
    /// along with others, for who would wake us?
    fn pauses(&self, status: ExitStatus) -> bool {
        let by_terminal = [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .map(|signal| Some(signal.as_raw()))
            .contains(&status.stopped_signal());
        self.has_given_terminal() || (by_terminal && self.terminal.is_some())
    }

    /// Stops us, and whoever shares our job, as the keyboard would have done.
    /// Returns when we are continued; or, where there is nobody who could do
    /// that, soon.
    async fn pause(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        if let Err(error) = kill_current_process_group(Signal::TSTP) {
            tracing::warn!(%error, "we cannot be stopped");
        }
        tokio::select! {
            _ = self.continued.recv() => {}
            () = tokio::time::sleep(STOPPED_BY_THEN) => {}
        }
    }

    /// If the foreground is ours, it is the command's.
    fn give_terminal(&mut self, work: &Work) {
        if let Some(terminal) = &mut self.terminal
            && terminal.is_ours()
            && let Some(group) = work.group()
        {
            terminal.give(group);
        }
    }

    fn has_given_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(Terminal::is_given)
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal
            && terminal.is_given()
        {
            terminal.take_back();
            terminal.restore();
        }
    }
}

/// The guard did not start, or could not.
pub fn unguarded(error: &io::Error) -> End {
    bad_input(format!(
        "the command's guard does not start ({error}): is /proc mounted, and are there not too \
         many processes and open files?"
    ))
}
