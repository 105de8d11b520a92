//! A host of a soak, the program `counter`: it campaigns in one election or in many, counts while it
//! leads, resigns for others, and logs when it regards itself as leader.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use clap::Parser;
use fastrand::Rng;
use futures_util::future::join;
use futures_util::{Stream, StreamExt};
use incumbent::recording::Recording;
use incumbent::{
    BootClock, Candidate, Clock, Contest, Event as SessionEvent, Fence, Leadership, Options,
    Reason, Session,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::advisory;
use super::log::{Event, Log, TermState};
use crate::counter::Counter;

/// Between two increments.
pub(super) const PAUSE: Duration = Duration::from_millis(25);
/// In more elections than this, each leader counts and resigns less often, so that the host is as
/// busy as in so many.
const BUSY: usize = 20;
/// How long the store may be away at the start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// In the directory of the logs.
pub const RECORDINGS: &str = "recordings";
/// By each process, in bytes: an hour and more, so that the judge sees all of it.
const MOST_RECORDED: u64 = 1 << 30;
/// Long enough to leave while etcd is away for a moment. After that the lease has to run out.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many increments this process has begun.
static INCREMENTS: AtomicU64 = AtomicU64::new(0);

/// Campaigns, counts while it leads, and logs what happens, until SIGTERM.
#[derive(Debug, Parser)]
pub struct Host {
    /// The etcd.
    #[arg(long)]
    pub store: String,
    /// Its name: the host's name, a dot, and the number of this process among the host's.
    #[arg(long)]
    pub process: String,
    /// The directory of the logs.
    #[arg(long)]
    pub logs: PathBuf,
    /// The election; given several times, all of them in one session.
    #[arg(long = "election", default_value = "jobs")]
    pub elections: Vec<String>,
    /// How long a lease lives, in seconds.
    #[arg(long)]
    pub ttl: u64,
    /// The times of its resignations are drawn from it. Without it, it keeps its terms.
    #[arg(long)]
    pub seed: Option<u64>,
    /// How the leader is chosen: queue or race.
    #[arg(long, default_value = "queue", value_parser = contest)]
    pub contest: Contest,
    /// Leads by PostgreSQL's advisory lock instead, to compare, in the first election alone.
    #[arg(long)]
    pub advisory_lock: bool,
}

fn contest(text: &str) -> Result<Contest, &'static str> {
    match text {
        "queue" => Ok(Contest::Queue),
        "race" => Ok(Contest::Race),
        _ => Err("queue or race"),
    }
}

impl Host {
    /// Runs it. Panics where etcd is not reached for a minute at the start, or the
    /// candidacy ends.
    pub async fn run(self) {
        // It does not outlive the process that started it, even if that was killed.
        set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux");
        let mut over = signal(SignalKind::terminate()).expect("a signal");
        let log = Log::create(&self.logs, &self.process).expect("a new log");
        if self.advisory_lock {
            return advisory::run(&self.store, &self.elections[0], self.seed, log).await;
        }
        let (session, counter) = tokio::select! {
            connected = self.connect() => connected,
            _ = over.recv() => return,
        };
        let (leave, leaves) = watch::channel(false);
        let mut rng = self.seed.map(Rng::with_seed);
        let mut candidacies = JoinSet::new();
        for election in &self.elections {
            let candidacy = Candidacy {
                election: election.clone(),
                counter: counter.of(election),
                rng: rng.as_mut().map(Rng::fork),
                pace: u32::try_from(self.elections.len().div_ceil(BUSY)).expect("a number"),
                log: log.clone(),
                leaves: leaves.clone(),
            };
            let candidate = session.election(election).contest(self.contest).join();
            candidacies.spawn(candidacy.run(candidate));
        }
        tokio::select! {
            ended = candidacies.join_next() => panic!("a candidacy is over: {ended:?}"),
            _ = over.recv() => {}
        }
        leave.send_replace(true);
        candidacies.join_all().await;
        let _ = timeout(CLOSE_TIMEOUT, session.close()).await;
    }

    /// For `incumbent replay`, and for the judge.
    fn recording(&self) -> Recording {
        let time = || humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let mut recording = Recording::new(self.logs.join(RECORDINGS), time);
        (recording.limit, recording.values) = (MOST_RECORDED, true);
        recording
    }

