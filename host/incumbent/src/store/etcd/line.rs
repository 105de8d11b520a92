//! Which connection a long stream goes over.
//!
//! etcd may allow a connection few streams at a time: what `--max-concurrent-streams` says, or 250
//! with TLS in versions without that flag. Those beyond wait without a word. A set of watches and the
//! renewals of a lease each keep a stream, and a thousand sessions share a store: so some of them
//! share a connection, and the next ones get another.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::endpoints::Endpoints;

/// How many keep a stream on one connection. One of them may have another stream for a moment, and
/// requests need some as well.
const STREAMS: usize = 40;

/// The connections of a store.
pub(super) struct Lines {
    /// Requests go over this one.
    first: Arc<Endpoints>,
    held: Mutex<Vec<Weak<Line>>>,
}

/// A connection to a member, for those who hold this.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) endpoints: Arc<Endpoints>,
}

impl Lines {
    pub(super) fn new(first: Arc<Endpoints>) -> Self {
        Self { first, held: Mutex::default() }
    }

    /// A connection with room for one more stream.
    pub(super) fn take(&self) -> Arc<Line> {
        let mut held = self.held.lock();
        held.retain(|line| line.strong_count() > 0);
        let with_room = held.iter().rev().filter(|line| line.strong_count() < STREAMS);
        if let Some(line) = with_room.filter_map(Weak::upgrade).next() {
            return line;
        }
        let is_first = |line: &Arc<Line>| Arc::ptr_eq(&line.endpoints, &self.first);
        let endpoints = if held.iter().filter_map(Weak::upgrade).any(|line| is_first(&line)) {
            Arc::new(self.first.beside())
        } else {
            Arc::clone(&self.first)
        };
        let line = Arc::new(Line { endpoints });
        held.push(Arc::downgrade(&line));
        line
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held.lock();
        f.debug_list().entries(held.iter().map(Weak::strong_count)).finish()
    }
}
