//! The terminal, and the process group in its foreground, which the keyboard reaches.

use std::fs::{File, OpenOptions};
use std::io;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal that we were started from.
#[derive(Debug)]
pub struct Terminal {
    file: File,
    /// Its modes before the command had it.
    modes: Option<Termios>,
    given: bool,
}

impl Terminal {
    /// None if there is no terminal.
    pub fn controlling() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { file, modes: None, given: false })
    }

    /// Whether the keyboard reaches us.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|group| group == getpgrp())
    }

    /// Whether the keyboard reaches the command because we said so.
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// Notes that the command takes the foreground itself when it starts: it may read at once.
    pub fn taken(&mut self) {
        self.modes = tcgetattr(&self.file).ok();
        self.given = true;
    }

    /// Gives the foreground to a group.
    pub fn give(&mut self, group: Pid) {
        if tcsetpgrp(&self.file, group).is_ok() {
            self.given = true;
        }
    }

    /// Takes the foreground back, if we gave it.
    pub fn take_back(&mut self) {
        if self.given {
            self.given = false;
            // Fails if the terminal has gone.
            let _ = tcsetpgrp(&self.file, getpgrp());
        }
    }

    /// Restores the modes that a command has changed, for example one that was killed.
    pub fn restore(&mut self) {
        if let Some(modes) = self.modes.take() {
            let _ = tcsetattr(&self.file, OptionalActions::Now, &modes);
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
