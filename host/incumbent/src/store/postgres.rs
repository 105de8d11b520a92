//! The store in PostgreSQL.
//!
//! | module | holds |
//! | --- | --- |
//! | `schema.sql` | the tables, and the functions through which all of it is read and written |
//! | `schema` | whether these are there, and how they are made |
//! | `access`, `tls`, `passfile` | how the servers are reached, with libpq's options |
//! | `connection` | a connection, and a call of such a function |
//! | `failure` | what PostgreSQL's errors mean |
//! | `request` | the operations as these functions take them, and their answers |
//! | `writer` | the task that does the operations, all that wait in one transaction |
//! | `watcher` | the task that serves the watches, and has leases ended |
//! | `sightings` | which leases are over |

mod access;
mod connection;
mod failure;
mod passfile;
mod request;
mod schema;
mod sightings;
mod tls;
mod watcher;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use tokio_postgres::Client;

use self::access::Access;
use self::failure::Trouble;
use self::sightings::{Moment, Sightings};
use self::watcher::Watcher;
use self::writer::{Writer, WriterRequest};
use super::connect_error::ConnectError;
use super::credentials::Credentials;
use super::following::WatchRequest;
use super::job::Job;
use super::memory::keys_of;
use super::sharing::Opened;
use super::time::Time;
use super::url::PostgresUrl;
use super::watch_set::WatchSet;
use super::{Store, Watches};
use crate::types::{Answer, Failure, Operation};

/// Leases and keys in a PostgreSQL database. A cheap clone: all clones share three connections. Lives on
/// the tokio runtime that it was made on.
///
/// It behaves as etcd, with these differences: a lease lives for exactly the requested time, from 1 s
/// on; and once another server has become the primary, nobody new gets in line for as long as the
/// longest lease, because what was acknowledged by the old one may be lost.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    channels: Arc<Channels>,
}

/// How the tasks are reached. They end when this is dropped.
#[derive(Debug)]
struct Channels {
    writer: UnboundedSender<WriterRequest>,
    renewer: UnboundedSender<WriterRequest>,
    watcher: UnboundedSender<WatchRequest>,
    last_set: AtomicU64,
    schema: String,
}

/// What the tasks share.
#[derive(Debug)]
struct Shared {
    access: Access,
    time: Time,
    sightings: Mutex<Sightings>,
}

impl Shared {
    fn here(&self) -> Moment<'_> {
        Moment::now(&self.time)
    }
}

impl PostgresStore {
    /// Connects to the first server that takes writes, and makes the schema if it is not there and the
    /// user may.
    ///
    /// # Errors
    ///
    /// If no server answers within `dial_timeout` or none lets us in, if the credentials cannot be
    /// used, or if the database cannot be a store.
    ///
    /// Cancel safe: at most the empty schema is left behind.
    pub async fn connect(
        url: &PostgresUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        // Where nothing tells one start of the machine from another, each process is one by itself.
        let time = Time::of_this_machine().unwrap_or_else(|_| {
            Time::new(Arc::new(crate::clock::BootClock), &format!("process {:x}", random()))
        });
        Self::open(url, credentials, dial_timeout, time).await
    }

    /// The same by another clock, since another start of the machine, for tests.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    #[doc(hidden)]
    pub async fn open_at(
        url: &PostgresUrl,
        clock: Arc<dyn crate::clock::Clock>,
        boot: &str,
    ) -> Result<Self, ConnectError> {
        let within = Duration::from_secs(5);
        Self::open(url, &Credentials::default(), within, Time::new(clock, boot)).await
    }

    /// The statements that make the schema, for somebody who applies them by hand; with a role, also
    /// those that give it the least that a candidate needs.
    pub fn schema(name: &str, role: Option<&str>) -> String {
        let grants = role.map(|role| schema::grants(name, role)).unwrap_or_default();
        format!("{}\n{grants}", schema::statements(name))
    }

