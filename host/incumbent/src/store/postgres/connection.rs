//! A connection, and a call of a function of the schema.

use std::future::poll_fn;
use std::time::Duration;

use futures_util::future::join3;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error};

/// How long the server keeps a transaction open whose next statement does not come: the way between
/// was cut, or this process was stopped.
const IDLE: Duration = Duration::from_secs(2);

/// Serves a connection until it ends, and says that the server has notified of something.
pub(super) async fn drive<S, T>(
    mut connection: Connection<S, T>,
    notified: Option<UnboundedSender<()>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(_))) => {
                if let Some(notified) = &notified
                    && notified.send(()).is_err()
                {
                    break;
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "the connection to the database has ended");
                break;
            }
            None => break,
        }
    }
}

/// Calls a function that reads, in one statement.
pub(super) async fn read(
    client: &Client,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Value, Error> {
    let rows = client.query_typed(statement, parameters).await?;
    let value: Option<Value> = rows.first().map_or(Ok(None), |row| row.try_get(0))?;
    Ok(value.unwrap_or_default())
}

/// Calls a function that writes, in a transaction of its own, for which the server takes no longer
/// than `within`. Its statements go in one round trip. Whatever the database's owner has set, it sees
/// what others have committed before it.
pub(super) async fn write(
    client: &Client,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
    within: Duration,
) -> Result<Value, Error> {
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = {}; \
         SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = {}",
        (within.as_millis() + 1).min(i32::MAX.unsigned_abs().into()),
        IDLE.as_millis(),
    );
    let begin = client.batch_execute(&begin);
    let called = read(client, statement, parameters);
    // After a failure it is a rollback.
    let commit = client.batch_execute("COMMIT");
    let (begun, answer, committed) = join3(begin, called, commit).await;
    begun?;
    let answer = answer?;
    committed?;
    Ok(answer)
}
