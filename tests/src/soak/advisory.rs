//! A host as people write it with PostgreSQL's advisory locks, to be compared under the same faults: who
//! has the lock leads, as long as the connection that has taken it looks open. It counts by other
//! connections, and nothing fences what it writes.

use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;
use incumbent::{BootClock, Clock};
use incumbent_simulation::history::Outcome;
use tokio::time::{Instant, sleep};
use tokio_postgres::config::{Config, TargetSessionAttrs};
use tokio_postgres::{Client, Error};

use super::host::{PAUSE, leads_for};
use super::log::{Event, Log, TermState};
use crate::counter::postgres::{connect, read, work, write};

/// Between two attempts to take the lock.
const ATTEMPT: Duration = Duration::from_millis(100);
/// Between two looks at the lock's connection.
const LOOK: Duration = Duration::from_secs(1);

/// The name of its counter for an election.
pub(super) fn counter_of(election: &str) -> String {
    format!("{election}, by advisory lock")
}

/// Counts whenever it has the lock of its election, until it is killed.
pub(super) async fn run(store: &str, election: &str, seed: Option<u64>, log: Log) {
    let mut config = Config::from_str(store).expect("a URL");
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.connect_timeout(Duration::from_secs(2));
    let rng = seed.map(Rng::with_seed);
    let mut host =
        Host { config, election: counter_of(election), rng, log, work: None, increment: 0 };
    loop {
        if let Err(error) = host.one_connection().await {
            host.log.write(Event::Trouble { text: error.to_string() });
            sleep(ATTEMPT).await;
        }
    }
}

struct Host {
    config: Config,
    /// The name of its counter.
    election: String,
    /// The times of its resignations are drawn from it.
    rng: Option<Rng>,
    log: Log,
    /// What it counts by.
    work: Option<Client>,
    increment: u64,
}

impl Host {
    /// Takes the lock again and again, until its connection fails.
    async fn one_connection(&mut self) -> Result<(), Error> {
        let lock = connect(&self.config).await?;
        loop {
            let taken = "SELECT pg_try_advisory_lock(hashtext($1))";
            if lock.query_one(taken, &[&self.election]).await?.get(0) {
                self.lead(&lock).await?;
            }
            sleep(ATTEMPT).await;
        }
    }

    async fn lead(&mut self, lock: &Client) -> Result<(), Error> {
        // There are no epochs: the mark of its begin stands for one.
        let epoch = BootClock.now().cast_signed();
        // It believes that it leads whenever it looks, and is not held to more.
        let election = self.election.clone();
        let term = || TermState { election: election.clone(), epoch, valid_until: BootClock.now() };
        self.log.write(Event::Elected(term()));
        let demoted = |reason: &str| Event::Demoted { term: term(), reason: reason.to_owned() };
        let resigns_after = self.rng.as_mut().map_or(Duration::MAX, leads_for);
        let (began, mut looked) = (Instant::now(), Instant::now());
        while began.elapsed() < resigns_after {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                // Without a time-out: there is none unless one is asked for.
                let _ = lock.simple_query("SELECT 1").await;
            }
            if lock.is_closed() {
                self.log.write(demoted("connection closed"));
                return Ok(());
            }
            self.log.write(Event::Extended(term()));
            self.count(epoch).await;
            sleep(PAUSE).await;
        }
        self.log.write(demoted("resigned"));
        let released = "SELECT pg_advisory_unlock(hashtext($1))";
        lock.query_one(released, &[&self.election]).await.map(drop)
    }

    async fn count(&mut self, epoch: i64) {
        let (election, increment) = (self.election.clone(), self.increment);
        self.increment += 1;
        // It is held to nothing: its belief is what it says when it looks.
        self.log.write(Event::Invoke { election, increment, epoch, leads: false });
        let mut is_writing = false;
        let counted = async {
            if self.work.as_ref().is_none_or(Client::is_closed) {
                self.work = Some(connect(&self.config).await?);
            }
            let client = self.work.as_ref().expect("just made");
            let (value, timeline) = read(client, &self.election).await?;
            let (value_read, timeline) = (value.cast_unsigned(), Some(timeline));
            self.log.write(Event::Read { increment, value: value_read, timeline });
            work().await;
            is_writing = true;
            write(client, &self.election, value + 1).await
        };
        let outcome = match counted.await {
            Ok(()) => Outcome::Applied,
            Err(_) if is_writing => Outcome::Unknown,
            Err(_) => Outcome::Nothing,
        };
        self.log.write(Event::Return { increment, outcome });
    }
}
