//! How long an election has had no leader, as far as this instance has seen.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long nobody has led.
#[derive(Debug, Default)]
pub struct Leaderless(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In the periods that are over.
    past: Duration,
    since: Option<Instant>,
}

impl Leaderless {
    pub fn total(&self) -> Duration {
        let state = self.0.lock();
        state.past + state.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Takes what the store has said last: whether somebody leads.
    pub fn seen(&self, somebody_leads: bool) {
        let mut state = self.0.lock();
        match (somebody_leads, state.since) {
            (false, None) => state.since = Some(Instant::now()),
            (true, Some(since)) => {
                state.past += since.elapsed();
                state.since = None;
            }
            (false, Some(_)) | (true, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_without_a_leader_counts() {
        let leaderless = Leaderless::default();
        leaderless.seen(true);
        assert_eq!(leaderless.total(), Duration::ZERO);
        leaderless.seen(false);
        let first = leaderless.total();
        leaderless.seen(false);
        assert!(leaderless.total() >= first);
        leaderless.seen(true);
        let total = leaderless.total();
        assert!(total > first);
        assert_eq!(leaderless.total(), total);
    }
}
