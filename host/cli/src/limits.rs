//! Checks, before a candidate joins, that the system grants the threads and open files that it
//! needs: a leader that is refused one later would lose its leadership.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use parking_lot::Mutex;

use super::exit::{End, bad_input};

/// How many files, sockets and the like a command may have to open.
const FILES: usize = 32;

/// How many threads a command may have to start.
const THREADS: usize = 8;

/// Their stacks are hardly used.
const STACK: usize = 64 << 10;

pub fn check() -> Result<(), End> {
    files().map_err(|error| {
        bad_input(format!("too few files can be opened ({error}): allow {FILES} more (ulimit -n)"))
    })?;
    threads().map_err(|error| {
        bad_input(format!(
            "too few threads can be started ({error}): allow this user {THREADS} more (ulimit -u)"
        ))
    })
}

fn files() -> io::Result<()> {
    let stdin = io::stdin();
    let files: io::Result<Vec<OwnedFd>> =
        (0..FILES).map(|_| stdin.as_fd().try_clone_to_owned()).collect();
    files.map(drop)
}

/// All at the same time.
fn threads() -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let wait = || drop(gate.lock());
        let threads: io::Result<Vec<_>> = (0..THREADS)
            .map(|_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, wait))
            .collect();
        drop(closed);
        threads.map(drop)
    })
}
