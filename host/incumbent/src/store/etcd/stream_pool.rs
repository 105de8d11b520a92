//! Connections for long streams.
//!
//! etcd may limit the streams of a connection: by `--max-concurrent-streams`, and to 250 with TLS
//! where it does not have that flag. Further streams wait, and nobody is told. A set of watches and
//! the renewals of a lease each keep a stream open, and a thousand sessions share one store, so the
//! store opens another connection for every few dozen of them.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::endpoints::Endpoints;

/// How many users keep a stream on one connection. Each may open a second one for a moment, and
/// requests take streams as well.
const USERS: usize = 40;

/// The connections of a store.
pub(super) struct StreamPool {
    /// Requests go over this one.
    first: Arc<Endpoints>,
    connections: Mutex<Vec<Weak<StreamConnection>>>,
}

/// A connection on which its users may each keep a stream. Every clone of the `Arc` is a user.
#[derive(Debug)]
pub(super) struct StreamConnection {
    pub(super) endpoints: Arc<Endpoints>,
}

impl StreamPool {
    pub(super) fn new(first: Arc<Endpoints>) -> Self {
        Self { first, connections: Mutex::default() }
    }

    /// A connection that has room for one more user.
    pub(super) fn get(&self) -> Arc<StreamConnection> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| connection.strong_count() > 0);
        let mut with_room =
            connections.iter().rev().filter(|connection| connection.strong_count() < USERS);
        if let Some(connection) = with_room.find_map(Weak::upgrade) {
            return connection;
        }
        let mut in_use = connections.iter().filter_map(Weak::upgrade);
        let endpoints = if in_use.any(|it| Arc::ptr_eq(&it.endpoints, &self.first)) {
            Arc::new(self.first.reconnecting())
        } else {
            Arc::clone(&self.first)
        };
        let connection = Arc::new(StreamConnection { endpoints });
        connections.push(Arc::downgrade(&connection));
        connection
    }
}

impl fmt::Debug for StreamPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = self.connections.lock();
        f.debug_list().entries(connections.iter().map(Weak::strong_count)).finish()
    }
}
