//! Operations on a store: those that tests name, and any at random.

use std::hash::{BuildHasher as _, RandomState};

use fastrand::Rng;
use incumbent::types::*;

/// In nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// Asks for a lease, in nanoseconds.
pub fn grant(lease: i64, ttl: u64) -> Operation {
    Operation::Grant(Grant { lease, ttl })
}

/// Claims a key with a value that tells the lease.
pub fn claim(key: &str, lease: i64) -> Operation {
    Operation::Claim(Claim { key: key.into(), value: format!("by {lease}").into(), lease })
}

/// Writes while the key is the one that it was, whatever its lease.
pub fn guarded(key: &Entry, mutations: Vec<Mutation>) -> Operation {
    let guard = Guard { key: key.key.clone(), epoch: key.created, lease: None };
    Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations })
}

/// Sets a key.
pub fn put(key: &str, value: impl Into<Vec<u8>>) -> Mutation {
    Mutation::Put(Put { key: key.into(), value: value.into() })
}

/// Selects one key.
pub fn one(key: &str) -> Selection {
    Selection::of_key(key)
}

/// Selects all keys that begin so.
pub fn all(prefix: &str) -> Selection {
    Selection::of_prefix(prefix)
}

/// Watches one key, from now on.
pub fn watch(id: RequestId, key: &str) -> Watch {
    Watch { id, key: key.into(), prefix: false, since: None }
}

/// A number in the environment.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Makes operations at random, more often to the point than not.
#[derive(Debug)]
pub struct AtRandom {
    /// Where chance comes from.
    pub rng: Rng,
    /// Few, so that they collide.
    pub keys: &'static [&'static [u8]],
    /// Few as well.
    pub leases: &'static [i64],
    /// The times that leases are asked for.
    pub ttls: &'static [u64],
    /// What is in the store.
    pub entries: Vec<Entry>,
    /// The last revision.
    pub revision: i64,
}

impl AtRandom {
    /// By the seed in an environment variable, or else by any.
    pub fn new(
        variable: &str,
        keys: &'static [&'static [u8]],
        leases: &'static [i64],
        ttls: &'static [u64],
    ) -> Self {
        let seed = number(variable).unwrap_or_else(|| RandomState::new().hash_one(()));
        // Shown where the test fails.
        println!("{variable}={seed}");
        let rng = Rng::with_seed(seed);
        Self { rng, keys, leases, ttls, entries: Vec::new(), revision: 1 }
    }

    /// What a client could ask.
    pub fn operation(&mut self) -> Operation {
        match self.rng.usize(..16) {
            0..2 => grant(self.lease(), self.of(self.ttls)),
            2..4 => Operation::KeepAlive(self.lease()),
            4 => Operation::Revoke(self.lease()),
            5..9 => Operation::Claim(Claim {
                key: self.key(),
                value: self.value(),
                lease: self.lease(),
            }),
            9..11 => Operation::Read(self.some(4, |this| Selection {
                prefix: this.one_in(2),
                key: this.key_or_none(),
                from: this.one_in(4).then(|| this.key_or_none()),
                created_before: match this.rng.usize(..4) {
                    0 => Some(this.rng.i64(0..3)),
                    1 => Some(this.revision_near()),
                    _ => None,
                },
                order: this.of(&[Order::OldestFirst, Order::NewestFirst, Order::ByKey]),
                limit: this.of(&[0, 0, 1, 2, 3, 100]),
                keys_only: this.one_in(3),
            })),
            _ => self.guarded(),
        }
    }

    fn guarded(&mut self) -> Operation {
        let found = self.rng.choice(&self.entries).cloned().filter(|_| !self.one_in(8));
        let (key, epoch, lease) = match found {
            Some(entry) => (entry.key, entry.created, entry.lease),
            None => (self.key(), 1, 0),
        };
        let guard = Guard {
            key,
            epoch: if self.one_in(6) { self.revision_near() } else { epoch },
            lease: match self.rng.usize(..6) {
                0 => Some(self.lease()),
                1..4 => Some(lease).filter(|lease| *lease != 0),
                _ => None,
            },
        };
        let expect = self.some(3, |this| {
            let key = this.key();
            let found = this.entries.iter().find(|entry| entry.key == key);
            let modified = found.map_or(0, |entry| entry.modified);
            let is_wrong = this.one_in(5);
            Expectation { key, modified: if is_wrong { this.revision_near() } else { modified } }
        });
        let mutations = self.some(4, |this| match this.rng.usize(..5) {
            0..2 => Mutation::Put(Put { key: this.key(), value: this.value() }),
            2 => Mutation::Proclaim(this.value()),
            _ => Mutation::Delete(this.key()),
        });
        Operation::Guarded(Guarded { guard, expect, mutations })
    }

    /// A key, or once in a while none, which no store takes.
    fn key(&mut self) -> Vec<u8> {
        if self.one_in(200) { Vec::new() } else { self.of(self.keys).into() }
    }

    /// A key, or none, which all keys begin with.
    pub fn key_or_none(&mut self) -> Vec<u8> {
        if self.one_in(6) { Vec::new() } else { self.of(self.keys).into() }
    }

    /// A value, which may be empty.
    pub fn value(&mut self) -> Vec<u8> {
        self.of(&["", "one", "two"]).into()
    }

    /// A lease that may be there or not.
    pub fn lease(&mut self) -> i64 {
        self.of(self.leases)
    }

    fn revision_near(&mut self) -> i64 {
        (self.revision + 2 - self.rng.i64(0..30)).max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.rng.usize(..times) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.rng.usize(..choice.len())]
    }

    /// Fewer than `bound`.
    fn some<T>(&mut self, bound: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.rng.usize(..bound)).map(|_| make(self)).collect()
    }
}
