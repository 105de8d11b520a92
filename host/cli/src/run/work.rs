//! The work of one term, as the supervisor has it: behind its guard.

#![allow(unsafe_code, reason = "what a process does between fork and exec has no safe interface")]

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::time::Duration;

use incumbent::Mark;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::children::Children;
use super::family::{Family, own_children};
use super::guard::lease::Lease;
use super::guard::line::{Line, pass_on};
use super::guard::message::{Order, Report};
use super::launch::{Role, ourselves};
use super::terminal::leave_signals_as_they_were;

/// How long a guard may take to end when its work is over.
const END: Duration = Duration::from_secs(1);

/// The guard, and what is behind it.
#[derive(Debug)]
pub struct Work {
    line: Line,
    /// The same line, to wait on.
    ready: UnixStream,
    family: Family,
    /// When the guard kills, as it was told.
    until: Mark,
}

/// What the guard is to know.
#[derive(Debug)]
pub struct Terms {
    /// When it kills what is still alive.
    pub until: Mark,
    /// The command takes the terminal's foreground.
    pub foreground: bool,
    /// The work is in a PID namespace of its own.
    pub isolate: bool,
    /// What it gives back when we have died.
    pub lease: Lease,
}

/// What is heard of the work.
#[derive(Debug)]
pub enum Heard {
    Report(Report),
    /// The guard is no more, and has not been told to go.
    GuardLost,
}

impl Work {
    /// Starts a guard, and has it start the command.
    ///
    /// To be called within tokio's runtime.
    pub fn start(
        command: &[OsString],
        environment: &[(&'static str, OsString)],
        terms: Terms,
    ) -> io::Result<Self> {
        let (mut line, theirs) = Line::pair()?;
        let ready = UnixStream::from_std(line.stream()?)?;
        let mut guard = ourselves(Role::Guard)?;
        guard
            .arg(theirs.as_raw_fd().to_string())
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            // What is sent to our group is not to reach it.
            .process_group(0);
        let prepare = move || {
            leave_signals_as_they_were()?;
            pass_on(theirs.as_fd()).map(|_| ())
        };
        // SAFETY: `prepare` makes system calls, and does nothing else: it neither
        // allocates nor takes a lock.
        unsafe { guard.pre_exec(prepare) };
        let strangers = own_children().unwrap_or_default();
        let family = Family::behind(Pid::from_child(&guard.spawn()?), strangers);
        let Terms { until, foreground, isolate, lease } = terms;
        let lease = Box::new(lease);
        line.send(&Order::Begin { until, foreground, isolate, lease }.message());
        Ok(Self { line, ready, family, until })
    }

    /// Tells the guard when it has to kill from now on. If it does not hear that, it
    /// goes by what it has heard.
    pub fn until(&mut self, until: Mark) {
        if self.until != until {
            self.until = until;
            self.line.send(&Order::Until(until).message());
        }
    }

    /// Waits for what is new of the work. Cancel safe.
    pub async fn next(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.taken_in() {
                return heard;
            }
            // An error is found by reading.
            let _ = self.ready.readable().await;
            let line = &mut self.line;
            let _ = self.ready.try_io(Interest::READABLE, || line.read());
        }
    }

    /// What is new of the work by now, if anything.
    pub fn heard(&mut self) -> Option<Heard> {
        self.line.listen();
        self.taken_in()
    }

    fn taken_in(&mut self) -> Option<Heard> {
        let Some(message) = self.line.message() else {
            return (!self.line.is_open()).then_some(Heard::GuardLost);
        };
        let report = Report::read(&message)?;
        match &report {
            Report::Started(leader) => self.family.started(*leader),
            Report::Changed(status) if status.stopped_signal().is_none() => self.family.ended(),
            Report::Changed(_) | Report::NotStarted(_) | Report::Overdue | Report::Gone => {}
        }
        Some(Heard::Report(report))
    }

    /// A child of ours has changed: perhaps the guard, or what it has left.
    pub fn child_changed(&mut self, child: Pid, status: ExitStatus) {
        if status.stopped_signal().is_none() {
            self.family.reaped(child);
        } else if self.family.guard() == Some(child) {
            // It has a deadline to keep. Fails where it has gone meanwhile.
            let _ = kill_process(child, Signal::CONT);
        }
    }

    /// The process group of the command, once it runs.
    pub fn group(&self) -> Option<Pid> {
        self.family.group()
    }

    /// Asks all to stop. Those that sleep on a stop signal are woken for it.
    pub fn stop(&self) -> io::Result<()> {
        let asked = self.family.signal(Signal::TERM);
        asked.and(self.family.signal(Signal::CONT))
    }

    pub fn go_on(&self) -> io::Result<()> {
        self.family.signal_group(Signal::CONT)
    }

    pub fn kill(&self) -> io::Result<()> {
        self.family.kill()
    }

    /// Has a guard that is stuck out of the way: what is behind it is ours then.
    pub fn kill_guard(&self) {
        if let Some(guard) = self.family.guard() {
            // Fails where it has gone meanwhile.
            let _ = kill_process(guard, Signal::KILL);
        }
    }

    /// Whether nothing of it seems to run, whatever the guard says.
    pub fn is_dead(&self) -> bool {
        self.family.is_dead()
    }

    /// Reaps what the guard has left. Whether nothing of it is left, nor the guard.
    pub fn is_gone(&mut self, children: &Children) -> bool {
        let is_childless = children.none_left(|child, status| self.child_changed(child, status));
        self.family.is_gone(is_childless)
    }

    /// Lets the guard go, and waits for its end: nothing of the work is left.
    pub async fn over(mut self, children: &mut Children) {
        self.line.send(&Order::Over.message());
        let Some(guard) = self.family.guard() else {
            return;
        };
        for _ in 0..2 {
            let end = async {
                loop {
                    let (child, status) = children.next().await;
                    if child == guard && status.stopped_signal().is_none() {
                        return;
                    }
                }
            };
            if timeout(END, end).await.is_ok() {
                return;
            }
            self.kill_guard();
        }
    }
}
