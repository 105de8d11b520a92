//! The supervisor of a command: starts it, watches it, and stops it in time, term after term.
//!
//! `term` decides; here is what it decides by (signals, the session's events, the guard's
//! reports, the clock), and what it has done.

mod term;

use std::ffi::OsString;
use std::io;
use std::mem;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use incumbent::{BootClock, Clock, Event, Mark};
use metrics::counter;
use rustix::process::{Signal, kill_current_process_group};
use tokio::signal::unix::{self, SignalKind, signal};

use self::term::{Action, Input, Term};
use super::children::Children;
use super::message::{Begin, Report};
use super::outcome::{Assignment, Outcome};
use super::terminal::Terminal;
use super::work::{Heard, Work};
use crate::exit::{End, bad_input};
use crate::signals::{Asked, Signals};

/// How long a stop of ourselves takes to happen, if it does.
const STOPPED_BY_THEN: Duration = Duration::from_millis(100);

/// Runs the command, one term after the other.
#[derive(Debug)]
pub struct Supervisor {
    command: Vec<OsString>,
    stop_timeout: Duration,
    isolate: bool,
    terminal: Terminal,
    children: Children,
    continued: unix::Signal,
    pub signals: Signals,
}

impl Supervisor {
    /// Reaps children from now on.
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
        loop {
            tokio::select! {
                asked = self.signals.next() => return asked,
                _ = self.children.next() => {}
            }
        }
    }

    /// One term. Returns when nothing of the work is left, or a second signal ends us.
    /// `events` are the candidate's: with each, the deadline may have moved.
    pub async fn term(
        &mut self,
        Assignment { leadership, environment, lease, reporter, view }: Assignment<'_>,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Outcome {
        let clock = BootClock;
        let begun = Term::begin(clock.now(), leadership.valid_until(), self.stop_timeout);
        let Some(mut term) = begun else {
            return Outcome::Stopped;
        };
        let foreground = self.terminal.is_ours();
        if foreground {
            self.terminal.taken();
        }
        let until = term.guard_until();
        let begin = Begin { until, foreground, isolate: self.isolate, lease };
        let mut work = match Work::start(&self.command, environment, begin) {
            Ok(work) => work,
            Err(error) => {
                self.terminal.restore();
                return Outcome::NotStarted(unguarded(&error));
            }
        };
        let mut is_lost = false;
        let mut is_resigning = false;
        let mut has_complained = false;
        let mut input = None;
        loop {
            let mut inputs = vec![Input::ValidUntil(leadership.valid_until())];
            inputs.extend(input.take());
            // All of it, before anything is signalled: the number of a command that has ended
            // may be another process's.
            while let Some(heard) = work.heard() {
                inputs.extend(self.input(heard));
            }
            if inputs.iter().any(|input| matches!(input, Input::Started)) {
                view.work_begins(leadership.fence());
            }
            let mut wake = Mark::MAX;
            for action in term.next(clock.now(), inputs) {
                let mut done = Ok(());
                match action {
                    Action::GuardUntil(until) => work.until(until),
                    Action::Ask => {
                        view.work_stops();
                        done = work.stop();
                    }
                    Action::Kill => {
                        view.work_stops();
                        done = work.kill();
                    }
                    Action::KillStuckGuard if work.is_dead() => work.kill_guard(),
                    Action::KillStuckGuard => {}
                    Action::Reap => {
                        input = work.reap(&self.children).then_some(Input::Gone);
                    }
                    Action::Pause => {
                        self.pause().await;
                        input = Some(Input::Continued);
                    }
                    Action::Resume => {
                        self.terminal.give(work.group());
                        done = work.go_on();
                    }
                    Action::Remark(sentence) => reporter.remark(sentence),
                    Action::Wake(at) => wake = at,
                    Action::End(outcome) => {
                        self.terminal.restore();
                        if !matches!(outcome, Outcome::AtOnce(_)) {
                            work.over(&mut self.children).await;
                        }
                        return outcome;
                    }
                }
                if let Err(error) = done
                    && !mem::replace(&mut has_complained, true)
                {
                    reporter.remark(&format!("the command cannot be signalled: {error}"));
                }
            }
            if input.is_some() {
                continue;
            }
            tokio::select! {
                biased;
                asked = self.signals.next() => {
                    view.ends();
                    input = Some(Input::Signal(asked));
                }
                heard = work.next() => input = self.input(heard),
                (child, status) = self.children.next() => work.child_changed(child, status),
                _ = leadership.lost(), if !is_lost => {
                    is_lost = true;
                    input = Some(Input::Lost);
                }
                () = view.resignation(leadership), if !is_resigning => {
                    is_resigning = true;
                    input = Some(Input::Resign);
                }
                Some(_) = events.next() => {}
                _ = self.continued.recv() => self.terminal.give(work.group()),
                () = clock.sleep_until(wake) => {}
            }
        }
    }

    /// What the guard's report means for the term. None for a stop that was not meant for us.
    fn input(&self, heard: Heard) -> Option<Input> {
        Some(match heard {
            Heard::Report(Report::Started(_)) => Input::Started,
            Heard::Report(Report::NotStarted(error)) => Input::NotStarted(error),
            Heard::Report(Report::Changed(status)) if status.stopped_signal().is_some() => {
                return self.pauses(status).then_some(Input::Paused);
            }
            Heard::Report(Report::Changed(status)) => {
                Input::Ended { status, had_terminal: self.terminal.is_given() }
            }
            Heard::Report(Report::Overdue) => {
                counter!("incumbent_guard_kills_total").increment(1);
                Input::Overdue
            }
            Heard::Report(Report::Gone) => Input::Gone,
            Heard::GuardLost => Input::GuardLost,
        })
    }

    /// Whether the stop of the command was meant for us as well: by the keyboard, or because
    /// the command wants to use a terminal that is not its own. In other cases we run on,
    /// because nobody would continue us.
    fn pauses(&self, status: ExitStatus) -> bool {
        let by_terminal = [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .map(|signal| Some(signal.as_raw()))
            .contains(&status.stopped_signal());
        self.terminal.is_given() || (by_terminal && self.terminal.exists())
    }

    /// Stops us, and all processes of our job, as the keyboard would have done. Returns when
    /// we are continued; or soon, where nobody is there to do that.
    async fn pause(&mut self) {
        self.terminal.take_back();
        if let Err(error) = kill_current_process_group(Signal::TSTP) {
            tracing::warn!(%error, "cannot stop this process");
        }
        tokio::select! {
            _ = self.continued.recv() => {}
            () = tokio::time::sleep(STOPPED_BY_THEN) => {}
        }
    }
}

/// The guard did not start, or could not.
pub fn unguarded(error: &io::Error) -> End {
    bad_input(format!(
        "the command's guard does not start ({error}): is /proc mounted? If it is, allow this \
         user more processes (ulimit -u) and open files (ulimit -n)"
    ))
}
