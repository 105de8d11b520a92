//! A model of etcd: the contents of the library's store in memory, by etcd's rules.
//! `tests/tests/fidelity` compares these contents with etcd, answer by answer.
//!
//! It knows no members and no network: `cluster` has those.

use incumbent_guest::types::{self, Duration, Entry, LeaseId, Mark, Revision};

use super::SECOND;

// By source, because the types differ: the library's are made by wasmtime, which the simulation
// has to build without.
#[path = "../../../host/incumbent/src/store/memory/contents.rs"]
mod contents;

use contents::Rules;
pub use contents::{Contents as Store, Together};

/// How often leases are looked through for those that ran out.
pub const EXPIRY_TICK: Duration = 500_000_000;

/// The shortest lease that etcd grants with its default election timeout.
pub const SHORTEST_LEASE: Duration = 2 * SECOND;

impl Default for Store {
    fn default() -> Self {
        Self::new(Rules { shortest: SHORTEST_LEASE, unit: SECOND })
    }
}

/// What is asked by those who judge, and done by those who run etcd.
impl Store {
    /// A key, as it is now.
    pub fn key(&self, key: &[u8]) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// All keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &Entry> {
        self.keys.values()
    }

    /// The leases that there are.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.leases.keys().copied()
    }

    /// Whether a lease has time left.
    pub fn lives(&self, lease: LeaseId, now: Mark) -> bool {
        self.leases.get(&lease).is_some_and(|lease| lease.ends > now)
    }

    /// When a lease runs out, if it is there.
    pub fn end_of(&self, lease: LeaseId) -> Option<Mark> {
        self.leases.get(&lease).map(|lease| lease.ends)
    }

    /// A new leader of the store's own cannot know what the last one acknowledged:
    /// every lease lives for its full time from now on, and `timeout` more.
    pub fn extend_leases(&mut self, now: Mark, timeout: Duration) {
        let ends: Vec<(LeaseId, Mark)> =
            self.leases.iter().map(|(id, lease)| (*id, now + lease.ttl + timeout)).collect();
        for (lease, ends) in ends {
            self.set_end(lease, ends);
        }
    }

    /// What an operator bumps revisions by when a backup is restored, so that no
    /// epoch comes twice; what was before is forgotten.
    pub fn bump(&mut self, by: Revision) {
        self.revision += by;
        self.compacted = self.revision;
    }
}
