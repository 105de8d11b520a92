//! Time, as the elector counts it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::types::Mark;

mod boot;
mod notifier;

pub use notifier::Notifier;
use notifier::Waiter;

/// How often to check a clock that cannot wake a thread by itself.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How long a thread waits, at most, for a manual clock.
const STANDSTILL: Duration = Duration::from_secs(3600);

/// A monotonic clock that goes on while the machine is suspended.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Nanoseconds since an origin that never changes while the clock lives.
    fn now(&self) -> Mark;

    /// Ends at `mark` or right after it, even if the machine was suspended meanwhile.
    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()>;

    /// Blocks the calling thread until `mark`, or until the notifier wakes it. It may also
    /// end early for no reason, so the caller checks the time again. It needs no runtime,
    /// because the thread that ends terms waits by it.
    ///
    /// The default implementation checks the clock every 10 ms.
    fn wait_until(&self, mark: Mark, notifier: &Notifier) {
        let left = mark.saturating_sub(self.now());
        if left > 0 {
            notifier.wait(Duration::from_nanos(left).min(CHECK_INTERVAL));
        }
    }
}

/// The machine's clock since it started, with the time that it was suspended:
/// `CLOCK_BOOTTIME` on Linux. Its sleep needs tokio's runtime; its wait does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Mark {
        boot::now()
    }

    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()> {
        boot::sleep_until(mark).boxed()
    }

    fn wait_until(&self, mark: Mark, notifier: &Notifier) {
        let waited = || boot::wait(mark, &notifier.alarm, || notifier.was_notified());
        if boot::now() < mark && waited().is_none() {
            notifier.wait(boot::piece(mark));
        }
    }
}

/// A clock for tests, which moves only when it is told to. Clones are the same clock.
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
    waiters: Vec<(Mark, Arc<Waiter>)>,
}

impl ManualClock {
    /// Moves the clock, and wakes all sleepers that are due by then.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.now = state.now.saturating_add(nanoseconds(by));
        let now = state.now;
        for (_, sleeper) in state.sleepers.extract_if(.., |(mark, _)| *mark <= now) {
            // The sleeper may have been dropped.
            let _ = sleeper.send(());
        }
        for (_, waiter) in state.waiters.iter().filter(|(mark, _)| *mark <= now) {
            waiter.wake();
        }
    }

    /// When the next sleeper or waiting thread is due; none if there is none.
    pub fn next_due(&self) -> Option<Mark> {
        let state = self.state.lock();
        let asleep = state.sleepers.iter().filter(|(_, sleeper)| !sleeper.is_closed());
        let due = asleep.map(|(mark, _)| *mark).chain(state.waiters.iter().map(|(mark, _)| *mark));
        // A thread that was woken may still be in the list.
        due.filter(|mark| state.now < *mark).min()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Mark {
        self.state.lock().now
    }

    fn sleep_until(&self, mark: Mark) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock();
        let (sleeper, woken) = oneshot::channel();
        if state.now < mark {
            state.sleepers.retain(|(_, other)| !other.is_closed());
            state.sleepers.push((mark, sleeper));
            woken.map(|_| ()).boxed()
        } else {
            std::future::ready(()).boxed()
        }
    }

    fn wait_until(&self, mark: Mark, notifier: &Notifier) {
        {
            let mut state = self.state.lock();
            if mark <= state.now {
                return;
            }
            state.waiters.push((mark, Arc::clone(&notifier.waiter)));
        }
        notifier.wait(STANDSTILL);
        self.state.lock().waiters.retain(|(_, waiter)| !Arc::ptr_eq(waiter, &notifier.waiter));
    }
}

/// A span of time in the elector's unit; longer spans become the longest one.
pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
