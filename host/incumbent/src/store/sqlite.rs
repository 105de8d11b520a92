//! The store in a file, for the processes of one machine.
//!
//! All of them open one SQLite database. There is no server: each transaction begins by ending
//! the leases that are over, at the time that the machine's clock shows once the lock is held.
//!
//! | module | holds |
//! | --- | --- |
//! | `error` | why a file cannot be a store, and what SQLite's errors mean |
//! | `place` | where a store's file may be, what lies beside it, and who may reach it |
//! | `database` | the open file, its tables, and whether it is a store |
//! | `quota` | how much the store may hold |
//! | `reading`, `writing` | the operations |
//! | `waker`, `hub` | how the thread that serves the watches is reached and woken |
//! | `notification` | how a process learns that another one has committed |
//! | `writer` | the thread that does the operations, all that wait in one commit |
//! | `watcher` | the thread that serves the watches, and has leases swept |

mod database;
mod error;
mod hub;
mod notification;
mod place;
mod quota;
mod reading;
mod waker;
mod watcher;
mod writer;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use self::database::Database;
pub use self::error::SqliteError;
use self::hub::Hub;
use self::place::Identity;
pub use self::place::SharedWith;
use self::quota::QUOTA;
use self::watcher::Watcher;
use self::writer::{Writer, WriterRequest};
use super::following::WatchRequest;
use super::job::Job;
use super::sharing::Opened;
use super::time::Time;
use super::watch_set::WatchSet;
use super::{Store, Watches};
use crate::clock::Clock;
use crate::types::{Answer, Operation};

/// As many files as a store has open at once, and some more: the database and its log for each
/// of its two threads, their memory, a journal, the notifier file, the directory.
const FILES: usize = 16;

/// Leases and keys in a file, for the processes of one machine. A cheap clone: all
/// clones share one thread that writes and one that serves the watches. Both end with the last of
/// them.
///
/// It behaves as etcd, with two differences: a lease lives for exactly the requested time, from
/// 1 s on; and a process that is stopped inside of a transaction holds up all others until it
/// goes on or dies. Nothing wrong happens meanwhile: the others get no answers. All leases end
/// when the machine is started anew.
///
/// ```
/// use incumbent::{Options, Session, SqliteStore};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("incumbent-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let store = SqliteStore::open(folder.join("elections.db")).await?;
/// let session = Session::open(store, Options::default()).await?;
///
/// let leadership = session.election("my-service").campaign().await?;
/// leadership.fence().put("/data/result", "42").await?;
/// leadership.resign().await?;
/// session.close().await?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

/// What clones and watches share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Which file that was.
    identity: Option<Identity>,
    time: Time,
    /// The writer ends with the last sender.
    writer: mpsc::Sender<WriterRequest>,
    hub: Arc<Hub>,
}

impl SqliteStore {
    /// Opens the file, and makes it if it does not exist, for this user alone; not its
    /// directory. Beside it SQLite puts `-wal` and `-shm`, and the store `-bell`, all with the
    /// permissions of the file: [`SharedWith::of`] tells which other users may lock it. Blocks no
    /// thread of the runtime.
    ///
    /// # Errors
    ///
    /// If the file cannot be a store: see [`SqliteError`].
    ///
    /// Cancel safe: at most the empty store is left behind.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, SqliteError> {
        Self::open_with_quota(path, QUOTA).await
    }

    /// The same with a quota, in bytes, instead of 2 GiB, for all operations through this store
    /// and its clones. Once the file holds as much, an operation that would put something there
    /// fails: a grant, a claim, a guarded write or a proclamation. Renewals, deletions and reads
    /// go on, and with them the present leaderships. Of the history, in which watches can begin,
    /// at most a quarter of the quota is kept, and never more than 64 MiB.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn open_with_quota(
        path: impl Into<PathBuf>,
        quota: u64,
    ) -> Result<Self, SqliteError> {
        Self::start(path.into(), Time::of_this_machine().map_err(SqliteError::NoBootId)?, quota)
            .await
    }

    /// The same by another clock, since another start of the machine, for tests.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub async fn open_at(
        path: impl Into<PathBuf>,
        clock: Arc<dyn Clock>,
        boot: &str,
    ) -> Result<Self, SqliteError> {
        Self::start(path.into(), Time::new(clock, boot), QUOTA).await
    }

    /// The store that other sessions of this process have open, if the file still has that name;
    /// otherwise as [`open`](Self::open).
    pub(crate) async fn shared(path: PathBuf) -> Result<Self, SqliteError> {
        static OPENED: Opened<PathBuf, Shared> = Opened::new();
        // An empty name is refused when it is opened.
        let name = std::path::absolute(&path).unwrap_or_default();
        let serves = async |shared: &Arc<Shared>| {
            shared.identity.is_some() && shared.identity == Identity::of(&shared.path).ok()
        };
        let open = async || Ok(Self::open(path).await?.shared);
        Ok(Self { shared: OPENED.get(name, serves, open).await? })
    }

    /// The file, without links.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    async fn start(path: PathBuf, time: Time, quota: u64) -> Result<Self, SqliteError> {
        let (opens, opened) = oneshot::channel();
        let (writer, requests) = mpsc::channel();
        let hub = place::may_open(FILES).and_then(|()| Hub::new());
        let hub = Arc::new(
            hub.map_err(|source| SqliteError::TooFewFiles { path: path.clone(), source })?,
        );
        let write = {
            let (path, time, hub) = (path.clone(), time.clone(), Arc::clone(&hub));
            move || match Database::open(&path, &time) {
                Ok(database) => {
                    if opens.send(Ok(database.path.clone())).is_ok() {
                        Writer::new(database, time, requests, hub, quota).run();
                    }
                }
                Err(error) => {
                    // The caller may have gone.
                    let _ = opens.send(Err(error));
                }
            }
        };
        let spawned = thread::Builder::new().name("incumbent-sqlite".into()).spawn(write);
        // Watches will need another thread, and have no caller to report an error to.
        let another = spawned.and_then(|_| thread::Builder::new().spawn(|| ()));
        another.map_err(|source| SqliteError::TooFewThreads { path: path.clone(), source })?;
        let ended = |_| SqliteError::Failed { path, reason: "its thread has ended".into() };
        let path = opened.await.map_err(ended)??;
        let identity = Identity::of(&path).ok();
        Ok(Self { shared: Arc::new(Shared { path, identity, time, writer, hub }) })
    }
}

impl Store for SqliteStore {
    fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
        let shared = Arc::clone(&self.shared);
        async move {
            Job::ask(operation, within, |job| shared.writer.send(WriterRequest::Perform(job))).await
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        let shared = Arc::clone(&self.shared);
        Box::new(WatchSet::new(shared.hub.enter(), move |request| match request {
            WatchRequest::Leave { set } => shared.hub.leave(set),
            WatchRequest::Open { .. } | WatchRequest::Close { .. } => {
                shared.hub.request(request, || Watcher::start(&shared));
            }
        }))
    }
}
