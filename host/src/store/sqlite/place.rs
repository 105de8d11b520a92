//! Where a file may be, and where not.
//!
//! Nothing here opens the file: closing it again would take the locks away that SQLite
//! holds on it, in this process, through another store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::SqliteError;

/// The file without links, so that all processes call what lies beside it by one name.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, SqliteError> {
    let path = match fs::symlink_metadata(path) {
        Ok(_) => fs::canonicalize(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => in_its_directory(path)?,
        Err(error) => Err(error),
    }
    .map_err(|error| not_reached(path, &error))?;
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(SqliteError::NotAFile { path });
    }
    check(&path)?;
    Ok(path)
}

/// A file that is not there yet.
fn in_its_directory(path: &Path) -> Result<io::Result<PathBuf>, SqliteError> {
    let name = path.file_name().ok_or_else(|| SqliteError::NotAFile { path: path.into() })?;
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        Some(_) | None => Path::new("."),
    };
    match fs::canonicalize(directory) {
        Ok(directory) if !directory.is_dir() => Err(SqliteError::NoDirectory { path: path.into() }),
        Ok(directory) => Ok(Ok(directory.join(name))),
        Err(error) => Ok(Err(error)),
    }
}

fn not_reached(path: &Path, error: &io::Error) -> SqliteError {
    let path = path.to_owned();
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return SqliteError::NoDirectory { path };
    }
    let reason = error.to_string();
    if kind == io::ErrorKind::PermissionDenied {
        return SqliteError::ReadOnly { path, reason };
    }
    SqliteError::Failed { path, reason }
}

#[cfg(unix)]
fn check(path: &Path) -> Result<(), SqliteError> {
    use std::os::unix::fs::MetadataExt as _;

    use rustix::fs::{Access, access};

    let directory = path.parent().unwrap_or(path);
    let file = path.exists().then_some(path);
    if fs::metadata(path).is_ok_and(|found| found.nlink() > 1) {
        return Err(SqliteError::HardLinked { path: path.into() });
    }
    if is_mounted_alone(path) {
        return Err(SqliteError::MountedAlone { path: path.into() });
    }
    for place in [Some(directory), file].into_iter().flatten() {
        if let Some(kind) = network_file_system(place) {
            return Err(SqliteError::NetworkFileSystem { path: path.into(), kind });
        }
        if let Err(error) = access(place, Access::READ_OK | Access::WRITE_OK) {
            let reason = format!("{}: {}", place.display(), io::Error::from(error));
            return Err(SqliteError::ReadOnly { path: path.into(), reason });
        }
    }
    Ok(())
}

/// As containers can have it. What lies beside it is then each container's own: the log,
/// and the locks.
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
    // Where it does not say, opening the file will.
    let found = rustix::fs::statfs(place).ok()?;
    shared_kind(found.f_type as u64)
}

/// Only Linux is known to tell by a number.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

/// File systems that other machines, or the host of a virtual one, may write as well, by
/// the numbers that statfs(2) tells.
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

/// Whether there is no room left where the file is.
pub(super) fn is_full(path: &Path) -> bool {
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
