//! What can go wrong, as the users of the library see it.

use std::io;

use crate::elector::ComponentError;
#[cfg(any(feature = "etcd", feature = "postgres"))]
use crate::store::connect_error::ConnectError;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::SqliteError;
use crate::store::url::StoreUrlError;
use crate::types::{Failure, Reason};
use crate::write::WriteError;

/// Why something failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is impossible. The sentence says what to mend.
    #[error("{0}")]
    Configuration(String),
    /// The URL of the store is wrong.
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    /// No thread could be started.
    #[error("cannot compile the elector: no thread could be started: {0}")]
    Thread(#[source] io::Error),
    /// There is no connection to the store.
    #[cfg(any(feature = "etcd", feature = "postgres"))]
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The store's file cannot serve.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
    /// The elector could not be started.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// The candidacy or observation is over for good, and this is why.
    #[error("withdrawn: {0}")]
    Withdrawn(#[source] Failure),
    /// The term was over before its resignation.
    #[error("the leadership was over already: {0}")]
    Lost(Reason),
    /// A candidate's value was not changed.
    #[error("the new value was not proclaimed: {0}")]
    Proclaim(#[source] WriteError),
    /// The candidate has left, or the session is closed.
    #[error("the candidate has left, or its session is closed")]
    Closed,
}
