//! One store for all sessions of this process that are connected to the same file.
//!
//! Each store has a thread that writes and one for its watches, and competes with all others
//! for the file's lock: with a store for each session, every handover would cost all of them
//! time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::error::SqliteError;
use super::place::Identity;
use super::{Shared, SqliteStore};

/// The store that was opened by a name, as long as a session uses it, and which file that was.
/// The lock is held while the store is opened: sessions that connect meanwhile get the same one.
type Opened = tokio::sync::Mutex<(Weak<Shared>, Option<Identity>)>;

static OPENED: Mutex<BTreeMap<PathBuf, Arc<Opened>>> = Mutex::new(BTreeMap::new());

/// The store that is open already, if its file still has that name. Otherwise as
/// [`SqliteStore::open`].
pub(crate) async fn open(path: PathBuf) -> Result<SqliteStore, SqliteError> {
    let opened = opened(&path);
    let mut opened = opened.lock().await;
    let (store, identity) = &*opened;
    if let Some(shared) = store.upgrade()
        && let Ok(found) = Identity::of(&shared.path)
        && *identity == Some(found)
    {
        return Ok(SqliteStore { shared });
    }
    let store = SqliteStore::open(path).await?;
    *opened = (Arc::downgrade(&store.shared), Identity::of(store.path()).ok());
    Ok(store)
}

fn opened(path: &PathBuf) -> Arc<Opened> {
    // An empty name is refused when it is opened.
    let name = std::path::absolute(path).unwrap_or_default();
    let mut all = OPENED.lock();
    // Forgets stores that no session uses or opens.
    all.retain(|_, opened| opened.try_lock().map_or(true, |opened| opened.0.strong_count() > 0));
    Arc::clone(all.entry(name).or_default())
}
