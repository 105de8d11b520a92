//! When the work of a term has to stop.

use std::time::Duration;

use incumbent::Mark;

/// How long before the end of a leadership nothing of a command is left alive.
pub const LAST_MOMENT: Mark = 200_000_000;

/// How much later than the supervisor its guard kills.
const STEP: Mark = 100_000_000;

/// The two marks of a term: when its work is asked to stop, and when it is killed. Both move
/// with each renewal until the work is asked; after that a renewal gives it no more than the
/// stop time-out.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    stop_timeout: Mark,
    /// How long before the end of a leadership it is killed.
    last_moment: Mark,
}

impl Schedule {
    pub fn new(stop_timeout: Duration, last_moment: Mark) -> Self {
        let stop_timeout = Mark::try_from(stop_timeout.as_nanos()).unwrap_or(Mark::MAX);
        Self { stop_timeout, last_moment }
    }

    /// When to ask, unless a renewal comes or there is another cause.
    pub fn stop_at(&self, valid_until: Mark) -> Mark {
        valid_until.saturating_sub(self.stop_timeout.max(self.last_moment))
    }

    /// When to kill work that has had to stop since `stopping`, unless a renewal comes.
    pub fn kill_at(&self, valid_until: Mark, stopping: Option<Mark>) -> Mark {
        let last = valid_until.saturating_sub(self.last_moment);
        stopping.map_or(last, |since| since.saturating_add(self.stop_timeout).min(last))
    }

    /// When the guard kills, if the supervisor has not done it by then.
    pub fn guard_at(&self, valid_until: Mark, stopping: Option<Mark>) -> Mark {
        self.kill_at(valid_until, stopping).saturating_add(STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Mark = 1_000_000_000;

    #[test]
    fn asks_at_the_time_out_and_kills_before_the_end() {
        let schedule = Schedule::new(Duration::from_secs(2), LAST_MOMENT);
        assert_eq!(schedule.stop_at(100 * SECOND), 98 * SECOND);
        assert_eq!(schedule.kill_at(100 * SECOND, None), 100 * SECOND - LAST_MOMENT);
        let guard_at = schedule.guard_at(100 * SECOND, None);
        assert!((schedule.kill_at(100 * SECOND, None) + 1..100 * SECOND).contains(&guard_at));
        let since = Some(98 * SECOND);
        assert_eq!(schedule.kill_at(100 * SECOND, since), 100 * SECOND - LAST_MOMENT);
        // A renewal helps no more than that.
        assert_eq!(schedule.kill_at(105 * SECOND, since), 100 * SECOND);
    }

    #[test]
    fn a_signal_gives_the_time_out_and_no_more() {
        let since = Some(50 * SECOND);
        let schedule = Schedule::new(Duration::from_secs(2), LAST_MOMENT);
        assert_eq!(schedule.kill_at(100 * SECOND, since), 52 * SECOND);
        assert_eq!(schedule.guard_at(100 * SECOND, since), 52 * SECOND + STEP);
        let at_once = Schedule::new(Duration::ZERO, LAST_MOMENT);
        assert_eq!(at_once.stop_at(100 * SECOND), 100 * SECOND - LAST_MOMENT);
        assert_eq!(at_once.kill_at(100 * SECOND, since), 50 * SECOND);
    }
}
