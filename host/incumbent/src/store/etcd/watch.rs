//! All watches of a set, on one stream, and the repair of that stream.
//!
//! A watch says `started` once, and then each change once, over any number of streams: a new
//! stream takes each watch up right after the last revision that the watch has seen. Progress
//! notices do not count as seen: etcd before 3.4.25 and 3.5.8 may send them ahead of changes
//! (etcd#15220).
//!
//! A watch that is behind on a clogged stream skips changes, without a word, where they are
//! compacted meanwhile (etcd#17529), and one that resumes is behind for a moment. The elector
//! does not depend on it: its slow re-check reads what a watch should have told.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::{Event, ResponseHeader, WatchResponse};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::endpoint::Contact;
use super::failure::{cancellation, failure, is_login_outdated, is_login_refused};
use super::keyspace::Keyspace;
use super::stream_pool::StreamConnection;
use super::watch_stream::{Followed, OPENING, QUIET, Stage, WatchStream};
use crate::backoff::Backoff;
use crate::store::Watches;
use crate::store::open_watches::OpenWatches;
use crate::types::{Answer, Change, Deletion, Failure, RequestId, Watch, Watched};

/// The shortest pause before a stream is opened again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long a connection that was given up has at first, and at most, to show that it lives.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// After a stream that lasted for so long, the next connection has as long as the first one had.
const LONG: Duration = Duration::from_secs(60);

/// A set of watches. All the work is done while it is polled; none of it outlives
/// the set.
pub(super) struct EtcdWatches {
    open: OpenWatches,
    requests: UnboundedSender<Request>,
    running: BoxFuture<'static, Infallible>,
}

impl EtcdWatches {
    pub(super) fn new(connection: Arc<StreamConnection>, keyspace: Keyspace) -> Self {
        let (requests, requested) = unbounded_channel();
        let (sees, seen) = unbounded_channel();
        let watch_loop = WatchLoop {
            connection,
            keyspace,
            requested,
            sees,
            watches: BTreeMap::new(),
            next_wire_id: 1,
        };
        Self { open: OpenWatches::new(seen), requests, running: watch_loop.run().boxed() }
    }
}

impl Watches for EtcdWatches {
    fn open(&mut self, watch: Watch) {
        self.open.open(watch.id);
        self.request(Request::Open(watch));
    }

    fn close(&mut self, id: RequestId) {
        if self.open.close(id) {
            self.request(Request::Close(id));
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        match self.running.poll_unpin(context) {
            Poll::Pending => {}
            Poll::Ready(never) => match never {},
        }
        self.open.poll_next(context)
    }
}

impl EtcdWatches {
    fn request(&self, request: Request) {
        // The receiver is in `running`, which never ends.
        let _ = self.requests.send(request);
    }
}

/// A request of the set to its loop.
enum Request {
    Open(Watch),
    Close(RequestId),
}

/// Keeps a stream open as long as there are watches.
struct WatchLoop {
    connection: Arc<StreamConnection>,
    keyspace: Keyspace,
    requested: UnboundedReceiver<Request>,
    sees: UnboundedSender<Watched>,
    watches: BTreeMap<RequestId, Followed>,
    /// etcd knows a watch by this number, which no two streams have in common.
    next_wire_id: i64,
}

/// Why a stream ended.
enum Break {
    /// It broke, or nothing came of it.
    Broken(Failure),
    /// The login is too old, for the whole stream or for one watch on it.
    LoggedOut(Option<Failure>),
    /// There is another connection to this member, and this one does not live or is out of date.
    Replaced,
    /// Its many watches have all been closed. etcd forgets them with the stream.
    Unused,
}

impl WatchLoop {
    async fn run(mut self) -> Infallible {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut patience = Backoff::new(PATIENCE.0, PATIENCE.1);
        loop {
            while self.watches.is_empty() {
                match self.requested.recv().await {
                    Some(request) => {
                        self.note(request);
                    }
                    None => pending().await,
                }
            }
            let contact = match self.reach().await {
                Ok(contact) => contact,
                Err(reason) => {
                    tracing::debug!(?reason, "no member to watch on");
                    if let Failure::Denied(_) = reason {
                        self.end_all(&reason);
                    }
                    sleep(backoff.pause_at_most()).await;
                    continue;
                }
            };
            let since = Instant::now();
            let mut ended = tokio::select! {
                ended = self.follow(&contact, &mut backoff) => ended,
                () = contact.given_up(&mut patience) => Break::Replaced,
            };
            if since.elapsed() > LONG {
                patience.reset();
            }
            if let Break::LoggedOut(reason) = &ended {
                match contact.endpoint.log_in_again(&contact.connection).await {
                    Ok(true) => {}
                    Ok(false) => ended = reason.clone().map_or(ended, Break::Broken),
                    Err(reason) => ended = Break::Broken(reason),
                }
            }
            match ended {
                Break::Replaced | Break::Unused => continue,
                Break::LoggedOut(_) => {}
                Break::Broken(reason) => {
                    let endpoint = &contact.endpoint.address;
                    tracing::debug!(endpoint, ?reason, "watch stream broke");
                    match reason {
                        Failure::Denied(_) => self.end_all(&reason),
                        Failure::Timeout => contact.kept_silent(),
                        Failure::Unavailable
                        | Failure::Compacted(_)
                        | Failure::Invalid(_)
                        | Failure::Other(_) => contact.endpoint.cool_down(),
                    }
                }
            }
            sleep(backoff.pause_at_most()).await;
        }
    }

