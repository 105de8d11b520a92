//! Where a store's file may be, what lies beside it, and who may reach it.
//!
//! Nothing here opens a file that exists: closing it would release the locks that SQLite holds
//! on it for another store of this process.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::error::SqliteError;
#[cfg(unix)]
use crate::explained::Explained;

/// The files beside a store: SQLite's journal, shared memory and log, and our notifier file.
const BESIDE: [&str; 4] = ["-journal", MEMORY, LOG, NOTIFIER];
pub(super) const MEMORY: &str = "-shm";
pub(super) const LOG: &str = "-wal";
/// A part of the format: processes of every version share this file.
pub(super) const NOTIFIER: &str = "-bell";

/// The file beside a store whose name ends so.
pub(super) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The file without links, so that all processes use one name for the files beside it.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, SqliteError> {
    let resolved = match fs::symlink_metadata(path) {
        Ok(_) => fs::canonicalize(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or_else(|| SqliteError::NotAFile(path.into()))?;
            let directory = path.parent().filter(|directory| *directory != Path::new(""));
            match fs::canonicalize(directory.unwrap_or(Path::new("."))) {
                Ok(directory) if !directory.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
                directory => directory.map(|directory| directory.join(name)),
            }
        }
        Err(error) => Err(error),
    };
    let path = resolved.map_err(|error| not_reached(path, error))?;
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(SqliteError::NotAFile(path));
    }
    check(&path)?;
    Ok(path)
}

/// Makes the file, unless it exists: empty, and for its owner alone. SQLite gives the files
/// beside it the same permissions. A user who could read them could take SQLite's locks, and no
/// leader could renew its lease.
pub(super) fn make(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Why a file cannot be reached.
pub(super) fn not_reached(path: &Path, error: io::Error) -> SqliteError {
    let path = path.to_owned();
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return SqliteError::NoDirectory(path);
    }
    if kind == io::ErrorKind::StorageFull || kind == io::ErrorKind::QuotaExceeded {
        return SqliteError::Full(path);
    }
    if matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return SqliteError::ReadOnly { path, reason: error.into() };
    }
    SqliteError::Failed { path, reason: error.into() }
}

#[cfg(unix)]
fn check(path: &Path) -> Result<(), SqliteError> {
    use std::os::unix::fs::MetadataExt as _;

    use rustix::fs::{Access, access};

    let directory = path.parent().unwrap_or(path);
    let file = path.exists().then_some(path);
    if fs::metadata(path).is_ok_and(|found| found.nlink() > 1) {
        return Err(SqliteError::HardLinked(path.into()));
    }
    if is_mounted_alone(path) {
        return Err(SqliteError::MountedAlone(path.into()));
    }
    for ending in BESIDE {
        let path = beside(path, ending);
        if let Some(kind) = fs::symlink_metadata(&path).ok().and_then(|found| foreign(&found)) {
            return Err(SqliteError::Foreign { path, kind });
        }
    }
    for place in [Some(directory), file].into_iter().flatten() {
        if let Some(kind) = network_file_system(place) {
            return Err(SqliteError::NetworkFileSystem { path: path.into(), kind });
        }
        if let Err(error) = access(place, Access::READ_OK | Access::WRITE_OK) {
            let error = io::Error::from(error);
            let reason = Explained::new(format!("{}: {error}", place.display()), error);
            return Err(SqliteError::ReadOnly { path: path.into(), reason: reason.into() });
        }
    }
    Ok(())
}

/// Its kind, if it is not a regular file with one name. In a directory that others may write,
/// another user may have put it there, to have the store write into somebody else's file or
/// wait for ever.
#[cfg(unix)]
pub(super) fn foreign(found: &fs::Metadata) -> Option<&'static str> {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

    let kind = found.file_type();
    if kind.is_symlink() {
        Some("a symbolic link")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_dir() {
        Some("a directory")
    } else if !kind.is_file() {
        Some("a device or a socket")
    } else if found.nlink() > 1 {
        Some("a file that has another name as well (a hard link)")
    } else {
        None
    }
}

/// The users besides its owner that may lock a store's file, and so end all leaderships in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedWith {
    /// The members of the group of this number.
    Group(u32),
    /// All users of the machine.
    All,
}

impl fmt::Display for SharedWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "group {group}"),
            Self::All => f.write_str("all users of this machine"),
        }
    }
}

impl SharedWith {
    /// The users besides its owner that may lock the store in this file: all that may read it or the
    /// files that SQLite keeps beside it, and all that may put files into its directory. None if
    /// nobody else may.
    ///
    /// It looks at the permissions of these files and of the directories above them, not at access
    /// control lists.
    #[cfg(unix)]
    pub fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;

