//! Work that is a WASI component: it runs in this process, and stops when its time is
//! over, whatever it does.
//!
//! Nobody has to guard it: it dies with this process. A process that was paused finds
//! its time over before the component has done anything.
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
use incumbent::{BootClock, Clock, Event, Leadership, Mark};

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
const LAST_MOMENT: Mark = 5_000_000;

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
        let mut schedule = Schedule::new(self.stop_timeout, LAST_MOMENT);
        let until = schedule.kill_at(leadership.valid_until());
        let run = self.grants.context(environment).and_then(|context| {
            Run::start(&self.program, &self.grants, context, until)
                .map_err(|error| not_started(&error))
        });
        let mut run = match run {
            Ok(run) => run,
            Err(end) => return Outcome::NotStarted(end),
        };
        let mut is_lost = false;
        let mut is_asked = false;
        let ended = loop {
            if is_lost || is_asked {
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
                }
                ended = &mut run.ended => break ended,
                _ = leadership.lost(), if !is_lost => is_lost = true,
                Some(_) = events.next() => {}
            }
        };
        let now = BootClock.now();
        let after = Duration::from_nanos(now.saturating_sub(started));
        let status = match ended {
            Ok(run::End::Interrupted) => {
                tracing::info!(
                    left_us = microseconds(leadership.valid_until(), now),
                    "the component was interrupted"
                );
                None
            }
            Ok(run::End::Returned(status)) => Some(status),
            Ok(run::End::Trapped(why)) => {
                teller.remark(&format!("the component broke off: {why}"));
                Some(TRAPPED)
            }
            Err(_) => return Outcome::Broken { after },
        };
        match status {
            _ if is_asked => Outcome::Asked,
            _ if is_lost => Outcome::Stopped,
            None => Outcome::Stopped,
            Some(status) => Outcome::Ended(Ended { status, after, by_keyboard: false }),
        }
    }
}

/// What is left until a mark; less than nothing after it.
fn microseconds(until: Mark, now: Mark) -> i64 {
    until.cast_signed().saturating_sub(now.cast_signed()) / 1000
}
