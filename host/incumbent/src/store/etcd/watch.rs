//! All watches of a set, on one stream, and the repair of that stream.
//!
//! A watch says `started` once, and then each change once, over any number of
//! streams: a new stream takes each watch up right after the last revision that
//! the watch has seen. Progress notices do not count as seen: etcd before 3.4.25
//! and 3.5.8 may send them ahead of changes (etcd#15220).
//!
//! They are asked for all the same: a link may die without a word, and where nothing
//! else has come over it for long, a stream is asked for its progress to see whether
//! it lives. Any response
//! will do, and one request that stays without is no proof: later versions of etcd
//! do not answer while a watch is behind.
//!
//! A watch that is behind on a clogged stream skips changes, without a word, where
//! they are compacted meanwhile (etcd#17529), and one that resumes is behind for a
//! moment. The elector does not rest on it: its slow re-check reads what a watch
//! should have told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::{Event, ResponseHeader, WatchOptions, WatchRequestSender, WatchResponse};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::Watches;
use super::endpoints::{Contact, Endpoints};
use super::failure::{cancellation, failure, is_login_outdated, is_login_refused};
use super::keyspace::Keyspace;
use crate::types::{Change, Deletion, Failure, RequestId, Revision, Watch, Watched};

/// How long etcd may take to confirm the next of the watches that it was asked for.
const OPENING: Duration = Duration::from_secs(5);
/// How long a stream and its connection may be quiet before the stream is asked
/// whether it lives, and how long before it is asked again. Renewals of a lease of
/// the usual length keep a connection from being quiet.
const QUIET: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How many such questions may stay without an answer.
const UNANSWERED: u32 = 2;
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// What etcd puts in place of the id of a watch that it never made.
const NO_WATCH: i64 = -1;

/// A set of watches. All the work is done while it is polled; none of it outlives
/// the set.
pub(super) struct EtcdWatches {
    open: BTreeSet<RequestId>,
    wishes: UnboundedSender<Wish>,
    seen: UnboundedReceiver<Watched>,
    supervisor: BoxFuture<'static, Infallible>,
}

impl EtcdWatches {
    pub(super) fn new(endpoints: Arc<Endpoints>, keyspace: Keyspace) -> Self {
        let (wishes, wished) = unbounded_channel();
        let (sees, seen) = unbounded_channel();
        let supervisor = Supervisor {
            endpoints,
            keyspace,
            wished,
            sees,
            watches: BTreeMap::new(),
            next_wire_id: 1,
        };
        Self { open: BTreeSet::new(), wishes, seen, supervisor: supervisor.run().boxed() }
    }
}

impl Watches for EtcdWatches {
    fn open(&mut self, watch: Watch) {
        self.open.insert(watch.id);
        self.wish(Wish::Open(watch));
    }

    fn close(&mut self, id: RequestId) {
        if self.open.remove(&id) {
            self.wish(Wish::Close(id));
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        match self.supervisor.poll_unpin(context) {
            Poll::Pending => {}
            Poll::Ready(never) => match never {},
        }
        while let Poll::Ready(Some(watched)) = self.seen.poll_recv(context) {
            // What was seen of a watch before it was closed is of no interest.
            if self.open.contains(&watched.id) {
                if matches!(watched.change, Change::Ended(_)) {
                    self.open.remove(&watched.id);
                }
                return Poll::Ready(watched);
            }
        }
        Poll::Pending
    }
}

impl EtcdWatches {
    fn wish(&self, wish: Wish) {
        // The receiver is in `supervisor`, which never ends.
        let _ = self.wishes.send(wish);
    }
}

impl fmt::Debug for EtcdWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdWatches").field(&self.open).finish()
    }
}

enum Wish {
    Open(Watch),
    Close(RequestId),
}

/// Keeps a stream open as long as there are watches.
struct Supervisor {
    endpoints: Arc<Endpoints>,
    keyspace: Keyspace,
    wished: UnboundedReceiver<Wish>,
    sees: UnboundedSender<Watched>,
    watches: BTreeMap<RequestId, Followed>,
    /// etcd knows a watch by this number, which no two streams have in common.
    next_wire_id: i64,
}

/// A watch, whatever stream it is on.
struct Followed {
    key: Vec<u8>,
    prefix: bool,
    stage: Stage,
    /// etcd has refused it once, perhaps because the login was too old.
    refused: bool,
}

