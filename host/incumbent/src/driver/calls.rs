//! The calls and watches of the elector that are under way at the store.

use std::collections::BTreeSet;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::task::unconstrained;
use tracing::debug;

use super::handle::Answered;
use super::queue::too_large;
use super::verify::{Ledger, Verified};
use crate::elector::size;
use crate::metrics;
use crate::store::{Store, Watches};
use crate::types::{
    Call, Change, Event, Failure, LeaseId, Mark, Operation, Reply, RequestId, Watch, Watched,
};

pub(super) struct Calls {
    store: Arc<dyn Store>,
    under_way: FuturesUnordered<BoxFuture<'static, (Sent, Reply)>>,
    watches: Box<dyn Watches>,
    pub(super) ledger: Ledger,
    /// The leases that the elector asked for and has not given back.
    leases: BTreeSet<LeaseId>,
    answered: Answered,
}

/// What is known of a call when its reply comes.
struct Sent {
    operation: &'static str,
    at: Mark,
}

impl Calls {
    pub(super) fn new(store: Arc<dyn Store>, answered: Answered) -> Self {
        Self {
            under_way: FuturesUnordered::new(),
            watches: store.watches(),
            store,
            ledger: Ledger::default(),
            leases: BTreeSet::new(),
            answered,
        }
    }

    /// Drops all that is under way, and returns the leases that may be left.
    pub(super) fn give_up(&mut self) -> BTreeSet<LeaseId> {
        let leases = mem::take(&mut self.leases);
        *self = Self::new(Arc::clone(&self.store), self.answered.clone());
        leases
    }

    pub(super) fn call(&mut self, now: Mark, call: Call) -> Verified {
        self.ledger.call(now, &call)?;
        let Call { id, give_up, operation } = call;
        if let Operation::Grant(grant) = &operation {
            self.leases.insert(grant.lease.into());
        } else if let Operation::Revoke(lease) = &operation {
            self.leases.remove(&LeaseId::from(*lease));
        }
        debug!(id, operation = operation.name(), "call");
        let within = Duration::from_nanos(give_up.saturating_sub(now));
        let sent = Sent { operation: operation.name(), at: now };
        let answer = self.store.call(operation, within);
        self.under_way.push(answer.map(move |outcome| (sent, Reply { id, outcome })).boxed());
        Ok(())
    }

    pub(super) fn watch(&mut self, watch: Watch) -> Verified {
        debug!(id = watch.id, prefix = watch.prefix, "watch");
        self.ledger.watch(watch.id)?;
        self.watches.open(watch);
        Ok(())
    }

    pub(super) fn unwatch(&mut self, id: RequestId) {
        debug!(id, "unwatch");
        self.ledger.unwatch(id);
        self.watches.close(id);
    }

    /// A reply, if there is one, or else what a watch tells.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>, now: Mark) -> Poll<Event> {
        // Thousands of calls may be under way. tokio would let the first 128 proceed, and all others
        // would be polled in vain, again and again. The driver takes no more than a batch at a time.
        let mut next = pin!(unconstrained(self.under_way.next()));
        if let Poll::Ready(Some((sent, reply))) = next.as_mut().poll(context) {
            let span = Duration::from_nanos(now.saturating_sub(sent.at));
            metrics::answered(sent.operation, &reply.outcome, span);
            return Poll::Ready(Event::Reply(self.replied(now, reply)));
        }
        self.watches.poll_next(context).map(|watched| Event::Watched(self.watched(watched)))
    }

    fn replied(&mut self, now: Mark, mut reply: Reply) -> Reply {
        if let Some(too_large) = too_large("the store's answer", size::outcome(&reply.outcome)) {
            reply.outcome = Err(Failure::Other(too_large));
        }
        self.ledger.answered(now, &reply);
        if !matches!(reply.outcome, Err(Failure::Timeout | Failure::Unavailable)) {
            self.answered.set(now);
        }
        match &reply.outcome {
            Ok(response) => debug!(id = reply.id, answer = response.name(), "reply"),
            Err(failure) => debug!(id = reply.id, %failure, "no reply"),
        }
        reply
    }

    fn watched(&mut self, mut watched: Watched) -> Watched {
        let id = watched.id;
        if let Some(too_large) = too_large("what a watch tells", size::change(&watched.change)) {
            self.watches.close(id);
            watched.change = Change::Ended(Failure::Other(too_large));
        }
        match &watched.change {
            Change::Started(revision) => debug!(id, revision, "watch started"),
            Change::Put(entry) => debug!(id, revision = entry.modified, "put seen"),
            Change::Deleted(deletion) => debug!(id, revision = deletion.at, "deletion seen"),
            Change::Ended(failure) => {
                self.ledger.unwatch(id);
                debug!(id, %failure, "watch ended");
            }
        }
        watched
    }
}
