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

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::place::Identity;
use super::watch::Hub;

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
    let _ = database.metadata().and_then(|found| file.set_permissions(found.permissions()));
    Ok(file)
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
}

impl Listener {
    pub(super) fn new(database: &Path, hub: Arc<Hub>) -> Self {
        Self { database: database.to_owned(), path: beside(database), hub, ear: None }
    }

    /// Listens to what is the bell now. False where that is not possible.
    pub(super) fn listen(&mut self) -> bool {
        let in_place = Identity::of(&self.path).ok();
        if in_place.is_some() && self.ear.as_ref().map(|(_, heard)| *heard) == in_place {
            return true;
        }
        let listened = self.listen_anew();
        match &listened {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "the bell cannot be heard"),
        }
        listened.is_ok()
    }

    fn listen_anew(&mut self) -> notify::Result<()> {
        self.ear = None;
        open(&self.path, &self.database)?;
        let identity = Identity::of(&self.path)?;
        let hub = Arc::clone(&self.hub);
        let mut ear = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Opening the file is no sound.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                hub.ring();
            }
        })?;
        ear.watch(&self.path, RecursiveMode::NonRecursive)?;
        self.ear = Some((ear, identity));
        Ok(())
    }
}
