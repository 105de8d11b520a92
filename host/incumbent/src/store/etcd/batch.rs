//! What waits while requests are under way goes in the next one together.
//!
//! A request that finds few others under way is sent at once, by itself. Beyond that, claims and
//! guarded writes wait for the next transaction, and reads for the next read. A batch means what
//! its parts mean, one after the other:
//!
//! - Only parts that [go together](Together) are in one batch. The others wait for the next one.
//! - If one comparison of a transaction fails, nothing is changed, and etcd shows for which parts
//!   it failed. These are answered, and the others go in the next one.
//! - If etcd refuses a batch, nothing was done, and each part is sent by itself: a part that is
//!   refused for a reason of its own is refused alone.
//! - If no answer comes, any part may have happened, and each caller is told so, as it is of a
//!   single request.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::EtcdStore;
use super::joint::{self, Joint, Size};
use crate::store::memory::Together;
use crate::types::{Answer, Failure, Operation};

/// How many requests of a kind are under way before the next ones wait for each other.
const SIDE_BY_SIDE: usize = 2;
/// How long an operation waits for requests that are under way. A request that hangs holds up
/// nothing else for longer.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// What one transaction holds at first: as many operations as etcd takes by default, and a part
/// of the bytes.
const LIMIT: Size = Size { operations: 128, bytes: 512 * 1024 };

/// The requests of one kind that wait for each other.
pub(super) struct Batches {
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    /// How many requests are under way.
    under_way: usize,
    waiting: VecDeque<Part>,
    /// What etcd takes, as far as it has said.
    limit: Size,
}

/// An operation that waits for the next request.
struct Part {
    operation: Operation,
    give_up: Instant,
    answer: oneshot::Sender<Answer>,
}

/// What goes together in one request.
struct Batch {
    limit: Size,
    size: Size,
    parts: Vec<Part>,
    is_full: bool,
    together: Together,
}

/// A request that is under way. Once it is over, what waits goes in the next one.
struct Turn {
    store: EtcdStore,
    batches: Arc<Batches>,
}

impl Batches {
    /// None yet. Those that wait are sent on the present runtime.
    pub(super) fn new() -> Self {
        let state = State { under_way: 0, waiting: VecDeque::new(), limit: LIMIT };
        Self { runtime: Handle::current(), state: Mutex::new(state) }
    }

    /// Sends an operation, by itself or with others. Dropping the future gives up the answer.
    pub(super) async fn send(
        self: &Arc<Self>,
        store: &EtcdStore,
        operation: Operation,
        within: Duration,
    ) -> Answer {
        let turn = || Turn { store: store.clone(), batches: Arc::clone(self) };
        if self.may_begin() {
            let _turn = turn();
            return store.alone(operation, within).await;
        }
        let (answer, mut told) = oneshot::channel();
        // A very long time is as good as none.
        let now = Instant::now();
        let give_up = now.checked_add(within).unwrap_or(now + Duration::from_secs(1 << 30));
        self.state.lock().waiting.push_back(Part { operation, give_up, answer });
        let first = timeout_at(give_up.min(now + LONGEST_WAIT), &mut told).await;
        let answer = match first {
            Ok(answer) => Ok(answer),
            Err(_) => {
                self.state.lock().under_way += 1;
                drop(turn());
                timeout_at(give_up, told).await
            }
        };
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Failure::Timeout),
        }
    }

    /// Whether one more request may be sent at once: if so, it is under way.
    fn may_begin(&self) -> bool {
        let mut state = self.state.lock();
        let may_begin = state.under_way < SIDE_BY_SIDE;
        state.under_way += usize::from(may_begin);
        may_begin
    }

    /// The parts of the next request. If there are none, there is one request less.
    fn next(&self) -> Vec<Part> {
        let mut state = self.state.lock();
        let mut batch = Batch::new(state.limit);
        let mut left = VecDeque::new();
        while !batch.is_full
            && let Some(part) = state.waiting.pop_front()
        {
            if part.is_wanted() {
                left.extend(batch.take(part));
            }
        }
        left.append(&mut state.waiting);
        state.waiting = left;
        if batch.parts.is_empty() {
            state.under_way -= 1;
        }
        batch.parts
    }

    /// etcd has refused a batch of this size: one that is half as large may pass.
    fn refused(&self, what: joint::Refusal, size: Size) {
        let mut state = self.state.lock();
        let Size { operations, bytes } = &mut state.limit;
        match what {
            joint::Refusal::TooManyOperations => {
                *operations = (*operations).min(size.operations / 2).max(1);
            }
            joint::Refusal::TooLarge => *bytes = (*bytes).min(size.bytes / 2).max(1),
            joint::Refusal::Other => {}
        }
    }

    /// Parts of which etcd has said that they did not happen go in the next request.
    fn put_back(&self, parts: Vec<Part>) {
        let mut state = self.state.lock();
        for part in parts.into_iter().rev() {
            state.waiting.push_front(part);
        }
    }
}

