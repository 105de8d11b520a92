//! How long to wait before the next try.

use crate::random::Random;
use crate::timers::{MILLISECOND, SECOND};
use crate::types::Duration;

/// The longest pause between two tries.
pub const CAP: Duration = SECOND;

/// The first pause, before jitter.
const BASE: Duration = 50 * MILLISECOND;

/// The pause after so many failures in a row, at least one. It doubles from 50 ms up
/// to the cap. Half of it is random, because hosts that failed together must not come
/// back together.
pub fn pause(failed: u32, random: &mut Random) -> Duration {
    let doublings = failed.saturating_sub(1).min(8);
    let full = (BASE << doublings).min(CAP);
    full / 2 + random.below(full / 2)
}
