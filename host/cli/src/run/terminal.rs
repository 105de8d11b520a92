//! The terminal, and the process group in its foreground, which the keyboard reaches.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal that we were started from, if there is one.
#[derive(Debug)]
pub struct Terminal {
    file: Option<File>,
    /// Its modes before the command had it.
    modes: Option<Termios>,
    given: bool,
}

impl Terminal {
    pub fn controlling() -> Self {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok();
        Self { file, modes: None, given: false }
    }

    pub fn exists(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the keyboard reaches us.
    pub fn is_ours(&self) -> bool {
        self.file.as_ref().is_some_and(|file| tcgetpgrp(file) == Ok(getpgrp()))
    }

    /// Whether the keyboard reaches the command because we said so.
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// Notes that the command takes the foreground itself when it starts: it may read at once.
    pub fn taken(&mut self) {
        self.modes = self.file.as_ref().and_then(|file| tcgetattr(file).ok());
        self.given = true;
    }

    /// Gives the foreground to the command's group, if it is ours.
    pub fn give(&mut self, group: Option<Pid>) {
        if let (Some(file), Some(group)) = (&self.file, group)
            && self.is_ours()
            && tcsetpgrp(file, group).is_ok()
        {
            self.given = true;
        }
    }

    /// Takes the foreground back, if we gave it.
    pub fn take_back(&mut self) {
        if mem::take(&mut self.given)
            && let Some(file) = &self.file
        {
            // Fails if the terminal has gone.
            let _ = tcsetpgrp(file, getpgrp());
        }
    }

    /// Takes the foreground back, if we gave it, and restores the modes that the command has
    /// changed, for example one that was killed.
    pub fn restore(&mut self) {
        if !self.given {
            return;
        }
        self.take_back();
        if let (Some(file), Some(modes)) = (&self.file, self.modes.take()) {
            let _ = tcsetattr(file, OptionalActions::Now, &modes);
        }
    }
}

/// Lets this thread, and those that it starts from now on, write to the terminal from the
/// background: otherwise our own lines could stop us, while the command ran on.
pub fn may_write_from_the_background() {
    // Cannot fail: the signal exists.
    let _ = background_output().thread_block();
}

/// Takes that back, in a process that is about to become another program. Allocates nothing.
pub fn leave_signals_as_they_were() -> io::Result<()> {
    Ok(background_output().thread_unblock()?)
}

fn background_output() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    signals
}
