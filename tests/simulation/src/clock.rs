//! A process's clock: it began somewhere, and runs a little too fast or too slow.

use incumbent_guest::types::Mark;

/// A monotonic clock that is off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// What it showed at the beginning.
    pub began: Mark,
    /// By how many millionths of a second it gains in a second.
    pub drift: i64,
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// What it shows at a true time.
    pub fn at(self, time: Mark) -> Mark {
        let shown = i128::from(time) * (MILLION + i128::from(self.drift)) / MILLION;
        self.began + u64::try_from(shown).unwrap_or(0)
    }

    /// The first true time at which it shows a mark, or more.
    pub fn when(self, mark: Mark) -> Mark {
        let shown = i128::from(mark.saturating_sub(self.began));
        let rate = MILLION + i128::from(self.drift);
        let mut time = u64::try_from(shown * MILLION / rate).unwrap_or(0);
        while self.at(time) < mark {
            time += 1;
        }
        time
    }
}
