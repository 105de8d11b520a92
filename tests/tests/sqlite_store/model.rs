//! The store in a file and the one in memory, side by side: whatever they are asked, and
//! however time goes on, they answer alike, and tell their watches alike. The one in
//! memory is also what is compared with etcd.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use incumbent::types::*;
use incumbent::{ManualClock, MemoryStore, SqliteStore, Store, Watches};

use super::{Place, next, read, watch};
use incumbent_tests::wait::LIMIT;

const STEPS: usize = 3_000;
/// Few, so that they collide, with all that prefixes can be wrong about.
const KEYS: [&[u8]; 7] = [b"a", b"a/", b"a/b", b"a0", b"a\xff", b"\xff", b"\xff\xff"];
const VALUES: [&[u8]; 3] = [b"", b"one", b"two"];
const LEASES: [LeaseId; 5] = [1, 2, 3, -4, LeaseId::MAX];
/// Some are over while others are still alive.
const TTLS: [u64; 5] = [0, 1_000_000_001, 2_500_000_000, 9_000_000_000, u64::MAX];

#[tokio::test]
async fn the_file_means_what_memory_means() {
    let seed = std::env::var("INCUMBENT_SQLITE_SEED").map_or_else(
        |_| std::hash::RandomState::new().hash_one(()),
        |seed| seed.parse().expect("a number"),
    );
    // Shown where the test fails.
    println!("INCUMBENT_SQLITE_SEED={seed}");
    let place = Place::new();
    let mut both = Both::open(&place, seed).await;
    for _ in 0..STEPS {
        both.step().await;
    }
    println!("{} changes up to revision {}", both.changes.len(), both.memory.revision());
}

struct Both {
    random: Rng,
    clock: ManualClock,
    file: SqliteStore,
    memory: MemoryStore,
    /// What sees everything.
    seen: [Box<dyn Watches>; 2],
    /// Every change that there was.
    changes: Vec<Change>,
    /// What is there.
    entries: Vec<Entry>,
}

impl Both {
    async fn open(place: &Place, seed: u64) -> Self {
        let clock = ManualClock::default();
        let file = place.open_at(&clock, "boot").await;
        let memory = MemoryStore::new(Arc::new(clock.clone()));
        let mut seen = [watch(&file, None), watch(&memory, None)];
        for watches in &mut seen {
            assert_eq!(next(watches).await, Change::Started(1));
        }
        Self {
            random: Rng::with_seed(seed),
            clock,
            file,
            memory,
            seen,
            changes: Vec::new(),
            entries: Vec::new(),
        }
    }

    async fn step(&mut self) {
        if self.one_in(20) {
            self.clock.advance(Duration::from_millis(self.random.u64(..1_500)));
        }
        let operation = self.operation();
        // That both agree is all.
        let _ = self.ask(operation).await;
        match self.ask(read("")).await {
            Ok(Response::Snapshot(snapshot)) => self.entries = snapshot.found.concat(),
            other => panic!("{other:?}"),
        }
        let told = self.memory.revision();
        while self.changes.last().map_or(1, revision) < told {
            self.listen().await;
        }
        if self.one_in(50) {
            self.look_back().await;
        }
    }

    /// One operation, asked of both.
    async fn ask(&mut self, operation: Operation) -> Result<Response, Failure> {
        let ours = self.file.call(operation.clone(), LIMIT).await;
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
        let Some(change) = self.random.choice(&self.changes) else { return };
        let since = revision(change);
        let mut later = watch(&self.file, Some(since));
        assert_eq!(next(&mut later).await, Change::Started(since - 1));
        for change in self.changes.iter().filter(|change| revision(change) >= since) {
            assert_eq!(next(&mut later).await, *change);
        }
    }

    /// What a client could ask, more often to the point than not.
    fn operation(&mut self) -> Operation {
        match self.random.usize(..16) {
            0..2 => Operation::Grant(Grant { lease: self.of(&LEASES), ttl: self.of(&TTLS) }),
            2..4 => Operation::KeepAlive(self.of(&LEASES)),
            4 => Operation::Revoke(self.of(&LEASES)),
            5..9 => Operation::Claim(Claim {
                key: self.key(),
                value: self.of(&VALUES).into(),
                lease: self.of(&LEASES),
            }),
            9..11 => Operation::Read(self.some(4, |both| Selection {
                prefix: both.one_in(2),
                key: if both.one_in(6) { Vec::new() } else { both.key() },
                from: both.one_in(4).then(|| both.key()),
                created_before: (!both.one_in(2)).then(|| both.revision_near()),
                order: both.of(&[Order::OldestFirst, Order::NewestFirst, Order::ByKey]),
                limit: both.of(&[0, 0, 1, 2, 3, 100]),
                keys_only: both.one_in(3),
            })),
            _ => self.guarded(),
        }
    }

    fn guarded(&mut self) -> Operation {
        let found = self.random.choice(&self.entries).cloned();
        let entry = found.filter(|_| !self.one_in(8)).unwrap_or_else(|| Entry {
            key: self.key(),
            value: Vec::new(),
            lease: 0,
            created: 1,
            modified: 1,
        });
        let leased = if entry.lease == 0 { None } else { Some(entry.lease) };
        Operation::Guarded(Guarded {
            guard: Guard {
                epoch: if self.one_in(6) { self.revision_near() } else { entry.created },
                lease: match self.random.usize(..6) {
                    0 => Some(self.of(&LEASES)),
                    1..4 => leased,
                    _ => None,
                },
                key: entry.key,
            },
            expect: self.some(3, |both| {
                let key = both.key();
                let found = both.entries.iter().find(|entry| entry.key == key);
                let modified = found.map_or(0, |entry| entry.modified);
                let wrong = both.one_in(5);
                Expectation { key, modified: if wrong { both.revision_near() } else { modified } }
            }),
            mutations: self.some(4, |both| match both.random.usize(..5) {
                0..2 => Mutation::Put(Put { key: both.key(), value: both.of(&VALUES).into() }),
                2 => Mutation::Proclaim(both.of(&VALUES).into()),
                _ => Mutation::Delete(both.key()),
            }),
        })
    }

    /// A key, or once in a while none, which is not taken.
    fn key(&mut self) -> Vec<u8> {
        if self.one_in(200) { Vec::new() } else { self.of(&KEYS).into() }
    }

    fn revision_near(&mut self) -> Revision {
        (self.memory.revision() + 2 - self.random.i64(..30)).max(1)
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.random.usize(..times) == 0
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.random.usize(..choice.len())]
    }

    /// Fewer than `bound`.
    fn some<T>(&mut self, bound: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.random.usize(..bound)).map(|_| make(self)).collect()
    }
}

fn revision(change: &Change) -> Revision {
    match change {
        Change::Put(entry) => entry.modified,
        Change::Deleted(deletion) => deletion.at,
        Change::Started(_) | Change::Ended(_) => panic!("{change:?}"),
    }
}