    /// A member to watch on.
    async fn reach(&self) -> Answer<Contact> {
        timeout(OPENING, self.connection.endpoints.reach()).await.unwrap_or(Err(Failure::Timeout))
    }

    /// Opens one stream with all watches on it, and follows it to its end.
    async fn follow(&mut self, contact: &Contact, backoff: &mut Backoff) -> Break {
        let mut stream = WatchStream::new();
        for (id, watch) in &self.watches {
            stream.open(&mut self.next_wire_id, *id, watch);
        }
        let Some((key, first)) = stream.first() else {
            return Break::Broken(Failure::Other("there is nothing to watch".into()));
        };
        let mut opener = contact.client.watch_client().max_decoding_message_size(usize::MAX);
        let opened = match timeout(OPENING, opener.watch(key, Some(first))).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return broken(error),
            Err(_) => return Break::Broken(Failure::Timeout),
        };
        let (mut sender, mut responses) = opened.split();
        loop {
            tokio::select! {
                request = self.requested.recv() => match request {
                    Some(request) => {
                        if let Some(id) = self.note(request) {
                            match self.watches.get(&id) {
                                Some(watch) => stream.open(&mut self.next_wire_id, id, watch),
                                None => stream.cancel(id),
                            }
                        }
                        if self.watches.is_empty() && stream.has_many_unwanted() {
                            return Break::Unused;
                        }
                    }
                    None => pending().await,
                },
                // Side by side with reading: each may wait for the other in etcd.
                sent = stream.send(&mut sender) => match sent {
                    Ok(()) => stream.sent(),
                    Err(error) => return broken(error),
                },
                response = responses.message() => match response {
                    Ok(Some(response)) => {
                        backoff.reset();
                        if let Err(ended) = self.take(&mut stream, &response) {
                            return ended;
                        }
                    }
                    Ok(None) => return Break::Broken(Failure::Unavailable),
                    Err(error) => return broken(error),
                },
                () = stream.overdue() => return Break::Broken(Failure::Timeout),
                () = sleep_until(stream.test_at) => {
                    let quiet = contact.connection.answered.lock().map(|last| last + QUIET);
                    match quiet.filter(|quiet| *quiet > Instant::now()) {
                        Some(quiet) => stream.lives_until(quiet),
                        None if stream.test() => {}
                        None => return Break::Broken(Failure::Timeout),
                    }
                }
            }
        }
    }

    /// Takes a request in, and returns which watch to open or cancel on the stream.
    fn note(&mut self, request: Request) -> Option<RequestId> {
        match request {
            Request::Open(watch) => {
                let followed = Followed {
                    key: self.keyspace.wire(&watch.key),
                    prefix: watch.prefix,
                    // On the wire, 0 means from now on.
                    stage: Stage::Asked(watch.since.map(|since| since.max(1))),
                    refused: false,
                };
                self.watches.insert(watch.id, followed);
                Some(watch.id)
            }
            Request::Close(id) => self.watches.remove(&id).map(|_| id),
        }
    }

