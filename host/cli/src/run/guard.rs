//! The guard of one term: a process between the supervisor and the work.
//!
//! The supervisor asks the work to stop, and kills it, as a rule. The guard stands
//! behind it: it kills the work when its time is over and it still runs, and at once
//! when the supervisor has died; then it gives the lease back. It knows no election,
//! runs on one thread, and waits for nobody. All signals but SIGKILL and SIGSTOP leave
//! it cold, and it is in a process group of its own, so that what is sent to the
//! supervisor's does not hit both.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `message`, `line` | what supervisor and guard say to each other, and how |
//! | `watch` | what the guard sleeps on |
//! | `lease` | how the lease is given back |

pub mod lease;
pub mod line;
pub mod message;
pub mod watch;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;

use incumbent::{BootClock, Clock, Mark};
use nix::sys::signal::SigSet;

use self::lease::Lease;
use self::line::Line;
use self::message::{Order, Report};
use self::watch::Watch;
use super::children::{Reaped, adopt_orphans, reap};
use super::family::Family;
use super::isolation::{self, Init};
use super::launch::{self, block_signals, leave_stdio};

/// How soon to look again for what was killed.
const LOOK_AGAIN: Mark = 5_000_000;

const SECOND: Mark = 1_000_000_000;

/// The process: its line to the supervisor by number, and the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let number = launch::number(arguments.next())?;
    let mut supervisor = Line::inherited(number)?;
    let mask = block_signals()?;
    launch::set_name(c"incumbent-guard");
    let command: Vec<OsString> = arguments.collect();
    match Guard::post(&mut supervisor, &command, mask) {
        Ok(Some(guard)) => guard.stand(supervisor),
        // The supervisor has died, or its time was over, before there was anything.
        Ok(None) => Ok(()),
        Err(error) => {
            supervisor.send(&Report::NotStarted(error).message());
            Ok(())
        }
    }
}

#[derive(Debug)]
struct Guard {
    watch: Watch,
    work: Family,
    /// Of the work's namespace, where it has one.
    init: Option<Init>,
    until: Mark,
    lease: Box<Lease>,
}

impl Guard {
    /// Waits for the first order, and starts the command.
    fn post(supervisor: &mut Line, command: &[OsString], mask: SigSet) -> io::Result<Option<Self>> {
        adopt_orphans()?;
        let mut watch = Watch::new()?;
        let first = loop {
            supervisor.listen();
            match supervisor.message() {
                Some(message) => break message,
                None if supervisor.is_open() => watch.wait(&[supervisor.as_fd()], Mark::MAX)?,
                None => return Ok(None),
            }
        };
        let Some(Order::Begin { until, foreground, isolate, lease }) = Order::read(&first) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if !supervisor.is_open() {
            lease.give_back();
            return Ok(None);
        }
        // We may have been stopped on the way here.
        if BootClock.now() >= until {
            return Ok(None);
        }
        let mut work = Family::default();
        let init = if isolate {
            Some(isolation::start(command, foreground, mask)?)
        } else {
            let leader = launch::start(command, foreground, mask)?;
            work.started(leader);
            supervisor.send(&Report::Started(leader).message());
            None
        };
        leave_stdio();
        Ok(Some(Self { watch, work, init, until, lease }))
    }

    /// Until nothing of the work is left, and the supervisor has said that it knows,
    /// or is no more.
    fn stand(mut self, mut supervisor: Line) -> io::Result<()> {
        let mut is_gone = false;
        let mut is_over = false;
        let mut overdue_since = None;
        loop {
            // What was said while we slept comes before the clock.
            supervisor.listen();
            while let Some(message) = supervisor.message() {
                match Order::read(&message) {
                    Some(Order::Until(until)) => self.until = until,
                    Some(Order::Over) => is_over = true,
                    Some(Order::Begin { .. }) | None => {}
                }
            }
            let is_alone = !supervisor.is_open() && !is_over;
            if !is_gone && self.is_gone(&mut supervisor) {
                is_gone = true;
                supervisor.send(&Report::Gone.message());
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
                    supervisor.send(&Report::Overdue.message());
                }
                let since = *overdue_since.get_or_insert(now);
                if let Some(init) = &self.init {
                    init.kill();
                }
                // Whom we may not kill now, we may not kill the next time; but there
                // is nothing else to do.
                let _ = self.work.kill();
                wake = now.saturating_add(look_again(now.saturating_sub(since)));
            }
            let mut lines = Vec::new();
            lines.extend(supervisor.is_open().then(|| supervisor.as_fd()));
            lines.extend(self.init.as_ref().and_then(Init::line));
            self.watch.wait(&lines, wake)?;
        }
    }

    /// Reports what has become of the command. Whether nothing of the work is left.
    fn is_gone(&mut self, supervisor: &mut Line) -> bool {
        loop {
            let reaped = reap();
            // What an init has said before its end.
            if let Some(init) = &mut self.init {
                init.relay(&mut self.work, supervisor);
            }
            match reaped {
                Reaped::One(pid, status) if self.work.is_led_by(pid) => {
                    if status.stopped_signal().is_none() {
                        self.work.ended();
                    }
                    supervisor.send(&Report::Changed(status).message());
                }
                Reaped::One(pid, status) => {
                    if let Some(init) = &mut self.init {
                        init.changed(pid, status, &mut self.work, supervisor);
                    }
                }
                Reaped::NotYet => return false,
                Reaped::NoneLeft => return self.work.is_gone(true),
            }
        }
    }
}

/// When to look again for what is being killed for so long: often at first; then less
/// and less, for there may be somebody whom we may not kill.
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
