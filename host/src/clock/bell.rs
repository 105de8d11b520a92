//! How a thread that waits for a clock is woken before its time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::boot::Alarm;

/// Wakes the thread that is in [`Clock::wait_until`](super::Clock::wait_until). It is
/// for one thread; rung while nobody waits, it ends the next wait at once.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    sound: Condvar,
    /// Where the thread waits in the kernel, for the boot clock.
    pub(super) alarm: Alarm,
}

impl Bell {
    /// Ends the wait. From any thread.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.sound.notify_all();
        self.alarm.ring();
    }

    /// Blocks until the bell is rung, and no longer than this: for clocks to build
    /// their waits on.
    pub fn wait(&self, at_most: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.sound.wait_timeout_while(rung, at_most, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }

    /// Whether it was rung since somebody last asked.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn was_rung(&self) -> bool {
        std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
