//! The guard of one term: a process between the supervisor and the work.
//!
//! As a rule the supervisor asks the work to stop, and kills it. The guard is there for when
//! it does not: it kills the work when the deadline has passed and some of the work still
//! runs, and at once when the supervisor has died; then it gives the lease back. It knows no
//! election, runs on one thread, and waits for no other process. It blocks all signals but
//! SIGKILL and SIGSTOP, and is in a process group of its own: a signal to the supervisor's
//! group (`kill -9 %1`) leaves one of the two.
//!
//! A guard lives for one term. It inherits what the command is to have (arguments,
//! environment, standard input and output), knows one deadline and one lease, and ends with
//! them. It is this program again, started through `/proc/self/exe`, without clap or the
//! elector, and without tokio until there is a lease to give back.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;

use incumbent::{BootClock, Clock, Mark};
use nix::sys::signal::SigSet;

use super::channel::Channel;
use super::children::{Reaped, adopt_orphans, reap};
use super::isolation::{self, Init};
use super::launch::{self, block_signals, leave_stdio};
use super::lease::Lease;
use super::message::{Begin, Order, Report};
use super::poller::Poller;
use super::process_tree::ProcessTree;

/// How soon to look again for what was killed.
const LOOK_AGAIN: Mark = 5_000_000;

const SECOND: Mark = 1_000_000_000;

/// The process: the number of its channel to the supervisor, and the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let number = launch::number(arguments.next())?;
    let mut supervisor = Channel::inherited(number)?;
    let mask = block_signals()?;
    launch::set_name(c"incumbent-guard");
    let command: Vec<OsString> = arguments.collect();
    match Guard::start(&mut supervisor, &command, mask) {
        Ok(Some(guard)) => guard.watch(supervisor),
        // The supervisor had died, or the deadline had passed, before anything was started.
        Ok(None) => Ok(()),
        Err(error) => {
            supervisor.send(&Report::NotStarted(error));
            Ok(())
        }
    }
}

#[derive(Debug)]
struct Guard {
    poller: Poller,
    tree: ProcessTree,
    /// Of the command's namespace, where it has one.
    init: Option<Init>,
    until: Mark,
    lease: Lease,
}

impl Guard {
    /// Waits for the first order, and starts the command.
    fn start(
        supervisor: &mut Channel,
        command: &[OsString],
        mask: SigSet,
    ) -> io::Result<Option<Self>> {
        adopt_orphans()?;
        let mut poller = Poller::new()?;
        let first = loop {
            supervisor.exchange();
            match supervisor.message() {
                Some(order) => break order,
                None if supervisor.is_open() => poller.wait(&[supervisor.as_fd()], Mark::MAX)?,
                None => return Ok(None),
            }
        };
        let Order::Begin(begin) = first else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let Begin { until, foreground, isolate, lease } = *begin;
        if !supervisor.is_open() {
            lease.give_back();
            return Ok(None);
        }
        // We may have been stopped on the way here.
        if BootClock.now() >= until {
            return Ok(None);
        }
        let mut tree = ProcessTree::default();
        let init = if isolate {
            Some(isolation::start(command, foreground, mask)?)
        } else {
            let leader = launch::start(command, foreground, mask)?;
            tree.started(leader);
            supervisor.send(&Report::Started(leader));
            None
        };
        leave_stdio();
        Ok(Some(Self { poller, tree, init, until, lease }))
    }

    /// Returns when nothing of the work is left, and the supervisor has said that it knows
    /// that, or is dead.
    fn watch(mut self, mut supervisor: Channel) -> io::Result<()> {
        let mut is_gone = false;
        let mut is_over = false;
        let mut overdue_since = None;
        loop {
            // What was said while we slept comes before the clock.
            supervisor.exchange();
            while let Some(order) = supervisor.message() {
                match order {
                    Order::Until(until) => self.until = until,
                    Order::Over => is_over = true,
                    Order::Begin(_) => {}
                }
            }
            let is_alone = !supervisor.is_open() && !is_over;
            if !is_gone && self.reap_all(&mut supervisor) {
                is_gone = true;
                supervisor.send(&Report::Gone);
            }
            if is_gone && is_alone {
                self.lease.give_back();
            }
            if is_gone && (is_alone || is_over) {
                return Ok(());
            }

            let now = BootClock.now();
            let mut wake = if is_gone { Mark::MAX } else { self.until };
            if !is_gone && (is_alone || is_over || now >= self.until) {
                if overdue_since.is_none() {
                    supervisor.send(&Report::Overdue);
                }
                let since = *overdue_since.get_or_insert(now);
                if let Some(init) = &self.init {
                    init.kill();
                }
                // A process that we may not kill now we may not kill the next time either,
                // but there is nothing else to do.
                let _ = self.tree.kill();
                wake = now.saturating_add(look_again(now.saturating_sub(since)));
            }
            let mut channels = Vec::new();
            channels.extend(supervisor.is_open().then(|| supervisor.as_fd()));
            channels.extend(self.init.as_ref().and_then(Init::channel));
            self.poller.wait(&channels, wake)?;
        }
    }

    /// Reaps what has ended, and reports what has become of the command. Returns whether nothing
    /// of the work is left.
    fn reap_all(&mut self, supervisor: &mut Channel) -> bool {
        loop {
            let reaped = reap();
            // What an init has said before its end.
            if let Some(init) = &mut self.init {
                init.relay(&mut self.tree, supervisor);
            }
            match reaped {
                Reaped::One(pid, status) if self.tree.is_led_by(pid) => {
                    if status.stopped_signal().is_none() {
                        self.tree.ended();
                    }
                    supervisor.send(&Report::Changed(status));
                }
                Reaped::One(pid, status) => {
                    if let Some(init) = &mut self.init
                        && let Some(report) = init.changed(pid, status, &mut self.tree)
                    {
                        supervisor.send(&report);
                    }
                }
                Reaped::NotYet => return false,
                Reaped::NoneLeft => return self.tree.is_gone(true),
            }
        }
    }
}

/// How soon to look again for what has been killed for so long: often at first, then less and
/// less, because there may be a process that we may not kill.
fn look_again(killing: Mark) -> Mark {
    killing.saturating_sub(SECOND).clamp(LOOK_AGAIN, SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_less_and_less_at_whom_it_may_not_kill() {
        assert_eq!(look_again(0), LOOK_AGAIN);
        assert_eq!(look_again(SECOND), LOOK_AGAIN);
        assert_eq!(look_again(SECOND + SECOND / 4), SECOND / 4);
        assert_eq!(look_again(100 * SECOND), SECOND);
    }
}
