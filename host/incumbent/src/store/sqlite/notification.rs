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
use std::time::{Duration, Instant};

use super::place::{self, BELL, Identity, beside};
use super::watch::Hub;

/// How long not to try again to hear it.
const DEAF: Duration = Duration::from_secs(1);

/// Opens the bell, and makes it for all who may write the database.
fn open(path: &Path, database: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        use rustix::fs::OFlags;

        // Neither to be led elsewhere by a link, nor to wait at a named pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    #[cfg(unix)]
    if let Some(kind) = place::foreign(&file.metadata()?) {
        return Err(io::Error::other(format!("it is {kind}")));
    }
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
        Self { database: database.to_owned(), path: beside(database, BELL), bell: None }
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

/// Has the hub hear whenever somebody rings.
#[derive(Debug)]
pub(super) struct Listener {
    database: PathBuf,
    path: PathBuf,
    hub: Arc<Hub>,
    heard: Option<Identity>,
    /// When to try again.
    again: Option<Instant>,
}

impl Listener {
    pub(super) fn new(database: &Path, hub: Arc<Hub>) -> Self {
        let path = beside(database, BELL);
        Self { database: database.to_owned(), path, hub, heard: None, again: None }
    }

    /// Listens to what is the bell now. False where that is not possible.
    pub(super) fn listen(&mut self) -> bool {
        let in_place = Identity::of(&self.path).ok();
        if in_place.is_some() && self.heard == in_place {
            return true;
        }
        if self.again.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        let listened = self.listen_anew();
        self.again = match &listened {
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(%error, path = %self.path.display(), "the bell cannot be heard");
                Some(Instant::now() + DEAF)
            }
        };
        listened.is_ok()
    }

    fn listen_anew(&mut self) -> io::Result<()> {
        self.heard = None;
        open(&self.path, &self.database)?;
        let identity = Identity::of(&self.path)?;
        self.hub.listen(&self.path)?;
        self.heard = Some(identity);
        Ok(())
    }
}
