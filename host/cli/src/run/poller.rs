//! What the guard and an init sleep on: their channels, their children, the clock.

use std::io;
use std::os::fd::BorrowedFd;

use incumbent::Mark;

pub use self::system::Poller;

#[cfg(target_os = "linux")]
mod system {
    use std::os::fd::{AsFd, OwnedFd};

    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::signal::{SigSet, Signal};
    use nix::sys::signalfd::{SfdFlags, SignalFd};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// All signals have to be blocked.
    #[derive(Debug)]
    pub struct Poller {
        children: SignalFd,
        timer: OwnedFd,
    }

    impl Poller {
        pub fn new() -> io::Result<Self> {
            let child = SigSet::from(Signal::SIGCHLD);
            let children =
                SignalFd::with_flags(&child, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
            let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
            Ok(Self { children, timer })
        }

        /// Waits until there is something on a channel, a child has changed, or `until` has
        /// come. May return without a cause.
        pub fn wait(&mut self, channels: &[BorrowedFd<'_>], until: Mark) -> io::Result<()> {
            // Zero would turn the timer off.
            let until = until.max(1);
            let at = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec {
                    tv_sec: i64::try_from(until / SECOND).unwrap_or(i64::MAX),
                    tv_nsec: i64::try_from(until % SECOND).unwrap_or_default(),
                },
            };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &at)?;
            let wakers = [self.children.as_fd(), self.timer.as_fd()];
            let mut files: Vec<PollFd<'_>> = wakers
                .into_iter()
                .chain(channels.iter().copied())
                .map(|file| PollFd::new(file, PollFlags::POLLIN))
                .collect();
            match poll(&mut files, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            // The caller looks at all of them.
            while let Ok(Some(_)) = self.children.read_signal() {}
            Ok(())
        }
    }
}

/// Looks often, because the system tells less.
#[cfg(not(target_os = "linux"))]
mod system {
    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    /// Milliseconds.
    const OFTEN: u8 = 10;

    #[derive(Debug)]
    pub struct Poller;

    impl Poller {
        pub fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub fn wait(&mut self, channels: &[BorrowedFd<'_>], _: Mark) -> io::Result<()> {
            let mut files: Vec<PollFd<'_>> =
                channels.iter().map(|file| PollFd::new(*file, PollFlags::POLLIN)).collect();
            match poll(&mut files, OFTEN) {
                Ok(_) | Err(Errno::EINTR) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }
}
