//! The contents of a store, as the library and the simulation have them, and a real etcd, side by
//! side: whatever they are asked, they answer alike, and tell their watches alike.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmType, Client, PutOptions};
use incumbent::types::*;
use incumbent::{Contents, Credentials, EtcdStore, Failure, Mark, Rules, Store as _, Watches};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::operations::{AtRandom, SECOND, all, claim, grant, number};
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon};
use tokio::time::timeout;

mod together;

on_each_version!(whatever_is_asked, what_time_takes);

/// How many steps are taken, unless `INCUMBENT_FIDELITY_STEPS` says.
const STEPS: u64 = 4_000;
/// etcd's, with its default election timeout.
const SHORTEST_LEASE: u64 = 2 * SECOND;

/// Few, so that they collide, with all that prefixes can be wrong about. Not more
/// than six: of more, etcd sorts those of one revision in no order.
const KEYS: [&[u8]; 6] = [b"a", b"a/", b"a/b", b"a0", b"a\xff", b"\xff\xff"];
const LEASES: [i64; 5] = [1, 2, 3, 4, i64::MAX];
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
const ANSWERS: &str = "\
    Response::Granted Response::Exists Response::Renewed Response::Expired Response::Revoked \
    Response::Claimed Response::Taken Response::Snapshot Response::Applied Response::Stale \
    Response::Conflict Failure::Invalid Failure::Other Failure::Compacted";
/// With many more the stream could clog, and then these versions of etcd forget to
/// say that a watch is compacted (etcd#17529).
const WATCHES: usize = 12;
/// The watch that sees everything, all the time.
const EVERYTHING: u64 = 0;

async fn whatever_is_asked(version: Version) {
    let mut random = AtRandom::new("INCUMBENT_FIDELITY_SEED", &KEYS, &LEASES, &TTLS);
    let steps = number("INCUMBENT_FIDELITY_STEPS").unwrap_or(STEPS);
    println!("{version:?}: INCUMBENT_FIDELITY_STEPS={steps}");
    let mut both = Both::start(version).await;
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
    let seldom = |answer: &&str| both.answered.get(*answer).is_none_or(|times| *times < 3);
    let seldom: Vec<_> = ANSWERS.split(' ').filter(seldom).collect();
    assert!(seldom.is_empty() || steps < STEPS, "hardly tried: {seldom:?}");
}

async fn what_time_takes(version: Version) {
    let mut both = Both::start(version).await;
    both.watch(b"", true, None).await;
    for (lease, ttl) in [(1, 0), (2, SHORTEST_LEASE), (3, SHORTEST_LEASE + 1)] {
        both.ask(grant(lease, ttl)).await;
    }
    for (key, lease) in [("a", 1), ("b", 1), ("c", 1), ("d", 2), ("e", 2)] {
        both.ask(claim(key, lease)).await;
    }
    // What is moved goes with the other lease, or with none.
    both.put(b"c", b"two", 2).await;
    both.put(b"e", b"two", 0).await;

    both.outlive(1, &[2, 3]).await;
    // The same id, and another lease.
    both.ask(grant(1, 1)).await;
    both.outlive(2, &[1, 3]).await;
}

/// The model and etcd, which were asked the same from their beginning on.
struct Both {
    model: Contents,
    etcd: Etcd,
    store: EtcdStore,
    /// Of etcd itself.
    operator: Client,
    watches: Box<dyn Watches>,
    watched: BTreeMap<u64, Told>,
    next_watch: u64,
    since: Instant,
    /// How often each answer was given.
    answered: BTreeMap<String, usize>,
}

/// A watch, and what it did not settle yet.
struct Told {
    key: Vec<u8>,
    prefix: bool,
    /// How many of the model's changes it is past, or why it ends.
    past: Result<usize, Failure>,
    told: Vec<Change>,
}

impl Both {
    async fn start(version: Version) -> Self {
        let etcd = Etcd::start(version);
        let url = etcd.url().parse().expect("a URL");
        let store = EtcdStore::connect(&url, &Credentials::default(), LIMIT).await;
        let store = store.expect("a store");
        Self {
            model: Contents::new(Rules { shortest: SHORTEST_LEASE, unit: SECOND }),
            watches: store.watches(),
            operator: etcd.client().await,
            etcd,
            store,
            watched: BTreeMap::new(),
            next_watch: EVERYTHING,
            since: Instant::now(),
            answered: BTreeMap::new(),
        }
    }

