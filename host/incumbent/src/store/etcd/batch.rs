//! What waits while requests are under way goes in the next one together.
//!
//! A request that finds few others under way is sent at once, by itself. Beyond that, claims and
//! guarded writes wait for the next transaction, and reads for the next read. A batch means what
//! its parts mean, one after the other:
//!
//! - Only parts that [go together](Together) are in one batch. The others wait for the next one.
//! - If one comparison of a transaction fails, nothing is changed, and etcd shows for which parts
//!   it failed. These are answered, and the others go in the next one.
//! - If etcd refuses a batch as too large, its parts go in smaller ones. If it refuses one for
//!   another reason, before it does anything, each part is sent by itself: a part that is refused
//!   for a reason of its own is refused alone.
//! - After any other error, or without an answer, each part may have happened, and each caller is
//!   told so, as it is of a single request. Reads are sent again by themselves.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::EtcdStore;
use super::joint::{Joint, Refusal, Size};
use crate::store::memory::Together;
use crate::types::{Answer, Failure, Guarded, Mutation, Operation};

/// How many requests of a kind are under way before the next ones wait for each other.
const SIDE_BY_SIDE: usize = 4;
/// How many requests are under way at most, where waiting operations do not go together, or the
/// requests hang.
const MOST_SIDE_BY_SIDE: usize = 64;
/// How long all requests that are under way may hang before waiting operations are sent beside them.
const STALL: Duration = Duration::from_millis(100);
/// What one transaction holds at first: as many operations as etcd takes by default, and a part
/// of the bytes.
const LIMIT: Size = Size { operations: 128, bytes: 512 * 1024 };
/// How many operations are looked at for one batch. Many of one key, which never go together,
/// would otherwise cost the square of their number.
const LOOKED_AT: usize = 512;
/// How long each operation is sent by itself where a batch had an error that its parts may not
/// have.
const APART: Duration = Duration::from_secs(10);

/// The requests of one kind that wait for each other.
pub(super) struct Batches {
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    /// How many requests are under way.
    under_way: usize,
    /// When one of them began or ended last.
    progress: Instant,
    /// The last batch left some behind, which would not have gone together with it: nothing is
    /// gained by having them wait for it.
    conflicts: bool,
    waiting: VecDeque<Part>,
    /// A task looks whether the requests hang.
    is_watched: bool,
    /// What etcd takes, as far as it has said.
    limit: Size,
    /// Nothing goes together until then.
    apart_until: Instant,
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

/// A request that is under way by itself. Once it is over, what waits goes in the next one.
struct Turn {
    store: EtcdStore,
    batches: Arc<Batches>,
}

/// Sends one batch after the other, as long as something waits.
struct Sender {
    store: EtcdStore,
    batches: Arc<Batches>,
    is_done: bool,
}

impl Batches {
    /// None yet. Those that wait are sent on the present runtime.
    pub(super) fn new() -> Self {
        let state = State {
            under_way: 0,
            progress: Instant::now(),
            conflicts: false,
            waiting: VecDeque::new(),
            is_watched: false,
            limit: LIMIT,
            apart_until: Instant::now(),
        };
        Self { runtime: Handle::current(), state: Mutex::new(state) }
    }

    /// Sends an operation, by itself or with others. Dropping the future gives up the answer.
    ///
    /// Thousands may wait, so the future of one that waits is small, without the operation.
    pub(super) fn send(
        self: &Arc<Self>,
        store: &EtcdStore,
        operation: Operation,
        within: Duration,
    ) -> BoxFuture<'static, Answer> {
        // A very long time is as good as none.
        let now = Instant::now();
        let give_up = now.checked_add(within).unwrap_or(now + Duration::from_secs(1 << 30));
        let (answer, told) = oneshot::channel();
        let alone = self.wait(Part { operation, give_up, answer });
        let (store, batches) = (store.clone(), Arc::clone(self));
        match alone {
            Some(operation) => {
                let turn = Turn { store, batches };
                Box::pin(async move { turn.store.alone(operation, within).await })
            }
            None => {
                batches.watch(&store);
                Box::pin(async move {
                    match timeout_at(give_up, told).await {
                        Ok(Ok(answer)) => answer,
                        Ok(Err(_)) | Err(_) => Err(Failure::Timeout),
                    }
                })
            }
        }
    }

