//! Stores that say too much, or nothing but what was granted.

use super::*;

/// A store in memory whose renewals come with a text of so many bytes, if any, and whose
/// first watch with as large a value as that.
#[derive(Clone, Debug, Default)]
pub struct Spoilt {
    pub store: MemoryStore,
    pub bytes: Arc<AtomicUsize>,
    pub was_loud: Arc<AtomicBool>,
}

impl Store for Spoilt {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let bytes = self.bytes.load(Ordering::SeqCst);
        if bytes > 0 && matches!(operation, Operation::KeepAlive(_)) {
            return ready(Err(Failure::Other("x".repeat(bytes)))).boxed();
        }
        self.store.call(operation, within)
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(Loud { watches: self.store.watches(), was: Arc::clone(&self.was_loud) })
    }
}

pub struct Loud {
    pub watches: Box<dyn Watches>,
    pub was: Arc<AtomicBool>,
}

impl Watches for Loud {
    fn open(&mut self, watch: Watch) {
        self.watches.open(watch);
    }

    fn close(&mut self, id: RequestId) {
        self.watches.close(id);
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        let watched = self.watches.poll_next(context);
        watched.map(|watched| match self.was.swap(true, Ordering::SeqCst) {
            true => watched,
            false => {
                let (key, value) = (b"jobs/1".into(), vec![0; 80 << 20]);
                let entry = Entry { key, value, lease: 1, created: 1, modified: 1 };
                Watched { change: Change::Put(entry), ..watched }
            }
        })
    }
}

/// A store that grants, after 3 s if it is late, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Generous {
    pub granted: Arc<Mutex<Vec<i64>>>,
    pub revoked: Arc<Mutex<Vec<i64>>>,
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
            Some(clock) => clock.sleep_until(3 * SECOND).map(|()| answer).boxed(),
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
