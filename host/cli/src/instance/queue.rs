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
    /// Of a page that asks again and again.
    pub const OFTEN: Self =
        Self { fresh: Duration::from_millis(400), wait: Duration::from_millis(100) };
}

/// How many times as long as a reading took it counts as fresh at least, so that long queues are
/// read for a small part of the time.
const SHARE: u32 = 20;

/// A store that takes longer than that does not answer, as far as a page tells.
const SLOW: Duration = Duration::from_millis(500);

/// How long the store may take. Long queues take a while.
const LONGEST: Duration = Duration::from_secs(30);

/// How many candidates are kept, and shown, and how many bytes of their keys and values.
const SHOWN: usize = 100;
const SHOWN_BYTES: usize = 32 << 10;

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
enum State {
    #[default]
    NotAsked,
    /// It is being asked, after it has answered or not.
    UnderWay {
        since: Instant,
        answered: bool,
    },
    Asked {
        at: Instant,
        took: Duration,
        answered: bool,
    },
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
        own: Option<Vec<u8>>,
        demand: Demand,
    ) -> Option<Arc<Reading>> {
        let mut last = self.0.last.subscribe();
        let is_asked = {
            let mut state = self.0.state.lock();
            if state.is_due(demand.fresh) {
                *state = State::UnderWay { since: Instant::now(), answered: state.answered() };
                // It goes on without this reader.
                tokio::spawn(self.clone().ask(election.clone(), own));
            }
            matches!(*state, State::UnderWay { .. })
        };
        if is_asked {
            // After the time-out, what there is has to do.
            let _ = timeout(demand.wait, last.changed()).await;
        }
        last.borrow().clone()
    }

    /// The candidates have changed: the next reader has the store asked.
    pub fn changed(&self) {
        let mut state = self.0.state.lock();
        if let State::Asked { .. } = *state {
            *state = State::NotAsked;
        }
    }

    /// Whether the store answers, as far as readers have had it asked.
    pub fn is_answered(&self) -> bool {
        self.0.state.lock().answered()
    }

    async fn ask(self, election: Election, own: Option<Vec<u8>>) {
        let asked = Instant::now();
        // A store that is away has an event of its own.
        let answer = timeout(LONGEST, election.candidates()).await;
        let answered = if let Ok(Ok(all)) = answer {
            let reading = Reading::new(asked, all, own.as_deref());
            self.0.last.send_replace(Some(Arc::new(reading)));
            true
        } else {
            false
        };
        let state = State::Asked { at: asked, took: asked.elapsed(), answered };
        *self.0.state.lock() = state;
    }
}

impl State {
    fn is_due(&self, fresh: Duration) -> bool {
        match *self {
            Self::NotAsked => true,
            Self::UnderWay { .. } => false,
            Self::Asked { at, took, .. } => at.elapsed() >= fresh.max(took * SHARE),
        }
    }

    fn answered(&self) -> bool {
        match *self {
            Self::NotAsked => true,
            Self::UnderWay { since, answered } => answered && since.elapsed() < SLOW,
            Self::Asked { answered, .. } => answered,
        }
    }
}

impl Reading {
    /// An answer of this moment.
    #[cfg(test)]
    pub fn of(all: Vec<Participant>) -> Self {
        Self::new(Instant::now(), all, None)
    }

    fn new(asked: Instant, mut all: Vec<Participant>, own: Option<&[u8]>) -> Self {
        let position = own.and_then(|key| all.iter().position(|one| one.key == key));
        let many = all.len();
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
    use super::*;

    #[test]
    fn a_store_answers_until_it_fails_or_takes_too_long() {
        let asked = |answered| State::Asked { at: Instant::now(), took: Duration::ZERO, answered };
        assert!(State::NotAsked.answered() && asked(true).answered());
        assert!(!asked(false).answered());
        let under_way = |answered, ago| {
            State::UnderWay { since: Instant::now().checked_sub(ago).unwrap(), answered }.answered()
        };
        assert!(under_way(true, Duration::ZERO));
        assert!(!under_way(true, SLOW) && !under_way(false, Duration::ZERO));
    }
}
