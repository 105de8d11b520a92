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
/// answers or it refuses, if the file cannot serve.
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

async fn file(url: &StoreUrl) -> Result<Arc<dyn Store>, Error> {
    Err(Error::Configuration(format!("{url} is not there yet")))
}

/// All who name it alike meet there, as long as the process lives.
fn memory(name: &str) -> MemoryStore {
    static NAMED: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.entry(name.to_owned()).or_default().clone()
}
