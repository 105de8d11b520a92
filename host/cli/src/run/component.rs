//! A WASI component: it runs in this process, and is interrupted when its time is over,
//! whatever it is doing.
//!
//! It needs no guard: it dies with this process, and when a paused process goes on, the limit
//! is checked before any code of the component runs. Data that it has handed to the system
//! before, or that waits in a socket or a pipe, may still be sent. The fence protects keys.
//!
//! A system call, such as a write to a file, cannot be interrupted: the leadership is not given
//! back before it returns.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `program` | the component, compiled, and what it is linked with |
//! | `grants` | what it may use |
//! | `output_pump` | where it prints |
//! | `run` | one run of it |
//! | `limit` | until when it may run |
//! | `quota` | how much memory, and how many files, it may use |

mod grants;
mod limit;
mod output_pump;
mod program;
mod quota;
mod run;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt};
use incumbent::{BootClock, Clock, Event, Mark, Reason};
use tokio::sync::oneshot;

use self::grants::{Grants, not_started};
use self::program::Program;
use self::run::{Job, Run};
use super::outcome::{Assignment, Ended, Outcome};
use super::schedule::Schedule;
use crate::args;
use crate::exit::End;
use crate::signals::Signals;

/// How long before the end of a leadership its component is interrupted.
const LAST_MOMENT: Mark = 10_000_000;

/// How long after its limit we wait for a component before we say that it has not ended.
const SILENCE: Mark = 1_000_000_000;

/// The status of a program that has aborted, as shells count.
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
        quota::make_room();
        let grants = Arc::new(Grants::new(file, run)?);
        let file = PathBuf::from(file);
        let (tell, program) = oneshot::channel();
        let load = move || {
            // The receiver may have gone.
            let _ = tell.send(Program::load(&file));
        };
        let loading = thread::Builder::new().name("incumbent-loader".into()).spawn(load);
        loading.map_err(|error| not_started(&error))?;
        let program = tokio::select! {
            program = program => program,
            _ = signals.next() => return Ok(None),
        };
        let program = program.map_err(|error| not_started(&io::Error::other(error)))??;
        Ok(Some(Self { program: Arc::new(program), grants, stop_timeout, signals }))
    }

    /// One term. Returns when nothing of the component runs. `events` are the
    /// candidate's: with each, the deadline may have moved.
    pub async fn term(
        &mut self,
        Assignment { leadership, environment, reporter, view, .. }: Assignment<'_>,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Outcome {
        let started = BootClock.now();
        // A component that does not hear it needs no time to obey.
        let stop_timeout = if self.program.hears { self.stop_timeout } else { Duration::ZERO };
        let schedule = Schedule::new(stop_timeout, LAST_MOMENT);
        let job = Job {
            program: Arc::clone(&self.program),
            grants: Arc::clone(&self.grants),
            leadership: self.grants.leadership(leadership),
            environment: environment.to_vec(),
        };
        let mut run = match Run::start(job, schedule.kill_at(leadership.valid_until(), None)) {
            Ok(run) => run,
            Err(error) => return Outcome::NotStarted(not_started(&error)),
        };
        view.work_begins(leadership.fence());
        let mut stopping = None;
        let mut lost = None;
        let mut asked_to_end = None;
        let mut is_resigning = false;
        let mut is_overdue = false;
        let ended = loop {
            if lost.is_some() || asked_to_end.is_some() || is_resigning {
                stopping.get_or_insert_with(|| BootClock.now());
                view.work_stops();
            }
            let until = schedule.kill_at(leadership.valid_until(), stopping);
            run.limit.set(until);
            let overdue = until.saturating_add(SILENCE);
            // The leadership may have been renewed meanwhile, so its end at the request counts.
            let timeout = asked_to_end.map(|until: Mark| until.max(overdue));
            tokio::select! {
                biased;
                asked = self.signals.next() => {
                    if asked_to_end.is_some() {
                        run.limit.end();
                        return Outcome::AtOnce(asked);
                    }
                    view.ends();
                    asked_to_end = Some(leadership.valid_until());
                    leadership.ask_to_stop();
                }
                ended = &mut run.ended => break ended,
                reason = leadership.lost(), if lost.is_none() => lost = Some(reason),
                () = view.resignation(leadership), if !is_resigning => {
                    is_resigning = true;
                    leadership.ask_to_stop();
                }
                Some(_) = events.next() => {}
                () = BootClock.sleep_until(overdue), if !is_overdue => {
                    is_overdue = true;
                    reporter.remark(
                        "the component has not ended: a system call goes on, for example a write to \
                         a file, and the leadership is not given back before it returns",
                    );
                }
                () = BootClock.sleep_until(timeout.unwrap_or_default()), if timeout.is_some() => {
                    reporter.remark(
                        "a system call of the component is stuck: the lease runs out by itself",
                    );
                    return Outcome::Stuck;
                }
            }
        };
        let now = BootClock.now();
        // The component may have heard of the loss first, and ended: the loss came first.
        let lost = lost.or_else(|| leadership.lost().now_or_never());
        if let Ok(run::End::Interrupted) = ended {
            let left_us = microseconds(leadership.valid_until(), now);
            let late_us = microseconds(now, run.limit.until());
            tracing::info!(left_us, late_us, "the component was interrupted");
        }
        let after = Duration::from_nanos(now.saturating_sub(started));
        let status = match ended {
            Ok(run::End::Returned(status)) => Some(status),
            Ok(run::End::Trapped(why)) => {
                reporter.remark(&format!("the component broke off: {why}"));
                Some(TRAPPED)
            }
            Ok(run::End::Interrupted) => None,
            Ok(run::End::NotStarted(end)) => return Outcome::NotStarted(end),
            Err(_) => {
                reporter.remark("the thread of the component panicked: a fault of incumbent");
                return Outcome::Broken { after };
            }
        };
        if asked_to_end.is_some() {
            Outcome::Asked
        } else if is_resigning {
            Outcome::Resigned
        } else {
            outcome(status, lost, after)
        }
    }
}

/// How a term whose run has ended went, if nobody asked for its end. `status` is the component's,
/// if it was not interrupted.
fn outcome(status: Option<u8>, lost: Option<Reason>, after: Duration) -> Outcome {
    match (status, lost) {
        // The component has resigned itself.
        (Some(status), None | Some(Reason::Resigned)) => {
            Outcome::Ended(Ended { status, after, by_keyboard: false })
        }
        _ => Outcome::Stopped,
    }
}

/// From one mark to another; negative if `to` came first.
fn microseconds(to: Mark, from: Mark) -> i64 {
    to.cast_signed().saturating_sub(from.cast_signed()) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_component_whose_term_is_lost_is_not_its_own() {
        let after = |lost| outcome(Some(0), lost, Duration::ZERO);
        assert!(matches!(after(None), Outcome::Ended(Ended { status: 0, .. })));
        assert!(matches!(after(Some(Reason::Resigned)), Outcome::Ended(_)));
        assert!(matches!(after(Some(Reason::Deposed)), Outcome::Stopped));
    }
}
