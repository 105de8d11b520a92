//! Our children: those that we have started, and those that we adopt when their parent ends.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};
use tokio::signal::unix::{self, SignalKind, signal};

/// The supervisor's children: its guard, and what a guard that was killed has left.
#[derive(Debug)]
pub struct Children {
    changed: unix::Signal,
}

impl Children {
    /// From now on we adopt, and have to reap, what a guard leaves behind.
    pub fn adopt() -> io::Result<Self> {
        adopt_orphans()?;
        Ok(Self { changed: signal(SignalKind::child())? })
    }

    /// Waits until one of them has ended, and is reaped, or has stopped. Cancel safe.
    pub async fn next(&mut self) -> (Pid, ExitStatus) {
        loop {
            match reap() {
                Reaped::One(pid, status) => return (pid, status),
                Reaped::NotYet | Reaped::NoneLeft => {
                    self.changed.recv().await;
                }
            }
        }
    }

    /// Reaps those that have ended, and calls `changed` for each. Returns whether no child is left.
    pub fn reap_all(&self, mut changed: impl FnMut(Pid, ExitStatus)) -> bool {
        loop {
            match reap() {
                Reaped::One(pid, status) => changed(pid, status),
                Reaped::NotYet => return false,
                Reaped::NoneLeft => return true,
            }
        }
    }
}

/// What has become of our children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// This one has ended, and is reaped, or has stopped.
    One(Pid, ExitStatus),
    /// There are some, and none has changed.
    NotYet,
    NoneLeft,
}

/// Looks at our children, without waiting for them.
pub fn reap() -> Reaped {
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => {
                return Reaped::One(pid, ExitStatus::from_raw(status.as_raw()));
            }
            Ok(None) => return Reaped::NotYet,
            Err(Errno::INTR) => {}
            // The error means that there are none.
            Err(_) => return Reaped::NoneLeft,
        }
    }
}

/// A process below us that loses its parent becomes our child (Linux).
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}
