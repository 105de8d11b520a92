//! The model of the store and a real etcd, side by side: whatever they are asked,
//! they answer alike, and tell their watches alike.
//!
//! The model speaks the guest's types and the store the host's, which are the same
//! in all but the path: what comes back is compared as it prints.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmType, Client, PutOptions};
use incumbent::store::etcd::{Credentials, EtcdStore};
use incumbent::store::{Store as _, Watches};
use incumbent::types as host;
use incumbent_guest::types::{
    Change, Claim, Expectation, Failure, Grant, Guard, Guarded, LeaseId, Mark, Mutation, Operation,
    Order, Put, Revision, Selection,
};
use incumbent_simulation::store::{SHORTEST_LEASE, Store};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon};
use tokio::time::timeout;

on_each_version!(whatever_is_asked, what_time_takes);

/// How many steps are taken, unless `INCUMBENT_FIDELITY_STEPS` says.
const STEPS: u64 = 4_000;
const SECOND: u64 = 1_000_000_000;

/// Few, so that they collide, with all that prefixes can be wrong about. Not more
/// than six: of more, etcd sorts those of one revision in no order.
const KEYS: [&[u8]; 6] = [b"a", b"a/", b"a/b", b"a0", b"a\xff", b"\xff\xff"];
const VALUES: [&[u8]; 3] = [b"", b"one", b"two"];
const LEASES: [LeaseId; 5] = [1, 2, 3, 4, LeaseId::MAX];
/// None that could run out during the test.
const TTLS: [u64; 6] = [
    600 * SECOND,
    600 * SECOND + 1,
    601 * SECOND,
    7_200 * SECOND - 1,
    9_000_000_000 * SECOND,
    9_000_000_000 * SECOND + 1,
];
/// What has to come of it often enough.
const ANSWERS: [&str; 14] = [
    "Response::Granted",
    "Response::Exists",
    "Response::Renewed",
    "Response::Expired",
    "Response::Revoked",
    "Response::Claimed",
    "Response::Taken",
    "Response::Snapshot",
    "Response::Applied",
    "Response::Stale",
    "Response::Conflict",
    "Failure::Invalid",
    "Failure::Other",
    "Failure::Compacted",
];
/// With many more the stream could clog, and then these versions of etcd forget to
/// say that a watch is compacted (etcd#17529).
const WATCHES: usize = 12;
/// The watch that sees everything, all the time.
const EVERYTHING: u64 = 0;

async fn whatever_is_asked(version: Version) {
    let seed = number("INCUMBENT_FIDELITY_SEED")
        .unwrap_or_else(|| std::hash::RandomState::new().hash_one(()));
    let steps = number("INCUMBENT_FIDELITY_STEPS").unwrap_or(STEPS);
    // Shown where the test fails.
    println!("{version:?}: INCUMBENT_FIDELITY_SEED={seed} INCUMBENT_FIDELITY_STEPS={steps}");
    let mut both = Both::start(version).await;
    let mut random = Random(seed);
    both.watch(b"", true, None).await;
    for _ in 0..steps {
        both.step(&mut random).await;
    }
    // So that each watch has a last thing to tell, after which nothing can come.
    both.set_full(false).await;
    for key in KEYS {
        both.put(key, b"the end", 0).await;
    }
    both.settle().await;
    both.read_everything().await;
    println!("{version:?}: {:?} up to revision {}", both.answered, both.model.revision());
    let seldom = |answer: &&&str| both.answered.get(**answer).is_none_or(|times| *times < 3);
    let seldom: Vec<_> = ANSWERS.iter().filter(seldom).collect();
    assert!(seldom.is_empty() || steps < STEPS, "hardly tried: {seldom:?}");
}

