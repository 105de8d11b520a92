//! What the elector is to be told next, in batches that are bounded.

use std::collections::VecDeque;

use crate::component::size;
use crate::types::Event;

/// How many events the elector is given at once.
pub(super) const BATCH: usize = 256;
/// How many of them may be the store's: the rest is for what users want.
const STORES: usize = BATCH / 4 * 3;
/// How many bytes it is given at once; a single event may have more, up to
/// [`ANSWER`](super::ANSWER).
const BATCH_BYTES: usize = 4 << 20;

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

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