    /// Looks whether all requests hang, as long as an operation waits.
    fn watch(self: Arc<Self>, store: &EtcdStore) {
        if mem::replace(&mut self.state.lock().is_watched, true) {
            return;
        }
        let shared = Arc::downgrade(&store.shared);
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            while self.something_waits() {
                sleep(STALL).await;
                let Some(shared) = shared.upgrade() else { return };
                Sender::start(&EtcdStore { shared }, &self, self.in_a_stall());
            }
        });
    }

    fn something_waits(&self) -> bool {
        let mut state = self.state.lock();
        state.is_watched = !state.waiting.is_empty();
        state.is_watched
    }

    /// Has an operation wait for the next request; or gives it back, if few enough requests are
    /// under way for one more.
    fn wait(&self, part: Part) -> Option<Operation> {
        let mut state = self.state.lock();
        if state.under_way < SIDE_BY_SIDE {
            state.begin();
            return Some(part.operation);
        }
        state.waiting.push_back(part);
        None
    }

    /// The parts of one more request, if all that are under way hang.
    fn in_a_stall(&self) -> Vec<Part> {
        let mut state = self.state.lock();
        let may_begin = state.progress.elapsed() >= STALL && state.under_way < MOST_SIDE_BY_SIDE;
        if may_begin { state.gather() } else { Vec::new() }
    }

    /// A request has ended. The parts of the next one, if there is any.
    fn next(&self) -> Vec<Part> {
        let mut state = self.state.lock();
        state.under_way -= 1;
        state.progress = Instant::now();
        if state.under_way < SIDE_BY_SIDE || state.conflicts { state.gather() } else { Vec::new() }
    }

    /// The parts of a request beside those that are under way, if some of what waits do not go
    /// together.
    fn beside(&self) -> Vec<Part> {
        let mut state = self.state.lock();
        let may_begin = state.conflicts && state.under_way < MOST_SIDE_BY_SIDE;
        if may_begin { state.gather() } else { Vec::new() }
    }

    /// etcd has refused a batch of this size. With half of it, batches might stay far smaller than
    /// those that etcd takes.
    fn refused(&self, why: Refusal, size: Size) {
        let mut state = self.state.lock();
        let Size { operations, bytes } = state.limit;
        match why {
            Refusal::TooManyOperations => {
                state.limit.operations = operations.min(size.operations * 3 / 4).max(1);
            }
            Refusal::TooLarge => state.limit.bytes = bytes.min(size.bytes / 4 * 3).max(1),
            Refusal::Other => {}
        }
    }

    /// A batch had an error that its parts, each by itself, may not have.
    fn keep_apart(&self) {
        self.state.lock().apart_until = Instant::now() + APART;
    }

    /// Parts of which etcd has said that they did not happen go in the next request.
    fn put_back(&self, parts: Vec<Part>) {
        let mut state = self.state.lock();
        for part in parts.into_iter().rev() {
            state.waiting.push_front(part);
        }
    }
}

impl State {
    fn begin(&mut self) {
        self.under_way += 1;
        self.progress = Instant::now();
    }

