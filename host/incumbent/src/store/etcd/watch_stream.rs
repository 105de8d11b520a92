//! The state of one stream of watches: which watches are on it, which messages and answers are
//! outstanding, and whether the stream lives.
//!
//! A link may die without a word. Where nothing has come over it for long, the stream is asked
//! for its progress. Any response proves that it lives. One request without a response proves
//! nothing: later versions of etcd do not answer while a watch is behind.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::time::Duration;

use etcd_client::{Error, WatchOptions, WatchRequestSender, WatchResponse};
use tokio::time::{Instant, sleep_until};

use crate::types::RequestId;

/// How long etcd may take to confirm the next watch that it was asked for.
pub(super) const OPENING: Duration = Duration::from_secs(5);
/// How long a stream and its connection may be quiet before the stream is tested, and how long
/// before it is tested again. Renewals of a lease of the usual length keep a connection from
/// being quiet.
pub(super) const QUIET: Duration = Duration::from_secs(5);
const TEST_AGAIN: Duration = Duration::from_secs(1);
/// How long a watch that nobody wants any more stays at etcd. Thousands end in the moment in which
/// a process takes over thousands of elections, and then other messages are more urgent.
const LINGERING: Duration = Duration::from_secs(1);
/// From how many such watches on it is better to end a stream on which nothing else is.
const MANY: usize = 64;
/// How many tests may stay without an answer.
const UNANSWERED: u32 = 2;
/// etcd's id for a watch that it never made.
const NO_WATCH: i64 = -1;

/// A watch, whatever stream it is on.
pub(super) struct Followed {
    pub(super) key: Vec<u8>,
    pub(super) prefix: bool,
    pub(super) stage: Stage,
    /// etcd has refused it once, perhaps because the login was too old.
    pub(super) refused: bool,
}

pub(super) enum Stage {
    /// Not started; to report from this revision on, or from now.
    Asked(Option<i64>),
    /// Started; everything up to this revision has been told.
    Started(i64),
}

/// One stream of watches.
pub(super) struct WatchStream {
    /// The watches, by the numbers by which etcd knows them.
    watches: BTreeMap<i64, RequestId>,
    wire_ids: BTreeMap<RequestId, i64>,
    outbox: VecDeque<Message>,
    /// Watches that nobody wants any more. They are cancelled from `cancel_at` on, while the
    /// outbox is empty.
    unwanted: VecDeque<i64>,
    cancel_at: Instant,
    /// Requested and not answered. etcd answers in the order of the requests.
    awaited: VecDeque<i64>,
    /// When the next of these answers is overdue. Each answer moves it, because each shows that
    /// etcd makes progress, however many are left.
    answer_by: Instant,
    /// When to test whether the stream lives, and how many tests have no answer.
    pub(super) test_at: Instant,
    unanswered: u32,
}

pub(super) enum Message {
    Watch(Vec<u8>, WatchOptions),
    Progress,
}

impl WatchStream {
    pub(super) fn new() -> Self {
        Self {
            watches: BTreeMap::new(),
            wire_ids: BTreeMap::new(),
            outbox: VecDeque::new(),
            unwanted: VecDeque::new(),
            cancel_at: Instant::now(),
            awaited: VecDeque::new(),
            answer_by: Instant::now() + OPENING,
            test_at: Instant::now() + QUIET,
            unanswered: 0,
        }
    }

    /// It lives, and needs no test before that.
    pub(super) fn lives_until(&mut self, test: Instant) {
        self.test_at = test;
        self.unanswered = 0;
    }

    /// Tests whether the stream lives. False if enough tests have no answer.
    pub(super) fn test(&mut self) -> bool {
        if self.unanswered == UNANSWERED {
            return false;
        }
        self.test_at = Instant::now() + TEST_AGAIN;
        self.unanswered += 1;
        self.outbox.push_back(Message::Progress);
        true
    }

    /// The first message, which opens the stream.
    pub(super) fn first(&mut self) -> Option<(Vec<u8>, WatchOptions)> {
        match self.outbox.pop_front()? {
            Message::Watch(key, options) => Some((key, options)),
            Message::Progress => None,
        }
    }

    /// What [`send`](Self::send) sends was sent.
    pub(super) fn sent(&mut self) {
        if self.outbox.pop_front().is_none() {
            self.unwanted.pop_front();
        }
    }

