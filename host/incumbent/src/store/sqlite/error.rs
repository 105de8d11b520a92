//! Why a file cannot be a store, and what SQLite's errors mean.

use std::error;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Error, ErrorCode};

use crate::types::Failure;

/// Why a file cannot be a store: one sentence each, which says what to do about it.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// The directory that it should be in is not there.
    #[error("{0} has no directory to be in: make it first, or name another file")]
    NoDirectory(PathBuf),
    /// The directory of the store `local` cannot be made.
    #[error(
        "the directory {} of the store local cannot be made ({source}): make it, or name a file by \
         sqlite:PATH",
        directory.display()
    )]
    NotMade {
        /// The directory.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is a directory, a device or the like.
    #[error("{0} is no file that could be a store: name a file")]
    NotAFile(PathBuf),
    /// It has another name, and so the files that SQLite puts beside it would exist twice.
    #[error("{0} has another name (a hard link): remove one of them")]
    HardLinked(PathBuf),
    /// A file beside it is not the store's: somebody has put it there.
    #[error(
        "{path} is {kind}, and the store needs a file of its own there: stop all that use the store, \
         and remove it"
    )]
    Foreign {
        /// The file beside the store.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It is a mount of its own, and the files that SQLite puts beside it would not be shared.
    #[error(
        "{0} is mounted by itself: mount its directory, because the files beside it have to \
         be shared as well"
    )]
    MountedAlone(PathBuf),
    /// It was removed while it was in use, and the files beside it were not.
    #[error(
        "{0} was removed or replaced, but not its -wal and -shm: stop all that use it, and remove \
         them as well"
    )]
    Remnants(PathBuf),
    /// Locks do not reach other machines there, or not reliably, and the processes' shared
    /// memory never does.
    #[error(
        "{path} is on a network or shared file system ({kind}), where locks cannot be relied on: \
         name a file on a local disk, or use etcd for more than one machine"
    )]
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
        /// Which one.
        kind: &'static str,
    },
    /// Every process that uses it has to write, to the file and beside it.
    #[error(
        "{path} cannot be written ({reason}): give this user the right to write the file and its \
         directory, or name another file"
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What was found.
        #[source]
        reason: Box<dyn error::Error + Send + Sync>,
    },
    /// It is a file of another kind.
    #[error("{path} is no store of Incumbent's ({reason}): name another file")]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: &'static str,
    },
    /// A newer version made it.
    #[error(
        "{path} was made by a newer version of Incumbent (format {version}): update this one, or \
         name another file"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: i64,
    },
    /// It is damaged.
    #[error(
        "{path} is damaged ({reason}): stop all that use it, remove it together with its -wal and \
         -shm, and start anew"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        reason: Box<dyn error::Error + Send + Sync>,
    },
    /// The disk, or the user's share of it, is full.
    #[error("no space is left for {0}: free some, or name a file on another disk")]
    Full(PathBuf),
    /// The store holds as much as it may: operations that put nothing there still succeed.
    #[error(
        "{path} is full: it holds the {quota} bytes that its quota allows; delete keys, or open it \
         with a larger quota"
    )]
    OverQuota {
        /// The file.
        path: PathBuf,
        /// In bytes.
        quota: u64,
    },
    /// SQLite's log cannot be restarted, and fills the quota.
    #[error(
        "{path}-wal has grown to {length} bytes: some process is stopped while it reads the store; \
         let it go on (SIGCONT), or end it"
    )]
    LongLog {
        /// The file.
        path: PathBuf,
        /// In bytes.
        length: u64,
    },
    /// Another process holds its lock all the time.
    #[error(
        "{0} stays locked: a process is stopped in the middle of a change (resume it with SIGCONT, \
         or end it), or more processes use the file at once than it can serve (use etcd)"
    )]
    Locked(PathBuf),
    /// This process may open too few files for a store.
    #[error(
        "{path} cannot be opened, because this process may open too few files ({source}): raise its \
         limit (ulimit -n)"
    )]
    TooFewFiles {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// This user, or this group of processes, may have too few threads for a store.
    #[error(
        "{path} cannot be opened, because no thread can be started ({source}): allow this user more \
         (ulimit -u)"
    )]
    TooFewThreads {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Without a boot id, leases would outlive the machine's next start.
    #[error("this machine does not tell one start from the next ({0}): use etcd")]
    NoBootId(#[source] Box<dyn error::Error + Send + Sync>),
    /// Anything else.
    #[error(
        "{path} does not work as a store ({reason}): check its file system, or name another file"
    )]
    Failed {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        reason: Box<dyn error::Error + Send + Sync>,
    },
}

impl SqliteError {
    /// Whether only a change helps: another file, other permissions, or a higher limit. The
    /// other errors may pass by themselves.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::NoDirectory { .. }
            | Self::NotMade { .. }
            | Self::NotAFile { .. }
            | Self::HardLinked { .. }
            | Self::Foreign { .. }
            | Self::MountedAlone { .. }
            | Self::NetworkFileSystem { .. }
            | Self::ReadOnly { .. }
            | Self::NotAStore { .. }
            | Self::Newer { .. }
            | Self::TooFewFiles { .. }
            | Self::TooFewThreads { .. }
            | Self::NoBootId(_) => true,
            Self::Damaged { .. }
            | Self::Remnants { .. }
            | Self::Full { .. }
            | Self::OverQuota { .. }
            | Self::LongLog { .. }
            | Self::Locked { .. }
            | Self::Failed { .. } => false,
        }
    }

    pub(super) fn new(path: &Path, error: Error) -> Self {
        let path = path.to_owned();
        if is_busy(&error) {
            return Self::Locked(path);
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(path),
            // SQLite's error if there is no room for the shared memory.
            Some(ErrorCode::SystemIoFailure) if is_full(&path) => Self::Full(path),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                Self::ReadOnly { path, reason: error.into() }
            }
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, reason: error.into() },
            Some(ErrorCode::NotADatabase) => {
                Self::NotAStore { path, reason: "it is not an SQLite database" }
            }
            _ => Self::Failed { path, reason: error.into() },
        }
    }
}

/// The error for callers. Nothing has happened, unless the commit itself failed: after a
/// crash, its changes may be there.
pub(super) fn failure(path: &Path, error: Error) -> Failure {
    if is_busy(&error) {
        Failure::Timeout
    } else {
        Failure::Other(SqliteError::new(path, error).to_string())
    }
}

pub(super) fn is_busy(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// Whether there is no room left where the file is.
fn is_full(path: &Path) -> bool {
    #[cfg(unix)]
    {
        let directory = path.parent().unwrap_or(path);
        rustix::fs::statvfs(directory).is_ok_and(|found| found.f_bavail == 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}
