//! Stores that do no more than grant leases, or say too much.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use incumbent::types::{Answer, Change, Entry, Operation, RequestId, Response, Watch, Watched};
use incumbent::{Clock, Failure, ManualClock, Store, Watches};
use parking_lot::Mutex;

use crate::wait::soon;

/// A store that grants leases and takes them back. All else fails, and its watches see nothing.
#[derive(Clone, Debug, Default)]
pub struct Generous {
    /// The leases that it has granted.
    pub granted: Arc<Mutex<Vec<i64>>>,
    /// The leases that it has taken back.
    pub revoked: Arc<Mutex<Vec<i64>>>,
    /// By which it answers at 3 s; at once without it.
    pub late: Option<ManualClock>,
}

impl Store for Generous {
    fn call(&self, operation: Operation, _: Duration) -> BoxFuture<'static, Answer> {
        let answer = match operation {
            Operation::Grant(grant) => {
                self.granted.lock().push(grant.lease);
                Ok(Response::Granted(grant.ttl))
            }
            Operation::Revoke(lease) => {
                self.revoked.lock().push(lease);
                Ok(Response::Revoked)
            }
            _ => Err(Failure::Unavailable),
        };
        match &self.late {
            Some(clock) => clock.sleep_until(3_000_000_000).map(|()| answer).boxed(),
            None => ready(answer).boxed(),
        }
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(self.clone())
    }
}

impl Watches for Generous {
    fn open(&mut self, _: Watch) {}

    fn close(&mut self, _: RequestId) {}

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Watched> {
        Poll::Pending
    }
}

/// A store that says too much when it is told to.
#[derive(Clone, Debug)]
pub struct Spoilt<S> {
    store: S,
    /// Unless 0, renewals fail with a text of so many bytes.
    pub bytes: Arc<AtomicUsize>,
    /// The next change that is watched has a value of 80 MiB.
    pub is_loud: Arc<AtomicBool>,
}

impl<S> Spoilt<S> {
    /// This store, unspoilt.
    pub fn new(store: S) -> Self {
        Self { store, bytes: Arc::default(), is_loud: Arc::default() }
    }
}

impl<S: Store> Store for Spoilt<S> {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let bytes = match operation {
            Operation::KeepAlive(_) => Arc::clone(&self.bytes),
            _ => Arc::default(),
        };
        let answer = self.store.call(operation, within);
        answer
            .map(move |answer| match bytes.load(Ordering::SeqCst) {
                0 => answer,
                bytes => Err(Failure::Other("x".repeat(bytes))),
            })
            .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(Loud { watches: self.store.watches(), is_loud: Arc::clone(&self.is_loud) })
    }
}

struct Loud {
    watches: Box<dyn Watches>,
    is_loud: Arc<AtomicBool>,
}

impl Watches for Loud {
    fn open(&mut self, watch: Watch) {
        self.watches.open(watch);
    }

    fn close(&mut self, id: RequestId) {
        self.watches.close(id);
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        self.watches.poll_next(context).map(|watched| {
            if !self.is_loud.swap(false, Ordering::SeqCst) {
                return watched;
            }
            let (key, value) = (b"jobs/1".into(), vec![0; 80 << 20]);
            let entry = Entry { key, value, lease: 1, created: 1, modified: 1 };
            Watched { change: Change::Put(entry), ..watched }
        })
    }
}

/// A watch of all keys of a store, from a revision or from now on.
pub fn watch(store: &impl Store, since: Option<i64>) -> Box<dyn Watches> {
    let mut watches = store.watches();
    watches.open(Watch { id: 1, key: Vec::new(), prefix: true, since });
    watches
}

/// The next change that it tells.
pub async fn next(watches: &mut Box<dyn Watches>) -> Change {
    let told = poll_fn(|context| watches.poll_next(context));
    soon("a watch tells", told).await.change
}