enum Stage {
    /// Not started; to report from this revision on, or from now.
    Asked(Option<Revision>),
    /// Started; everything up to this revision has been told.
    Started(Revision),
}

/// Why a stream ended.
enum Break {
    /// It broke, or nothing came of it.
    Broken(Failure),
    /// The login is too old, for the whole stream or for one watch on it.
    LoggedOut(Option<Failure>),
    /// There is another connection to this member.
    Moved,
}

impl Supervisor {
    async fn run(mut self) -> Infallible {
        let mut pause = Pause::new();
        loop {
            while self.watches.is_empty() {
                match self.wished.recv().await {
                    Some(wish) => {
                        self.note(wish);
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
                    sleep(pause.next()).await;
                    continue;
                }
            };
            let mut ended = tokio::select! {
                ended = self.follow(&contact, &mut pause) => ended,
                () = contact.endpoint.has_left(&contact.connection) => Break::Moved,
            };
            if let Break::LoggedOut(reason) = &ended {
                match contact.endpoint.log_in_again(&contact.connection).await {
                    Ok(true) => {}
                    Ok(false) => ended = reason.clone().map_or(ended, Break::Broken),
                    Err(reason) => ended = Break::Broken(reason),
                }
            }
            match ended {
                Break::Moved => continue,
                Break::LoggedOut(_) => {}
                Break::Broken(reason) => {
                    let endpoint = contact.endpoint.address();
                    tracing::debug!(endpoint, ?reason, "watch stream broke");
                    match reason {
                        Failure::Denied(_) => self.end_all(&reason),
                        Failure::Timeout => contact.lost(),
                        Failure::Unavailable
                        | Failure::Compacted(_)
                        | Failure::Invalid(_)
                        | Failure::Other(_) => contact.failed(),
                    }
                }
            }
            sleep(pause.next()).await;
        }
    }

    /// A member to watch on.
    async fn reach(&self) -> Result<Contact, Failure> {
        timeout(OPENING, self.endpoints.reach()).await.unwrap_or(Err(Failure::Timeout))
    }

    /// Opens one stream with all watches on it, and follows it to its end.
    async fn follow(&mut self, contact: &Contact, pause: &mut Pause) -> Break {
        let mut line = Line::new();
        for (id, watch) in &self.watches {
            line.ask(&mut self.next_wire_id, *id, watch);
        }
        let Some(Request::Watch(key, first)) = line.outbox.pop_front() else {
            return Break::Broken(Failure::Other("there is nothing to watch".into()));
        };
        let mut opener = contact.client.watch_client().max_decoding_message_size(usize::MAX);
        let stream = match timeout(OPENING, opener.watch(key, Some(first))).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return broken(error),
            Err(_) => return Break::Broken(Failure::Timeout),
        };
        let (mut sender, mut responses) = stream.split();
        loop {
            tokio::select! {
                wish = self.wished.recv() => match wish {
                    Some(wish) => {
                        if let Some(id) = self.note(wish) {
                            match self.watches.get(&id) {
                                Some(watch) => line.ask(&mut self.next_wire_id, id, watch),
                                None => line.cancel(id),
                            }
                        }
                    }
                    None => pending().await,
                },
                // Side by side with reading: each may wait for the other in etcd.
                sent = line.send(&mut sender) => match sent {
                    Ok(()) => { line.outbox.pop_front(); }
                    Err(error) => return broken(error),
                },
                response = responses.message() => match response {
                    Ok(Some(response)) => {
                        pause.reset();
                        if let Err(ended) = self.take(&mut line, &response) {
                            return ended;
                        }
                    }
                    Ok(None) => return Break::Broken(Failure::Unavailable),
                    Err(error) => return broken(error),
                },
                () = line.overdue() => return Break::Broken(Failure::Timeout),
                () = sleep_until(line.check) => {
                    let quiet = contact.connection.answered().map(|last| last + QUIET);
                    match quiet.filter(|quiet| *quiet > Instant::now()) {
                        Some(quiet) => line.lives_until(quiet),
                        None if line.unanswered == UNANSWERED => {
                            return Break::Broken(Failure::Timeout);
                        }
                        None => line.ask_for_progress(),
                    }
                }
            }
        }
    }

