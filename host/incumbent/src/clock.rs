//! Time, as the elector counts it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::types::Mark;

mod bell;
mod boot;

pub use bell::Bell;
use bell::Rope;

/// How often a clock is looked at that cannot wake a thread by itself.
const GLANCE: Duration = Duration::from_millis(10);

/// How long a thread waits, at most, for a clock that stands still.
const STANDSTILL: Duration = Duration::from_secs(3600);

/// A monotonic clock that goes on while the machine is suspended.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Nanoseconds since an origin that never changes while the clock lives.
    fn now(&self) -> Mark;

    /// Ends at `mark` or right after it, also where the machine slept meanwhile.
    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()>;

    /// Blocks the calling thread until `mark`, or until the bell is rung; it may also
    /// end for no reason, and whoever waits looks at the time again. It wants no
    /// runtime: deadlines are kept by it.
    ///
    /// Unless a clock knows better, it is looked at every 10 ms.
    fn wait_until(&self, mark: Mark, bell: &Bell) {
        let left = mark.saturating_sub(self.now());
        if left > 0 {
            bell.wait(Duration::from_nanos(left).min(GLANCE));
        }
    }
}

/// The machine's clock since it started, with the time that it was suspended:
/// `CLOCK_BOOTTIME` on Linux. Its sleep wants tokio's runtime, its wait does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Mark {
        boot::now()
    }

    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()> {
        boot::sleep_until(mark).boxed()
    }

    fn wait_until(&self, mark: Mark, bell: &Bell) {
        boot::wait_until(mark, bell);
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
    /// The threads that wait.
    waiters: Vec<(Mark, Arc<Rope>)>,
}

impl ManualClock {
    /// Lets time pass, and wakes who slept until then.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.now = state.now.saturating_add(nanoseconds(by));
        let now = state.now;
        for (_, sleeper) in state.sleepers.extract_if(.., |(mark, _)| *mark <= now) {
            // One that was dropped meanwhile sleeps no more.
            let _ = sleeper.send(());
        }
        for (_, waiter) in state.waiters.iter().filter(|(mark, _)| *mark <= now) {
            waiter.pull();
        }
    }

    /// When the first of those is due who sleep or wait; none if nobody does.
    pub fn next_due(&self) -> Option<Mark> {
        let state = self.state();
        let asleep = state.sleepers.iter().filter(|(_, sleeper)| !sleeper.is_closed());
        let due = asleep.map(|(mark, _)| *mark).chain(state.waiters.iter().map(|(mark, _)| *mark));
        // A thread that was woken may not have gone yet.
        due.filter(|mark| state.now < *mark).min()
    }

    fn state(&self) -> MutexGuard<'_, ManualState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Mark {
        self.state().now
    }

    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()> {
        let mut state = self.state();
        let (sleeper, woken) = oneshot::channel();
        if state.now < mark {
            state.sleepers.retain(|(_, other)| !other.is_closed());
            state.sleepers.push((mark, sleeper));
            woken.map(|_| ()).boxed()
        } else {
            std::future::ready(()).boxed()
        }
    }

    fn wait_until(&self, mark: Mark, bell: &Bell) {
        {
            let mut state = self.state();
            if mark <= state.now {
                return;
            }
            state.waiters.push((mark, Arc::clone(bell.rope())));
        }
        bell.wait(STANDSTILL);
        self.state().waiters.retain(|(_, waiter)| !Arc::ptr_eq(waiter, bell.rope()));
    }
}

/// A span of time as the elector takes it; the longest one for what is longer.
pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
