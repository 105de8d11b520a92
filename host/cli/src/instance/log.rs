//! The events that are kept for readers, up to a bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

/// How many bytes of events are kept.
const KEPT: usize = 1 << 20;

/// How many bytes an event counts in addition to its own.
const EVENT: usize = 64;

/// How many changes are kept, apart from the other events, and how many bytes of them.
const CHANGES: usize = 100;
const CHANGES_BYTES: usize = 64 << 10;

/// The last events, and the last changes, which are all events but extensions.
#[derive(Debug, Default)]
pub struct Log {
    /// Somebody may ask for them.
    is_read: AtomicBool,
    kept: Mutex<Kept>,
    /// How many events there have ever been.
    many: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<str>>,
    bytes: usize,
    /// The number of the first one that is kept.
    first: u64,
    changes: VecDeque<Arc<str>>,
    changes_bytes: usize,
}

impl Log {
    /// Keeps events from now on.
    pub fn keep(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    /// Takes an event, as JSON.
    pub fn push(&self, object: String, is_change: bool) {
        if !self.is_read.load(Ordering::Relaxed) {
            return;
        }
        let object: Arc<str> = object.into();
        let mut kept = self.kept.lock();
        if is_change {
            kept.changes_bytes += object.len();
            kept.changes.push_back(Arc::clone(&object));
            while kept.changes.len() > CHANGES
                || (kept.changes_bytes > CHANGES_BYTES && kept.changes.len() > 1)
            {
                let oldest = kept.changes.pop_front();
                kept.changes_bytes -= oldest.map_or(0, |oldest| oldest.len());
            }
        }
        kept.bytes += object.len() + EVENT;
        kept.events.push_back(object);
        // The newest one stays, whatever its length.
        while kept.bytes > KEPT && kept.events.len() > 1 {
            if let Some(oldest) = kept.events.pop_front() {
                kept.bytes -= oldest.len() + EVENT;
                kept.first += 1;
            }
        }
        drop(kept);
        self.many.send_modify(|many| *many += 1);
    }

    /// The oldest kept event from this number on, and its number; none if there is none yet.
    pub fn get(&self, from: u64) -> Option<(u64, Arc<str>)> {
        let kept = self.kept.lock();
        let number = from.max(kept.first);
        let index = usize::try_from(number - kept.first).ok()?;
        Some((number, Arc::clone(kept.events.get(index)?)))
    }

    /// How many events there have ever been.
    pub fn many(&self) -> u64 {
        *self.many.borrow()
    }

    /// Waits until there is an event of this number.
    pub async fn wait_for(&self, number: u64) {
        // Cannot fail: we hold the sender.
        let _ = self.many.subscribe().wait_for(|many| *many > number).await;
    }

    /// The last changes, the oldest first.
    pub fn changes(&self) -> Vec<Arc<str>> {
        self.kept.lock().changes.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_up_to_its_bound() {
        let log = Log::default();
        log.push("nobody reads it".into(), true);
        log.keep();
        assert_eq!(log.get(0), None);
        for number in 0..10_000 {
            log.push(format!("{number:>1000}"), number % 2 == 0);
            assert!(log.kept.lock().bytes <= KEPT);
        }
        let (first, event) = log.get(0).unwrap();
        assert_eq!(event.trim(), first.to_string());
        assert!(first > 8_000);
        assert_eq!(log.get(9_999).unwrap().1.trim(), "9999");
        assert_eq!(log.get(10_000), None);
        let changes = log.changes();
        assert_eq!((changes.len(), changes.last().unwrap().trim()), (65, "9998"));
        (0..1_000).for_each(|number| log.push(number.to_string(), true));
        assert_eq!(log.changes().len(), 100);

        log.push("x".repeat(2 * KEPT), false);
        assert_eq!(log.get(0).unwrap().0, 11_000, "alone");
    }
}
