//! What takes the steps from the drivers, and keeps them until they are written.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::action::HostAction;
use super::line::Line;
use crate::clock::Clock;
use crate::elector::size;
use crate::types::{Config, ConfigError, Event, Mark, Step};

/// How many bytes may wait to be written, by an estimate.
const WAITING: usize = 32 << 20;
/// What a step takes, and each of its commands.
const PIECE: usize = 512;
/// How long the writer lets steps gather. It keeps out of the way of what has just begun, and is
/// woken once for all of them.
const GATHERING: Duration = Duration::from_millis(5);
/// How long a session that closes waits for its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The recorder of a session, for all of its drivers. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Owner>);

/// The writer ends with the last clone.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    electors: AtomicU32,
}

/// What the drivers and the writer share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    grown: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: Vec<Line>,
    bytes: usize,
    /// How many lines of each elector were left out.
    missing: BTreeMap<u32, u64>,
    /// Told once all lines before are written.
    flushed: Vec<oneshot::Sender<()>>,
    /// The writer waits.
    is_idle: bool,
    /// Nothing is written any more.
    is_over: bool,
    /// The session is gone.
    is_closed: bool,
}

/// The recorder of one driver, whose electors follow each other.
#[derive(Debug)]
pub(crate) struct Stream {
    recorder: Recorder,
    elector: u32,
    is_closed: bool,
}

impl Recorder {
    pub(super) fn new(shared: Arc<Shared>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Owner { shared, clock, electors: AtomicU32::new(0) }))
    }

    /// For another driver.
    pub(crate) fn stream(&self) -> Stream {
        let elector = self.0.electors.fetch_add(1, Ordering::Relaxed);
        Stream { recorder: self.clone(), elector, is_closed: false }
    }

    /// Something was done for no elector in particular.
    pub(crate) fn did(&self, action: HostAction) {
        self.push(Line::Host { elector: 0, now: self.0.clock.now(), action }, PIECE);
    }

    /// Waits until all is written that was said so far. Cancel safe.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        {
            let mut queue = self.0.shared.queue.lock();
            if queue.is_over {
                return;
            }
            queue.flushed.push(done);
        }
        self.0.shared.grown.notify_one();
        // A disk that hangs does not keep the session.
        let _ = tokio::time::timeout(LAST_LINES, flushed).await;
    }

    fn push(&self, line: Line, bytes: usize) {
        let mut queue = self.0.shared.queue.lock();
        if queue.is_over {
            return;
        }
        if !queue.missing.is_empty() || queue.bytes + bytes > WAITING {
            let (Line::Open { elector, .. }
            | Line::Step { elector, .. }
            | Line::Host { elector, .. }) = line
            else {
                return;
            };
            *queue.missing.entry(elector).or_default() += 1;
            return;
        }
        queue.bytes += bytes;
        queue.lines.push(line);
        let wake = mem::take(&mut queue.is_idle);
        drop(queue);
        if wake {
            self.0.shared.grown.notify_one();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.grown.notify_one();
    }
}

impl Shared {
    /// For the writer: waits for lines, and takes them. None once there will be no more.
    pub(super) fn next(&self, now: impl Fn() -> Mark) -> Option<Taken> {
        let mut queue = self.queue.lock();
        while queue.lines.is_empty() && queue.flushed.is_empty() {
            if queue.is_closed {
                return None;
            }
            queue.is_idle = true;
            self.grown.wait(&mut queue);
        }
        queue.is_idle = false;
        if queue.flushed.is_empty() && !queue.is_closed {
            self.grown.wait_for(&mut queue, GATHERING);
        }
        let mut taken =
            Taken { lines: mem::take(&mut queue.lines), flushed: mem::take(&mut queue.flushed) };
        let missing = mem::take(&mut queue.missing);
        queue.bytes = 0;
        drop(queue);
        let gap =
            |(elector, lines)| Line::Host { elector, now: now(), action: HostAction::Gap(lines) };
        taken.lines.extend(missing.into_iter().map(gap));
        Some(taken)
    }

    /// For the writer: nothing is written any more.
    pub(super) fn finish(&self) {
        *self.queue.lock() = Queue { is_over: true, ..Queue::default() };
    }
}

/// What the writer has taken.
pub(super) struct Taken {
    pub(super) lines: Vec<Line>,
    pub(super) flushed: Vec<oneshot::Sender<()>>,
}

impl Stream {
    /// An elector was opened.
    pub(crate) fn opened(&self, now: Mark, config: Config, error: Option<ConfigError>) {
        let elector = self.elector;
        self.recorder.push(Line::Open { elector, now, config, error }, PIECE);
    }

    /// The elector was told of events, and said this, unless it broke.
    pub(crate) fn stepped(&self, now: Mark, events: Vec<Event>, step: Option<Step>) {
        let commands = step.as_ref().map_or(0, |step| step.commands.len());
        let told: usize = events.iter().map(size::event).sum();
        // What a command holds, it has from an event.
        let bytes = 2 * told + PIECE * (1 + commands);
        self.recorder.push(Line::Step { elector: self.elector, now, events, step }, bytes);
    }

    /// The host did something just now.
    pub(crate) fn did(&self, action: HostAction) {
        let now = self.recorder.0.clock.now();
        self.recorder.push(Line::Host { elector: self.elector, now, action }, PIECE);
    }

    /// The session ends.
    pub(crate) fn close(&mut self) {
        if !mem::replace(&mut self.is_closed, true) {
            self.did(HostAction::Closed);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn what_a_slow_disk_cannot_take_is_a_gap() {
        let shared = Arc::new(Shared::default());
        let recorder = Recorder::new(Arc::clone(&shared), Arc::new(ManualClock::default()));
        let streams = [recorder.stream(), recorder.stream()];
        let many = WAITING / PIECE + 10;
        for _ in 0..many {
            streams.iter().for_each(|stream| stream.stepped(1, Vec::new(), None));
        }
        assert!(shared.queue.lock().bytes <= WAITING);
        let taken = shared.next(|| 7).expect("there are lines").lines;
        let steps = taken.iter().filter(|line| matches!(line, Line::Step { .. })).count();
        let gaps = taken.get(steps..).expect("the gaps come last").iter().map(|line| {
            let Line::Host { elector, now: 7, action: HostAction::Gap(missing) } = line else {
                panic!("{line:?}");
            };
            (*elector, *missing)
        });
        let gaps: Vec<_> = gaps.collect();
        let missing: u64 = gaps.iter().map(|(_, missing)| missing).sum();
        assert_eq!((gaps.len(), steps as u64 + missing), (2, 2 * many as u64));

        let [first, second] = streams;
        first.stepped(2, Vec::new(), None);
        assert_eq!(shared.next(|| 8).expect("it goes on").lines.len(), 1);
        drop((first, second, recorder));
        assert_eq!(shared.next(|| 9).map(|taken| taken.lines.len()), Some(2), "both have closed");
        assert!(shared.next(|| 9).is_none());
    }
}
