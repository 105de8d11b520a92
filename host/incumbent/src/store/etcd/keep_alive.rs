//! Renewals, on streams of their own.
//!
//! etcd's answers to keep-alives carry no number. So a stream serves one attempt at a time,
//! and the next answer belongs to it, however late that comes. An attempt that begins while
//! another is overdue opens another stream. A stream that no attempt uses ends with its lease.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Error, LeaseKeepAliveStream, LeaseKeeper};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::endpoint::Contact;
use super::failure::{failure, is_lease_missing};
use super::request::time_to_live;
use super::stream_pool::{StreamConnection, StreamPool};
use crate::types::{Answer, Failure, Response};

/// How long to wait for a late answer, where the connection lives on.
const LATE: Duration = Duration::from_secs(60);

/// The streams of each lease that is renewed.
#[derive(Default)]
pub(super) struct Renewals {
    slots: Slots,
}

type Slots = Arc<Mutex<BTreeMap<i64, Slot>>>;

#[derive(Default)]
struct Slot {
    /// Where its streams are.
    connection: Option<Arc<StreamConnection>>,
    /// How many attempts are under way.
    attempts: usize,
    /// The lease is gone: the attempts leave no stream behind.
    is_over: bool,
    idle: Option<Idle>,
}

/// A stream that no attempt uses.
struct Idle {
    stream: Stream,
    /// The task that ends the stream once the lease has run out.
    _end: JoinSet<()>,
}

impl Renewals {
    /// Renews the lease. Where no answer has come in half of `within`, another member is asked
    /// as well, so that the attempt survives the failure of a member. Answers still count
    /// after `within`.
    pub(super) async fn renew(&self, streams: &StreamPool, lease: i64, within: Duration) -> Answer {
        let known = self.slots.lock().get(&lease).and_then(|slot| slot.connection.clone());
        let connection = known.unwrap_or_else(|| streams.get());
        let attempt = |contact| self.attempt(contact, lease, Arc::clone(&connection));
        let asked = connection.endpoints.ask_twice(within / 2, attempt);
        let answer = timeout(LATE.max(within), asked).await.unwrap_or(Err(Failure::Timeout));
        if answer == Ok(Response::Expired) {
            self.forget(lease);
        }
        answer
    }

    /// The lease is over, and so is its stream.
    pub(super) fn forget(&self, lease: i64) {
        change(&self.slots, lease, |slot| {
            slot.is_over = true;
            slot.idle = None;
        });
    }

    async fn attempt(
        &self,
        contact: Contact,
        lease: i64,
        connection: Arc<StreamConnection>,
    ) -> Answer {
        let (attempt, idle) = Attempt::begin(&self.slots, lease);
        change(&self.slots, lease, |slot| slot.connection = Some(connection));
        if let Some(mut stream) = idle.filter(|stream| stream.is_on(&contact)) {
            // A stream may have broken while it was idle, or its login may be too old: that
            // says nothing about etcd now, and the attempt goes on with a new stream.
            if let Ok(answer) = stream.renew().await {
                attempt.keep(stream, &answer);
                return Ok(answer);
            }
        }
        let mut stream = match Stream::open(&contact, lease).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(Response::Expired),
            Err(error) => return contact.judge(Err(error)).await,
        };
        let answer = stream.renew().await?;
        attempt.keep(stream, &answer);
        Ok(answer)
    }
}

/// An attempt to renew a lease, until it is dropped.
struct Attempt {
    slots: Slots,
    lease: i64,
}

impl Attempt {
    /// Begins one, with the idle stream if there is one.
    fn begin(slots: &Slots, lease: i64) -> (Self, Option<Stream>) {
        let idle = change(slots, lease, |slot| {
            slot.attempts += 1;
            slot.idle.take()
        });
        (Self { slots: Arc::clone(slots), lease }, idle.map(|idle| idle.stream))
    }

    /// Leaves the stream to the next attempt, for as long as the lease can live.
    fn keep(&self, stream: Stream, answer: &Response) {
        let Response::Renewed(ttl) = *answer else {
            return;
        };
        let (slots, lease) = (Arc::downgrade(&self.slots), self.lease);
        let mut end = JoinSet::new();
        end.spawn(async move {
            sleep(Duration::from_nanos(ttl)).await;
            if let Some(slots) = slots.upgrade() {
                change(&slots, lease, |slot| slot.idle = None);
            }
        });
        change(&self.slots, lease, |slot| {
            if !slot.is_over {
                slot.idle = Some(Idle { stream, _end: end });
            }
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        change(&self.slots, self.lease, |slot| slot.attempts -= 1);
    }
}

/// Changes the slot of a lease, and removes it if nothing is left in it.
fn change<T>(slots: &Slots, lease: i64, change: impl FnOnce(&mut Slot) -> T) -> T {
    let mut slots = slots.lock();
    let slot = slots.entry(lease).or_default();
    let changed = change(slot);
    if slot.attempts == 0 && slot.idle.is_none() {
        slots.remove(&lease);
    }
    changed
}

impl fmt::Debug for Renewals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.lock();
        f.debug_set().entries(slots.keys()).finish()
    }
}

/// A stream that renews one lease.
struct Stream {
    connection: Arc<Connection>,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl Stream {
    /// A new stream, unless the lease is gone. Opening one renews as well, but
    /// etcd-client keeps the time to live of that answer to itself.
    async fn open(contact: &Contact, lease: i64) -> Result<Option<Self>, Error> {
        match contact.client.lease_client().keep_alive(lease).await {
            Ok((keeper, answers)) => {
                let connection = Arc::clone(&contact.connection);
                Ok(Some(Self { connection, keeper, answers }))
            }
            Err(error) if is_lease_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_on(&self, contact: &Contact) -> bool {
        Arc::ptr_eq(&self.connection, &contact.connection)
    }

    async fn renew(&mut self) -> Answer {
        self.keeper.keep_alive().await.map_err(failure)?;
        let answer = self.answers.message().await.map_err(failure)?;
        match answer {
            Some(answer) if answer.ttl() > 0 => Ok(Response::Renewed(time_to_live(answer.ttl()))),
            Some(_) => Ok(Response::Expired),
            None => Err(Failure::Unavailable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_are_over_leave_nothing_behind() {
        let slots = Slots::default();
        let attempts = [7, 7, 8].map(|lease| Attempt::begin(&slots, lease).0);
        assert_eq!(slots.lock().len(), 2);
        drop(attempts);
        assert!(slots.lock().is_empty());
    }

    #[test]
    fn a_lease_that_is_over_is_so_for_the_attempts_under_way() {
        let renewals = Renewals::default();
        let (attempt, _) = Attempt::begin(&renewals.slots, 7);
        renewals.forget(7);
        assert!(renewals.slots.lock()[&7].is_over);
        drop(attempt);
        assert!(renewals.slots.lock().is_empty());
    }
}