    /// The watch that etcd knows by this number, if it is on this stream.
    pub(super) fn watch(&self, wire_id: i64) -> Option<RequestId> {
        self.watches.get(&wire_id).copied()
    }

    pub(super) fn open(&mut self, next_wire_id: &mut i64, id: RequestId, watch: &Followed) {
        let wire_id = *next_wire_id;
        *next_wire_id += 1;
        let from = match watch.stage {
            // 0 is from now on: from any other revision, etcd looks every 100 ms only.
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
        self.outbox.push_back(Message::Watch(watch.key.clone(), options));
    }

    pub(super) fn cancel(&mut self, id: RequestId) {
        if let Some(wire_id) = self.forget(id) {
            if self.unwanted.is_empty() {
                self.cancel_at = Instant::now() + LINGERING;
            }
            self.unwanted.push_back(wire_id);
        }
    }

    /// Whether to cancel all of them would be more work than to end the stream.
    pub(super) fn has_many_unwanted(&self) -> bool {
        self.unwanted.len() >= MANY
    }

    /// Drops a watch from this stream, and returns the number by which etcd knows it.
    pub(super) fn forget(&mut self, id: RequestId) -> Option<i64> {
        let wire_id = self.wire_ids.remove(&id)?;
        self.watches.remove(&wire_id);
        Some(wire_id)
    }

    /// Sends the next message, which stays the next one until it is [`sent`](Self::sent). Cancel
    /// safe: nothing is sent then.
    pub(super) async fn send(&self, sender: &mut WatchRequestSender) -> Result<(), Error> {
        match self.outbox.front() {
            Some(Message::Watch(key, options)) => {
                sender.watch(key.clone(), Some(options.clone())).await
            }
            Some(Message::Progress) => sender.request_progress().await,
            None => match self.unwanted.front() {
                Some(wire_id) => {
                    sleep_until(self.cancel_at).await;
                    sender.cancel(*wire_id).await
                }
                None => pending().await,
            },
        }
    }

    /// The watch that the response is about.
    pub(super) fn answered(&mut self, response: &WatchResponse) -> i64 {
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

    /// Ends when an answer of etcd's is overdue.
    pub(super) async fn overdue(&self) {
        if self.awaited.is_empty() {
            pending().await
        } else {
            sleep_until(self.answer_by).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_asks_for_each_watch_by_a_number_of_its_own() {
        let watch =
            |key: &str, stage| Followed { key: key.into(), prefix: false, stage, refused: false };
        let mut next_wire_id = 5;
        let mut stream = WatchStream::new();
        let before = Instant::now();
        stream.open(&mut next_wire_id, 100, &watch("a", Stage::Asked(None)));
        assert!(stream.answer_by >= before + OPENING);
        stream.open(&mut next_wire_id, 200, &watch("b", Stage::Started(9)));
        assert_eq!(stream.awaited, [5, 6]);
        assert_eq!((stream.watches[&5], stream.watches[&6], next_wire_id), (100, 200, 7));
        stream.cancel(100);
        stream.cancel(100);
        assert!(stream.test());
        assert!(matches!(
            stream.outbox.make_contiguous(),
            [Message::Watch(a, _), Message::Watch(b, _), Message::Progress]
                if a == b"a" && b == b"b"
        ));
        assert_eq!(stream.unwanted, [5]);
        assert!(stream.cancel_at >= before + LINGERING);
        // What is more urgent goes first.
        for left in [1, 1, 1, 0] {
            stream.sent();
            assert_eq!(stream.unwanted.len(), left);
        }
        assert_eq!((stream.forget(100), stream.forget(200)), (None, Some(6)));
        assert!(stream.watches.is_empty());
    }

    #[test]
    fn questions_without_an_answer_are_counted() {
        let mut stream = WatchStream::new();
        for asked in 1..=UNANSWERED {
            let before = Instant::now();
            assert!(stream.test());
            assert_eq!(stream.unanswered, asked);
            assert!(stream.test_at >= before + TEST_AGAIN);
        }
        assert!(!stream.test());
        let check = Instant::now() + QUIET;
        stream.lives_until(check);
        assert_eq!((stream.test_at, stream.unanswered), (check, 0));
    }
}
