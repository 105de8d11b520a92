//! How a process learns that another one has committed: by a file beside the database, to
//! which each process writes a byte after each commit.
//!
//! SQLite's own files change before the commit is visible. A process that is killed between
//! the commit and the notification sends none: so listeners poll from time to time as well.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hub::Hub;
use super::place::{self, Identity, NOTIFIER, beside};

/// How long to wait before listening is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Opens the file, and makes it for all users that may write the database.
fn open(path: &Path, database: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        use rustix::fs::OFlags;

        // It neither follows a link, nor waits at a named pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    #[cfg(unix)]
    if let Some(kind) = place::foreign(&file.metadata()?) {
        return Err(io::Error::other(format!("it is {kind}")));
    }
    // Only its owner can, or root.
    let _ = share(&file, database);
    Ok(file)
}

/// Gives the file the owner and the permissions of the database. Only where they differ,
/// because listeners are notified of each change.
fn share(notifier: &File, database: &Path) -> io::Result<()> {
    let (theirs, ours) = (database.metadata()?, notifier.metadata()?);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, fchown};
        if (theirs.uid(), theirs.gid()) != (ours.uid(), ours.gid()) {
            fchown(notifier, Some(theirs.uid()), Some(theirs.gid()))?;
        }
    }
    if theirs.permissions() != ours.permissions() {
        notifier.set_permissions(theirs.permissions())?;
    }
    Ok(())
}

/// Notifies other processes.
#[derive(Debug)]
pub(super) struct Notifier {
    database: PathBuf,
    path: PathBuf,
    file: Option<(File, Identity)>,
}

impl Notifier {
    pub(super) fn new(database: &Path) -> Self {
        Self { database: database.to_owned(), path: beside(database, NOTIFIER), file: None }
    }

    /// Notifies of a commit. If that fails, listeners find it by polling.
    pub(super) fn notify(&mut self) {
        if let Err(error) = self.try_notify() {
            self.file = None;
            let path = self.path.display();
            tracing::debug!(%error, %path, "other processes are not notified of a commit");
        }
    }

    fn try_notify(&mut self) -> io::Result<()> {
        let in_place = Identity::of(&self.path).ok();
        self.file.take_if(|(_, identity)| Some(*identity) != in_place);
        let file = match &mut self.file {
            Some((file, _)) => file,
            None => {
                let file = open(&self.path, &self.database)?;
                &mut self.file.insert((file, Identity::of(&self.path)?)).0
            }
        };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(b"!")
    }
}

/// Has the hub woken by the notifications of other processes.
#[derive(Debug)]
pub(super) struct Listener {
    database: PathBuf,
    path: PathBuf,
    hub: Arc<Hub>,
    /// The file that the hub listens to.
    file: Option<Identity>,
    /// When to try again.
    retry: Option<Instant>,
}

impl Listener {
    pub(super) fn new(database: &Path, hub: Arc<Hub>) -> Self {
        let path = beside(database, NOTIFIER);
        Self { database: database.to_owned(), path, hub, file: None, retry: None }
    }

    /// Listens to the file that has the name now. False where that is not possible.
    pub(super) fn listen(&mut self) -> bool {
        let in_place = Identity::of(&self.path).ok();
        if in_place.is_some() && self.file == in_place {
            return true;
        }
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return false;
        }
        let listened = self.listen_anew();
        self.retry = match &listened {
            Ok(()) => None,
            Err(error) => {
                let path = self.path.display();
                tracing::debug!(%error, %path, "cannot listen to the commits of other processes");
                Some(Instant::now() + RETRY)
            }
        };
        listened.is_ok()
    }

    fn listen_anew(&mut self) -> io::Result<()> {
        self.file = None;
        open(&self.path, &self.database)?;
        let identity = Identity::of(&self.path)?;
        self.hub.waker.listen(&self.path)?;
        self.file = Some(identity);
        Ok(())
    }
}
