//! The store in a file, for the processes of one machine.
//!
//! All of them open one SQLite database. What etcd's server does is done by whoever
//! comes next: each transaction begins by ending the leases that are over, at the time
//! that the machine's clock shows once the lock is held.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `place` | where a file may be, and where not |
//! | `database` | the open file, what is in it, and whether it is ours |
//! | `error` | why there is no store, and what SQLite's errors mean |
//! | `time` | the clock that all processes of a machine share |
//! | `sharing` | one store for all sessions of a process |
//! | `limits` | what etcd would not take either |
//! | `quota` | how much the store may hold |
//! | `writing`, `reading` | the operations |
//! | `writer` | the thread that does them, those that wait together in one commit |
//! | `watch` | the sets of watches |
//! | `watcher` | the thread that tells them, and sees to leases that are over |
//! | `bell` | how a process hears that another one has committed |
//! | `waker` | what wakes that thread |

mod bell;
mod database;
mod error;
mod limits;
mod place;
mod quota;
mod reading;
pub(super) mod sharing;
mod time;
mod waker;
mod watch;
mod watcher;
mod writer;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::database::Database;
pub use self::error::SqliteError;
pub use self::place::{SharedWith, shared_with};
use self::quota::QUOTA;
use self::time::Time;
use self::watch::{Hub, SqliteWatches};
use self::writer::{Errand, Job, Writer};
use super::{Store, Watches};
use crate::clock::Clock;
use crate::types::{Failure, Operation, Response};

/// As many files as a store has open at once, and some more: the database and its log for each
/// of its two threads, their memory, a journal, the bell, the directory.
const FILES: usize = 16;

/// Leases and keys in a file, for the processes of one machine. A cheap clone: all
/// clones share one thread, which ends with the last of them.
///
/// It means what etcd means, with two differences: a lease lives for exactly the time
/// that was asked for, from 1 s on; and a process that is stopped inside of a transaction
/// holds up all others until it goes on or dies. They do nothing wrong meanwhile: they get
/// no answers. All leases end when the machine is started anew.
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

/// What clones and watches have in common.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    time: Time,
    /// The writer's, which ends with the last sender.
    errands: mpsc::Sender<Errand>,
    hub: Arc<Hub>,
}

impl SqliteStore {
    /// Opens the file, and makes it if it is not there, for this user alone; not its
    /// directory. Next to it SQLite puts `-wal` and `-shm`, and the store `-bell`, all with the
    /// permissions of the file: [`shared_with`] tells who else may lock it. Blocks no thread
    /// of the runtime.
    ///
    /// # Errors
    ///
    /// Where the file cannot be a store: see [`SqliteError`].
    ///
    /// Cancel safe: at most the empty store is left behind.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, SqliteError> {
        Self::open_with_quota(path, QUOTA).await
    }

    /// The same with a quota, in bytes, instead of 2 GiB: for what is written through this store
    /// and its clones. Once the file holds as much, an operation that would put something there
    /// fails: a grant, a claim, a guarded write or a proclamation. Renewals, deletions and reads
    /// go on, and with them the leaderships that there are. Of the history, which watches can
    /// begin in, at most a quarter of the quota is kept, and never more than 64 MiB.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn open_with_quota(
        path: impl Into<PathBuf>,
        quota: u64,
    ) -> Result<Self, SqliteError> {
        Self::start(path.into(), Time::of_this_machine()?, quota).await
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

    /// The file, without links.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    async fn start(path: PathBuf, time: Time, quota: u64) -> Result<Self, SqliteError> {
        let (opens, opened) = oneshot::channel();
        let (errands, received) = mpsc::channel();
        let hub = place::may_open(FILES).and_then(|()| Hub::new());
        let hub = Arc::new(hub.map_err(|error| SqliteError::too_few_files(&path, &error))?);
        let write = {
            let (path, time, hub) = (path.clone(), time.clone(), Arc::clone(&hub));
            move || match Database::open(&path, &time) {
                Ok(database) => {
                    if opens.send(Ok(database.path().to_owned())).is_ok() {
                        Writer::new(database, time, received, hub, quota).run();
                    }
                }
                Err(error) => {
                    // Nobody waits for it any more.
                    let _ = opens.send(Err(error));
                }
            }
        };
        let spawned = thread::Builder::new().name("incumbent-sqlite".into()).spawn(write);
        // Watches will need another one, and have nobody to tell.
        let another = spawned.and_then(|_| thread::Builder::new().spawn(|| ()));
        another.map_err(|error| SqliteError::TooFewThreads {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let failed = |reason| SqliteError::Failed { path: path.clone(), reason };
        let path = opened.await.map_err(|_| failed("its thread has ended".into()))??;
        Ok(Self { shared: Arc::new(Shared { path, time, errands, hub }) })
    }
}

impl Store for SqliteStore {
    fn call(
        &self,
        operation: Operation,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response, Failure>> {
        let shared = Arc::clone(&self.shared);
        async move {
            limits::check(&operation)?;
            let (reply, answered) = oneshot::channel();
            let renewal = matches!(operation, Operation::KeepAlive(_));
            let job = Job { operation, give_up: Instant::now().checked_add(within), reply };
            if shared.errands.send(Errand::Do(job)).is_err() {
                return Err(Failure::Unavailable);
            }
            let answer = answered.map(|answer| answer.unwrap_or(Err(Failure::Unavailable)));
            if renewal {
                // One that was begun in time counts however late the answer is.
                answer.await
            } else {
                timeout(within, answer).await.unwrap_or(Err(Failure::Timeout))
            }
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(SqliteWatches::new(Arc::clone(&self.shared)))
    }
}
