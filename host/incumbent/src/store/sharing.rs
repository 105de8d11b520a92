//! One store for all sessions of this process that ask for the same one.
//!
//! A store in a file has a thread that writes and one for its watches, and competes with all
//! others for the file's lock. A store on etcd has a connection, and its requests wait for each
//! other and go together. With one for each session, a thousand sessions would cost a thousand
//! times as much.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

/// The stores that sessions use, each by what it was asked for with.
pub(crate) struct Opened<K, S>(LazyLock<Mutex<HashMap<K, Arc<Slot<S>>>>>);

/// The lock is held while the store is opened: sessions that connect meanwhile get the same one.
type Slot<S> = tokio::sync::Mutex<Weak<S>>;

impl<K: Eq + Hash, S> Opened<K, S> {
    pub(crate) const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// The store that is open already, if it still serves; otherwise a new one.
    pub(crate) async fn get<E>(
        &self,
        key: K,
        serves: impl AsyncFnOnce(&Arc<S>) -> bool,
        open: impl AsyncFnOnce() -> Result<Arc<S>, E>,
    ) -> Result<Arc<S>, E> {
        let slot = self.slot(key);
        let mut slot = slot.lock().await;
        if let Some(store) = slot.upgrade()
            && serves(&store).await
        {
            return Ok(store);
        }
        let store = open().await?;
        *slot = Arc::downgrade(&store);
        Ok(store)
    }

    fn slot(&self, key: K) -> Arc<Slot<S>> {
        let mut all = self.0.lock();
        // Forgets stores that no session uses or opens.
        all.retain(|_, slot| slot.try_lock().map_or(true, |store| store.strong_count() > 0));
        Arc::clone(all.entry(key).or_default())
    }
}
