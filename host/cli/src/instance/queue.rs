//! The candidates, as the store has them.
//!
//! They are read when somebody asks for them, and only so often: many readers cost the store, and
//! the driver, as much as one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::{Election, Participant};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::own::Own;

/// What a reader wants.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// How soon after it was asked, the store is asked again.
    pub fresh: Duration,
    /// How long the reader waits for the store. After that it gets the answer that there was
    /// before.
    pub wait: Duration,
}

impl Demand {
    /// Of somebody who asks once.
    pub const ONCE: Self = Self { fresh: Duration::from_secs(1), wait: Duration::from_secs(1) };
    /// Of a page that asks again and again, and has to tell soon that the store does not answer.
    pub const OFTEN: Self = Self { fresh: Duration::from_millis(400), wait: SLOW };
    /// Of a line of text that people look at now and then, and that is always kept up.
    pub const SELDOM: Self = Self { fresh: LONGEST_FRESH, wait: SLOW };
}

/// How many times as long as a reading took it counts as fresh at least, so that long queues are
/// read for a small part of the time; but no longer than that.
const SHARE: u32 = 20;
const LONGEST_FRESH: Duration = Duration::from_secs(10);

/// A store that takes longer than that does not answer, as far as a page tells.
const SLOW: Duration = Duration::from_millis(500);

/// How long the store may take. Long queues take a while.
const LONGEST: Duration = Duration::from_secs(30);

/// How many candidates are kept, and shown, and how many bytes of their keys and values.
const SHOWN: usize = 100;
const SHOWN_BYTES: usize = 32 << 10;
const LONGEST_VALUE: usize = 4096;

/// The candidates, as they were read last. A cheap clone.
#[derive(Clone, Debug, Default)]
pub struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    last: watch::Sender<Option<Arc<Reading>>>,
    state: Mutex<State>,
}

/// How far the store has been asked.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Since when it is being asked.
    under_way: Option<Instant>,
    /// When it was asked before that.
    asked: Option<Instant>,
    /// How long the last two readings took. One alone may have waited for a store that was away.
    took: [Duration; 2],
    /// It did not answer at all.
    failed: bool,
    /// The candidates have changed since.
    is_stale: bool,
}

#[derive(Debug)]
pub struct Reading {
    /// It is not older than that.
    asked: Instant,
    /// The first ones, the leader at their head.
    pub shown: Vec<Participant>,
    /// How many there are.
    pub many: usize,
    /// How many are in front of our own key.
    pub position: Option<usize>,
}

impl Reading {
    pub fn age(&self) -> Duration {
        self.asked.elapsed()
    }
}

impl Queue {
    /// The candidates, as the store has answered lately; or as it has answered before, if it does
    /// not answer. None if it never has.
    pub async fn read(
        &self,
        election: &Election,
        own: Option<Own>,
        demand: Demand,
    ) -> Option<Arc<Reading>> {
        let mut last = self.0.last.subscribe();
        let is_asked = {
            let mut state = self.0.state.lock();
            if state.is_due(demand.fresh) {
                state.under_way = Some(Instant::now());
                // It goes on without this reader.
                tokio::spawn(self.clone().ask(election.clone(), own));
            }
            state.under_way.is_some()
        };
        if is_asked {
            // After the time-out, what there is has to do.
            let _ = timeout(demand.wait, last.changed()).await;
        }
        last.borrow().clone()
    }

    /// Takes what was read as out of date, because the candidates have changed.
    pub fn changed(&self) {
        self.0.state.lock().is_stale = true;
    }

    /// Whether the store has answered the last reading, or may still do so in time.
    pub fn is_answered(&self) -> bool {
        self.0.state.lock().is_answered()
    }

    async fn ask(self, election: Election, own: Option<Own>) {
        let asked = Instant::now();
        self.0.state.lock().is_stale = false;
        let answer = timeout(LONGEST, election.candidates()).await;
        // A store that refuses has answered.
        let failed = answer.is_err();
        if let Ok(Ok(all)) = answer {
            let reading = Reading::new(asked, all, own.as_ref());
            self.0.last.send_replace(Some(Arc::new(reading)));
        }
        let took = asked.elapsed();
        let mut state = self.0.state.lock();
        let [last, _] = state.took;
        state.took = [took, last];
        (state.under_way, state.asked, state.failed) = (None, Some(asked), failed);
    }
}