        const SEARCH: u32 = 0o011;
        let path = fs::canonicalize(path).ok()?;
        let directory = fs::metadata(path.parent()?).ok()?;
        // As in a mode: bits of the group, and of all others.
        let mut may = 0;
        let mut group = directory.gid();
        if directory.mode() & 0o003 == 0o003 {
            may |= 0o007;
        }
        // A group with the number of the owner is the owner's own, as on many systems.
        if directory.mode() & 0o030 == 0o030 && directory.gid() != directory.uid() {
            may |= 0o070;
        }
        for file in [path.clone(), beside(&path, MEMORY), beside(&path, LOG)] {
            if let Ok(found) = fs::metadata(file) {
                may |= found.mode();
                if found.mode() & 0o070 != 0 {
                    group = found.gid();
                }
            }
        }
        let search = path.ancestors().skip(1).fold(SEARCH, |search, directory| {
            // A user outside of the group of a directory may be one of the others.
            let mode = fs::metadata(directory).map_or(SEARCH, |found| found.mode());
            let group = if mode & SEARCH == 0 { 0 } else { 0o010 };
            search & (group | mode & 0o001)
        });
        if may & 0o007 != 0 && search & 0o001 != 0 {
            Some(Self::All)
        } else if may & 0o070 != 0 && search & 0o010 != 0 {
            Some(Self::Group(group))
        } else {
            None
        }
    }

    /// Unknown here.
    #[cfg(not(unix))]
    pub fn of(_: &Path) -> Option<Self> {
        None
    }
}

/// Whether the file is a mount by itself, as containers can have it. Then each container has a
/// log and locks of its own beside it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_mounted_alone(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn is_mounted_alone(_: &Path) -> bool {
    false
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn network_file_system(place: &Path) -> Option<&'static str> {
    // If this fails, opening the file will say why.
    let found = rustix::fs::statfs(place).ok()?;
    shared_kind(found.f_type as u64)
}

/// Only Linux is known to have such numbers.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

/// File systems that other machines, or the host of a virtual one, may write as well, by
/// their numbers in statfs(2).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn shared_kind(magic: u64) -> Option<&'static str> {
    // Some machines count these numbers as signed.
    match magic & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE or virtiofs"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        0xaad7_aaea => Some("PanFS"),
        0x7375_7245 => Some("Coda"),
        0x564c => Some("NCP"),
        0x786f_4256 => Some("vboxsf"),
        0xbacb_acbc => Some("vmhgfs"),
        0x7c7c_6673 => Some("prl_fs"),
        _ => None,
    }
}

#[cfg(not(unix))]
fn check(_: &Path) -> Result<(), SqliteError> {
    Ok(())
}

/// Fails if this process may not open so many more files. SQLite itself would not say so.
pub(super) fn may_open(files: usize) -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::io::Errno;

        let mut open = Vec::new();
        for _ in 0..files {
            match fs::File::open("/dev/null") {
                Ok(file) => open.push(file),
                Err(error) => {
                    let is_limit = [Errno::MFILE, Errno::NFILE]
                        .iter()
                        .any(|limit| error.raw_os_error() == Some(limit.raw_os_error()));
                    // Not every system has this file.
                    return if is_limit { Err(error) } else { Ok(()) };
                }
            }
        }
    }
    #[cfg(not(unix))]
    let _ = files;
    Ok(())
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            Ok(Self(found.dev(), found.ino()))
        }
        #[cfg(not(unix))]
        {
            let _ = found;
            Ok(Self(0, 0))
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_machines_share_is_told_by_its_number() {
        for (magic, kind) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "SMB"),
            (0x517b, "SMB"),
            (0x0102_1997, "9p"),
            (0x6573_5546, "FUSE or virtiofs"),
            (0x00c3_6400, "Ceph"),
            (0x5346_414f, "AFS"),
            (0x0116_1970, "GFS2"),
            (0x7461_636f, "OCFS2"),
            (0x0bd0_0bd0, "Lustre"),
        ] {
            assert_eq!(shared_kind(magic), Some(kind), "{magic:#x}");
        }
        // As a signed number of 32 bits.
        assert_eq!(shared_kind(0xffff_ffff_ff53_4d42), Some("SMB"));
    }

    #[test]
    fn local_ones_are_taken() {
        // ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS.
        for magic in
            [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010]
        {
            assert_eq!(shared_kind(magic), None, "{magic:#x}");
        }
    }
}
