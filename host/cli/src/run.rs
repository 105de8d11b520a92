//! `incumbent run`: runs a command or a component, only while leading.
//!
//! For a command there are three processes, each a child of the one before: the supervisor,
//! which the user has started; a guard, for one term; and the command. Supervisor and guard are
//! both subreapers: a process below them that loses its parent becomes their child. So once one
//! of them has no child left, no part of the work is running. Only that proof, never a look into
//! `/proc`, allows a leadership to be resigned. Supervisor and guard each clean up when the other
//! dies. A component runs in this process.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `workload` | what runs while leading: a command or a component |
//! | `component` | a component, its runs, and their limit |
//! | `supervisor` | a command, term after term; `supervisor::term` decides, without I/O |
//! | `schedule` | when work has to stop |
//! | `outcome` | how a term went, and what follows |
//! | `work` | one term's command, as the supervisor reaches it: behind its guard |
//! | `guard` | the process that keeps the deadline when the supervisor does not |
//! | `channel`, `message` | how supervisor and guard talk, and what they say |
//! | `lease` | how the guard gives the lease back |
//! | `clean_up` | what systemd runs when a service has ended |
//! | `poller` | what the guard sleeps on |
//! | `isolation` | a command in its own PID namespace, and the init of that namespace |
//! | `launch` | how the command and a guard are started |
//! | `process_tree`, `children` | the processes below us, and which of them have to be reaped |
//! | `program` | whether the command can be run at all |
//! | `terminal` | which process group has the keyboard |
//! | `events` | the file that events are appended to |

mod channel;
mod children;
mod clean_up;
mod component;
mod events;
mod guard;
mod isolation;
mod launch;
mod lease;
mod message;
mod outcome;
mod poller;
mod process_tree;
mod program;
mod schedule;
mod supervisor;
mod terminal;
mod work;
mod workload;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

use incumbent::{Backoff, Candidate, Credentials, Leadership, Session, StoreUrl};
use tokio::task::JoinHandle;

use self::component::Runner;
use self::lease::Lease;
use self::outcome::{Assignment, Next, Outcome};
use self::supervisor::{Supervisor, unguarded};
pub use self::terminal::may_write_from_the_background;
use self::workload::Workload;
use super::args::{Common, Contest, Form, Run};
use super::checks::{check_candidate, credentials};
use super::drain::heed;
use super::event::{Reporter, missed};
use super::exit::{End, Status, bad_input, say};
use super::http::Endpoint;
use super::instance::{InstanceView, Role};
use super::output::Output;
use super::session::{self, Cleanup, identity, leave};
use super::signals::{DrainSignals, Signals, not_heard};
use super::systemd::Notifier;
use super::text::in_seconds;

/// How far the delay doubles before a command that ended early may come back.
const LONGEST_RESTART_DELAY: Duration = Duration::from_secs(30);

/// If this process was started as another part of `run` than the supervisor: runs that part, and
/// returns its status.
pub fn part() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let role = arguments.next()?;
    let done = match role.to_str()? {
        launch::GUARD => guard::main(arguments),
        launch::CLEAN_UP => clean_up::main(),
        launch::INIT => isolation::main(arguments),
        launch::PROBE => isolation::probe(),
        _ => return None,
    };
    let Err(error) = done else {
        return Some(Status::Done.into());
    };
    if role == launch::PROBE {
        // For the process that has started us.
        println!("{error}");
    } else {
        say(&format!(
            "this is a part of `incumbent run`, which starts it: write \
             incumbent run ELECTION -- CMD ({error})"
        ));
    }
    Some(Status::BadInput.into())
}

pub async fn run(common: &Common, run: &Run) -> Result<Status, End> {
    check_candidate(common, &run.candidate)?;
    let stop_timeout = stop_timeout(run)?;
    let store = match &run.component {
        Some(_) => common.store(),
        None => {
            program::find(&run.command)?;
            launch::find().map_err(|error| unguarded(&error))?;
            if run.isolate {
                isolation::find()?;
            }
            store_of_others(common)?
        }
    };
    let credentials = credentials(common)?;
    let reporting = targets(common, run, &identity(common))?;
    let view = session::view(common, "run", &run.election, run.candidate.lease.ttl);
    let reporter = Reporter::new(&view, reporting);
    let signals = Signals::listen()?;
    let drains = DrainSignals::listen()?;
    let _endpoint = Endpoint::start(&run.http, &view)?;
    let _notifier = Notifier::start(&view)?;
    let workload = match &run.component {
        Some(file) => match Runner::load(file, run, stop_timeout, signals).await? {
            Some(runner) => Workload::Component(runner),
            None => return Ok(Status::Done),
        },
        None => Workload::Command(
            Supervisor::new(&run.command, stop_timeout, run.isolate, signals).map_err(not_heard)?,
        ),
    };
    let mut instance = Instance {
        common,
        run,
        workload,
        delay: Backoff::new(run.restart_delay, LONGEST_RESTART_DELAY),
        reporter,
        view,
        store,
        credentials,
    };
    let session = tokio::select! {
        session = session::candidate_session(common, &run.candidate, &run.record) => session?,
        _ = instance.workload.asked() => return Ok(Status::Done),
    };
    let _heeding = heed(drains, &session);
    let end = instance.campaign(&session).await;
    instance.reporter.flush().await;
    end
}

