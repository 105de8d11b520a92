//! Until when a component may run, whatever it does, and whatever else is stuck.
//!
//! Three look at the clock. A thread of its own sleeps to the mark, and then interrupts
//! the code, wherever it is; each call of the host's asks before it reaches anything;
//! and so does whoever waits for such a call. After a pause of the whole process the
//! first of them to run finds that the time is over.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use futures_util::task::AtomicWaker;
use incumbent::{Bell, BootClock, Clock, Mark};
use wasmtime::{Engine, UpdateDeadline};

/// The limit of one run.
#[derive(Debug)]
pub struct Limit {
    engine: Engine,
    until: AtomicU64,
    /// Somebody saw that the time was over, and that is final; or nothing runs any more.
    over: AtomicBool,
    bell: Bell,
    /// Of whoever waits for a call of the host's.
    waiting: AtomicWaker,
}

impl Limit {
    /// Kept from now on, by a thread, until it is over or dropped.
    pub fn keep(engine: &Engine, until: Mark) -> io::Result<Arc<Self>> {
        let limit = Arc::new(Self {
            engine: engine.clone(),
            until: AtomicU64::new(until),
            over: AtomicBool::new(false),
            bell: Bell::default(),
            waiting: AtomicWaker::new(),
        });
        let keeper = Arc::clone(&limit);
        thread::Builder::new().name("incumbent-limit".into()).spawn(move || keeper.interrupt())?;
        Ok(limit)
    }

    /// Moves it. What is over stays so.
    pub fn set(&self, until: Mark) {
        if self.until.swap(until, Ordering::AcqRel) != until {
            self.bell.ring();
        }
    }

    /// Whether it is over at this moment, by the clock.
    pub fn is_over(&self) -> bool {
        if self.until() <= BootClock.now() {
            self.end();
        }
        self.over.load(Ordering::Acquire)
    }

    /// As an interrupted engine asks it.
    pub fn update(&self) -> UpdateDeadline {
        if self.is_over() { UpdateDeadline::Interrupt } else { UpdateDeadline::Continue(1) }
    }

    /// Nothing runs any more, and nobody is to be interrupted.
    pub fn end(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    pub fn until(&self) -> Mark {
        self.until.load(Ordering::Acquire)
    }

    /// Who is to be woken when it is over.
    pub fn wakes(&self) -> &AtomicWaker {
        &self.waiting
    }

    /// The thread.
    fn interrupt(&self) {
        while !self.is_over() {
            BootClock.wait_until(self.until(), &self.bell);
        }
        self.engine.increment_epoch();
        self.waiting.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_ahead_until_it_is_over_and_that_is_final() {
        let soon = || BootClock.now() + 20_000_000;
        let limit = Limit::keep(&Engine::default(), soon()).unwrap();
        limit.set(Mark::MAX);
        BootClock.wait_until(soon(), &Bell::default());
        assert!(!limit.is_over());
        limit.set(BootClock.now());
        assert!(limit.is_over());
        limit.set(Mark::MAX);
        assert!(limit.is_over());
    }
}