impl Part {
    /// Whether somebody still waits for its answer.
    fn is_wanted(&self) -> bool {
        self.give_up > Instant::now() && !self.answer.is_closed()
    }

    fn answer(self, answer: Answer) {
        // The caller may have gone.
        let _ = self.answer.send(answer);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let parts = self.batches.next();
        if !parts.is_empty() {
            let turn = Self { store: self.store.clone(), batches: Arc::clone(&self.batches) };
            self.batches.runtime.spawn(turn.send(parts));
        }
    }
}

impl Turn {
    async fn send(self, parts: Vec<Part>) {
        let operations = parts.iter().map(|part| &part.operation);
        let size = operations.clone().fold(Size::default(), |size, part| size + Size::of(part));
        let now = Instant::now();
        let within = parts.iter().map(|part| part.give_up.saturating_duration_since(now)).max();
        let operations: Vec<&Operation> = operations.collect();
        let answer = match parts.len() {
            // Alone, it is what it would have been.
            0 | 1 => Ok(Joint::Refused(joint::Refusal::Other)),
            _ => self.store.together(&operations, within.unwrap_or_default()).await,
        };
        match answer {
            Ok(Joint::Answers(answers)) => {
                let mut undone = Vec::new();
                for (part, answer) in parts.into_iter().zip(answers) {
                    match answer {
                        Some(response) => part.answer(Ok(response)),
                        None => undone.push(part),
                    }
                }
                self.batches.put_back(undone);
            }
            Ok(Joint::Refused(why)) => {
                self.batches.refused(why, size);
                join_all(parts.into_iter().map(|part| self.alone(part))).await;
            }
            Err(failure) => parts.into_iter().for_each(|part| part.answer(Err(failure.clone()))),
        }
    }

    async fn alone(&self, Part { operation, give_up, mut answer }: Part) {
        let within = give_up.saturating_duration_since(Instant::now());
        tokio::select! {
            outcome = self.store.alone(operation, within) => {
                // The caller may have gone.
                let _ = answer.send(outcome);
            }
            () = answer.closed() => {}
        }
    }
}

impl Batch {
    fn new(limit: Size) -> Self {
        Self {
            limit,
            size: Size::default(),
            parts: Vec::new(),
            is_full: false,
            together: Together::default(),
        }
    }

    /// Takes a part in, or gives it back.
    fn take(&mut self, part: Part) -> Option<Part> {
        let conflicts = !self.together.admits(&part.operation);
        let size = self.size + Size::of(&part.operation);
        self.is_full = !self.parts.is_empty() && !size.is_within(self.limit);
        if conflicts || self.is_full {
            return Some(part);
        }
        self.size = size;
        self.parts.push(part);
        None
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let State { under_way, waiting, limit } = &*state;
        f.debug_struct("Batches")
            .field("under_way", under_way)
            .field("waiting", &waiting.len())
            .field("limit", limit)
            .finish()
    }
}