/// What lasts from candidacy to candidacy.
#[derive(Debug)]
struct Instance<'a> {
    common: &'a Common,
    run: &'a Run,
    workload: Workload,
    delay: Backoff,
    reporter: Reporter,
    view: InstanceView,
    /// With an absolute path, so that guard and work find it wherever they are.
    store: StoreUrl,
    credentials: Credentials,
}

impl Instance<'_> {
    /// Candidacy after candidacy, until there is an end.
    async fn campaign(&mut self, session: &Session) -> Result<Status, End> {
        let candidate = &self.run.candidate;
        let election = session::election(session, self.common, candidate, &self.run.election);
        loop {
            self.view.connected(session, &election, Role::Joining);
            let mut candidate = election.join();
            let reporting = tokio::spawn(self.reporter.clone().report_all(candidate.events()));
            let mut held = None;
            let end = match self.terms(&mut candidate, &mut held).await {
                Next::Campaign { .. } => continue,
                Next::Delay => {
                    if self.stay_away(candidate, held).await {
                        continue;
                    }
                    return Ok(self.clean_up(session, None, None, Status::Done).await);
                }
                Next::AtOnce(status) => {
                    // Dropped, they would report that the work has stopped, and the key might
                    // go. The work was killed, which takes a while: a command's guard waits for
                    // its end, and gives the lease back; a component ends with us, or with the
                    // call to the system that it has begun.
                    std::mem::forget((candidate, held));
                    return Ok(status);
                }
                Next::End(end) => end,
            };
            let status = end.as_ref().map_or_else(|end| end.status, |status| *status);
            let candidate = Some((candidate, held));
            let status = self.clean_up(session, candidate, Some(reporting), status).await;
            return end.map(|_| status);
        }
    }

    async fn clean_up(
        &mut self,
        session: &Session,
        candidate: Option<(Candidate, Option<Leadership>)>,
        reporting: Option<JoinHandle<()>>,
        status: Status,
    ) -> Status {
        self.view.ends();
        let cleanup =
            Cleanup { session, candidate, reporting, timeout: self.common.command_timeout };
        cleanup.finish(self.workload.signals(), status).await
    }

    /// Gives the leadership back, and stays out of the queue for the restart delay. False if
    /// we are asked to end meanwhile.
    async fn stay_away(&mut self, candidate: Candidate, held: Option<Leadership>) -> bool {
        let delay = self.delay.pause_at_least();
        self.reporter.remark(&format!(
            "the {} ended, and others have their turn: back in line in {}",
            self.workload.name(),
            in_seconds(delay)
        ));
        let away = async {
            leave(candidate, held).await;
            tokio::time::sleep(delay).await;
        };
        tokio::select! {
            () = away => true,
            _ = self.workload.asked() => false,
        }
    }

    /// Term after term of one candidacy. If the last one is not given back yet, it is left in
    /// `held`: its work has stopped.
    async fn terms(&mut self, candidate: &mut Candidate, held: &mut Option<Leadership>) -> Next {
        let mut events = candidate.events();
        loop {
            let leadership = tokio::select! {
                elected = candidate.elected() => match elected {
                    Ok(leadership) => leadership,
                    Err(error) => return Next::End(Err(error.into())),
                },
                _ = self.workload.asked() => return Next::End(Ok(Status::Done)),
            };
            let lease_time = self.run.candidate.lease.ttl.max(leadership.remaining());
            let assignment = Assignment {
                leadership: &leadership,
                environment: &environment(self.common, &self.store, self.run, &leadership),
                lease: self.lease(&leadership),
                reporter: &self.reporter,
                view: &self.view,
            };
            let outcome = self.workload.term(assignment, &mut events).await;
            self.view.work_has_ended();
            if let Outcome::Ended(ended) = &outcome {
                self.reporter.remark(&format!("the {} {ended}", self.workload.name()));
            }
            if let Outcome::Stopped = &outcome {
                tracing::info!(epoch = %leadership.epoch(), "the work has been stopped");
            }
            *held = Some(leadership);
            let is_race = self.common.contest == Contest::Race;
            match outcome.next(self.run.once, lease_time, is_race) {
                Next::Campaign { has_lived: true } => self.delay.reset(),
                Next::Campaign { has_lived: false } => {}
                next @ (Next::Delay | Next::End(_) | Next::AtOnce(_)) => return next,
            }
            // Resigns, if the term still stands; the candidate gets back in line.
            *held = None;
        }
    }

    /// What a guard needs to give the lease back.
    fn lease(&self, leadership: &Leadership) -> Lease {
        Lease {
            id: leadership.lease().into(),
            store: self.store.with_password(),
            credentials: self.credentials.clone(),
            dial_timeout: self.common.dial_timeout,
            command_timeout: self.common.command_timeout,
        }
    }
}

