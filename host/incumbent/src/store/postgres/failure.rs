//! What PostgreSQL's errors mean.

use std::error::Error as _;
use std::io;

use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Config, Error};
use tokio_rustls::rustls;

use crate::explained::Explained;
use crate::store::connect_error::ConnectError;
use crate::store::url::PostgresUrl;
use crate::types::Failure;

/// Why something could not be done with the database.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// There is no connection.
    #[error(transparent)]
    Unconnected(#[from] ConnectError),
    /// The connection failed, or the server refused a statement.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Trouble {
    /// Whether another connection may do better.
    pub(super) fn asks_for_another_connection(&self) -> bool {
        match self {
            Self::Unconnected(_) => true,
            Self::Failed(error) => error.as_db_error().is_none_or(|refusal| {
                only_reads(refusal)
                    || is_missing(refusal)
                    || refusal.code().code().starts_with("57P")
            }),
        }
    }

    /// Whether the server let us in, and the connection ended before anything came of it.
    pub(super) fn is_an_ended_connection(&self) -> bool {
        match self {
            Self::Failed(error) => was_ended(error),
            Self::Unconnected(ConnectError::Unreachable { reason, .. }) => {
                reason.source().and_then(|error| error.downcast_ref()).is_some_and(was_ended)
            }
            Self::Unconnected(_) => false,
        }
    }
}

/// The other side may close before it has read what we sent: then the system reports a reset, and
/// PostgreSQL's own word is lost.
fn was_ended(error: &Error) -> bool {
    let cut = [
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::UnexpectedEof,
    ];
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    error.is_closed()
        || error.code() == Some(&SqlState::ADMIN_SHUTDOWN)
        || cause.is_some_and(|cause| cut.contains(&cause.kind()))
}

/// A server that was promoted once may be a standby now.
fn only_reads(refusal: &DbError) -> bool {
    let code = refusal.code();
    *code == SqlState::READ_ONLY_SQL_TRANSACTION
        || (*code == SqlState::FEATURE_NOT_SUPPORTED && refusal.message().contains("recovery"))
}

/// The schema, or a part of it.
fn is_missing(refusal: &DbError) -> bool {
    [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::UNDEFINED_OBJECT,
    ]
    .contains(refusal.code())
}

/// Why a server did not let us in.
pub(super) fn objection(
    url: &PostgresUrl,
    endpoint: &str,
    config: &Config,
    error: Error,
) -> ConnectError {
    let user = config.get_user().unwrap_or_default().to_owned();
    let refused =
        |sentence: String, error| ConnectError::refused(endpoint, Explained::new(sentence, error));
    if let Some(refusal) = error.as_db_error() {
        let said = refusal.message().to_owned();
        let code = refusal.code();
        if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        {
            return refused(
                format!(
                    "{said}: check the user and the password (--password-file, or PGPASSFILE), and \
                     the server's pg_hba.conf"
                ),
                error,
            );
        }
        if *code == SqlState::INVALID_CATALOG_NAME {
            let database = config.get_dbname().unwrap_or_default();
            return refused(
                format!(
                    "{said}: make it (createdb {database}), or name another in the URL (--store)"
                ),
                error,
            );
        }
        if *code == SqlState::TOO_MANY_CONNECTIONS {
            return refused(
                format!("{said}: raise max_connections, or put a pooler before it"),
                error,
            );
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            let database = config.get_dbname().unwrap_or_default();
            return refused(
                format!("{said}: have `GRANT CONNECT ON DATABASE {database} TO {user}` run"),
                error,
            );
        }
        return ConnectError::unreachable("PostgreSQL", endpoint, Explained::new(said, error));
    }
    let said = chain(&error);
    if said.contains("does not allow writes") {
        return ConnectError::NoStore {
            store: url.to_string(),
            reason: format!(
                "{endpoint} takes no writes, as a standby does: name the primary in the URL (--store) \
                 as well"
            ),
        };
    }
    if said.contains("password missing") {
        return refused(
            format!(
                "it asks for the password of the user {user}: give it by --password-file, or in \
                 PGPASSFILE"
            ),
            error,
        );
    }
    if said.contains("does not support TLS") {
        let sentence = "it speaks no TLS: turn it on there (ssl = on), or write sslmode=disable in \
                        the URL (--store)";
        return refused(sentence.into(), error);
    }
    if let Some(objection) = of_tls(&error) {
        let sentence = format!(
            "its certificate, or ours, is not taken ({objection}): check `ca` (--cacert, or \
             sslrootcert in the URL), and sslmode"
        );
        return refused(sentence, error);
    }
    ConnectError::unreachable("PostgreSQL", endpoint, Explained::new(said, error))
}

/// What TLS found wrong, on either side.
fn of_tls(error: &Error) -> Option<String> {
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(found) = found.or_else(|| error.downcast_ref()) {
            return Some(found.to_string());
        }
        source = error.source();
    }
    None
}

/// The last of the sources, which says what happened.
fn chain(error: &Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// What the server said, or why it said nothing.
pub(super) fn said(error: &Error) -> String {
    match error.as_db_error() {
        Some(refusal) => {
            format!("PostgreSQL says: {} ({})", refusal.message(), refusal.code().code())
        }
        None => format!("its connection failed ({})", chain(error)),
    }
}

/// Why an operation failed.
pub(super) fn failure(trouble: &Trouble) -> Failure {
    let error = match trouble {
        Trouble::Failed(error) => error,
        Trouble::Unconnected(ConnectError::Unreachable { .. } | ConnectError::NoStore { .. }) => {
            return Failure::Unavailable;
        }
        Trouble::Unconnected(error @ ConnectError::Refused { reason, .. }) => {
            let refusal = reason.source().and_then(|error| error.downcast_ref::<Error>());
            let is_full = refusal.and_then(Error::code) == Some(&SqlState::TOO_MANY_CONNECTIONS);
            return if is_full { Failure::Unavailable } else { Failure::Denied(error.to_string()) };
        }
        Trouble::Unconnected(error) => return Failure::Other(error.to_string()),
    };
    let Some(refusal) = error.as_db_error() else { return Failure::Unavailable };
    let code = refusal.code();
    let sentence = || said(error);
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return Failure::Denied(sentence());
    }
    // We give each statement its time, and the caller the same.
    if *code == SqlState::QUERY_CANCELED {
        return Failure::Timeout;
    }
    if [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code) {
        return Failure::Other(sentence());
    }
    // Connections, operators' interventions, what is short, and conflicts.
    let passes = ["08", "57", "53", "40"].iter().any(|class| code.code().starts_with(class));
    if passes || only_reads(refusal) { Failure::Unavailable } else { Failure::Other(sentence()) }
}
