//! How soon a command that crashes may come back: so that a fault of all
//! instances does not have them take turns as fast as they can.

use std::time::Duration;

/// How far the delay doubles.
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct RestartDelay {
    first: Duration,
    next: Duration,
}

impl RestartDelay {
    pub fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    /// The delay now; the next one is twice as long. Up to a quarter more, so
    /// that instances do not come back together.
    pub fn next(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(LONGEST.max(self.first));
        // Without randomness they do come back together, and no harm is done.
        let part = getrandom::u32().unwrap_or_default() % 1024;
        delay.saturating_add(delay / 4 * part / 1024)
    }

    /// The command has lived: its next end is a new story.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_half_a_minute_and_starts_over() {
        let mut delay = RestartDelay::new(Duration::from_secs(1));
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let low = Duration::from_secs(seconds);
            let next = delay.next();
            assert!((low..=low * 5 / 4).contains(&next), "{next:?}");
        }
        delay.reset();
        assert!(delay.next() < Duration::from_secs(2));
    }
}