/// The store, with a URL that other processes can use.
fn store_of_others(common: &Common) -> Result<StoreUrl, End> {
    let store = common.store();
    if matches!(store, StoreUrl::Memory(_)) {
        return Err(bad_input(format!(
            "--store {store} is the memory of this process, and the command is another process: \
             write --store local"
        )));
    }
    let store = store.absolute().map_err(|error| bad_input(error.to_string()))?;
    // They get it as text.
    if store.with_password().parse::<StoreUrl>().ok().as_ref() != Some(&store) {
        return Err(bad_input(format!(
            "--store {store} is in a directory whose name is not plain text: give a file in another"
        )));
    }
    Ok(store)
}

/// How long the command may take to stop. If it were more than half of the lease time, SIGTERM
/// would come before a renewal had a fair chance.
fn stop_timeout(run: &Run) -> Result<Duration, End> {
    let ttl = run.candidate.lease.ttl;
    let stop_timeout = run.stop_timeout.unwrap_or(ttl / 4);
    let margin = run.candidate.lease.margin_of(ttl);
    if stop_timeout.saturating_add(margin) > ttl / 2 {
        return Err(bad_input(format!(
            "--stop-timeout {} and --margin {} take more than half of --ttl {}, which leaves \
             too little for renewals: give less, or a longer --ttl",
            humantime::format_duration(stop_timeout),
            humantime::format_duration(margin),
            humantime::format_duration(ttl),
        )));
    }
    Ok(stop_timeout)
}

/// Where events are printed: on standard error, and to the file.
fn targets(common: &Common, run: &Run, identity: &str) -> Result<Vec<(Form, Output)>, End> {
    let gap = |form| missed(form, &run.election, identity);
    let people = Output::to_stderr(gap(common.output))?;
    let mut targets = vec![(common.output, people.clone())];
    if let Some(path) = &run.events {
        let file = events::open(path)?;
        let name = format!("--events {}", path.display());
        targets.push((Form::Json, Output::to_file(file, name, gap(Form::Json), people)?));
    }
    Ok(targets)
}

/// The variables of the work, so that `incumbent put --fence` works inside it.
fn environment(
    common: &Common,
    store: &StoreUrl,
    run: &Run,
    leadership: &Leadership,
) -> Vec<(&'static str, OsString)> {
    let mut environment: Vec<(&'static str, OsString)> = vec![
        ("INCUMBENT_ELECTION", run.election.clone().into()),
        ("INCUMBENT_EPOCH", leadership.epoch().to_string().into()),
        ("INCUMBENT_LEADER_KEY", OsString::from_vec(leadership.key().to_vec())),
        ("INCUMBENT_ID", identity(common).into()),
        ("INCUMBENT_STORE", store.with_password().into()),
        ("INCUMBENT_CONTEST", common.contest.name().into()),
    ];
    if let (StoreUrl::Postgres(url), Some(fence)) = (store, leadership.fence().postgres()) {
        environment.push(("INCUMBENT_DATABASE_URL", url.libpq().into()));
        environment.push(("INCUMBENT_FENCE_SQL", fence.to_string().into()));
    }
    for (name, path) in [
        ("INCUMBENT_CACERT", &common.cacert),
        ("INCUMBENT_CERT", &common.cert),
        ("INCUMBENT_KEY", &common.key),
    ] {
        if let Some(path) = path {
            environment.push((name, path.into()));
        }
    }
    environment
}