    async fn connect(&self) -> (Session, Counter) {
        let connected = async {
            loop {
                let options = Options {
                    identity: self.process.clone(),
                    ttl: Duration::from_secs(self.ttl),
                    recording: Some(self.recording()),
                    ..Options::default()
                };
                let session = Session::connect(&self.store, options);
                match (session.await, Counter::connect(&self.store, &self.elections[0]).await) {
                    (Ok(session), Ok(counter)) => return (session, counter),
                    // A link that is cut will be healed.
                    (session, counter) => {
                        eprintln!("not yet: {:?}, {:?}", session.err(), counter.err());
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        timeout(CONNECT_TIMEOUT, connected).await.expect("the store is reached")
    }
}

/// A host's candidacy in one of its elections.
struct Candidacy {
    election: String,
    counter: Counter,
    /// The times of its resignations are drawn from it. Without it, it keeps its terms.
    rng: Option<Rng>,
    /// How many times more slowly it counts than in a single election. It resigns one term in so many.
    pace: u32,
    log: Log,
    /// Becomes true when the host ends.
    leaves: Receiver<bool>,
}

impl Candidacy {
    /// One term after the other, until the host leaves.
    async fn run(mut self, mut candidate: Candidate) {
        let events = log_events(candidate.events(), self.election.clone(), self.log.clone());
        let events = tokio::spawn(events);
        let mut leaves = self.leaves.clone();
        while !*leaves.borrow() {
            let leadership = tokio::select! {
                leadership = candidate.elected() => leadership.expect("nothing ends a candidacy"),
                _ = leaves.changed() => break,
            };
            let pace = self.pace;
            let resigns = |rng: &mut Rng| (rng.u32(..pace) == 0).then(|| leads_for(rng));
            let resigns_after = self.rng.as_mut().and_then(resigns).unwrap_or(Duration::MAX);
            self.lead(leadership, resigns_after).await;
        }
        events.abort();
    }

    /// One term, until the host resigns it, leaves or loses it.
    async fn lead(&self, leadership: Leadership, resigns_after: Duration) {
        let term = || TermState {
            election: self.election.clone(),
            epoch: leadership.epoch().into(),
            valid_until: leadership.valid_until(),
        };
        self.log.write(Event::Elected(term()));
        let demoted = |reason: &Reason| {
            self.log.write(Event::Demoted { term: term(), reason: reason_name(reason).to_owned() });
        };
        let stops = Notify::new();
        let mut works = pin!(self.count(leadership.fence(), &stops));
        let mut leaves = self.leaves.clone();
        let ends = async {
            tokio::select! {
                () = sleep(resigns_after) => {}
                _ = leaves.wait_for(|leaves| *leaves) => {}
            }
            stops.notify_one();
        };
        let is_lost = tokio::select! {
            biased;
            // At that moment, however long the work takes to come to its end.
            reason = leadership.lost() => {
                demoted(&reason);
                stops.notify_one();
                true
            }
            ((), ()) = join(ends, &mut works) => false,
        };
        if is_lost {
            works.await;
        } else {
            // It may have been lost at the same moment.
            let is_lost = !leadership.is_valid();
            demoted(&if is_lost { leadership.lost().await } else { Reason::Resigned });
            let _ = leadership.resign().await;
        }
    }

    /// Counts until it has to stop, and once after that, at its pace: what is counted then is refused.
    async fn count(&self, fence: Fence, stops: &Notify) {
        let pause = PAUSE * self.pace;
        let stopped = |pause| async move { timeout(pause, stops.notified()).await.is_ok() };
        // A host that is elected in many elections at once does not count in all of them at once.
        let mut is_last = stopped(pause.mul_f64(fastrand::f64())).await;
        loop {
            if is_last && fastrand::u32(..self.pace) > 0 {
                return;
            }
            let increment = INCREMENTS.fetch_add(1, Ordering::Relaxed);
            // The clock is read first: a host that leads after this mark also led at it.
            let mark = BootClock.now();
            let leads = fence.is_valid();
            let (election, epoch) = (self.election.clone(), fence.epoch().into());
            self.log.write_at(mark, Event::Invoke { election, increment, epoch, leads });
            let seen = |value, timeline| {
                self.log.write(Event::Read { increment, value, timeline });
            };
            let outcome = self.counter.increment(&fence, seen).await;
            self.log.write(Event::Return { increment, outcome });
            if is_last {
                return;
            }
            is_last = stopped(pause).await;
        }
    }
}

/// A reason, as logs have it.
pub fn reason_name(reason: &Reason) -> &str {
    match reason {
        Reason::Resigned => "resigned",
        Reason::Expired => "expired",
        Reason::LeaseLost => "lease-lost",
        Reason::Deposed => "deposed",
        Reason::Fenced => "fenced",
        Reason::Other(text) => text,
    }
}

/// How long to lead: mostly short, so that there are many elections, and sometimes
/// until something goes wrong.
pub(super) fn leads_for(rng: &mut Rng) -> Duration {
    match rng.u8(..3) {
        0 => Duration::from_millis(rng.u64(100..1_000)),
        1 => Duration::from_millis(rng.u64(1_000..5_000)),
        _ => Duration::from_secs(15),
    }
}

async fn log_events(
    mut events: impl Stream<Item = SessionEvent> + Unpin,
    election: String,
    log: Log,
) {
    while let Some(event) = events.next().await {
        match event {
            SessionEvent::Extended(term) => log.write(Event::Extended(TermState {
                election: election.clone(),
                epoch: term.epoch.into(),
                valid_until: term.valid_until,
            })),
            SessionEvent::Trouble(failure) => {
                log.write(Event::Trouble { text: failure.to_string() });
            }
            _ => {}
        }
    }
}
