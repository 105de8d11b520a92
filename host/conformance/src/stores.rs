//! The stores under check, and their operations.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Place;
use super::listener::Listener;
use super::verdict::{Stop, Verdict};
use incumbent::types::{
    Answer, Claim, Entry, Expectation, Grant, Guard, Guarded, Mutation, Operation, Put, Response,
    Selection, Snapshot, Watch,
};
use incumbent::{Mark, Revision, Store};

/// In nanoseconds: longer than any check.
pub(super) const HOUR: u64 = 3_600_000_000_000;

/// A place, and two handles on it, as two processes would have them.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) place: Arc<dyn AnyPlace>,
    pub(super) here: Handle,
    pub(super) there: Handle,
}

impl Stores {
    pub(super) async fn new(place: Arc<impl Place>) -> Self {
        let timeout = place.timeout();
        let here = Handle { store: place.open().await, timeout };
        let there = Handle { store: place.open().await, timeout };
        Self { place, here, there }
    }

    pub(super) fn handles(&self) -> [&Handle; 2] {
        [&self.here, &self.there]
    }

    /// One after the other.
    pub(super) fn handle(&self, number: usize) -> &Handle {
        if number.is_multiple_of(2) { &self.here } else { &self.there }
    }

    /// Has so many tasks do this side by side, through both handles in turn.
    pub(super) async fn at_once<T, F>(
        &self,
        tasks: usize,
        act: impl Fn(Handle, usize) -> F,
    ) -> Verdict<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Verdict<T>> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for number in 0..tasks {
            running.spawn(act(self.handle(number).clone(), number));
        }
        let mut done = Vec::new();
        while let Some(ended) = running.join_next().await {
            done.push(ended.map_err(|error| Stop::Breach(format!("a call panicked: {error}")))??);
        }
        Ok(done)
    }
}

/// One of the handles on a place.
#[derive(Clone)]
pub(super) struct Handle {
    store: Arc<dyn Store>,
    pub(super) timeout: Duration,
}

impl Handle {
    /// The call itself.
    pub(super) fn call(
        &self,
        operation: Operation,
        within: Duration,
    ) -> BoxFuture<'static, Answer> {
        self.store.call(operation, within)
    }

    /// The store's answer or failure.
    pub(super) async fn outcome(&self, operation: Operation, within: Duration) -> Verdict<Answer> {
        let name = operation.name();
        let outcome = timeout(within + self.timeout, self.call(operation, within)).await;
        outcome.map_err(|_| {
            Stop::Breach(format!("a call ends within its time, but a {name} did not end at all"))
        })
    }

    /// The store's answer. A failure is a breach.
    pub(super) async fn ask(&self, operation: Operation) -> Verdict<Response> {
        let name = operation.name();
        self.outcome(operation, self.timeout).await?.map_err(|failure| {
            Stop::Breach(format!(
                "nothing is in the way of a {name}, but the store said {failure:?}"
            ))
        })
    }

    pub(super) async fn grant(&self, lease: i64, ttl: u64) -> Verdict<Response> {
        self.ask(Operation::Grant(Grant { lease, ttl })).await
    }

    pub(super) async fn keep_alive(&self, lease: i64) -> Verdict<Response> {
        self.ask(Operation::KeepAlive(lease)).await
    }

    pub(super) async fn revoke(&self, lease: i64) -> Verdict<Response> {
        self.ask(Operation::Revoke(lease)).await
    }

    pub(super) async fn claim(&self, key: &str, lease: i64) -> Verdict<Response> {
        self.ask(claim(key, lease)).await
    }

    /// A new lease that outlives the check.
    pub(super) async fn lease(&self) -> Verdict<i64> {
        let lease = new_lease();
        let answer = self.grant(lease, HOUR).await?;
        expect!(answer, Response::Granted(_), "a lease of a new id is granted");
        Ok(lease)
    }

    /// Claims a key that is free.
    pub(super) async fn claimed(&self, key: &str, lease: i64) -> Verdict<Entry> {
        let answer = self.claim(key, lease).await?;
        expect!(answer, Response::Claimed(of), "a key that is not there is claimed");
        Ok(of.entry)
    }

    /// Claims a key that is free under a lease of its own, to guard with it.
    pub(super) async fn leader(&self, key: &str) -> Verdict<Entry> {
        let lease = self.lease().await?;
        self.claimed(key, lease).await
    }

    pub(super) async fn read(&self, selections: Vec<Selection>) -> Verdict<Snapshot> {
        let asked = selections.len();
        let answer = self.ask(Operation::Read(selections)).await?;
        expect!(answer, Response::Snapshot(snapshot), "a read is answered by a snapshot");
        ensure!(
            snapshot.found.len() == asked,
            "a read of {asked} selections is answered by as many lists, but there were {}",
            snapshot.found.len(),
        );
        Ok(snapshot)
    }

    pub(super) async fn get(&self, key: &str) -> Verdict<Option<Entry>> {
        Ok(self.read(vec![one(key)]).await?.found.concat().into_iter().next())
    }

    pub(super) async fn peek(&self, key: &str) -> Verdict<Option<Entry>> {
        let peek = self.store.peek(key.into(), self.timeout);
        match timeout(self.timeout * 2, peek).await {
            Ok(Ok(entry)) => Ok(entry),
            wrong => Err(Stop::Breach(format!("a peek finds a key or none, but: {wrong:?}"))),
        }
    }

    pub(super) async fn write(
        &self,
        guard: &Guard,
        expect: Vec<Expectation>,
        mutations: Vec<Mutation>,
    ) -> Verdict<Response> {
        self.ask(guarded(guard, expect, mutations)).await
    }

    /// Writes where the guard holds, without expectations.
    pub(super) async fn applied(&self, guard: &Guard, mutations: Vec<Mutation>) -> Verdict<i64> {
        let answer = self.write(guard, vec![], mutations).await?;
        expect!(answer, Response::Applied(revision), "a write whose guard holds is applied");
        Ok(revision)
    }

    pub(super) fn listener(&self) -> Listener {
        Listener::new(self.store.watches(), self.timeout)
    }

    /// A listener with one watch, which is on.
    pub(super) async fn listening(&self, watch: Watch) -> Verdict<Listener> {
        let mut listener = self.listener();
        listener.listen(watch).await?;
        Ok(listener)
    }
}

