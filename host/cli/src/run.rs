//! `incumbent run`: runs a command, or a component, while leading, and only then.
//!
//! For a command there are three processes, a child each of the one before: the
//! supervisor, which the user has started; a guard, for one term; and the work.
//! Supervisor and guard adopt what loses its parent below them, so that nothing of the
//! work escapes, and each looks after what the death of the other leaves. A component
//! runs in this process.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `duty` | what is done while leading: one of the two |
//! | `component` | a component, its runs, and their limit |
//! | `events` | the file that events are appended to |
//! | `outcome` | how a term of the work went |
//! | `program` | whether the command can be run at all |
//! | `supervisor` | one term of it: start, watch, stop |
//! | `schedule` | when it has to stop |
//! | `work` | the work, as the supervisor has it: behind its guard |
//! | `guard` | the process that holds the deadline when the supervisor does not |
//! | `isolation` | the work in a PID namespace of its own, and that namespace's init |
//! | `launch` | how the command, and a guard, are started |
//! | `family`, `children` | who is below us, and who has to be reaped |
//! | `terminal` | whose the keyboard is |

mod children;
mod component;
mod duty;
mod events;
mod family;
mod guard;
mod isolation;
pub mod launch;
mod outcome;
mod program;
mod schedule;
mod supervisor;
mod terminal;
mod work;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use incumbent::{Backoff, BootClock, Candidate, Credentials, Event, Leadership, Session, StoreUrl};
use tokio::task::JoinHandle;

use self::component::Runner;
use self::duty::Duty;
use self::guard::lease::Lease;
use self::launch::Role;
use self::outcome::Outcome;
use self::supervisor::{Supervisor, unguarded};
pub use self::terminal::may_write_from_the_background;
use super::args::{Common, Form, Run};
use super::campaign::no_signals;
use super::event::{Teller, in_seconds, missed};
use super::exit::{End, Status, bad_input, say};
use super::input::{check_candidate, credentials};
use super::output::Output;
use super::session::{self, farewell, identity, leave};
use super::signals::Signals;

/// How far the delay doubles before a command that ended early may come back.
const LONGEST_RESTART_DELAY: Duration = Duration::from_secs(30);

/// Whether we were started to be another part of `run` than the supervisor; if so, we
/// have been it.
pub fn part() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let role = Role::named(&arguments.next()?)?;
    let done = match role {
        Role::Guard => guard::main(arguments),
        Role::Init => isolation::main(arguments),
        Role::Probe => isolation::probe(),
    };
    let Err(error) = done else {
        return Some(Status::Done.into());
    };
    match role {
        // For whoever has started us.
        Role::Probe => println!("{error}"),
        Role::Guard | Role::Init => say(&format!(
            "a part of `incumbent run`, to be started by that alone: write \
             incumbent run ELECTION -- CMD ({error})"
        )),
    }
    Some(Status::BadInput.into())
}

pub async fn run(common: &Common, run: &Run) -> Result<Status, End> {
    check_candidate(&run.candidate)?;
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
    let identity = identity(common);
    let teller = Teller::new(&run.election, &identity, targets(common, run, &identity)?);
    let signals = Signals::listen().map_err(no_signals)?;
    let duty = match &run.component {
        Some(file) => match Runner::load(file, run, stop_timeout, signals).await? {
            Some(runner) => Duty::Component(runner),
            None => return Ok(Status::Done),
        },
        None => Duty::Command(
            Supervisor::new(&run.command, stop_timeout, run.isolate, signals)
                .map_err(no_signals)?,
        ),
    };
    let mut office = Office {
        common,
        run,
        duty,
        delay: Backoff::new(run.restart_delay, LONGEST_RESTART_DELAY),
        teller,
        store,
        credentials,
    };
    let session = tokio::select! {
        session = session::competitor(common, &run.candidate) => session?,
        _ = office.duty.asked() => return Ok(Status::Done),
    };
    let end = office.hold(&session).await;
    office.teller.flush().await;
    end
}

/// What lasts from candidacy to candidacy.
#[derive(Debug)]
struct Office<'a> {
    common: &'a Common,
    run: &'a Run,
    duty: Duty,
    delay: Backoff,
    teller: Teller,
    /// As guard and work are to find it, wherever they are.
    store: StoreUrl,
    credentials: Credentials,
}

/// What follows a candidacy.
enum Next {
    End(Status),
    /// Without another word to the store.
    AtOnce(Status),
    /// Out of line for a while: others have their turn.
    Pause(Duration),
}

