//! Until when a component may run, whatever it is doing, and whatever else is stuck.
//!
//! The clock is read in three places. A thread sleeps to the mark, and then interrupts the code,
//! wherever it is, until it has ended; each host call checks before it reaches anything; and so
//! does each resumption of a call that waits. After a pause of the whole process the first of
//! them to run finds that the time is over.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use incumbent::{BootClock, Clock, Mark, Notifier};
use wasmtime::{Engine, UpdateDeadline};

/// How soon to interrupt code again that has not noticed.
const AGAIN: Duration = Duration::from_millis(1);

/// The limit of one run.
#[derive(Debug)]
pub struct Limit {
    engine: Engine,
    until: AtomicU64,
    /// The time was seen to be over, and that is final.
    over: AtomicBool,
    /// The code has ended.
    done: AtomicBool,
    notifier: Notifier,
    /// Of the task that waits for a host call.
    waiting: AtomicWaker,
}

impl Limit {
    /// A limit that a thread enforces from now on, until the code is [`done`](Self::done).
    pub fn keep(engine: &Engine, until: Mark) -> io::Result<Arc<Self>> {
        let limit = Arc::new(Self {
            engine: engine.clone(),
            until: AtomicU64::new(until),
            over: AtomicBool::new(false),
            done: AtomicBool::new(false),
            notifier: Notifier::default(),
            waiting: AtomicWaker::new(),
        });
        let keeper = Arc::clone(&limit);
        thread::Builder::new().name("incumbent-limit".into()).spawn(move || keeper.interrupt())?;
        Ok(limit)
    }

    /// Moves it. A limit that is over stays over.
    pub fn set(&self, until: Mark) {
        if self.until.swap(until, Ordering::AcqRel) != until {
            self.notifier.notify();
        }
    }

    /// Whether it is over at this moment, by the clock.
    pub fn is_over(&self) -> bool {
        if self.until() <= BootClock.now() {
            self.end();
        }
        self.over.load(Ordering::Acquire)
    }

    /// The answer to an engine that was interrupted.
    pub fn update(&self) -> UpdateDeadline {
        if self.is_over() { UpdateDeadline::Interrupt } else { UpdateDeadline::Continue(1) }
    }

    /// Ends it now, whatever the clock says.
    pub fn end(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.notifier.notify();
        }
    }

    /// The code has ended, and needs no interruption.
    pub fn done(&self) {
        self.done.store(true, Ordering::Release);
        self.end();
    }

    pub fn until(&self) -> Mark {
        self.until.load(Ordering::Acquire)
    }

    /// The task to wake when it is over.
    pub fn wakes(&self) -> &AtomicWaker {
        &self.waiting
    }

    /// The thread. One interruption is not enough: code that starts, or continues, at that very
    /// moment may count from the new epoch.
    fn interrupt(&self) {
        while !self.is_over() {
            BootClock.wait_until(self.until(), &self.notifier);
        }
        while !self.done.load(Ordering::Acquire) {
            self.engine.increment_epoch();
            self.waiting.wake();
            thread::sleep(AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use wasmtime::{Config, Instance, Module, Store};

    use super::*;

    /// A module that computes without end as soon as it is instantiated.
    const LOOP: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x08\x01\0\
        \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

    #[test]
    fn code_that_counts_from_an_epoch_after_the_end_is_interrupted() {
        let engine = Engine::new(Config::new().epoch_interruption(true)).unwrap();
        let module = Module::new(&engine, LOOP).unwrap();
        let limit = Limit::keep(&engine, BootClock.now()).unwrap();
        // Its thread has seen the end, and has interrupted what ran then.
        thread::sleep(Duration::from_millis(50));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut store = Store::new(&engine, Arc::clone(&limit));
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(|context| Ok(context.data().update()));
            let ended = Instance::new(&mut store, &module, &[]);
            limit.done();
            tell.send(ended.is_err()).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn moves_ahead_until_it_is_over_and_that_is_final() {
        let soon = || BootClock.now() + 20_000_000;
        let limit = Limit::keep(&Engine::default(), soon()).unwrap();
        limit.set(Mark::MAX);
        BootClock.wait_until(soon(), &Notifier::default());
        assert!(!limit.is_over());
        limit.set(BootClock.now());
        assert!(limit.is_over());
        limit.set(Mark::MAX);
        assert!(limit.is_over());
    }
}
