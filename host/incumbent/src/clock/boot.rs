//! The machine's clock, as the operating system provides it.

use std::time::Duration;

use crate::types::Mark;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod timer;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "boot/no_timer.rs"]
mod timer;

pub(super) use timer::{Alarm, wait};

/// The longest wait by a timer that does not count suspended time.
const PIECE: Duration = Duration::from_secs(1);

#[cfg(unix)]
pub(super) fn now() -> Mark {
    use rustix::time::{ClockId, Timespec, clock_gettime};

    /// macOS counts suspended time in its monotonic clock.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;

    let Timespec { tv_sec, tv_nsec } = clock_gettime(CLOCK);
    let seconds = u64::try_from(tv_sec).unwrap_or_default();
    let rest = u64::try_from(tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(not(unix))]
pub(super) fn now() -> Mark {
    use std::sync::LazyLock;
    use std::time::Instant;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    super::nanoseconds(ORIGIN.elapsed())
}

pub(super) async fn sleep_until(mark: Mark) {
    while now() < mark {
        // Without a kernel timer (too many open files), tokio's serves.
        if timer::expired(mark).await.is_none() {
            tokio::time::sleep(piece(mark)).await;
        }
    }
}

/// How long to wait before a look at the clock.
pub(super) fn piece(mark: Mark) -> Duration {
    Duration::from_nanos(mark.saturating_sub(now())).min(PIECE)
}
