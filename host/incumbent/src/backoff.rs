//! How long to wait before trying again.

use std::time::Duration;

/// A pause that doubles from one attempt to the next, up to the longest, and starts over after
/// a success.
///
/// Not the crate `backon`, which sleeps itself: these pauses end by a session's clock, or when
/// a signal comes.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// From `first` to `longest`, which is no shorter than `first`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest: longest.max(first), next: first }
    }

    /// The pause before the next attempt, exactly.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// Between half of the pause and the whole, so that processes that failed together do not
    /// come back together.
    pub fn pause_at_most(&mut self) -> Duration {
        let half = self.pause() / 2;
        half + random_part(half)
    }

    /// The pause and up to a quarter more, where the pause itself is promised.
    pub fn pause_at_least(&mut self) -> Duration {
        let pause = self.pause();
        pause.saturating_add(random_part(pause / 4))
    }

    /// Starts over: the last attempt was a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Without randomness all of it: there is no jitter then, and no harm.
fn random_part(whole: Duration) -> Duration {
    whole.mul_f64(f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest_and_starts_over() {
        let seconds = Duration::from_secs;
        let backoff = Backoff::new(seconds(1), seconds(30));
        let (mut exact, mut most, mut least) = (backoff.clone(), backoff.clone(), backoff);
        for pause in [1, 2, 4, 8, 16, 30, 30].map(seconds) {
            assert_eq!(exact.pause(), pause);
            let shortened = most.pause_at_most();
            assert!((pause / 2..=pause).contains(&shortened), "{shortened:?} of {pause:?}");
            let prolonged = least.pause_at_least();
            assert!((pause..=pause * 5 / 4).contains(&prolonged), "{prolonged:?} of {pause:?}");
        }
        for mut backoff in [exact, most, least] {
            backoff.reset();
            assert_eq!(backoff.pause(), seconds(1));
        }
        let mut constant = Backoff::new(seconds(60), seconds(30));
        assert_eq!((constant.pause(), constant.pause()), (seconds(60), seconds(60)));
    }
}