    /// Takes a wish in, and says whose watch is to be asked for or cancelled.
    fn note(&mut self, wish: Wish) -> Option<RequestId> {
        match wish {
            Wish::Open(watch) => {
                let followed = Followed {
                    key: self.keyspace.wire(&watch.key),
                    prefix: watch.prefix,
                    // 0 would mean from now on the wire.
                    stage: Stage::Asked(watch.since.map(|since| since.max(1))),
                    refused: false,
                };
                self.watches.insert(watch.id, followed);
                Some(watch.id)
            }
            Wish::Close(id) => self.watches.remove(&id).map(|_| id),
        }
    }

    fn take(&mut self, line: &mut Line, response: &WatchResponse) -> Result<(), Break> {
        line.lives_until(Instant::now() + QUIET);
        let wire_id = line.answered(response);
        let Some(id) = line.watches.get(&wire_id).copied() else {
            // Closed meanwhile.
            return Ok(());
        };
        if response.canceled() {
            line.forget(id);
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
        let mut latest = told;
        let mut changes = Vec::new();
        for (at, change) in response.events().iter().filter_map(|event| self.keyspace.change(event))
        {
            // All changes of one revision come in one response.
            if at > told {
                latest = latest.max(at);
                changes.push(change);
            }
        }
        watch.stage = Stage::Started(latest);
        for change in changes {
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
        self.end(id, reason);
        Ok(())
    }

    fn end_all(&mut self, reason: &Failure) {
        let ids: Vec<_> = self.watches.keys().copied().collect();
        for id in ids {
            self.end(id, reason.clone());
        }
    }

    fn end(&mut self, id: RequestId, reason: Failure) {
        self.watches.remove(&id);
        self.tell(id, Change::Ended(reason));
    }

    fn tell(&self, id: RequestId, change: Change) {
        // The receiver lives as long as whoever polls this.
        let _ = self.sees.send(Watched { id, change });
    }
}

/// What is on one stream, and on its way there.
struct Line {
    watches: BTreeMap<i64, RequestId>,
    wire_ids: BTreeMap<RequestId, i64>,
    outbox: VecDeque<Request>,
    /// Asked for and not answered: etcd answers in the order of the asking.
    awaited: VecDeque<i64>,
    /// When the next of these answers is overdue. Each answer moves it, because each shows that
    /// etcd makes progress, however many are left.
    answer_by: Instant,
    /// When to ask whether the stream lives, and how often that was asked.
    check: Instant,
    unanswered: u32,
}

enum Request {
    Watch(Vec<u8>, WatchOptions),
    Cancel(i64),
    Progress,
}

impl Line {
    fn new() -> Self {
        Self {
            watches: BTreeMap::new(),
            wire_ids: BTreeMap::new(),
            outbox: VecDeque::new(),
            awaited: VecDeque::new(),
            answer_by: Instant::now() + OPENING,
            check: Instant::now() + QUIET,
            unanswered: 0,
        }
    }

    /// Need not be asked whether it lives before that.
    fn lives_until(&mut self, check: Instant) {
        self.check = check;
        self.unanswered = 0;
    }

    fn ask_for_progress(&mut self) {
        self.check = Instant::now() + ASK_AGAIN;
        self.unanswered += 1;
        self.outbox.push_back(Request::Progress);
    }

    fn ask(&mut self, next_wire_id: &mut i64, id: RequestId, watch: &Followed) {
        let wire_id = *next_wire_id;
        *next_wire_id += 1;
        let from = match watch.stage {
            // From now: from any revision, etcd would look every 100 ms only.
            Stage::Asked(since) => since.unwrap_or(0),
            Stage::Started(told) => told.saturating_add(1),
        };
        let mut options = WatchOptions::new().with_watch_id(wire_id).with_start_revision(from);
        if watch.prefix {
            options = options.with_prefix();
        }
        self.watches.insert(wire_id, id);
        self.wire_ids.insert(id, wire_id);
        if self.awaited.is_empty() {
            self.answer_by = Instant::now() + OPENING;
        }
        self.awaited.push_back(wire_id);
        self.outbox.push_back(Request::Watch(watch.key.clone(), options));
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(wire_id) = self.forget(id) {
            self.outbox.push_back(Request::Cancel(wire_id));
        }
    }

    /// Drops a watch from this stream, and returns the number by which etcd knows it.
    fn forget(&mut self, id: RequestId) -> Option<i64> {
        let wire_id = self.wire_ids.remove(&id)?;
        self.watches.remove(&wire_id);
        Some(wire_id)
    }

    /// Sends what is first in the outbox, which stays there. Cancel safe: nothing
    /// is sent then.
    async fn send(&self, sender: &mut WatchRequestSender) -> Result<(), etcd_client::Error> {
        match self.outbox.front() {
            Some(Request::Watch(key, options)) => {
                sender.watch(key.clone(), Some(options.clone())).await
            }
            Some(Request::Cancel(wire_id)) => sender.cancel(*wire_id).await,
            Some(Request::Progress) => sender.request_progress().await,
            None => pending().await,
        }
    }

    /// The watch that the response is about.
    fn answered(&mut self, response: &WatchResponse) -> i64 {
        if !response.created() {
            return response.watch_id();
        }
        self.answer_by = Instant::now() + OPENING;
        let first = self.awaited.pop_front();
        match response.watch_id() {
            NO_WATCH => first.unwrap_or(NO_WATCH),
            wire_id => wire_id,
        }
    }

    /// Ends when etcd owes an answer for too long.
    async fn overdue(&self) {
        if self.awaited.is_empty() {
            pending().await
        } else {
            sleep_until(self.answer_by).await;
        }
    }
}

impl Keyspace {
    /// A change and its revision. Its kind is read off the key: a deletion leaves
    /// version 0, and etcd-client panics at a kind that it does not know.
    fn change(&self, event: &Event) -> Option<(Revision, Change)> {
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

/// Doubles from one reopening to the next, and jitters: those that lost one etcd
/// together do not come back together.
struct Pause {
    next: Duration,
}

impl Pause {
    fn new() -> Self {
        Self { next: SHORTEST_PAUSE }
    }

    fn reset(&mut self) {
        self.next = SHORTEST_PAUSE;
    }

    fn next(&mut self) -> Duration {
        let longest = self.next;
        self.next = (longest * 2).min(LONGEST_PAUSE);
        // Without randomness there is no jitter, and the pause is still right.
        let random = getrandom::u32().unwrap_or(u32::MAX);
        longest / 2 + (longest / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_begin_anew() {
        let mut pause = Pause::new();
        let mut longest = SHORTEST_PAUSE;
        for _ in 0..10 {
            let next = pause.next();
            assert!((longest / 2..=longest).contains(&next), "{next:?} of {longest:?}");
            longest = (longest * 2).min(LONGEST_PAUSE);
        }
        assert_eq!(longest, LONGEST_PAUSE);
        pause.reset();
        assert!(pause.next() <= SHORTEST_PAUSE);
    }

    #[test]
    fn a_stream_asks_for_each_watch_by_a_number_of_its_own() {
        let watch =
            |key: &str, stage| Followed { key: key.into(), prefix: false, stage, refused: false };
        let mut next_wire_id = 5;
        let mut line = Line::new();
        let before = Instant::now();
        line.ask(&mut next_wire_id, 100, &watch("a", Stage::Asked(None)));
        assert!(line.answer_by >= before + OPENING);
        line.ask(&mut next_wire_id, 200, &watch("b", Stage::Started(9)));
        assert_eq!(line.awaited, [5, 6]);
        assert_eq!((line.watches[&5], line.watches[&6], next_wire_id), (100, 200, 7));
        line.cancel(100);
        line.cancel(100);
        line.ask_for_progress();
        assert!(matches!(
            line.outbox.make_contiguous(),
            [Request::Watch(a, _), Request::Watch(b, _), Request::Cancel(5), Request::Progress]
                if a == b"a" && b == b"b"
        ));
        assert_eq!((line.forget(100), line.forget(200)), (None, Some(6)));
        assert!(line.watches.is_empty());
    }

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

    #[test]
    fn questions_without_an_answer_are_counted() {
        let mut line = Line::new();
        for asked in 1..=UNANSWERED {
            let before = Instant::now();
            line.ask_for_progress();
            assert_eq!(line.unanswered, asked);
            assert!(line.check >= before + ASK_AGAIN);
        }
        let check = Instant::now() + QUIET;
        line.lives_until(check);
        assert_eq!((line.check, line.unanswered), (check, 0));
    }
}
