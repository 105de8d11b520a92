//! The command's processes: a group of its own, and whatever becomes our child.

#![allow(unsafe_code, reason = "what a process does between fork and exec has no safe interface")]

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process_group,
    test_kill_process_group, wait,
};
use tokio::signal::unix::{self, SignalKind, signal};

use super::terminal::{Terminal, take_foreground};

/// All processes of the command, those aside that have made a group of their own.
#[derive(Debug)]
pub struct Group {
    leader: Pid,
}

impl Group {
    /// Starts the command in a new group. With a terminal, it takes the
    /// foreground before it runs.
    ///
    /// To be called on the thread that lives longest: the command is killed when
    /// that thread ends, however it ends.
    pub fn start(
        command: &[OsString],
        environment: &[(&'static str, OsString)],
        terminal: Option<&Terminal>,
    ) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .process_group(0);
        let terminal = match terminal {
            Some(terminal) => Some(terminal.as_fd().try_clone_to_owned()?),
            None => None,
        };
        let parent = getpid();
        let prepare = move || prepare(parent, terminal.as_ref().map(AsFd::as_fd));
        // SAFETY: `prepare` makes system calls, and does nothing else: it neither
        // allocates nor takes a lock.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        // Dropped without a wait: `Children` reaps it.
        Ok(Self { leader: Pid::from_child(&child) })
    }

    /// The process that was started.
    pub fn leader(&self) -> Pid {
        self.leader
    }

    /// Asks all to stop. Those that sleep on a stop signal are woken for it.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)
    }

    pub fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    /// Whether none is left. Those that have ended count until they are reaped.
    pub fn is_empty(&self) -> bool {
        test_kill_process_group(self.leader) == Err(Errno::SRCH)
    }

    /// Whether those that are left have ended all the same, and wait for a parent
    /// that does not reap them. False where the system does not say.
    pub fn is_dead(&self) -> bool {
        let Ok(processes) = fs::read_dir("/proc") else {
            return false;
        };
        let group = self.leader.as_raw_nonzero().to_string();
        processes.flatten().all(|process| {
            let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            // After the name, which may hold anything, in brackets: the state, the
            // parent, the group.
            let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
            let has_ended = matches!(fields.next(), Some("Z" | "X" | ""));
            has_ended || fields.nth(1) != Some(group.as_str())
        })
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match kill_process_group(self.leader, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// In the new process, before it becomes the command.
fn prepare(parent: Pid, terminal: Option<BorrowedFd<'_>>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // We may have died before that was said.
    if getppid() != Some(parent) {
        return Err(Errno::SRCH.into());
    }
    match terminal {
        Some(terminal) => take_foreground(terminal, getpid()),
        None => Ok(()),
    }
}

/// Everything that is our child, or becomes it because its own parent has ended.
#[derive(Debug)]
pub struct Children {
    changed: unix::Signal,
}

impl Children {
    /// From now on, what the command leaves behind is ours to reap.
    pub fn adopt() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Ok(Self { changed: signal(SignalKind::child())? })
    }

    /// Waits until one of them has ended, and is no more, or has stopped. Cancel
    /// safe.
    pub async fn next(&mut self) -> (Pid, WaitStatus) {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some(change)) => return change,
                Err(Errno::INTR) => {}
                // An error means that there are none.
                Ok(None) | Err(_) => {
                    self.changed.recv().await;
                }
            }
        }
    }

    /// Reaps those that nobody waits for.
    pub async fn reap(&mut self) -> Infallible {
        loop {
            self.next().await;
        }
    }
}
