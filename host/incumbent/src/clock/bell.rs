//! How a thread that waits for a clock is woken before its time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::boot::Alarm;

/// Wakes the thread that is in [`Clock::wait_until`](super::Clock::wait_until). It is
/// for one thread; rung while nobody waits, it ends the next wait at once.
#[derive(Debug, Default)]
pub struct Bell {
    rope: Arc<Rope>,
    /// Where the thread waits in the kernel, for the boot clock.
    pub(super) alarm: Alarm,
}

/// How a clock that a thread waits for rings the thread's bell.
#[derive(Debug, Default)]
pub(super) struct Rope {
    rung: Mutex<bool>,
    sound: Condvar,
}

impl Rope {
    pub(super) fn pull(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.sound.notify_all();
    }
}

impl Bell {
    /// Ends the wait. From any thread.
    pub fn ring(&self) {
        self.rope.pull();
        self.alarm.ring();
    }

    /// Blocks until the bell is rung, and no longer than this: for clocks to build
    /// their waits on.
    pub fn wait(&self, at_most: Duration) {
        let Rope { rung, sound } = &*self.rope;
        let rung = rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = sound.wait_timeout_while(rung, at_most, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }

    /// For the clock that is waited for: it may ring from elsewhere.
    pub(super) fn rope(&self) -> &Arc<Rope> {
        &self.rope
    }

    /// Whether it was rung since somebody last asked.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn was_rung(&self) -> bool {
        std::mem::take(&mut *self.rope.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
