//! One term of a command: it is started, watched, and stopped in time.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use incumbent::{BootClock, Clock, Leadership};
use rustix::process::{Signal, WaitStatus, kill_current_process_group};
use tokio::signal::unix::{self, SignalKind, signal};

use super::group::{Children, Group};
use super::schedule::Schedule;
use super::terminal::Terminal;
use crate::cli::event::{Teller, in_seconds};
use crate::cli::signals::{Asked, Signals};

/// How soon to look again for what was killed.
const LOOK_AGAIN: u64 = 20_000_000;

/// How long a stop of ourselves takes to happen, if it does.
const STOPPED_BY_THEN: Duration = Duration::from_millis(100);

/// Runs the command, one term after the other.
#[derive(Debug)]
pub struct Supervisor {
    command: Vec<OsString>,
    stop_timeout: Duration,
    terminal: Option<Terminal>,
    children: Children,
    continued: unix::Signal,
    pub signals: Signals,
}

/// How a term of the command went. Nothing of it runs any more.
#[derive(Debug)]
pub enum Outcome {
    /// The command ended by itself.
    Ended(Ended),
    /// It was stopped, for the leadership is over, or nearly was.
    Stopped,
    /// It was stopped because we were asked to end.
    Asked,
    /// It was killed, for we were asked twice.
    AtOnce(Asked),
    /// It did not start.
    NotStarted(io::Error),
}

/// The command's own end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// As a shell says it.
    pub status: u8,
    /// How long it had run.
    pub after: Duration,
    /// Somebody pressed Ctrl-C or Ctrl-\.
    pub by_keyboard: bool,
}

/// Why the command is being stopped.
#[derive(Clone, Copy, Debug)]
enum Cause {
    Own(Ended),
    TermOver,
    Asked,
}

impl Supervisor {
    /// Listens to signals from now on.
    pub fn new(command: &[OsString], stop_timeout: Duration) -> io::Result<Self> {
        Ok(Self {
            command: command.to_vec(),
            stop_timeout,
            terminal: Terminal::controlling(),
            children: Children::adopt()?,
            continued: signal(SignalKind::from_raw(Signal::CONT.as_raw()))?,
            signals: Signals::listen()?,
        })
    }

    /// Between terms: waits for a signal that asks us to end. Cancel safe.
    pub async fn asked(&mut self) -> Asked {
        tokio::select! {
            asked = self.signals.next() => asked,
            never = self.children.reap() => match never {},
        }
    }

    /// One term. Returns when nothing of the command's group is left, or nothing
    /// can be waited for.
    pub async fn term(
        &mut self,
        leadership: &Leadership,
        environment: &[(&'static str, OsString)],
        teller: &Teller,
    ) -> Outcome {
        let clock = BootClock;
        let mut schedule = Schedule::new(self.stop_timeout);
        let started = clock.now();
        if started >= schedule.stop_at(leadership.valid_until()) {
            return Outcome::Stopped;
        }
        let terminal = self.terminal.as_mut().filter(|terminal| terminal.is_ours());
        let group = match Group::start(&self.command, environment, terminal.as_deref()) {
            Ok(group) => group,
            Err(error) => {
                self.take_terminal_back();
                return Outcome::NotStarted(error);
            }
        };
        if let Some(terminal) = terminal {
            terminal.taken();
        }

        let mut cause = None;
        let mut alive = true;
        let mut lost = false;
        let mut paused = false;
        let mut complained = false;
        loop {
            // The clock comes first: nobody knows how long we have slept.
            let now = clock.now();
            let valid_until = leadership.valid_until();
            if now >= schedule.stop_at(valid_until) {
                cause.get_or_insert(Cause::TermOver);
            }
            let asks = cause.is_some() && !schedule.is_stopping();
            if asks {
                schedule.stopping(now);
            }
            let kills = now >= schedule.kill_at(valid_until);
            let signalled = if kills {
                group.kill()
            } else if asks {
                group.stop()
            } else if paused && cause.is_none() {
                self.give_terminal(&group);
                group.go_on()
            } else {
                Ok(())
            };
            paused = false;
            if let Err(error) = signalled
                && !complained
            {
                complained = true;
                teller.remark(&format!("the command cannot be signalled: {error}"));
            }
            if !alive && (group.is_empty() || kills && group.is_dead()) {
                break;
            }

            let wake = if kills {
                now.saturating_add(LOOK_AGAIN)
            } else if schedule.is_stopping() {
                // What has left without a parent to tell us of it.
                schedule.kill_at(valid_until).min(now.saturating_add(LOOK_AGAIN))
            } else {
                schedule.stop_at(valid_until)
            };
            tokio::select! {
                biased;
                asked = self.signals.next() => {
                    if let Some(Cause::Asked) = cause {
                        // Should it fail, it has been said.
                        let _ = group.kill();
                        self.take_terminal_back();
                        return Outcome::AtOnce(asked);
                    }
                    cause = Some(Cause::Asked);
                }
                (child, status) = self.children.next() => {
                    if child == group.leader() {
                        if status.stopped() {
                            paused = self.pauses(status);
                        } else {
                            alive = false;
                            let after = clock.now().saturating_sub(started);
                            let ended = Ended::new(status, after, self.has_given_terminal());
                            cause.get_or_insert(Cause::Own(ended));
                        }
                    }
                }
                _ = leadership.lost(), if !lost => {
                    lost = true;
                    cause.get_or_insert(Cause::TermOver);
                }
                _ = self.continued.recv() => self.give_terminal(&group),
                () = clock.sleep_until(wake) => {}
            }
            if paused {
                self.pause().await;
            }
        }
        self.take_terminal_back();
        match cause {
            Some(Cause::Own(ended)) => Outcome::Ended(ended),
            Some(Cause::TermOver) | None => Outcome::Stopped,
            Some(Cause::Asked) => Outcome::Asked,
        }
    }

    /// Whether the stop of the command was meant for us as well: by the keyboard,
    /// or because it wants to use a terminal that is not its own. We do not go
    /// along with others, for who would wake us?
    fn pauses(&self, status: WaitStatus) -> bool {
        let by_terminal = [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .map(|signal| Some(signal.as_raw()))
            .contains(&status.stopping_signal());
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
    fn give_terminal(&mut self, group: &Group) {
        if let Some(terminal) = &mut self.terminal
            && terminal.is_ours()
        {
            terminal.give(group.leader());
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

impl Ended {
    fn new(status: WaitStatus, after: u64, had_keyboard: bool) -> Self {
        let signal = status.terminating_signal();
        let status = match (status.exit_status(), signal) {
            (Some(status), _) => status,
            (None, Some(signal)) => 128_i32.saturating_add(signal),
            (None, None) => 255,
        };
        let status = u8::try_from(status).unwrap_or(u8::MAX);
        // Shells, and what behaves like them, end with the number only.
        let keys = [Signal::INT, Signal::QUIT].map(|key| i32::from(status) == 128 + key.as_raw());
        Self {
            status,
            after: Duration::from_nanos(after),
            by_keyboard: had_keyboard && keys.contains(&true),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended with status {} after {}", self.status, in_seconds(self.after))
    }
}
