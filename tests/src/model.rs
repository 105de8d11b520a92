//! A store and the one in memory, side by side: whatever they are asked, and however time goes on, they
//! answer alike, and tell their watches alike. The one in memory is also what is compared with etcd.

use std::sync::Arc;
use std::time::Duration;

use incumbent::types::*;
use incumbent::{Failure, ManualClock, MemoryStore, Store, Watches};

use crate::operations::{AtRandom, all};
use crate::stores::{next, watch};
use crate::wait::{LIMIT, until};

/// Few, so that they collide, with all that prefixes can be wrong about.
const KEYS: [&[u8]; 7] = [b"a", b"a/", b"a/b", b"a0", b"a\xff", b"\xff", b"\xff\xff"];
const LEASES: [i64; 5] = [1, 2, 3, -4, i64::MAX];
/// Some are over while others are still alive.
const TTLS: [u64; 5] = [0, 1_000_000_001, 2_500_000_000, 9_000_000_000, u64::MAX];

/// Compares an empty store, whose leases are counted by this clock, over so many operations. The seed
/// is in this variable of the environment, or any.
pub async fn compare<S: Store>(store: S, clock: &ManualClock, variable: &str, steps: usize) {
    let memory = MemoryStore::new(Arc::new(clock.clone()));
    let mut seen = [watch(&store, None), watch(&memory, None)];
    for watches in &mut seen {
        assert_eq!(next(watches).await, Change::Started(1));
    }
    let random = AtRandom::new(variable, &KEYS, &LEASES, &TTLS);
    let clock = clock.clone();
    let mut both = Both { random, clock, store, memory, seen, changes: Vec::new() };
    for _ in 0..steps {
        both.step().await;
    }
    println!("{} changes up to revision {}", both.changes.len(), both.memory.revision());
}

struct Both<S> {
    random: AtRandom,
    clock: ManualClock,
    store: S,
    memory: MemoryStore,
    /// What sees everything.
    seen: [Box<dyn Watches>; 2],
    /// Every change that there was.
    changes: Vec<Change>,
}

impl<S: Store> Both<S> {
    async fn step(&mut self) {
        if self.random.one_in(20) {
            self.clock.advance(Duration::from_millis(self.random.rng.u64(..1_500)));
            self.leases_end().await;
        }
        let operation = self.random.operation();
        // That both agree is all.
        let _ = self.ask(operation).await;
        match self.ask(Operation::Read(vec![all("")])).await {
            Ok(Response::Snapshot(snapshot)) => self.random.entries = snapshot.found.concat(),
            other => panic!("{other:?}"),
        }
        self.random.revision = self.memory.revision().into();
        while self.changes.last().map_or(1, revision) < self.random.revision {
            self.listen().await;
        }
        if self.random.one_in(50) {
            self.look_back().await;
        }
    }

    /// A store may take a moment to see that a lease is over.
    async fn leases_end(&self) {
        let read = || Operation::Read(vec![all("")]);
        let wanted = self.memory.call(read(), LIMIT).await;
        until("the same leases are over", async || self.store.call(read(), LIMIT).await == wanted)
            .await;
    }

    /// One operation, asked of both.
    async fn ask(&mut self, operation: Operation) -> Answer {
        let ours = self.store.call(operation.clone(), LIMIT).await;
        let theirs = self.memory.call(operation.clone(), LIMIT).await;
        match (&ours, &theirs) {
            // In words of their own.
            (Err(Failure::Invalid(_)), Err(Failure::Invalid(_))) => {}
            _ => assert_eq!(ours, theirs, "{operation:?}"),
        }
        ours
    }

    async fn listen(&mut self) {
        let [ours, theirs] = &mut self.seen;
        let ours = next(ours).await;
        assert_eq!(ours, next(theirs).await);
        self.changes.push(ours);
    }

    /// A watch that begins in the past tells all from there on.
    async fn look_back(&mut self) {
        let Some(change) = self.random.rng.choice(&self.changes) else { return };
        let since = revision(change);
        let mut later = watch(&self.store, Some(since));
        assert_eq!(next(&mut later).await, Change::Started(since - 1));
        for change in self.changes.iter().filter(|change| revision(change) >= since) {
            assert_eq!(next(&mut later).await, *change);
        }
    }
}

fn revision(change: &Change) -> i64 {
    match change {
        Change::Put(entry) => entry.modified,
        Change::Deleted(deletion) => deletion.at,
        Change::Started(_) | Change::Ended(_) => panic!("{change:?}"),
    }
}
