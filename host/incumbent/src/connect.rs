//! Opens the store that a URL names.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;
use crate::options::Options;
use crate::store::Store;
use crate::store::memory::MemoryStore;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::{SqliteError, SqliteStore};
use crate::store::url::{EtcdUrl, PostgresUrl, StoreUrl};

/// Opens the store that a URL names, with the credentials and the dial time-out of the options.
/// The store needs tokio's runtime, and lives on it. Cancel safe.
///
/// # Errors
///
/// [`Error::Url`] if the URL names no store, [`Error::Configuration`] if the library was built
/// without the store, [`Error::Connect`] if no etcd or PostgreSQL answers, or it refuses the connection,
/// [`Error::Sqlite`] if the file cannot be a store.
pub async fn connect(url: &StoreUrl, options: &Options) -> Result<Arc<dyn Store>, Error> {
    match url {
        StoreUrl::Etcd(url) => etcd(url, options).await,
        StoreUrl::Postgres(url) => postgres(url, options).await,
        StoreUrl::Memory(name) => Ok(Arc::new(memory(name))),
        StoreUrl::Local | StoreUrl::Sqlite(_) => file(url).await,
    }
}

#[cfg(feature = "etcd")]
async fn etcd(url: &EtcdUrl, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let Options { credentials, dial_timeout, .. } = options;
    let store = crate::store::etcd::EtcdStore::shared(url, credentials, *dial_timeout).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "etcd"))]
async fn etcd(url: &EtcdUrl, _options: &Options) -> Result<Arc<dyn Store>, Error> {
    Err(left_out(url, "etcd"))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &PostgresUrl, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let Options { credentials, dial_timeout, .. } = options;
    let store = crate::store::postgres::PostgresStore::shared(url, credentials, *dial_timeout);
    Ok(Arc::new(store.await?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(url: &PostgresUrl, _options: &Options) -> Result<Arc<dyn Store>, Error> {
    Err(left_out(url, "postgres"))
}

#[cfg(feature = "sqlite")]
async fn file(url: &StoreUrl) -> Result<Arc<dyn Store>, Error> {
    let path = url.path()?.unwrap_or_default();
    if let (StoreUrl::Local, Some(directory)) = (url, path.parent()) {
        make(directory)
            .map_err(|source| SqliteError::NotMade { directory: directory.to_owned(), source })?;
    }
    Ok(Arc::new(SqliteStore::shared(path).await?))
}

/// For its owner alone: the store is no other user's.
#[cfg(feature = "sqlite")]
fn make(directory: &std::path::Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

#[cfg(not(feature = "sqlite"))]
async fn file(url: &StoreUrl) -> Result<Arc<dyn Store>, Error> {
    Err(left_out(url, "sqlite"))
}

#[cfg(not(all(feature = "etcd", feature = "postgres", feature = "sqlite")))]
fn left_out(url: &impl std::fmt::Display, feature: &str) -> Error {
    Error::Configuration(format!(
        "the store {url} needs the feature `{feature}` of the library: add it to incumbent's \
         features in Cargo.toml"
    ))
}

/// One store for each name, as long as the process lives.
fn memory(name: &str) -> MemoryStore {
    static NAMED: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
    NAMED.lock().entry(name.to_owned()).or_default().clone()
}