/// An id that no other lease has.
pub(super) fn new_lease() -> i64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Other processes may check their places in the same cluster.
    let number = getrandom::u64().unwrap_or_else(|_| LAST.fetch_add(1, Ordering::Relaxed));
    i64::try_from(number >> 1).unwrap_or_default().max(1)
}

pub(super) fn claim(key: &str, lease: i64) -> Operation {
    Operation::Claim(Claim { key: key.into(), value: format!("by {lease}").into(), lease })
}

pub(super) fn guarded(
    guard: &Guard,
    expect: Vec<Expectation>,
    mutations: Vec<Mutation>,
) -> Operation {
    Operation::Guarded(Guarded { guard: guard.clone(), expect, mutations })
}

/// Holds while the key is the one that it was, whatever its lease.
pub(super) fn guard_of(entry: &Entry) -> Guard {
    Guard { key: entry.key.clone(), epoch: entry.created, lease: None }
}

/// Holds while the key is not there.
pub(super) fn absent(key: &str) -> Expectation {
    Expectation { key: key.into(), modified: 0 }
}

pub(super) fn put(key: &str, value: &str) -> Mutation {
    Mutation::Put(Put { key: key.into(), value: value.into() })
}

pub(super) fn delete(key: &str) -> Mutation {
    Mutation::Delete(key.into())
}

/// This key.
pub(super) fn one(key: &str) -> Selection {
    Selection::of_key(key)
}

/// All keys that begin so.
pub(super) fn all(prefix: &str) -> Selection {
    Selection::of_prefix(prefix)
}

/// [`Place`], behind a pointer.
pub(super) trait AnyPlace: Send + Sync {
    fn now(&self) -> Mark;
    fn pass(&self, nanoseconds: u64) -> BoxFuture<'_, ()>;
    fn compact(&self, revision: Revision) -> BoxFuture<'_, bool>;
    fn stall(&self, stalled: bool) -> BoxFuture<'_, bool>;
}

impl<P: Place> AnyPlace for P {
    fn now(&self) -> Mark {
        Place::now(self)
    }

    fn pass(&self, nanoseconds: u64) -> BoxFuture<'_, ()> {
        Place::pass(self, Duration::from_nanos(nanoseconds)).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, bool> {
        Place::compact(self, revision).boxed()
    }

    fn stall(&self, stalled: bool) -> BoxFuture<'_, bool> {
        Place::stall(self, stalled).boxed()
    }
}
