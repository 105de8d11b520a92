//! The candidates, as the store has them.
//!
//! They are read when somebody asks for them, and at most once a second: many readers cost the
//! store, and the driver, as much as one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::{Election, Participant};
use tokio::sync::Mutex;

/// How old an answer of the store may be before it is asked again.
const FRESH: Duration = Duration::from_secs(1);

/// How much longer than a reading took it counts as fresh: so that long queues are read for a
/// small part of the time.
const SHARE: u32 = 20;

/// How long a reader waits for the store. After that it gets the answer that there was before.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How many candidates are kept, and shown.
const SHOWN: usize = 100;

/// The candidates, as they were read last.
#[derive(Debug, Default)]
pub struct Queue(Mutex<Option<Arc<Reading>>>);

#[derive(Debug)]
pub struct Reading {
    /// It is not older than that.
    asked: Instant,
    fresh_for: Duration,
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
    /// The candidates, read within the last second if the store answers. None if it never has.
    pub async fn read(&self, election: &Election, own: Option<&[u8]>) -> Option<Arc<Reading>> {
        let mut last = self.0.lock().await;
        if let Some(reading) = &*last
            && reading.age() < reading.fresh_for
        {
            return Some(Arc::clone(reading));
        }
        let asked = Instant::now();
        // A store that is away has an event of its own.
        if let Ok(Ok(mut all)) = tokio::time::timeout(TIMEOUT, election.candidates()).await {
            let position = own.and_then(|key| all.iter().position(|one| one.key == key));
            let many = all.len();
            all.truncate(SHOWN);
            let fresh_for = FRESH.max(asked.elapsed() * SHARE);
            *last = Some(Arc::new(Reading { asked, fresh_for, shown: all, many, position }));
        }
        last.clone()
    }
}