    /// The store that other sessions on this runtime have with the same credentials, if it serves;
    /// otherwise as [`connect`](Self::connect).
    pub(crate) async fn shared(
        url: &PostgresUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        static OPENED: Opened<(PostgresUrl, Credentials, Duration, Id), Channels> = Opened::new();
        let key = (url.clone(), credentials.clone(), dial_timeout, Handle::current().id());
        let serves = async |channels: &Arc<Channels>| {
            let store = Self { channels: Arc::clone(channels) };
            store.peek(vec![0], dial_timeout).await.is_ok()
        };
        let open = async || Ok(Self::connect(url, credentials, dial_timeout).await?.channels);
        Ok(Self { channels: OPENED.get(key, serves, open).await? })
    }

    async fn open(
        url: &PostgresUrl,
        credentials: &Credentials,
        dial_timeout: Duration,
        time: Time,
    ) -> Result<Self, ConnectError> {
        let access = Access::new(url, credentials, dial_timeout)?;
        let client = Self::first_client(&access, dial_timeout).await?;
        let shared = Arc::new(Shared { access, time, sightings: Mutex::default() });
        let (writer, jobs) = unbounded_channel();
        let (renewer, renewals) = unbounded_channel();
        let (watcher, requests) = unbounded_channel();
        let weak = writer.downgrade();
        tokio::spawn(Writer::new(Arc::clone(&shared), jobs, Some(client)).run());
        tokio::spawn(Writer::new(Arc::clone(&shared), renewals, None).run());
        tokio::spawn(Watcher::new(shared, requests, weak).run());
        let (last_set, schema) = (AtomicU64::new(0), url.schema().to_owned());
        Ok(Self { channels: Arc::new(Channels { writer, renewer, watcher, last_set, schema }) })
    }

    /// A connection that somebody ends there before it could be used is made again.
    async fn first_client(access: &Access, within: Duration) -> Result<Client, ConnectError> {
        let begun = Instant::now();
        loop {
            match schema::connect(access).await {
                Err(trouble) if trouble.is_an_ended_connection() && begun.elapsed() < within => {
                    sleep(BETWEEN_CONNECTIONS).await;
                }
                connected => {
                    return connected.map_err(|trouble| match trouble {
                        Trouble::Unconnected(error) => error,
                        Trouble::Failed(error) => ConnectError::NoStore {
                            store: access.url.to_string(),
                            reason: failure::said(&error),
                        },
                    });
                }
            }
        }
    }
}

/// How soon a first connection that was ended is followed by another.
const BETWEEN_CONNECTIONS: Duration = Duration::from_millis(10);
/// Longer ones do not go into an index of PostgreSQL's.
const LONGEST_KEY: usize = 2_600;

fn check_keys(operation: &Operation) -> Result<(), Failure> {
    match keys_of(operation).0.iter().find(|key| key.len() > LONGEST_KEY) {
        Some(key) => Err(Failure::Invalid(format!(
            "a key of {} bytes: PostgreSQL takes {LONGEST_KEY} at most",
            key.len()
        ))),
        None => Ok(()),
    }
}

fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}

impl Store for PostgresStore {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let channels = Arc::clone(&self.channels);
        async move {
            check_keys(&operation)?;
            let renewal = matches!(operation, Operation::KeepAlive(_));
            let writer = if renewal { &channels.renewer } else { &channels.writer };
            Job::ask(operation, within, |job| writer.send(WriterRequest::Perform(job))).await
        }
        .boxed()
    }

    fn fence_statement(&self, lease: i64) -> Option<String> {
        Some(format!("SELECT {}.fence($1, $2, {lease})", self.channels.schema))
    }

    fn watches(&self) -> Box<dyn Watches> {
        let channels = Arc::clone(&self.channels);
        let set = channels.last_set.fetch_add(1, Ordering::Relaxed) + 1;
        Box::new(WatchSet::new(set, move |request| {
            if let Err(refused) = channels.watcher.send(request) {
                refused.0.refuse("the store's runtime has ended");
            }
        }))
    }
}
