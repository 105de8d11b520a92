//! Watches on the store in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::contents::Contents;
use super::{Shared, State};
use crate::store::Watches;
use crate::types::{Change, Mark, RequestId, Watch, Watched};

/// One set of watches.
pub(super) struct MemoryWatches {
    shared: Arc<Shared>,
    number: u64,
    /// Until the first lease runs out, which this set then ends.
    sleep: Option<(Mark, BoxFuture<'static, ()>)>,
}

/// The watches of a set, and the changes that they have still to tell.
#[derive(Default)]
pub(super) struct Seen {
    watches: BTreeMap<RequestId, Watch>,
    /// How many of the store's changes have been looked at.
    looked_at: usize,
    untold: VecDeque<Watched>,
    waker: Option<Waker>,
}

impl MemoryWatches {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let number = {
            let mut state = shared.state.lock();
            state.last_set += 1;
            let number = state.last_set;
            let seen = Seen { looked_at: state.contents.changes(), ..Seen::default() };
            state.watching.insert(number, seen);
            number
        };
        Self { shared, number, sleep: None }
    }

    /// Ends the leases that are over, and sleeps until the next one is.
    fn watch_the_clock(&mut self, context: &mut Context<'_>) {
        loop {
            let Some(end) = self.shared.sweep() else {
                self.sleep = None;
                return;
            };
            if self.sleep.as_ref().is_none_or(|(mark, _)| *mark != end) {
                self.sleep = Some((end, self.shared.clock.sleep_until(end)));
            }
            let is_over =
                self.sleep.as_mut().is_some_and(|(_, sleep)| sleep.poll_unpin(context).is_ready());
            if !is_over {
                return;
            }
            self.sleep = None;
        }
    }
}

impl Watches for MemoryWatches {
    fn open(&mut self, watch: Watch) {
        // A watch that begins now does not tell the end of leases that are over by now.
        self.shared.sweep();
        let mut state = self.shared.state.lock();
        let State { contents, watching, .. } = &mut *state;
        if let Some(seen) = watching.get_mut(&self.number) {
            seen.open(contents, watch);
        }
    }

    fn close(&mut self, id: RequestId) {
        if let Some(seen) = self.shared.state.lock().watching.get_mut(&self.number) {
            seen.watches.remove(&id);
            seen.untold.retain(|watched| watched.id != id);
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Watched> {
        self.watch_the_clock(context);
        let mut state = self.shared.state.lock();
        let Some(seen) = state.watching.get_mut(&self.number) else {
            return Poll::Pending;
        };
        if let Some(watched) = seen.untold.pop_front() {
            return Poll::Ready(watched);
        }
        seen.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for MemoryWatches {
    fn drop(&mut self) {
        self.shared.state.lock().watching.remove(&self.number);
    }
}

impl Seen {
    fn open(&mut self, contents: &Contents, watch: Watch) {
        let id = watch.id;
        let begin = match watch.since {
            None => Ok((contents.revision(), contents.changes())),
            Some(since) => {
                contents.changes_before(since).map(|before| (since.saturating_sub(1), before))
            }
        };
        match begin {
            Ok((revision, before)) => {
                let missed = contents.changes_after(before).iter();
                self.untold.push_back(Watched { id, change: Change::Started(revision) });
                self.untold.extend(missed.filter_map(|(_, change)| watch.sees(change)));
                self.watches.insert(id, watch);
            }
            Err(failure) => self.untold.push_back(Watched { id, change: Change::Ended(failure) }),
        }
        self.wake();
    }

    /// Takes in the changes since the last time.
    pub(super) fn take(&mut self, contents: &Contents) {
        let changes = contents.changes_after(self.looked_at);
        self.looked_at = contents.changes();
        let before = self.untold.len();
        for (_, change) in changes {
            self.untold.extend(self.watches.values().filter_map(|watch| watch.sees(change)));
        }
        if self.untold.len() > before {
            self.wake();
        }
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Watch {
    /// What the watch tells of a change, if it watches its key.
    fn sees(&self, change: &Change) -> Option<Watched> {
        let (key, at) = match change {
            Change::Put(entry) => (&entry.key, entry.modified),
            Change::Deleted(deletion) => (&deletion.key, deletion.at),
            Change::Started(_) | Change::Ended(_) => return None,
        };
        let is_ours = *key == self.key || self.prefix && key.starts_with(&self.key);
        // A watch may begin in the future.
        let is_told = is_ours && self.since.is_none_or(|since| since <= at);
        is_told.then(|| Watched { id: self.id, change: change.clone() })
    }
}