impl State {
    /// How long a reading takes.
    fn usual(&self) -> Duration {
        let [last, before] = self.took;
        last.min(before)
    }

    fn is_due(&self, fresh: Duration) -> bool {
        let fresh = if self.is_stale { Duration::ZERO } else { fresh };
        let fresh = fresh.max((self.usual() * SHARE).min(LONGEST_FRESH));
        self.under_way.is_none() && self.asked.is_none_or(|asked| asked.elapsed() >= fresh)
    }

    fn is_answered(&self) -> bool {
        let slow = SLOW.max(self.usual() * 2);
        !self.failed && self.under_way.is_none_or(|since| since.elapsed() < slow)
    }
}

impl Reading {
    /// An answer of this moment.
    #[cfg(test)]
    pub fn of(all: Vec<Participant>) -> Self {
        Self::new(Instant::now(), all, None)
    }

    fn new(asked: Instant, mut all: Vec<Participant>, own: Option<&Own>) -> Self {
        let position = own.and_then(|own| all.iter().position(|one| own.is(one)));
        let many = all.len();
        // Clients of etcd's own may have longer values than we allow.
        all.iter_mut().take(SHOWN).for_each(|one| one.value.truncate(LONGEST_VALUE));
        let mut bytes = 0;
        let fits = |one: &&Participant| {
            bytes += one.key.len() + one.value.len();
            bytes <= SHOWN_BYTES
        };
        let shown = all.iter().take(SHOWN).take_while(fits).count();
        all.truncate(shown);
        Self { asked, shown: all, many, position }
    }
}

#[cfg(test)]
mod tests {
    use incumbent::{Options, Session};

    use super::*;

    #[test]
    fn a_store_answers_until_it_fails_or_takes_too_long() {
        let ago = |span| Instant::now().checked_sub(span);
        let took = Duration::from_millis(400);
        let state = State::default();
        assert!(state.is_answered() && state.is_due(Duration::MAX));
        assert!(!State { failed: true, ..state }.is_answered());
        let under_way = |span, took| State { under_way: ago(span), took: [took; 2], ..state };
        assert!(under_way(Duration::ZERO, Duration::ZERO).is_answered());
        assert!(!under_way(SLOW, Duration::ZERO).is_answered());
        assert!(under_way(SLOW, took).is_answered() && !under_way(took * 2, took).is_answered());
        assert!(!under_way(SLOW, took).is_due(Duration::ZERO));
    }

    #[test]
    fn a_reading_is_fresh_for_as_long_as_it_is_worth() {
        let asked = |span: u64, took| State {
            asked: Instant::now().checked_sub(Duration::from_millis(span)),
            took: [took; 2].map(Duration::from_millis),
            ..State::default()
        };
        let second = Duration::from_secs(1);
        assert!(asked(1_000, 0).is_due(second) && !asked(900, 0).is_due(second));
        assert!(State { is_stale: true, ..asked(0, 0) }.is_due(second));
        let long = State { is_stale: true, ..asked(1_900, 100) };
        assert!(!long.is_due(second) && asked(2_000, 100).is_due(second));
        assert!(asked(10_000, 3_000).is_due(second), "after ten seconds at the latest");
        let once = State { took: [second * 3, Duration::ZERO], ..asked(1_000, 0) };
        assert!(once.is_due(second), "the store was away");
    }

    #[tokio::test]
    async fn a_value_that_is_too_long_hides_no_candidate() {
        let session = Session::connect("memory:long", Options::default()).await.unwrap();
        let candidate = session.election("my-service").value(vec![b'x'; LONGEST_VALUE]);
        let mut candidate = candidate.join();
        let _leadership = candidate.elected().await.unwrap();
        let mut all = session.election("my-service").candidates().await.unwrap();
        all[0].value = vec![b'x'; 2 * SHOWN_BYTES];
        let reading = Reading::of(all);
        assert_eq!((reading.shown.len(), reading.shown[0].value.len()), (1, LONGEST_VALUE));
    }
}
