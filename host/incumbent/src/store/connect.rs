//! The store of a URL.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Store;
use super::memory::MemoryStore;
use super::url::{EtcdUrl, StoreUrl};
use crate::error::Error;
use crate::session::Options;

/// Connects to the store of a URL, with what the options say of connections. Cancel
/// safe. Wants tokio's runtime, and lives on it.
///
/// # Errors
///
/// [`Error::Configuration`] if it cannot be as asked for, [`Error::Connect`] if no etcd
/// answers or it refuses, [`Error::Sqlite`] if the file cannot serve.
pub async fn connect(url: &StoreUrl, options: &Options) -> Result<Arc<dyn Store>, Error> {
    match url {
        StoreUrl::Etcd(url) => etcd(url, options).await,
        StoreUrl::Memory(name) => Ok(Arc::new(memory(name))),
        StoreUrl::Local | StoreUrl::Sqlite(_) => file(url).await,
    }
}

#[cfg(feature = "etcd")]
async fn etcd(url: &EtcdUrl, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let Options { credentials, dial_timeout, .. } = options;
    Ok(Arc::new(super::etcd::EtcdStore::connect(url, credentials, *dial_timeout).await?))
}

#[cfg(not(feature = "etcd"))]
async fn etcd(url: &EtcdUrl, _options: &Options) -> Result<Arc<dyn Store>, Error> {
    Err(left_out(url, "etcd"))
}

#[cfg(feature = "sqlite")]
async fn file(url: &StoreUrl) -> Result<Arc<dyn Store>, Error> {
    let path = url.path().map_err(|error| Error::Configuration(error.to_string()))?;
    let path = path.unwrap_or_default();
    if let (StoreUrl::Local, Some(directory)) = (url, path.parent()) {
        make(directory).map_err(|error| {
            Error::Configuration(format!(
                "the directory {} of the store local cannot be made ({error}): make it, or name \
                 a file by sqlite:PATH",
                directory.display()
            ))
        })?;
    }
    Ok(Arc::new(super::sqlite::sharing::open(path).await?))
}

/// For its owner alone: what is in the store is nobody else's.
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

#[cfg(not(all(feature = "etcd", feature = "sqlite")))]
fn left_out(url: &impl std::fmt::Display, feature: &str) -> Error {
    Error::Configuration(format!(
        "the store {url} needs the feature `{feature}` of the library: add it to incumbent's \
         features in Cargo.toml"
    ))
}

/// All who name it alike meet there, as long as the process lives.
fn memory(name: &str) -> MemoryStore {
    static NAMED: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.entry(name.to_owned()).or_default().clone()
}
