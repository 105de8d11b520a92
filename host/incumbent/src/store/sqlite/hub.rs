//! Where the sets of watches and the writer reach the thread that serves the watches.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::waker::Waker;
use crate::store::following::WatchRequest;

/// What all sets, the writer and the thread share.
#[derive(Debug)]
pub(super) struct Hub {
    state: Mutex<State>,
    pub(super) waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<WatchRequest>,
    /// Something was committed.
    committed: bool,
    /// How many sets there are, and the last one's number.
    sets: usize,
    last_set: u64,
    /// The thread runs.
    served: bool,
}

impl Hub {
    /// Fails where this process may open no more files.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), waker: Waker::new()? })
    }

    /// Something was committed by this process.
    pub(super) fn notify(&self) {
        self.state.lock().committed = true;
        self.waker.wake();
    }

    /// Waits until there is something to do, and no longer than this. None when no set is
    /// left: the thread has to end then.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Option<Vec<WatchRequest>> {
        let until = at_most.map(|at_most| Instant::now() + at_most);
        // Without a watch, a commit changes nothing for the thread.
        let watches = at_most.is_some();
        loop {
            {
                let mut state = self.state.lock();
                let is_over = until.is_some_and(|until| until <= Instant::now());
                let is_notified = state.committed && watches;
                if is_over || is_notified || state.sets == 0 || !state.requests.is_empty() {
                    state.committed = false;
                    state.served = state.sets > 0;
                    let requests = std::mem::take(&mut state.requests);
                    return state.served.then_some(requests);
                }
            }
            if self.waker.wait(until, watches) {
                self.state.lock().committed = true;
            }
        }
    }

    pub(super) fn enter(&self) -> u64 {
        let mut state = self.state.lock();
        state.sets += 1;
        state.last_set += 1;
        state.last_set
    }

    pub(super) fn leave(&self, set: u64) {
        let mut state = self.state.lock();
        state.sets -= 1;
        if state.served {
            state.requests.push(WatchRequest::Leave { set });
            self.waker.wake();
        }
    }

    /// Hands a request to the thread, and starts it first if it does not run.
    pub(super) fn request(&self, request: WatchRequest, start: impl FnOnce() -> io::Result<()>) {
        let mut state = self.state.lock();
        if !state.served {
            if let Err(error) = start() {
                return request.refuse(&format!(
                    "no thread can be started for a watch ({error}): allow this user more (ulimit -u)"
                ));
            }
            state.served = true;
        }
        state.requests.push(request);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_waits_while_there_is_a_set_and_ends_with_the_last() {
        let hub = Hub::new().unwrap();
        let set = hub.enter();
        let begun = Instant::now();
        let at_most = Duration::from_millis(50);
        assert!(hub.wait(Some(at_most)).is_some_and(|requests| requests.is_empty()));
        assert!(begun.elapsed() >= at_most);
        hub.notify();
        assert!(hub.wait(Some(Duration::from_secs(60))).is_some());
        assert!(begun.elapsed() < Duration::from_secs(30));
        hub.leave(set);
        assert!(hub.wait(None).is_none());
    }
}
