//! The recordings of earlier starts, in the directory of this one: they count to its limit, and go
//! first.
//!
//! A recorder holds a lock on the file that it writes. A file without a lock belongs to a recording
//! that has ended.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Files, each with its size.
pub(super) type Files = VecDeque<(PathBuf, u64)>;

/// Marks a file as being written, until it is closed.
pub(super) fn lock(file: &File) {
    // A file system without locks has no recordings that have ended, as far as we can tell.
    let _ = file.try_lock();
}

/// Our files of recordings that have ended, the oldest first.
pub(super) fn files(dir: &Path) -> io::Result<Files> {
    let mut recordings: BTreeMap<String, Files> = BTreeMap::new();
    let mut names: Vec<_> = fs::read_dir(dir)?.filter_map(Result::ok).collect();
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        let name = entry.file_name();
        let Some(recording) = name.to_str().and_then(recording_of) else { continue };
        let Ok(found) = entry.metadata() else { continue };
        if found.is_file() && found.uid() == geteuid().as_raw() {
            let files = recordings.entry(recording.to_owned()).or_default();
            files.push_back((entry.path(), found.len()));
        }
    }
    recordings.retain(|_, files| files.back().is_some_and(|(last, _)| !is_written(last)));
    Ok(recordings.into_values().flatten().collect())
}

/// The recording that a file of this name belongs to: `TIME-PID-SERIAL`, without the segment.
fn recording_of(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|one| one.is_ascii_digit());
    let (recording, segment) = name.strip_suffix(".jsonl")?.rsplit_once('-')?;
    let (start, serial) = recording.rsplit_once('-')?;
    let (_, pid) = start.rsplit_once('-')?;
    [segment, serial, pid].into_iter().all(is_number).then_some(recording)
}

fn is_written(file: &Path) -> bool {
    let Ok(file) = File::open(file) else { return true };
    file.try_lock_shared().is_err()
}
