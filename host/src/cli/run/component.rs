//! Work that is a WASI component: it runs in this process, and stops when its time is
//! over, whatever it does.
//!
//! Nobody has to guard it: it dies with this process. A process that was paused finds
//! its time over before the component reaches anything, and what it still asks of the
//! store is refused.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `program` | the component, compiled, and what it is linked with |
//! | `grants` | what it may reach |
//! | `outlet` | where it prints |
//! | `run` | one run of it |
//! | `limit` | until when |

mod grants;
mod limit;
mod outlet;
mod program;
mod run;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use incumbent::{BootClock, Clock, Event, Leadership, Mark, Reason};

use self::grants::{Grants, not_started};
use self::program::Program;
use self::run::Run;
use super::outcome::{Ended, Outcome};
use super::schedule::Schedule;
use crate::cli::args;
use crate::cli::event::Teller;
use crate::cli::exit::End;
use crate::cli::signals::Signals;

/// How long before the end of a leadership its component is interrupted.
const LAST_MOMENT: Mark = 10_000_000;

/// As a shell says it of a program that has aborted.
const TRAPPED: u8 = 134;

/// Runs the component, one term after the other.
#[derive(Debug)]
pub struct Runner {
    program: Arc<Program>,
    grants: Arc<Grants>,
    stop_timeout: Duration,
    pub signals: Signals,
}

impl Runner {
    /// Compiles the component. None if we are asked to end meanwhile.
    pub async fn load(
        file: &Path,
        run: &args::Run,
        stop_timeout: Duration,
        mut signals: Signals,
    ) -> Result<Option<Self>, End> {
        let grants = Arc::new(Grants::new(file, &run.grants, &run.command)?);
        let file = PathBuf::from(file);
        let program = tokio::select! {
            program = tokio::task::spawn_blocking(move || Program::load(&file)) => program,
            _ = signals.next() => return Ok(None),
        };
        let program = program.map_err(|error| not_started(&io::Error::other(error)))??;
        Ok(Some(Self { program: Arc::new(program), grants, stop_timeout, signals }))
    }

    /// One term. Returns when nothing of the component runs. `events` are the
    /// candidate's: with each, the deadline may have moved.
    pub async fn term(
        &mut self,
        leadership: &Leadership,
        environment: &[(&'static str, OsString)],
        events: &mut (impl Stream<Item = Event> + Unpin),
        teller: &Teller,
    ) -> Outcome {
        let started = BootClock.now();
        // Who does not hear it needs no time to obey.
        let stop_timeout = if self.program.hears { self.stop_timeout } else { Duration::ZERO };
        let mut schedule = Schedule::new(stop_timeout, LAST_MOMENT);
        let mut run = match self.start(leadership, environment, &schedule) {
            Ok(run) => run,
            Err(end) => return Outcome::NotStarted(end),
        };
        let mut lost = None;
        let mut is_asked = false;
        let ended = loop {
            if lost.is_some() || is_asked {
                schedule.stopping(BootClock.now());
            }
            run.limit.set(schedule.kill_at(leadership.valid_until()));
            tokio::select! {
                biased;
                asked = self.signals.next() => {
                    if is_asked {
                        run.limit.end();
                        return Outcome::AtOnce(asked);
                    }
                    is_asked = true;
                    leadership.recall();
                }
                ended = &mut run.ended => break ended,
                reason = leadership.lost(), if lost.is_none() => lost = Some(reason),
                Some(_) = events.next() => {}
            }
        };
        let now = BootClock.now();
        let after = Duration::from_nanos(now.saturating_sub(started));
        let status = match ended {
            Ok(run::End::Returned(status)) => Some(status),
            Ok(run::End::Trapped(why)) => {
                teller.remark(&format!("the component broke off: {why}"));
                Some(TRAPPED)
            }
            Ok(run::End::Interrupted) => {
                let left_us = microseconds(leadership.valid_until(), now);
                let late_us = microseconds(now, run.limit.until());
                tracing::info!(left_us, late_us, "the component was interrupted");
                None
            }
            Err(_) => return Outcome::Broken { after },
        };
        match (status, lost) {
            _ if is_asked => Outcome::Asked,
            // To resign is the component's own wish.
            (Some(status), None | Some(Reason::Resigned)) => {
                Outcome::Ended(Ended { status, after, by_keyboard: false })
            }
            _ => Outcome::Stopped,
        }
    }

    fn start(
        &self,
        leadership: &Leadership,
        environment: &[(&'static str, OsString)],
        schedule: &Schedule,
    ) -> Result<Run, End> {
        let context = self.grants.context(environment)?;
        let told = self.grants.leadership(leadership);
        let until = schedule.kill_at(leadership.valid_until());
        Run::start(&self.program, &self.grants, context, told, until)
            .map_err(|error| not_started(&error))
    }
}

/// From one mark to another; less than nothing if that came earlier.
fn microseconds(to: Mark, from: Mark) -> i64 {
    to.cast_signed().saturating_sub(from.cast_signed()) / 1000
}
