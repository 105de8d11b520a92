//! How a thread that waits for a clock is woken early.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::boot::Alarm;

/// Wakes the thread that is in [`Clock::wait_until`](super::Clock::wait_until). It serves
/// one thread. A notification that comes while no thread waits ends the next wait at once.
#[derive(Debug, Default)]
pub struct Notifier {
    /// For a clock that wakes the thread from elsewhere.
    pub(super) waiter: Arc<Waiter>,
    /// Where the thread waits in the kernel, for the boot clock.
    pub(super) alarm: Alarm,
}

/// The thread's side, for clocks that wake it by themselves.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    notified: Mutex<bool>,
    condition: Condvar,
}

impl Waiter {
    pub(super) fn wake(&self) {
        *self.notified.lock() = true;
        self.condition.notify_all();
    }
}

impl Notifier {
    /// Ends the wait. From any thread.
    pub fn notify(&self) {
        self.waiter.wake();
        self.alarm.go_off();
    }

    /// Blocks until there is a notification, and no longer than this: for clocks to build
    /// their waits on.
    pub fn wait(&self, at_most: Duration) {
        let Waiter { notified, condition } = &*self.waiter;
        let mut notified = notified.lock();
        condition.wait_while_for(&mut notified, |notified| !*notified, at_most);
        *notified = false;
    }

    /// Whether there was a notification since the last call.
    pub(super) fn was_notified(&self) -> bool {
        std::mem::take(&mut *self.waiter.notified.lock())
    }
}
