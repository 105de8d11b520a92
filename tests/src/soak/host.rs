//! A host of a soak, the program `counter`: it campaigns, counts while it leads, lets
//! others have their turn, and writes down when it regards itself as leader.

use std::future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use fastrand::Rng;
use futures_util::{Stream, StreamExt};
use incumbent::{
    BootClock, Clock, Contest, Event as News, Fence, Leadership, Options, Reason, Session, TermInfo,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::log::{Event, Log};
use crate::counter::Counter;

/// Between two increments.
const PAUSE: Duration = Duration::from_millis(25);
/// How long etcd may be away at the start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough to leave with etcd away for a moment; then it is left to its lease.
const FAREWELL: Duration = Duration::from_secs(5);

/// Counts this process's.
static INCREMENTS: AtomicU64 = AtomicU64::new(0);

/// Campaigns, counts while it leads, and writes down what happens, until SIGTERM.
#[derive(Debug, Parser)]
pub struct Host {
    /// The etcd.
    #[arg(long)]
    pub store: String,
    /// Who this is: the host's name, a dot, and which process of the host's it is.
    #[arg(long)]
    pub process: String,
    /// The directory of the logs.
    #[arg(long)]
    pub logs: PathBuf,
    /// The election.
    #[arg(long, default_value = "office")]
    pub election: String,
    /// How long a lease lives, in seconds.
    #[arg(long)]
    pub ttl: u64,
    /// When to let others have their turn is drawn from it. Never, unless given.
    #[arg(long)]
    pub seed: Option<u64>,
    /// How it is decided who leads: queue or race.
    #[arg(long, default_value = "queue", value_parser = contest)]
    pub contest: Contest,
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
        // It does not outlive whoever started it, also where that was killed.
        set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux");
        let mut over = signal(SignalKind::terminate()).expect("a signal");
        let log = Log::create(&self.logs, &self.process, &self.process).expect("a new log");
        let (session, counter) = tokio::select! {
            connected = self.connect() => connected,
            _ = over.recv() => return,
        };
        let mut candidate = session.election(&self.election).contest(self.contest).join();
        let extensions = note(candidate.events(), self.election.clone(), log.clone());
        let extensions = tokio::spawn(extensions);
        let mut rng = self.seed.map(Rng::with_seed);
        loop {
            let leadership = tokio::select! {
                leadership = candidate.elected() => leadership.expect("nothing ends a candidacy"),
                _ = over.recv() => break,
            };
            let mut is_over = false;
            let pleases = async {
                let reigns = async {
                    match &mut rng {
                        Some(rng) => sleep(reign(rng)).await,
                        None => future::pending().await,
                    }
                };
                tokio::select! {
                    () = reigns => {}
                    _ = over.recv() => is_over = true,
                }
            };
            self.lead(leadership, pleases, &counter, &log).await;
            if is_over {
                break;
            }
        }
        extensions.abort();
        let _ = timeout(FAREWELL, session.close()).await;
    }

    async fn connect(&self) -> (Session, Counter) {
        let connected = async {
            loop {
                let options = Options {
                    identity: self.process.clone(),
                    ttl: Duration::from_secs(self.ttl),
                    ..Options::default()
                };
                let session = Session::connect(&self.store, options);
                match (session.await, Counter::connect(&self.store, &self.election).await) {
                    (Ok(session), Ok(counter)) => return (session, counter),
                    // What was cut off will be healed.
                    (session, counter) => {
                        eprintln!("not yet: {:?}, {:?}", session.err(), counter.err());
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        timeout(PATIENCE, connected).await.expect("etcd is reached")
    }

    /// One term, which ends as the host `pleases`, or is lost.
    async fn lead(
        &self,
        leadership: Leadership,
        pleases: impl Future<Output = ()>,
        counter: &Counter,
        log: &Log,
    ) {
        log.write(Event::Elected {
            election: self.election.clone(),
            epoch: leadership.epoch().into(),
            valid_until: leadership.valid_until(),
        });
        let demoted = |reason: &Reason| {
            log.write(Event::Demoted {
                election: self.election.clone(),
                epoch: leadership.epoch().into(),
                valid_until: leadership.valid_until(),
                reason: name(reason).to_owned(),
            })
        };
        let stops = AtomicBool::new(false);
        let works = self.count(counter, leadership.fence(), &stops, log);
        let ends = async {
            let lost = tokio::select! {
                reason = leadership.lost() => Some(reason),
                () = pleases => None,
            };
            if let Some(reason) = &lost {
                demoted(reason);
            }
            stops.store(true, Ordering::Relaxed);
            lost
        };
        let (lost, ()) = tokio::join!(ends, works);
        if lost.is_none() {
            // It may have been lost while the work came to its end.
            let is_lost = !leadership.is_valid();
            demoted(&if is_lost { leadership.lost().await } else { Reason::Resigned });
            let _ = leadership.resign().await;
        }
    }

    /// Counts until it has to stop, and once after that: what is counted then is refused.
    async fn count(&self, counter: &Counter, fence: Fence, stops: &AtomicBool, log: &Log) {
        loop {
            let is_last = stops.load(Ordering::Relaxed);
            let increment = INCREMENTS.fetch_add(1, Ordering::Relaxed);
            // Read before the answer: who leads at a later time led then.
            let mark = BootClock.now();
            let leads = fence.is_valid();
            let (election, epoch) = (self.election.clone(), fence.epoch().into());
            log.write_at(mark, Event::Invoke { election, increment, epoch, leads });
            let seen = |value| {
                log.write(Event::Read { increment, value });
            };
            let outcome = counter.increment(&fence, seen).await;
            log.write(Event::Return { increment, outcome });
            if is_last {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

fn name(reason: &Reason) -> &str {
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
fn reign(rng: &mut Rng) -> Duration {
    match rng.u8(..3) {
        0 => Duration::from_millis(rng.u64(100..1_000)),
        1 => Duration::from_millis(rng.u64(1_000..5_000)),
        _ => Duration::from_secs(15),
    }
}

async fn note(mut events: impl Stream<Item = News> + Unpin, election: String, log: Log) {
    while let Some(event) = events.next().await {
        match event {
            News::Extended(TermInfo { epoch, valid_until, .. }) => {
                let election = election.clone();
                log.write(Event::Extended { election, epoch: epoch.into(), valid_until });
            }
            News::Trouble(failure) => {
                log.write(Event::Trouble { text: failure.to_string() });
            }
            _ => {}
        }
    }
}