    fn take(&mut self, stream: &mut WatchStream, response: &WatchResponse) -> Result<(), Break> {
        stream.lives_until(Instant::now() + QUIET);
        let wire_id = stream.answered(response);
        let Some(id) = stream.watch(wire_id) else {
            // Closed meanwhile.
            return Ok(());
        };
        if response.canceled() {
            stream.forget(id);
            return self.take_cancellation(id, response);
        }
        let Some(watch) = self.watches.get_mut(&id) else {
            return Ok(());
        };
        if response.created() {
            watch.refused = false;
            if let Stage::Asked(since) = watch.stage {
                let now = response.header().map_or(0, ResponseHeader::revision);
                let told = since.map_or(now, |since| since.saturating_sub(1));
                watch.stage = Stage::Started(told);
                self.tell(id, Change::Started(told));
            }
            return Ok(());
        }
        let Stage::Started(told) = watch.stage else {
            return Ok(());
        };
        // All changes of one revision come in one response.
        let changes = response.events().iter().filter_map(|event| self.keyspace.change(event));
        let changes: Vec<_> = changes.filter(|(at, _)| *at > told).collect();
        let latest = changes.iter().map(|(at, _)| *at).max();
        watch.stage = Stage::Started(latest.unwrap_or(told));
        for (_, change) in changes {
            self.tell(id, change);
        }
        Ok(())
    }

    fn take_cancellation(&mut self, id: RequestId, response: &WatchResponse) -> Result<(), Break> {
        let reason = if response.compact_revision() > 0 {
            Failure::Compacted(response.compact_revision())
        } else {
            cancellation(response.cancel_reason())
        };
        let Some(watch) = self.watches.get_mut(&id) else {
            return Ok(());
        };
        // etcd 3.4 does not tell a login that is too old from a key that is not
        // allowed.
        if matches!(reason, Failure::Denied(_)) && !watch.refused {
            watch.refused = true;
            return Err(Break::LoggedOut(None));
        }
        // A watch that was on may be on again.
        if matches!(reason, Failure::Other(_)) && !response.created() {
            return Err(Break::Broken(reason));
        }
        self.watches.remove(&id);
        self.tell(id, Change::Ended(reason));
        Ok(())
    }

    fn end_all(&mut self, reason: &Failure) {
        for id in mem::take(&mut self.watches).into_keys() {
            self.tell(id, Change::Ended(reason.clone()));
        }
    }

    fn tell(&self, id: RequestId, change: Change) {
        // The receiver is in the set that polls this.
        let _ = self.sees.send(Watched { id, change });
    }
}

impl Keyspace {
    /// A change and its revision. The key tells its kind: a deletion leaves version 0.
    /// etcd-client would panic at a kind that it does not know.
    fn change(&self, event: &Event) -> Option<(i64, Change)> {
        let found = event.kv()?;
        let at = found.mod_revision();
        let change = if found.version() == 0 {
            Change::Deleted(Deletion { key: self.own(found.key()), at })
        } else {
            Change::Put(self.entry(found))
        };
        Some((at, change))
    }
}

fn broken(error: etcd_client::Error) -> Break {
    if is_login_outdated(&error) || is_login_refused(&error) {
        Break::LoggedOut(Some(failure(error)))
    } else {
        Break::Broken(failure(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_is_over_is_told_from_a_connection_that_broke() {
        let broken = |code, text: &str| broken(tonic::Status::new(code, text).into());
        let old = broken(tonic::Code::Unknown, "etcdserver: revision of auth store is old");
        assert!(matches!(old, Break::LoggedOut(Some(_))));
        let refused = broken(tonic::Code::Unauthenticated, "etcdserver: invalid auth token");
        assert!(matches!(refused, Break::LoggedOut(Some(_))));
        let gone = broken(tonic::Code::Unavailable, "transport is closing");
        assert!(matches!(gone, Break::Broken(_)));
    }
}
