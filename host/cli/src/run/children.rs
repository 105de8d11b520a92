//! Everything that is our child, or becomes it because its own parent has ended.

use std::convert::Infallible;
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
    /// From now on, what a guard leaves behind is ours to reap.
    pub fn adopt() -> io::Result<Self> {
        adopt_orphans()?;
        Ok(Self { changed: signal(SignalKind::child())? })
    }

    /// Waits until one of them has ended, and is no more, or has stopped. Cancel
    /// safe.
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

    /// Reaps those that have ended, and tells of each. Whether there is nobody left.
    pub fn none_left(&self, mut changed: impl FnMut(Pid, ExitStatus)) -> bool {
        loop {
            match reap() {
                Reaped::One(pid, status) => changed(pid, status),
                Reaped::NotYet => return false,
                Reaped::NoneLeft => return true,
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

/// What has become of our children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// This one has ended, and is no more, or has stopped.
    One(Pid, ExitStatus),
    /// There are some, and nothing is new.
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
            // What an error means: there are none.
            Err(_) => return Reaped::NoneLeft,
        }
    }
}

/// Whoever loses its parent below us becomes our child, where the system knows that.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}