    /// Takes the parts of a request, which begins if there are any.
    fn gather(&mut self) -> Vec<Part> {
        let is_apart = self.apart_until > Instant::now();
        let operations = if is_apart { 1 } else { self.limit.operations };
        let mut batch = Batch::new(Size { operations, ..self.limit });
        let mut left = VecDeque::new();
        while !batch.is_full
            && left.len() < LOOKED_AT
            && let Some(part) = self.waiting.pop_front()
        {
            if part.is_wanted() {
                left.extend(batch.take(part));
            }
        }
        self.conflicts = is_apart || left.len() > usize::from(batch.is_full);
        for part in left.into_iter().rev() {
            self.waiting.push_front(part);
        }
        if !batch.parts.is_empty() {
            self.begin();
        }
        batch.parts
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
        Sender::start(&self.store, &self.batches, self.batches.next());
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // The runtime ends, and with it the store.
        let mut state = self.batches.state.lock();
        state.under_way -= 1;
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}

impl Sender {
    /// Sends these parts first, if there are any.
    fn start(store: &EtcdStore, batches: &Arc<Batches>, parts: Vec<Part>) {
        if !parts.is_empty() {
            let sender =
                Self { store: store.clone(), batches: Arc::clone(batches), is_done: false };
            batches.runtime.spawn(sender.run(parts));
        }
    }

    async fn run(mut self, mut parts: Vec<Part>) {
        while !parts.is_empty() {
            Self::start(&self.store, &self.batches, self.batches.beside());
            self.send(parts).await;
            parts = self.batches.next();
        }
        self.is_done = true;
    }

    async fn send(&self, parts: Vec<Part>) {
        if parts.len() == 1 {
            return self.each_alone(parts).await;
        }
        let operations: Vec<&Operation> = parts.iter().map(|part| &part.operation).collect();
        let size = operations.iter().fold(Size::default(), |size, part| size + Size::of(part));
        let are_reads = matches!(operations.first(), Some(Operation::Read(_)));
        let now = Instant::now();
        let within = parts.iter().map(|part| part.give_up.saturating_duration_since(now)).max();
        match self.store.together(&operations, within.unwrap_or_default()).await {
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
                match why {
                    // In smaller batches, down to one part.
                    Refusal::TooManyOperations | Refusal::TooLarge => self.batches.put_back(parts),
                    Refusal::Other => self.each_alone(parts).await,
                }
            }
            Err(failure) => {
                // The answer is too large, for instance, or etcd has no space left.
                let is_of_the_batch = matches!(failure, Failure::Other(_));
                if is_of_the_batch {
                    self.batches.keep_apart();
                }
                if is_of_the_batch && are_reads {
                    return self.each_alone(parts).await;
                }
                parts.into_iter().for_each(|part| part.answer(Err(failure.clone())));
            }
        }
    }

    async fn each_alone(&self, parts: Vec<Part>) {
        join_all(parts.into_iter().map(async |Part { operation, give_up, mut answer }| {
            let within = give_up.saturating_duration_since(Instant::now());
            tokio::select! {
                outcome = Box::pin(self.store.alone(operation, within)) => {
                    // The caller may have gone.
                    let _ = answer.send(outcome);
                }
                () = answer.closed() => {}
            }
        }))
        .await;
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
        let first = self.parts.first();
        // An etcd without space still deletes, unless there is a write beside it.
        let differs = first
            .is_some_and(|first| needs_space(&first.operation) != needs_space(&part.operation));
        if conflicts || differs || self.is_full {
            return Some(part);
        }
        self.size = size;
        self.parts.push(part);
        None
    }
}

/// Whether an operation puts something there.
fn needs_space(operation: &Operation) -> bool {
    match operation {
        Operation::Claim(_) => true,
        Operation::Guarded(Guarded { mutations, .. }) => {
            mutations.iter().any(|mutation| !matches!(mutation, Mutation::Delete(_)))
        }
        Operation::Read(_)
        | Operation::Grant(_)
        | Operation::KeepAlive(_)
        | Operation::Revoke(_) => false,
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let State { under_way, waiting, limit, .. } = &*state;
        f.debug_struct("Batches")
            .field("under_way", under_way)
            .field("waiting", &waiting.len())
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}