    /// Something, in about the shares in which it makes the most trouble.
    async fn step(&mut self, random: &mut AtRandom) {
        match random.rng.u64(..1_000) {
            0..880 => {
                random.entries = self.model.keys_from(b"").cloned().collect();
                random.revision = self.model.revision();
                self.ask(random.operation()).await;
            }
            880..930 => {
                let lease = if random.one_in(2) { 0 } else { random.lease() };
                let value = random.value();
                self.put(random.of(&KEYS), &value, lease).await;
            }
            930..960 => self.delete(random.of(&KEYS)).await,
            960..970 => {
                // Also one that is forgotten already, or not there yet.
                let revision = self.model.revision() + 3 - random.rng.i64(0..80);
                self.compact(revision.max(1)).await;
            }
            970..980 => {
                while self.watched.len() > WATCHES {
                    self.unwatch(random);
                }
                for _ in 0..4 {
                    // Up to the one that is next.
                    let since = self.model.revision() + 1 - random.rng.i64(0..100);
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
        let ours = self.model.perform(self.now(), &operation);
        let theirs = self.store.call(operation.clone(), LIMIT).await;
        assert_eq!(ours, theirs, "{operation:?}");
        self.count(&format!("{ours:?}"));
    }

    fn count(&mut self, answer: &str) {
        let kind = answer.split(['(', ')']).nth(1).expect("an answer or a failure");
        *self.answered.entry(kind.into()).or_default() += 1;
    }

    async fn read_everything(&mut self) {
        let both =
            [Order::OldestFirst, Order::NewestFirst].map(|order| Selection { order, ..all("") });
        self.ask(Operation::Read(both.into())).await;
    }

    // What an operator does.

    async fn put(&mut self, key: &[u8], value: &[u8], lease: i64) {
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

    async fn compact(&mut self, revision: i64) {
        // A watch that is still on its way there would end.
        self.settle().await;
        let deletes = |change: &(i64, Change)| match change {
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

    async fn watch(&mut self, key: &[u8], prefix: bool, since: Option<i64>) {
        let id = self.next_watch;
        self.next_watch += 1;
        let past = since.map_or(Ok(self.model.changes()), |since| self.model.changes_before(since));
        if past.is_err() {
            self.count(&format!("{past:?}"));
        }
        // 0 is before everything, and so is 1.
        let started = since.map_or(self.model.revision(), |since| since.max(1) - 1);
        let watched = Told { key: key.into(), prefix, past, told: Vec::new() };
        self.watched.insert(id, watched);
        self.watches.open(Watch { id, key: key.into(), prefix, since });
        while self.watched[&id].told.is_empty() {
            self.listen().await;
        }
        let told = self.watched.get_mut(&id).expect("it was just opened").told.remove(0);
        assert_eq!(told, Change::Started(started), "watch {key:?} {since:?}");
    }

    /// Closes some watch, however much it has to tell.
    fn unwatch(&mut self, random: &mut AtRandom) {
        let ids: Vec<_> = self.watched.keys().copied().filter(|id| *id != EVERYTHING).collect();
        let id = random.of(&ids);
        self.watched.remove(&id);
        self.watches.close(id);
    }

    /// Waits for the next thing that any watch tells.
    async fn listen(&mut self) {
        let next = poll_fn(|context| self.watches.poll_next(context));
        let Watched { id, change } = soon("a watch tells", next).await;
        let watched = self.watched.get_mut(&id).expect("a closed watch is silent");
        watched.told.push(change);
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
            assert!(theirs.is_sorted_by_key(|change| place(change).0), "watch {id}: {theirs:?}");
            theirs.sort_by_key(place);
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
    async fn outlive(&mut self, lease: i64, others: &[i64]) {
        let before = self.model.revision();
        // Asked for before etcd was, so that it cannot be later.
        let ends = self.model.next_end().expect("there are leases");
        loop {
            for other in others {
                self.ask(Operation::KeepAlive(*other)).await;
            }
            // Often enough, and the watch is seen at once.
            if timeout(Duration::from_millis(300), self.listen()).await.is_ok() {
                let last = self.watched[&EVERYTHING].told.last().expect("it told something");
                if place(last).0 > before {
                    break;
                }
            }
        }
        assert!(ends <= self.now(), "etcd ended lease {lease} early");
        assert!(self.model.clone().end_lease(lease));
        self.model.tick(self.now());
        assert!(!self.model.clone().end_lease(lease));
        self.settle().await;
        self.ask(Operation::KeepAlive(lease)).await;
        self.ask(Operation::Revoke(lease)).await;
        self.ask(claim("z", lease)).await;
        self.read_everything().await;
    }
}

impl Told {
    /// What the model says that is to be told yet.
    fn has_to_tell(&self, model: &Contents) -> Vec<Change> {
        let past = match &self.past {
            Ok(past) => *past,
            Err(failure) => return vec![Change::Ended(failure.clone())],
        };
        let is_seen = |change: &Change| {
            let (_, key) = place(change);
            if self.prefix { key.starts_with(&self.key) } else { key == self.key }
        };
        let changes = model.changes_after(past).iter().map(|(_, change)| change.clone());
        let mut told: Vec<_> = changes.filter(is_seen).collect();
        told.sort_by_key(place);
        told
    }
}

/// The revision and the key of a change.
fn place(change: &Change) -> (i64, Vec<u8>) {
    match change {
        Change::Put(entry) => (entry.modified, entry.key.clone()),
        Change::Deleted(deletion) => (deletion.at, deletion.key.clone()),
        Change::Started(_) | Change::Ended(_) => (0, Vec::new()),
    }
}