async fn what_time_takes(version: Version) {
    let mut both = Both::start(version).await;
    both.watch(b"", true, None).await;
    for (lease, ttl) in [(1, 0), (2, SHORTEST_LEASE), (3, SHORTEST_LEASE + 1)] {
        both.ask(Operation::Grant(Grant { lease, ttl })).await;
    }
    for (key, lease) in [(b"a", 1), (b"b", 1), (b"c", 1), (b"d", 2), (b"e", 2)] {
        let (key, value) = (key.to_vec(), b"one".to_vec());
        both.ask(Operation::Claim(Claim { key, value, lease })).await;
    }
    // What is moved goes with the other lease, or with none.
    both.put(b"c", b"two", 2).await;
    both.put(b"e", b"two", 0).await;

    both.outlive(1, &[2, 3]).await;
    // The same id, and another lease.
    both.ask(Operation::Grant(Grant { lease: 1, ttl: 1 })).await;
    both.outlive(2, &[1, 3]).await;
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// The model and etcd, which were asked the same from their beginning on.
struct Both {
    model: Store,
    etcd: Etcd,
    store: EtcdStore,
    /// Of etcd itself.
    operator: Client,
    watches: Box<dyn Watches>,
    watched: BTreeMap<u64, Watched>,
    next_watch: u64,
    since: Instant,
    /// How often each answer was given.
    answered: BTreeMap<String, usize>,
}

/// A watch, and what it did not settle yet.
struct Watched {
    key: Vec<u8>,
    prefix: bool,
    /// How many of the model's changes it is past, or why it ends.
    past: Result<usize, Failure>,
    /// What it told, behind the revision.
    told: Vec<(Revision, String)>,
}

impl Both {
    async fn start(version: Version) -> Self {
        let etcd = Etcd::start(version);
        let url = etcd.url().parse().expect("a URL");
        let store = EtcdStore::connect(&url, &Credentials::default(), LIMIT).await;
        let store = store.expect("a store");
        let operator = Client::connect([etcd.address().to_string()], None).await;
        Self {
            model: Store::default(),
            watches: store.watches(),
            etcd,
            store,
            operator: operator.expect("a client"),
            watched: BTreeMap::new(),
            next_watch: EVERYTHING,
            since: Instant::now(),
            answered: BTreeMap::new(),
        }
    }

    /// Something, in about the shares in which it makes the most trouble.
    async fn step(&mut self, random: &mut Random) {
        match random.below(1_000) {
            0..880 => {
                let operation = operation(random, &self.model);
                self.ask(operation).await;
            }
            880..930 => {
                let lease = if random.one_in(2) { 0 } else { random.lease() };
                self.put(random.of(&KEYS), random.of(&VALUES), lease).await;
            }
            930..960 => self.delete(random.of(&KEYS)).await,
            960..970 => {
                // Also one that is forgotten already, or not there yet.
                let revision = self.model.revision() + 3 - random.number(80);
                self.compact(revision.max(1)).await;
            }
            970..980 => {
                while self.watched.len() > WATCHES {
                    self.unwatch(random);
                }
                for _ in 0..4 {
                    // Up to the one that is next.
                    let since = self.model.revision() + 1 - random.number(100);
                    let since = if random.one_in(3) { None } else { Some(since.max(0)) };
                    let key = random.key_or_none();
                    self.watch(&key, key.is_empty() || random.one_in(2), since).await;
                }
            }
            980..983 => self.set_full(true).await,
            _ => {
                self.set_full(false).await;
                self.read_everything().await;
            }
        }
    }

    /// One operation, asked of both.
    async fn ask(&mut self, operation: Operation) {
        let ours = format!("{:?}", self.model.perform(self.now(), &operation));
        let theirs = self.store.call(for_host(&operation), LIMIT).await;
        assert_eq!(ours, format!("{theirs:?}"), "{operation:?}");
        self.count(&ours);
    }

    fn count(&mut self, answer: &str) {
        let kind = answer.split(['(', ')']).nth(1).expect("an answer or a failure");
        *self.answered.entry(kind.into()).or_default() += 1;
    }

    async fn read_everything(&mut self) {
        let selection = |order| Selection {
            key: Vec::new(),
            prefix: true,
            from: None,
            created_before: None,
            order,
            limit: 0,
            keys_only: false,
        };
        let both = [Order::OldestFirst, Order::NewestFirst].map(selection);
        self.ask(Operation::Read(both.into())).await;
    }

    // What an operator does.

    async fn put(&mut self, key: &[u8], value: &[u8], lease: LeaseId) {
        let ours = self.model.put(key.into(), value.into(), lease);
        let ours = ours.ok().flatten().map(|entry| entry.modified);
        let options = PutOptions::new().with_lease(lease);
        let theirs = self.operator.put(key, value, Some(options)).await;
        let theirs = theirs.ok().map(|answer| answer.header().expect("a header").revision());
        assert_eq!(ours, theirs, "an operator's put of {key:?} under {lease}");
    }

    async fn delete(&mut self, key: &[u8]) {
        self.model.delete(key);
        let answer = self.operator.delete(key, None).expect_soon("etcd answers").await;
        let theirs = answer.header().expect("a header").revision();
        assert_eq!(self.model.revision(), theirs, "an operator's deletion of {key:?}");
    }

    async fn compact(&mut self, revision: Revision) {
        // A watch that is still on its way there would end.
        self.settle().await;
        let deletes = |change: &(Revision, Change)| match change {
            (at, Change::Deleted(_)) => *at == revision,
            (_, Change::Put(_) | Change::Started(_) | Change::Ended(_)) => false,
        };
        // Of such a revision, these versions of etcd forget the deletions as well
        // (etcd#18089).
        if self.model.changes_after(0).iter().any(deletes) {
            return;
        }
        let ours = self.model.compact(revision);
        let theirs = self.operator.compact(revision, None).await.is_ok();
        assert_eq!(ours, theirs, "compaction at {revision}");
    }

    /// Says that no space is left, or that there is some again, as etcd does by
    /// itself where its quota is spent.
    async fn set_full(&mut self, full: bool) {
        if std::mem::replace(&mut self.model.full, full) == full {
            return;
        }
        let action = if full { AlarmAction::Activate } else { AlarmAction::Deactivate };
        self.operator.alarm(action, AlarmType::Nospace, None).expect_soon("etcd answers").await;
    }

    // Watches.

    async fn watch(&mut self, key: &[u8], prefix: bool, since: Option<Revision>) {
        let id = self.next_watch;
        self.next_watch += 1;
        let past = since.map_or(Ok(self.model.changes()), |since| self.model.changes_before(since));
        if past.is_err() {
            self.count(&format!("{past:?}"));
        }
        // 0 is before everything, and so is 1.
        let started = since.map_or(self.model.revision(), |since| since.max(1) - 1);
        let watched = Watched { key: key.into(), prefix, past, told: Vec::new() };
        self.watched.insert(id, watched);
        self.watches.open(host::Watch { id, key: key.into(), prefix, since });
        while self.watched[&id].told.is_empty() {
            self.listen().await;
        }
        let told = self.watched.get_mut(&id).expect("it was just opened").told.remove(0);
        assert_eq!(told, (0, format!("{:?}", Change::Started(started))), "watch {key:?} {since:?}");
    }

    /// Closes some watch, however much it has to tell.
    fn unwatch(&mut self, random: &mut Random) {
        let ids: Vec<_> = self.watched.keys().copied().filter(|id| *id != EVERYTHING).collect();
        let id = random.of(&ids);
        self.watched.remove(&id);
        self.watches.close(id);
    }

    /// Waits for the next thing that any watch tells.
    async fn listen(&mut self) {
        let next = poll_fn(|context| self.watches.poll_next(context));
        let host::Watched { id, change } = soon("a watch tells", next).await;
        let at = match &change {
            host::Change::Put(entry) => entry.modified,
            host::Change::Deleted(deletion) => deletion.at,
            host::Change::Started(_) | host::Change::Ended(_) => 0,
        };
        let watched = self.watched.get_mut(&id).expect("a closed watch is silent");
        watched.told.push((at, format!("{change:?}")));
    }

    /// Waits until every watch has told what it has to tell.
    async fn settle(&mut self) {
        // Also those that have nothing to tell: they are as far as the others now.
        let since = Instant::now();
        while !self.etcd.metrics().contains("\netcd_debugging_mvcc_slow_watcher_total 0\n") {
            assert!(since.elapsed() < LIMIT, "etcd does not bring its watches up to date");
            tokio::task::yield_now().await;
        }
        for id in self.watched.keys().copied().collect::<Vec<_>>() {
            let ours = self.watched[&id].has_to_tell(&self.model);
            while self.watched[&id].told.len() < ours.len() {
                self.listen().await;
            }
        }
        for (id, watched) in &mut self.watched {
            let ours = watched.has_to_tell(&self.model);
            let mut theirs = std::mem::take(&mut watched.told);
            // What came before stays before: only within a revision there is no order.
            assert!(theirs.is_sorted_by_key(|(at, _)| *at), "watch {id}: {theirs:?}");
            theirs.sort();
            assert_eq!(ours, theirs, "watch {id} of {:?}, prefix {}", watched.key, watched.prefix);
            watched.past = watched.past.clone().map(|_| self.model.changes());
        }
        self.watched.retain(|_, watched| watched.past.is_ok());
    }

    // Time.

    fn now(&self) -> Mark {
        self.since.elapsed().as_nanos().try_into().expect("a short test")
    }

    /// Waits until a lease is over by itself, and keeps others alive meanwhile.
    async fn outlive(&mut self, lease: LeaseId, others: &[LeaseId]) {
        let before = self.model.revision();
        // Asked for before etcd was, so that it cannot be later.
        let ends = self.model.next_end().expect("there are leases");
        loop {
            for other in others {
                self.ask(Operation::KeepAlive(*other)).await;
            }
            // Often enough, and the watch is seen at once.
            if timeout(Duration::from_millis(300), self.listen()).await.is_ok() {
                let (at, _) = self.watched[&EVERYTHING].told.last().expect("it told something");
                if *at > before {
                    break;
                }
            }
        }
        assert!(ends <= self.now(), "etcd ended lease {lease} early");
        assert!(self.model.end_of(lease).is_some());
        self.model.tick(self.now());
        assert!(self.model.end_of(lease).is_none());
        self.settle().await;
        self.ask(Operation::KeepAlive(lease)).await;
        self.ask(Operation::Revoke(lease)).await;
        let claim = Claim { key: b"z".to_vec(), value: Vec::new(), lease };
        self.ask(Operation::Claim(claim)).await;
        self.read_everything().await;
    }
}

impl Watched {
    /// What the model says that is to be told yet.
    fn has_to_tell(&self, model: &Store) -> Vec<(Revision, String)> {
        let matches = |key: &Vec<u8>| {
            if self.prefix { key.starts_with(&self.key) } else { *key == self.key }
        };
        let past = match &self.past {
            Ok(past) => *past,
            Err(failure) => return vec![(0, format!("{:?}", Change::Ended(failure.clone())))],
        };
        let mut told: Vec<_> = model
            .changes_after(past)
            .iter()
            .filter(|(_, change)| match change {
                Change::Put(entry) => matches(&entry.key),
                Change::Deleted(deletion) => matches(&deletion.key),
                Change::Started(_) | Change::Ended(_) => false,
            })
            .map(|(at, change)| (*at, format!("{change:?}")))
            .collect();
        told.sort();
        told
    }
}

/// What a client could ask, more often to the point than not.
fn operation(random: &mut Random, model: &Store) -> Operation {
    match random.below(16) {
        0..2 => Operation::Grant(Grant { lease: random.lease(), ttl: random.of(&TTLS) }),
        2..3 => Operation::KeepAlive(random.lease()),
        3..4 => Operation::Revoke(random.lease()),
        4..8 => Operation::Claim(Claim {
            key: random.key(),
            value: random.of(&VALUES).into(),
            lease: random.lease(),
        }),
        8..10 => Operation::Read(random.some(4, |random| Selection {
            prefix: random.one_in(2),
            key: random.key_or_none(),
            from: random.one_in(4).then(|| random.key_or_none()),
            created_before: match random.below(4) {
                0 => Some(random.number(3)),
                1 => Some(model.revision() + 2 - random.number(30)),
                _ => None,
            },
            order: random.of(&[Order::OldestFirst, Order::NewestFirst, Order::ByKey]),
            limit: random.of(&[0, 0, 1, 2, 3, 100]),
            keys_only: random.one_in(3),
        })),
        _ => guarded(random, model),
    }
}

fn guarded(random: &mut Random, model: &Store) -> Operation {
    let there: Vec<_> = model.keys().map(|entry| &entry.key).collect();
    let key =
        if there.is_empty() || random.one_in(8) { random.key() } else { random.of(&there).clone() };
    let entry = model.key(&key);
    let epoch = entry.map_or(1, |entry| entry.created);
    let lease = entry.map(|entry| entry.lease).filter(|lease| *lease != 0);
    Operation::Guarded(Guarded {
        guard: Guard {
            epoch: if random.one_in(6) { 1 + random.number(model.revision()) } else { epoch },
            lease: match random.below(6) {
                0 => Some(random.lease()),
                1..4 => lease,
                _ => None,
            },
            key,
        },
        expect: random.some(3, |random| {
            let key = random.key();
            let modified = model.key(&key).map_or(0, |entry| entry.modified);
            let wrong = random.number(model.revision() + 2);
            Expectation { key, modified: if random.one_in(5) { wrong } else { modified } }
        }),
        mutations: random.some(4, |random| match random.below(5) {
            0..2 => Mutation::Put(Put { key: random.key(), value: random.of(&VALUES).into() }),
            2 => Mutation::Proclaim(random.of(&VALUES).into()),
            _ => Mutation::Delete(random.key()),
        }),
    })
}

/// An operation in the host's types.
fn for_host(operation: &Operation) -> host::Operation {
    match operation.clone() {
        Operation::Grant(Grant { lease, ttl }) => {
            host::Operation::Grant(host::Grant { lease, ttl })
        }
        Operation::KeepAlive(lease) => host::Operation::KeepAlive(lease),
        Operation::Revoke(lease) => host::Operation::Revoke(lease),
        Operation::Claim(Claim { key, value, lease }) => {
            host::Operation::Claim(host::Claim { key, value, lease })
        }
        Operation::Read(selections) => {
            let selection = |selection| {
                let Selection { key, prefix, from, created_before, order, limit, keys_only } =
                    selection;
                let order = match order {
                    Order::OldestFirst => host::Order::OldestFirst,
                    Order::NewestFirst => host::Order::NewestFirst,
                    Order::ByKey => host::Order::ByKey,
                };
                host::Selection { key, prefix, from, created_before, order, limit, keys_only }
            };
            host::Operation::Read(selections.into_iter().map(selection).collect())
        }
        Operation::Guarded(Guarded { guard, expect, mutations }) => {
            let Guard { key, epoch, lease } = guard;
            let expectation = |Expectation { key, modified }| host::Expectation { key, modified };
            let mutation = |mutation| match mutation {
                Mutation::Put(Put { key, value }) => host::Mutation::Put(host::Put { key, value }),
                Mutation::Proclaim(value) => host::Mutation::Proclaim(value),
                Mutation::Delete(key) => host::Mutation::Delete(key),
            };
            host::Operation::Guarded(host::Guarded {
                guard: host::Guard { key, epoch, lease },
                expect: expect.into_iter().map(expectation).collect(),
                mutations: mutations.into_iter().map(mutation).collect(),
            })
        }
    }
}

/// Numbers that look random, from the seed: splitmix64.
struct Random(u64);

impl Random {
    /// From 0 up to, and not including, `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// The same, for revisions.
    fn number(&mut self, bound: i64) -> i64 {
        self.below(bound.unsigned_abs()) as i64
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len() as u64) as usize]
    }

    /// Fewer than `bound`.
    fn some<T>(&mut self, bound: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(bound)).map(|_| make(self)).collect()
    }

    fn lease(&mut self) -> LeaseId {
        self.of(&LEASES)
    }

    /// A key, or once in a while none, which etcd does not take.
    fn key(&mut self) -> Vec<u8> {
        if self.one_in(200) { Vec::new() } else { self.of(&KEYS).into() }
    }

    /// A key, or none, which all keys begin with.
    fn key_or_none(&mut self) -> Vec<u8> {
        if self.one_in(6) { Vec::new() } else { self.of(&KEYS).into() }
    }
}
