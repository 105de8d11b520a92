//! How a process hears that another one has committed: by a file beside the database, to
//! which a byte is written after each commit.
//!
//! SQLite's own files would be heard before there is anything to see. Whoever is killed
//! between the commit and the bell has not rung: those who listen look from time to time
//! as well.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::place::Identity;
use super::watch::Hub;

/// How long not to try again to hear it.
const DEAF: Duration = Duration::from_secs(1);

fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-bell");
    name.into()
}

/// Opens the bell, and makes it for all who may write the database.
fn open(path: &Path, database: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // In a directory that all may write, somebody could have it lead elsewhere.
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    let file = options.open(path)?;
    // Of several users only one can.
    let _ = belong(&file, database);
    Ok(file)
}

/// To whom the database belongs. Only where it does not: each change is heard.
fn belong(bell: &File, database: &Path) -> io::Result<()> {
    let (theirs, ours) = (database.metadata()?, bell.metadata()?);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, fchown};
        if (theirs.uid(), theirs.gid()) != (ours.uid(), ours.gid()) {
            fchown(bell, Some(theirs.uid()), Some(theirs.gid()))?;
        }
    }
    if theirs.permissions() != ours.permissions() {
        bell.set_permissions(theirs.permissions())?;
    }
    Ok(())
}

/// Rings.
#[derive(Debug)]
pub(super) struct Ringer {
    database: PathBuf,
    path: PathBuf,
    bell: Option<(File, Identity)>,
}

impl Ringer {
    pub(super) fn new(database: &Path) -> Self {
        Self { database: database.to_owned(), path: beside(database), bell: None }
    }

    /// Who does not hear it looks soon.
    pub(super) fn ring(&mut self) {
        if let Err(error) = self.try_ring() {
            self.bell = None;
            tracing::debug!(%error, path = %self.path.display(), "the bell is not rung");
        }
    }

    fn try_ring(&mut self) -> io::Result<()> {
        let in_place = Identity::of(&self.path).ok();
        self.bell.take_if(|(_, identity)| Some(*identity) != in_place);
        let bell = match &mut self.bell {
            Some((bell, _)) => bell,
            None => {
                let bell = open(&self.path, &self.database)?;
                &mut self.bell.insert((bell, Identity::of(&self.path)?)).0
            }
        };
        bell.seek(SeekFrom::Start(0))?;
        bell.write_all(b"!")
    }
}

/// Has the hub rung whenever somebody rings.
#[derive(Debug)]
pub(super) struct Listener {
    database: PathBuf,
    path: PathBuf,
    hub: Arc<Hub>,
    ear: Option<(RecommendedWatcher, Identity)>,
    /// When to try again.
    again: Option<Instant>,
}

impl Listener {
    pub(super) fn new(database: &Path, hub: Arc<Hub>) -> Self {
        Self { database: database.to_owned(), path: beside(database), hub, ear: None, again: None }
    }

    /// Listens to what is the bell now. False where that is not possible.
    pub(super) fn listen(&mut self) -> bool {
        let in_place = Identity::of(&self.path).ok();
        if in_place.is_some() && self.ear.as_ref().map(|(_, heard)| *heard) == in_place {
            return true;
        }
        if self.again.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        let listened = self.listen_anew();
        self.again = match &listened {
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(%error, "the bell cannot be heard");
                Some(Instant::now() + DEAF)
            }
        };
        listened.is_ok()
    }

    fn listen_anew(&mut self) -> notify::Result<()> {
        self.ear = None;
        open(&self.path, &self.database)?;
        let identity = Identity::of(&self.path)?;
        // notify panics where the system has none left.
        thread::Builder::new().spawn(|| ()).map_err(notify::Error::io)?;
        let hub = Arc::clone(&self.hub);
        let mut ear = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // To open the file, or to change whose it is, is no sound.
            let is_sound = |kind| {
                !matches!(kind, EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)))
            };
            if event.is_ok_and(|event| is_sound(event.kind)) {
                hub.ring();
            }
        })?;
        ear.watch(&self.path, RecursiveMode::NonRecursive)?;
        self.ear = Some((ear, identity));
        Ok(())
    }
}
