//! A PostgreSQL and a standby of it, on two addresses that stay, whichever of them is the primary.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use incumbent::{BootClock, Clock};

use crate::cluster::Failure;
use crate::counter;
use crate::postgres::Postgres;
use crate::soak::log::Event;
use crate::wait::LIMIT;

/// A standby that was paused or killed finds what it needs.
const SETTINGS: &[&str] = &["wal_keep_size=512MB"];
/// How far from the true time the clock of the next standby is.
const CLOCKS: [&str; 6] = ["+0s", "+2s", "-2s", "+1h", "-1h", "+40d"];

#[derive(Debug)]
pub(in crate::soak) struct Pair {
    addresses: [SocketAddr; 2],
    /// Which of the addresses is the primary's.
    at: usize,
    primary: Postgres,
    /// None from its promotion until there is another one.
    standby: Option<Postgres>,
    failures: Vec<(usize, Failure)>,
    /// How many standbys have been made.
    made: usize,
}

impl Pair {
    /// Starts both, with a counter at 0 for each of the elections.
    pub(in crate::soak) fn start(elections: &[String]) -> Self {
        let primary = Postgres::start_with(SETTINGS);
        let rows: Vec<_> = elections.iter().map(|name| format!("('{name}', 0)")).collect();
        let (table, rows) = (counter::postgres::TABLE, rows.join(", "));
        primary.sql(&format!("{table}; INSERT INTO counters VALUES {rows}"));
        let standby = primary.standby(SETTINGS);
        let addresses = [primary.address(), standby.address()];
        let (at, standby, failures) = (0, Some(standby), Vec::new());
        Self { addresses, at, primary, standby, failures, made: 0 }
    }

    pub(in crate::soak) fn addresses(&self) -> [SocketAddr; 2] {
        self.addresses
    }

    pub(in crate::soak) fn primary(&self) -> usize {
        self.at
    }

    pub(in crate::soak) fn fail(&mut self, member: usize, failure: Failure) {
        self.failures.push((member, failure));
        if let Some(server) = self.server(member) {
            match failure {
                Failure::Killed => server.kill(),
                Failure::Paused | Failure::Isolated => server.pause(),
            }
        }
    }

    /// Ends every failure, and sees that there is a standby.
    pub(in crate::soak) fn recover(&mut self) {
        for (member, failure) in std::mem::take(&mut self.failures) {
            if let Some(server) = self.server(member) {
                match failure {
                    Failure::Killed => server.restart(),
                    Failure::Paused | Failure::Isolated => server.resume(),
                }
            }
        }
        if self.standby.is_none() {
            self.made += 1;
            let clock = CLOCKS[self.made % CLOCKS.len()];
            let port = self.addresses[1 - self.at].port();
            self.standby = Some(self.primary.standby_on(port, clock, SETTINGS));
        }
    }

    /// The primary is killed and the standby promoted, which had not followed for so long.
    pub(in crate::soak) fn take_over(&mut self, behind_ms: u64) -> Event {
        let standby = self.standby.take().expect("phases end with a standby");
        let since = BootClock.now();
        let place = self.primary.sql("SELECT pg_current_wal_lsn()");
        until(|| standby.sql(&format!("SELECT pg_last_wal_replay_lsn() >= '{place}'")) == "t");
        if behind_ms > 0 {
            standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
            standby.sql("SELECT pg_reload_conf()");
            until(|| standby.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0");
            sleep(Duration::from_millis(behind_ms));
        }
        self.primary.kill();
        let has_replayed =
            "SELECT pg_last_wal_replay_lsn() >= coalesce(pg_last_wal_receive_lsn(), '0/0')
             AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver)";
        until(|| standby.sql(has_replayed) == "t");
        let counters = standby.sql("SELECT election, n FROM counters");
        let counters = counters.lines().filter_map(|line| line.split_once('|'));
        let counters: BTreeMap<_, _> = counters
            .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
            .collect();
        standby.promote();
        let timeline = standby.sql(&format!("SELECT {}", counter::postgres::TIMELINE));
        let timeline = timeline.parse().expect("a number");
        self.primary = standby;
        self.at = 1 - self.at;
        Event::TakenOver { since, timeline, counters }
    }

    pub(in crate::soak) fn step_clock(&mut self, seconds: i64) {
        self.primary.restart_at(&format!("{seconds:+}s"));
    }

    /// Ends all connections of others.
    pub(in crate::soak) fn terminate(&self) {
        self.primary.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
    }

    pub(in crate::soak) fn vacuum(&self) {
        // A host that is paused in the middle of a transaction may hold it up.
        let tables =
            "incumbent.meta, incumbent.leases, incumbent.keys, incumbent.history, counters";
        self.primary.psql(&format!("SET lock_timeout = '2s'; VACUUM FULL {tables}"));
    }

    pub(in crate::soak) fn revision(&self) -> String {
        let (answers, text) = self.primary.psql("SELECT revision FROM incumbent.meta");
        if answers { text } else { "none".into() }
    }

    pub(in crate::soak) fn logs(&self) -> Vec<String> {
        let standby = self.standby.as_ref().map(Postgres::log);
        [Some(self.primary.log()), standby].into_iter().flatten().collect()
    }

    fn server(&mut self, member: usize) -> Option<&mut Postgres> {
        if member == self.at { Some(&mut self.primary) } else { self.standby.as_mut() }
    }
}

fn until(is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LIMIT, "the standby follows");
        sleep(Duration::from_millis(10));
    }
}
