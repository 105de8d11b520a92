//! The terminal, and who has its foreground: whom the keyboard reaches.

use std::fs::{File, OpenOptions};
use std::io;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal that we were started from.
#[derive(Debug)]
pub struct Terminal {
    file: File,
    /// How it was before it was given away.
    modes: Option<Termios>,
    given: bool,
}

impl Terminal {
    /// None where nobody sits at a keyboard.
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

    /// Notes that the command takes the foreground by itself when it starts: it
    /// may read at once.
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
            // Fails where the terminal has gone, and there is nothing to take.
            let _ = tcsetpgrp(&self.file, getpgrp());
        }
    }

    /// Undoes what a command that was killed has done to the terminal.
    pub fn restore(&mut self) {
        if let Some(modes) = self.modes.take() {
            let _ = tcsetattr(&self.file, OptionalActions::Now, &modes);
        }
    }
}

/// Lets this thread, and those it starts from now on, use the terminal while the
/// foreground is somebody else's: otherwise our own lines could stop us, while
/// the command ran on.
pub fn may_write_from_the_background() {
    // Fails for no signal that exists.
    let _ = background_output().thread_block();
}

/// For a process that is about to become another program: takes that back.
/// Allocates nothing.
pub fn leave_signals_as_they_were() -> io::Result<()> {
    Ok(background_output().thread_unblock()?)
}

fn background_output() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    signals
}
