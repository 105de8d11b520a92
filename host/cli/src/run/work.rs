//! The work of one term, as the supervisor reaches it: behind its guard.

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

use super::channel::{Channel, pass_on};
use super::children::Children;
use super::launch::{GUARD, ourselves};
use super::message::{Begin, Order, Report};
use super::process_tree::{ProcessTree, own_children};
use super::terminal::leave_signals_as_they_were;
use crate::systemd;

/// How long a guard may take to end when its work is over.
const END: Duration = Duration::from_secs(1);

/// The guard, and what is behind it.
#[derive(Debug)]
pub struct Work {
    channel: Channel,
    /// The same channel, to wait on.
    ready: UnixStream,
    tree: ProcessTree,
    is_guarded: bool,
}

/// What is heard of the work.
#[derive(Debug)]
pub enum Heard {
    Report(Report),
    /// The guard is dead, and was not told to end.
    GuardLost,
}

impl Work {
    /// Starts a guard, and has it start the command.
    ///
    /// To be called within tokio's runtime.
    pub fn start(
        command: &[OsString],
        environment: &[(&'static str, OsString)],
        begin: Begin,
    ) -> io::Result<Self> {
        let (mut channel, theirs) = Channel::pair()?;
        let ready = UnixStream::from_std(channel.stream()?)?;
        let mut guard = ourselves(GUARD)?;
        guard
            .arg(theirs.as_raw_fd().to_string())
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            // An `incumbent` inside the command would find the address taken.
            .env_remove("INCUMBENT_LISTEN");
        // The work is not this service, and says nothing in its name.
        for variable in systemd::VARIABLES {
            guard.env_remove(variable);
        }
        guard
            // A signal to our group must not reach it.
            .process_group(0);
        let prepare = move || {
            leave_signals_as_they_were()?;
            pass_on(theirs.as_fd()).map(|_| ())
        };
        // SAFETY: `prepare` makes system calls, and does nothing else: it neither
        // allocates nor takes a lock.
        unsafe { guard.pre_exec(prepare) };
        let unrelated = own_children().unwrap_or_default();
        let tree = ProcessTree::behind(Pid::from_child(&guard.spawn()?), unrelated);
        channel.send(&Order::Begin(Box::new(begin)));
        Ok(Self { channel, ready, tree, is_guarded: true })
    }

    /// Tells the guard its deadline from now on. A guard that does not hear it keeps the one
    /// that it has heard last.
    pub fn until(&mut self, until: Mark) {
        self.channel.send(&Order::Until(until));
    }

    /// Waits for what the guard reports. Without a guard, for ever. Cancel safe.
    pub async fn next(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.taken_in() {
                return heard;
            }
            if !self.is_guarded {
                std::future::pending::<()>().await;
            }
            // An error is found by reading.
            let _ = self.ready.readable().await;
            let channel = &mut self.channel;
            let _ = self.ready.try_io(Interest::READABLE, || channel.read());
        }
    }

    /// What the guard has reported by now, if anything.
    pub fn heard(&mut self) -> Option<Heard> {
        self.channel.exchange();
        self.taken_in()
    }

    fn taken_in(&mut self) -> Option<Heard> {
        let Some(report) = self.channel.message() else {
            let is_lost = self.is_guarded && !self.channel.is_open();
            self.is_guarded &= !is_lost;
            return is_lost.then_some(Heard::GuardLost);
        };
        match &report {
            Report::Started(leader) => self.tree.started(*leader),
            Report::Changed(status) if status.stopped_signal().is_none() => self.tree.ended(),
            Report::Changed(_) | Report::NotStarted(_) | Report::Overdue | Report::Gone => {}
        }
        Some(Heard::Report(report))
    }

    /// A child of ours has changed: perhaps the guard, or what it has left.
    pub fn child_changed(&mut self, child: Pid, status: ExitStatus) {
        if status.stopped_signal().is_none() {
            self.tree.reaped(child);
        } else if self.tree.guard() == Some(child) {
            // It has a deadline to keep. Fails if it has gone meanwhile.
            let _ = kill_process(child, Signal::CONT);
        }
    }

    /// The process group of the command, once it runs.
    pub fn group(&self) -> Option<Pid> {
        self.tree.group()
    }

    /// Asks all to stop, and wakes those that a stop signal has put to sleep.
    pub fn stop(&self) -> io::Result<()> {
        let asked = self.tree.signal(Signal::TERM);
        asked.and(self.tree.signal(Signal::CONT))
    }

    pub fn go_on(&self) -> io::Result<()> {
        self.tree.signal_group(Signal::CONT)
    }

    pub fn kill(&self) -> io::Result<()> {
        self.tree.kill()
    }

    /// Kills a guard that hangs: what it has left is ours then.
    pub fn kill_guard(&self) {
        if let Some(guard) = self.tree.guard() {
            // Fails if it has gone meanwhile.
            let _ = kill_process(guard, Signal::KILL);
        }
    }

    /// Whether nothing of it seems to run, whatever the guard reports.
    pub fn is_dead(&self) -> bool {
        self.tree.is_dead()
    }

    /// Reaps what the guard has left. Returns whether neither work nor guard is left.
    pub fn reap(&mut self, children: &Children) -> bool {
        let is_childless = children.reap_all(|child, status| self.child_changed(child, status));
        self.tree.is_gone(is_childless)
    }

    /// Lets the guard end, and waits for that. Nothing of the work is left.
    pub async fn over(mut self, children: &mut Children) {
        self.channel.send(&Order::Over);
        let Some(guard) = self.tree.guard() else {
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
