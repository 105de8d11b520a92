//! Why there is no connection to the servers of a store.

use std::error;
use std::io;
use std::path::PathBuf;

/// Why there is no connection to an etcd or a PostgreSQL: one sentence each, which says what to
/// do about it.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A certificate or key cannot be read.
    #[error("the {what} {path} cannot be read: {source}")]
    Unreadable {
        /// Which one, by its field of the credentials and by the flag of the program.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file holds no certificate or key that can be used.
    #[error("the {what} {path} cannot be used: {reason}")]
    Unusable {
        /// Which one, by its field of the credentials and by the flag of the program.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why not.
        #[source]
        reason: Box<dyn error::Error + Send + Sync>,
    },
    /// The credentials do not go together.
    #[error("{0}")]
    Mismatched(&'static str),
    /// Nothing answers in time.
    #[error(
        "no {server} answers at {endpoint} ({reason}): is it running, and is the URL \
         (--store) right?"
    )]
    Unreachable {
        /// `etcd` or `PostgreSQL`.
        server: &'static str,
        /// `HOST:PORT`
        endpoint: String,
        /// What happened.
        #[source]
        reason: Box<dyn error::Error + Send + Sync>,
    },
    /// Something answers, but does not let us in.
    #[error("{endpoint} refuses the connection: {reason}")]
    Refused {
        /// `HOST:PORT`
        endpoint: String,
        /// What is wrong, and what to do.
        #[source]
        reason: Box<dyn error::Error + Send + Sync>,
    },
    /// The database lets us in, and cannot serve.
    #[error("the store {store} cannot be used: {reason}")]
    NoStore {
        /// The URL of the store.
        store: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Something answers, and it is no etcd.
    #[error("what answers at {endpoint} is no etcd ({reason}): is the URL (--store) right?")]
    NotAnEtcd {
        /// `HOST:PORT`
        endpoint: String,
        /// What gave it away.
        reason: &'static str,
    },
}

impl ConnectError {
    /// Whether the request for the connection was wrong, so that no store was tried.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::Unusable { .. } | Self::Mismatched(_) => true,
            Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::NoStore { .. }
            | Self::NotAnEtcd { .. } => false,
        }
    }

    pub(crate) fn unreachable(
        server: &'static str,
        endpoint: &str,
        reason: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self::Unreachable { server, endpoint: endpoint.to_owned(), reason: reason.into() }
    }

    pub(crate) fn refused(
        endpoint: &str,
        reason: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self::Refused { endpoint: endpoint.to_owned(), reason: reason.into() }
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn not_an_etcd(endpoint: &str, reason: &'static str) -> Self {
        Self::NotAnEtcd { endpoint: endpoint.to_owned(), reason }
    }
}