impl Office<'_> {
    /// Candidacy after candidacy, until there is an end.
    async fn hold(&mut self, session: &Session) -> Result<Status, End> {
        let candidate = &self.run.candidate;
        let election = session::election(session, self.common, candidate, &self.run.election);
        loop {
            let mut candidate = election.enter();
            let telling = tokio::spawn(tell(candidate.events(), self.teller.clone()));
            let mut held = None;
            let next = self.terms(&mut candidate, &mut held).await;
            let end = match next {
                Ok(Next::Pause(pause)) => {
                    if self.pause(candidate, held, pause).await {
                        continue;
                    }
                    return Ok(self.farewell(session, None, None, Status::Done).await);
                }
                Ok(Next::AtOnce(status)) => {
                    // Dropped, they would say that the work has stopped, and the key might
                    // go. It was killed, which takes a while: a command's guard waits for
                    // its end, and gives the lease back; a component ends with us, or with
                    // what it has begun.
                    std::mem::forget((candidate, held));
                    return Ok(status);
                }
                Ok(Next::End(status)) => Ok(status),
                Err(end) => Err(end),
            };
            let status = end.as_ref().map_or_else(|end| end.status, |status| *status);
            let rest = Some((candidate, held));
            let status = self.farewell(session, rest, Some(telling), status).await;
            return end.map(|_| status);
        }
    }

    async fn farewell(
        &mut self,
        session: &Session,
        candidate: Option<(Candidate, Option<Leadership>)>,
        telling: Option<JoinHandle<()>>,
        status: Status,
    ) -> Status {
        let within = self.common.command_timeout;
        let signals = self.duty.signals();
        farewell(session, candidate, telling, within, signals, status).await
    }

    /// Gives the leadership back, and stays out of line for a while. False if we
    /// are asked to end meanwhile.
    async fn pause(
        &mut self,
        candidate: Candidate,
        held: Option<Leadership>,
        pause: Duration,
    ) -> bool {
        self.teller.remark(&format!(
            "the {} ended soon after its start: back in line in {}",
            self.duty.name(),
            in_seconds(pause)
        ));
        let away = async {
            leave(candidate, held).await;
            tokio::time::sleep(pause).await;
        };
        tokio::select! {
            () = away => true,
            _ = self.duty.asked() => false,
        }
    }

    /// What a guard needs to give the lease back.
    fn lease(&self, leadership: &Leadership) -> Lease {
        Lease {
            id: leadership.lease(),
            store: self.store.clone(),
            credentials: self.credentials.clone(),
            dial_timeout: self.common.dial_timeout,
            command_timeout: self.common.command_timeout,
        }
    }

    /// Term after term of one candidacy. What of the last one is not given back
    /// is left in `held`: its work has stopped.
    async fn terms(
        &mut self,
        candidate: &mut Candidate,
        held: &mut Option<Leadership>,
    ) -> Result<Next, End> {
        let mut events = candidate.events();
        loop {
            let leadership = tokio::select! {
                elected = candidate.elected() => elected?,
                _ = self.duty.asked() => return Ok(Next::End(Status::Done)),
            };
            let lease_time = self.run.candidate.ttl.max(leadership.remaining());
            let environment = environment(self.common, &self.store, self.run, &leadership);
            let lease = self.lease(&leadership);
            let outcome =
                self.duty.term(&leadership, &environment, lease, &mut events, &self.teller).await;
            let leadership = held.insert(leadership);
            match outcome {
                Outcome::Ended(ended) => {
                    self.teller.remark(&format!("the {} {ended}", self.duty.name()));
                    if self.run.once {
                        return Ok(Next::End(Status::Passed(ended.status)));
                    }
                    if ended.by_keyboard {
                        return Ok(Next::End(Status::Done));
                    }
                    if ended.after < lease_time {
                        return Ok(Next::Pause(self.delay.pause_at_least()));
                    }
                    self.delay.reset();
                }
                Outcome::Broken { after } => {
                    if self.run.once {
                        return Ok(Next::End(Status::NotFound));
                    }
                    if after < lease_time {
                        return Ok(Next::Pause(self.delay.pause_at_least()));
                    }
                    self.delay.reset();
                }
                Outcome::Stopped => {
                    tracing::info!(epoch = leadership.epoch(), "the work has been stopped");
                    if self.run.once {
                        return Ok(Next::End(Status::NotFound));
                    }
                }
                Outcome::Asked => return Ok(Next::End(Status::Done)),
                Outcome::AtOnce(asked) => return Ok(Next::AtOnce(asked.status())),
                Outcome::Stuck => return Ok(Next::AtOnce(Status::Done)),
                Outcome::NotStarted(end) => return Err(end),
            }
            // Resigns, if the term still stands; the candidate gets back in line.
            *held = None;
        }
    }
}

async fn tell(mut events: impl Stream<Item = Event> + Unpin, mut teller: Teller) {
    while let Some(event) = events.next().await {
        teller.tell(&event, &BootClock);
    }
}

/// The store, as other processes reach it.
fn store_of_others(common: &Common) -> Result<StoreUrl, End> {
    let store = common.store();
    if matches!(store, StoreUrl::Memory(_)) {
        return Err(bad_input(format!(
            "--store {store} is this process's own, and the command is another process: write \
             --store local"
        )));
    }
    let store = store.absolute().map_err(|error| bad_input(error.to_string()))?;
    // They are given it as text.
    if store.to_string().parse().as_ref() != Ok(&store) {
        return Err(bad_input(format!(
            "--store {store} is in a directory whose name is no plain text: give a file in another"
        )));
    }
    Ok(store)
}

/// How long the command may take to stop. Beyond half of the lease time, SIGTERM
/// would come before a renewal had a fair try.
fn stop_timeout(run: &Run) -> Result<Duration, End> {
    let ttl = run.candidate.ttl;
    let stop_timeout = run.stop_timeout.unwrap_or(ttl / 4);
    let margin = run.candidate.margin.unwrap_or_default().max(ttl / 100);
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

/// Where events go: to people on standard error, and to the file.
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

/// What the work is told, so that `incumbent put --fence` works inside it.
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
        ("INCUMBENT_STORE", store.to_string().into()),
        ("INCUMBENT_CONTEST", common.contest.name().into()),
    ];
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
