//! The candidates, as the store has them.
//!
//! They are read when somebody asks for them, and at most once a second: many readers cost the
//! store, and the driver, as much as one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::{Election, Participant};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

/// How soon after an answer of the store, or its silence, it is asked again.
const FRESH: Duration = Duration::from_secs(1);

/// How many times as long as a reading took it counts as fresh at least, so that long queues are
/// read for a small part of the time.
const SHARE: u32 = 20;

/// How long a reader waits for the store. After that it gets the answer that there was before.
const TIMEOUT: Duration = Duration::from_secs(1);

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
    next: Mutex<Next>,
}

/// When the store is asked next.
#[derive(Debug, Default)]
enum Next {
    #[default]
    Now,
    /// It is being asked.
    UnderWay,
    NotBefore(Instant),
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
    /// The candidates, as the store has answered within about a second; or as it has answered
    /// before, if it does not answer. None if it never has.
    pub async fn read(&self, election: &Election, own: Option<Vec<u8>>) -> Option<Arc<Reading>> {
        let mut last = self.0.last.subscribe();
        let is_asked = {
            let mut next = self.0.next.lock();
            let is_due = match *next {
                Next::Now => true,
                Next::NotBefore(mark) => mark <= Instant::now(),
                Next::UnderWay => false,
            };
            if is_due {
                *next = Next::UnderWay;
                // It goes on without this reader.
                tokio::spawn(self.clone().ask(election.clone(), own));
            }
            matches!(*next, Next::UnderWay)
        };
        if is_asked {
            // After the time-out, what there is has to do.
            let _ = timeout(TIMEOUT, last.changed()).await;
        }
        last.borrow().clone()
    }

    async fn ask(self, election: Election, own: Option<Vec<u8>>) {
        let asked = Instant::now();
        // A store that is away has an event of its own.
        if let Ok(Ok(all)) = timeout(LONGEST, election.candidates()).await {
            let reading = Reading::new(asked, all, own.as_deref());
            self.0.last.send_replace(Some(Arc::new(reading)));
        }
        let pause = FRESH.max(asked.elapsed() * SHARE).saturating_sub(asked.elapsed());
        *self.0.next.lock() = Next::NotBefore(Instant::now() + pause);
    }
}

impl Reading {
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
