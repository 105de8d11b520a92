//! The counter in a table of a PostgreSQL, counted up in a transaction with the fence in SQL.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use incumbent::Fence;
use incumbent_simulation::history::Outcome;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Config, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls};

use super::WITHIN;

/// Its table, and the row of this election.
pub const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS counters (election text PRIMARY KEY, n bigint NOT NULL)";
/// The timeline of a primary: another one once a standby has taken over.
pub const TIMELINE: &str =
    "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int";
const WRITE: &str = "UPDATE counters SET n = $2 WHERE election = $1";
/// The longest work between a read and a write.
const WORK: Duration = Duration::from_millis(20);
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(2);

/// How many connections the counters of a process share.
const CONNECTIONS: usize = 16;

/// The way to one counter, by connections that are made when they are needed.
#[derive(Clone, Debug)]
pub(super) struct Table {
    config: Arc<Config>,
    clients: Arc<[Mutex<Option<Client>>; CONNECTIONS]>,
    election: String,
}

impl Table {
    pub(super) fn new(url: &str, election: &str) -> Result<Self, Error> {
        let mut config = Config::from_str(url)?;
        config.target_session_attrs(TargetSessionAttrs::ReadWrite).connect_timeout(CONNECT);
        let (config, clients) = (Arc::new(config), Arc::default());
        Ok(Self { config, clients, election: election.to_owned() })
    }

    pub(super) fn of(&self, election: &str) -> Self {
        Self { election: election.to_owned(), ..self.clone() }
    }

    pub(super) async fn value(&self) -> Result<u64, Error> {
        let client = connect(&self.config).await?;
        let (value, _) = read(&client, &self.election).await?;
        Ok(value.cast_unsigned())
    }

    /// A connection that nobody else uses, or the place of one.
    async fn free(&self) -> MutexGuard<'_, Option<Client>> {
        let free = self.clients.iter().find_map(|client| client.try_lock().ok());
        match free {
            Some(client) => client,
            None => self.clients[fastrand::usize(..CONNECTIONS)].lock().await,
        }
    }

    /// As [`Counter::increment`](super::Counter::increment).
    pub(super) async fn increment(&self, fence: &Fence, seen: impl FnOnce(u64, u32)) -> Outcome {
        let mut client = self.free().await;
        let mut is_committing = false;
        let counted = async {
            let client = connected(&self.config, &mut client).await?;
            let fence = fence.postgres().expect("it leads in a PostgreSQL");
            let transaction = client.transaction().await?;
            let guarded: (&str, i64) = (fence.election(), fence.epoch());
            transaction.execute(fence.statement(), &[&guarded.0, &guarded.1]).await?;
            let (value, timeline) = read(&transaction, &self.election).await?;
            seen(value.cast_unsigned(), timeline);
            // Without a lock between the two: the fence alone keeps other leaders away.
            work().await;
            transaction.execute(WRITE, &[&self.election, &(value + 1)]).await?;
            is_committing = true;
            transaction.commit().await
        };
        let counted = timeout(WITHIN, counted).await;
        match counted {
            Ok(Ok(())) => return Outcome::Applied,
            // It was not made, also at its commit. The connection is as good as before.
            Ok(Err(error)) if is_refusal(&error) => return Outcome::Nothing,
            // What was interrupted at its commit may have been made.
            Ok(Err(_)) | Err(_) => {}
        }
        *client = None;
        if is_committing { Outcome::Unknown } else { Outcome::Nothing }
    }
}

fn is_refusal(error: &Error) -> bool {
    let refused = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::from_code("IN001")];
    error.code().is_some_and(|code| refused.contains(code))
}

/// What a leader does between its read and its write: long enough that faults come between them.
pub async fn work() {
    sleep(WORK.mul_f64(fastrand::f64())).await;
}

/// The value of an election's counter, and the timeline that it was read on.
pub async fn read(
    client: &impl tokio_postgres::GenericClient,
    election: &str,
) -> Result<(i64, u32), Error> {
    let read = format!("SELECT n, {TIMELINE} FROM counters WHERE election = $1");
    let row = client.query_one(&read, &[&election]).await?;
    Ok((row.get(0), row.get::<_, i32>(1).cast_unsigned()))
}

/// Writes an election's counter, whatever it was.
pub async fn write(
    client: &impl tokio_postgres::GenericClient,
    election: &str,
    value: i64,
) -> Result<(), Error> {
    client.execute(WRITE, &[&election, &value]).await.map(drop)
}

/// Connects to the server that takes writes.
pub async fn connect(config: &Config) -> Result<Client, Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn connected<'a>(
    config: &Config,
    client: &'a mut Option<Client>,
) -> Result<&'a mut Client, Error> {
    if client.as_ref().is_none_or(Client::is_closed) {
        *client = Some(connect(config).await?);
    }
    Ok(client.as_mut().expect("just made"))
}
