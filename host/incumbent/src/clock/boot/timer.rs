//! Timers of the kernel that count suspended time.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::types::Mark;

const SECOND: u64 = 1_000_000_000;
/// Long past, and not 0, because 0 would stop a timer.
const AT_ONCE: Mark = 1;

/// None if the kernel gives no timer.
pub(in crate::clock) async fn expired(mark: Mark) -> Option<()> {
    let timer = create(TimerfdFlags::NONBLOCK)?;
    set(&timer, mark)?;
    #[expect(unsafe_code, reason = "tokio has no safe way to watch a file")]
    // SAFETY: the timer is owned, so it is open, and the same, until it is
    // dropped by what is made here.
    let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }.ok()?;
    timer.readable().await.ok().map(|_| ())
}

/// The timer that a thread waits for. To wake the thread early is to set it to the past.
#[derive(Debug, Default)]
pub(in crate::clock) struct Alarm(OnceLock<Option<OwnedFd>>);

impl Alarm {
    pub(in crate::clock) fn go_off(&self) {
        if let Some(Some(timer)) = self.0.get() {
            // This cannot fail: the timer has been set before.
            let _ = set(timer, AT_ONCE);
        }
    }
}

/// Blocks the thread until `mark`, or until the alarm goes off. None if the kernel gives no
/// timer.
pub(in crate::clock) fn wait(
    mark: Mark,
    alarm: &Alarm,
    was_notified: impl Fn() -> bool,
) -> Option<()> {
    let timer = alarm.0.get_or_init(|| create(TimerfdFlags::empty())).as_ref()?;
    set(timer, mark)?;
    // A notification from before the timer was set; any later one sets it again.
    if was_notified() {
        return Some(());
    }
    match read(timer, &mut [0; 8]) {
        Ok(_) | Err(Errno::INTR) => {
            was_notified();
            Some(())
        }
        Err(_) => None,
    }
}

fn create(flags: TimerfdFlags) -> Option<OwnedFd> {
    timerfd_create(TimerfdClockId::Boottime, flags | TimerfdFlags::CLOEXEC).ok()
}

fn set(timer: &OwnedFd, mark: Mark) -> Option<()> {
    let at = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: i64::try_from(mark / SECOND).ok()?,
            tv_nsec: i64::try_from(mark % SECOND).ok()?,
        },
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &at).ok().map(|_| ())
}
