//! What the elector is told next, in bounded batches.

use std::collections::VecDeque;
use std::mem;

use crate::elector::size;
use crate::types::{Event, Term};

/// How many events the elector is given at once.
pub(super) const BATCH: usize = 256;
/// How many of them may be the store's: the rest is for what users want.
const STORES: usize = BATCH / 4 * 3;
/// How many bytes it is given at once; a single event may have more, up to [`LARGEST`].
const BATCH_BYTES: usize = 4 << 20;
/// How many bytes the elector may be told at once: several times what etcd takes for a value,
/// and several times less than the memory that the elector has. A store's answer that is larger
/// is a failed call, so that data of others can fail one request but never the elector.
const LARGEST: usize = 8 << 20;

#[derive(Default)]
pub(super) struct Queue {
    events: VecDeque<Event>,
    bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, event: Event) {
        self.bytes += size::event(&event);
        self.events.push_back(event);
    }

    pub(super) fn extend(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.push(event));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether there is room for more from the store in the next batch.
    pub(super) fn takes_stores(&self) -> bool {
        self.events.len() < STORES && self.bytes < BATCH_BYTES
    }

    /// Whether there is room for more from users in the next batch.
    pub(super) fn takes_users(&self) -> bool {
        self.events.len() < BATCH && self.bytes < BATCH_BYTES
    }

    /// The next batch, of so many events at most.
    pub(super) fn take(&mut self, at_most: usize) -> Vec<Event> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < at_most
            && let Some(event) = self.events.front()
        {
            let size = size::event(event);
            if bytes > 0 && bytes + size > BATCH_BYTES {
                break;
            }
            bytes += size;
            self.bytes -= size;
            batch.extend(self.events.pop_front());
        }
        batch
    }

    /// Drops all of them. Returns the terms whose work has stopped, as they told.
    pub(super) fn clear(&mut self) -> Vec<Term> {
        let yielded = |event| if let Event::Yielded(term) = event { Some(term) } else { None };
        mem::take(self).events.into_iter().filter_map(yielded).collect()
    }
}

/// What is wrong with something of so many bytes, if anything.
pub(super) fn too_large(what: &str, bytes: usize) -> Option<String> {
    let mebibytes = LARGEST >> 20;
    let sentence = || {
        format!(
            "{what} has {bytes} bytes, and an elector takes {mebibytes} MiB at once: shorten it"
        )
    };
    (bytes > LARGEST).then(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Failure, Reply};

    fn queue(events: impl IntoIterator<Item = usize>) -> Queue {
        let mut queue = Queue::default();
        for bytes in events {
            let outcome = Err(Failure::Other("x".repeat(bytes)));
            queue.push(Event::Reply(Reply { id: 1, outcome }));
        }
        queue
    }

    #[test]
    fn a_part_of_each_batch_is_kept_for_users() {
        let room = |events| {
            let queue = queue((0..events).map(|_| 0));
            (queue.takes_stores(), queue.takes_users())
        };
        assert_eq!(room(0), (true, true));
        assert_eq!(room(191), (true, true));
        assert_eq!(room(192), (false, true));
        assert_eq!(room(255), (false, true));
        assert_eq!(room(256), (false, false));
    }

    #[test]
    fn a_batch_is_bounded() {
        let mut many = queue((0..300).map(|_| 0));
        assert_eq!(many.take(BATCH).len(), 256);
        assert!(!many.is_empty());
        assert_eq!(many.take(10).len(), 10);
        assert_eq!(many.take(BATCH).len(), 34);
        assert!(many.is_empty());
        assert!(many.take(BATCH).is_empty());

        // What is too large goes alone, and what is left counts no longer.
        let mut large = queue([1 << 20, 1 << 20, 6 << 20, 3 << 20, 0]);
        assert!(!large.takes_stores() && !large.takes_users());
        assert_eq!([(); 4].map(|()| large.take(BATCH).len()), [2, 1, 2, 0]);
        assert!(large.takes_stores() && large.takes_users());
        assert_eq!(large.bytes, 0);
    }

    #[test]
    fn a_batch_is_as_large_as_its_bytes_allow() {
        let whole = BATCH_BYTES / 2 - size::event(&Event::Wake);
        assert_eq!(queue([whole, whole]).take(BATCH).len(), 2);
        assert!(!queue([whole, whole]).takes_stores());
        assert!(!queue([whole, whole]).takes_users());
        assert!(queue([whole, whole - 1]).takes_stores());
        assert!(queue([whole, whole - 1]).takes_users());
        let mut rest = queue([0, BATCH_BYTES]);
        assert_eq!(rest.take(BATCH).len(), 1);
        assert!(!rest.takes_stores(), "the large one still waits");
    }
}
