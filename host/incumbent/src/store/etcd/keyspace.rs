//! The prefix of all keys of a store.

use std::fmt;
use std::sync::Arc;

use etcd_client::KeyValue;

use crate::types::Entry;

/// Puts the store's prefix before each key that goes to etcd, and takes it off
/// each that comes back: no other module of the library knows the prefix.
#[derive(Clone)]
pub(super) struct Keyspace {
    prefix: Arc<[u8]>,
}

impl Keyspace {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.as_bytes().into() }
    }

    /// The key as etcd has it.
    pub(super) fn wire(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }

    /// The key without the prefix.
    pub(super) fn own(&self, wire: &[u8]) -> Vec<u8> {
        wire.strip_prefix(&*self.prefix).unwrap_or(wire).to_vec()
    }

    pub(super) fn entry(&self, found: &KeyValue) -> Entry {
        Entry {
            key: self.own(found.key()),
            value: found.value().to_vec(),
            lease: found.lease(),
            created: found.create_revision(),
            modified: found.mod_revision(),
        }
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.prefix))
    }
}
