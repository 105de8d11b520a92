//! Time, as the elector counts it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::types::Mark;

/// A monotonic clock that goes on while the machine is suspended.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Nanoseconds since an origin that never changes while the clock lives.
    fn now(&self) -> Mark;

    /// Ends at `mark` or right after it, also where the machine slept meanwhile.
    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()>;
}

/// The machine's clock since it started, with the time that it was suspended:
/// `CLOCK_BOOTTIME` on Linux. Its sleep wants tokio's runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Mark {
        boot::now()
    }

    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()> {
        boot::sleep_until(mark).boxed()
    }
}

/// A clock that stands still until it is told to go on, for tests. Clones are
/// the same clock.
///
/// ```
/// use std::time::Duration;
/// use incumbent::{Clock, ManualClock};
///
/// let clock = ManualClock::default();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now(), 3_000_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    state: Arc<Mutex<ManualState>>,
}

#[derive(Debug, Default)]
struct ManualState {
    now: Mark,
    sleepers: Vec<(Mark, oneshot::Sender<()>)>,
}

impl ManualClock {
    /// Lets time pass, and wakes who slept until then.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = state.now.saturating_add(nanoseconds(by));
        let now = state.now;
        for (_, sleeper) in state.sleepers.extract_if(.., |(mark, _)| *mark <= now) {
            // One that was dropped meanwhile sleeps no more.
            let _ = sleeper.send(());
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Mark {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now
    }

    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (sleeper, woken) = oneshot::channel();
        if state.now < mark {
            state.sleepers.retain(|(_, other)| !other.is_closed());
            state.sleepers.push((mark, sleeper));
            woken.map(|_| ()).boxed()
        } else {
            std::future::ready(()).boxed()
        }
    }
}

/// A span of time as the elector takes it; the longest one for what is longer.
pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(unix)]
mod boot {
    use std::time::Duration;

    use rustix::time::{ClockId, Timespec, clock_gettime};

    use crate::types::Mark;

    /// macOS counts suspended time in its monotonic clock.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;

    const SECOND: u64 = 1_000_000_000;

    pub(super) fn now() -> Mark {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(CLOCK);
        let seconds = u64::try_from(tv_sec).unwrap_or_default();
        let rest = u64::try_from(tv_nsec).unwrap_or_default();
        seconds.saturating_mul(SECOND).saturating_add(rest)
    }

    pub(super) async fn sleep_until(mark: Mark) {
        while now() < mark {
            // Without a timer of the kernel's (too many open files), tokio's
            // serves, in pieces: it does not count suspended time.
            if timer(mark).await.is_none() {
                let left = Duration::from_nanos(mark.saturating_sub(now()));
                tokio::time::sleep(left.min(Duration::from_secs(1))).await;
            }
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn timer(mark: Mark) -> Option<()> {
        use rustix::time::{
            Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create,
            timerfd_settime,
        };
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;

        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags).ok()?;
        let at = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(mark / SECOND).ok()?,
                tv_nsec: i64::try_from(mark % SECOND).ok()?,
            },
        };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at).ok()?;
        #[expect(unsafe_code, reason = "tokio has no safe way to watch a file")]
        // SAFETY: the timer is owned, so it is open, and the same, until it is
        // dropped by what is made here.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }.ok()?;
        timer.readable().await.ok().map(|_| ())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    async fn timer(_: Mark) -> Option<()> {
        None
    }
}

#[cfg(not(unix))]
mod boot {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    use super::nanoseconds;
    use crate::types::Mark;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub(super) fn now() -> Mark {
        nanoseconds(ORIGIN.elapsed())
    }

    pub(super) async fn sleep_until(mark: Mark) {
        while now() < mark {
            let left = Duration::from_nanos(mark.saturating_sub(now()));
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        }
    }
}
