//! The file of `--events`, opened without blocking.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::exit::{End, bad_input};

/// A regular file, a device that accepts data, or a pipe that has a reader.
pub fn open(path: &Path) -> Result<File, End> {
    let fault = |fault: String| bad_input(format!("--events {}{fault}", path.display()));
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        // A pipe would block until it has a reader, and a terminal might become ours.
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path);
    let is_pipe = || path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    let opened = match file {
        Err(_) if is_pipe() => {
            return Err(fault(
                " is a pipe that nobody reads: start its reader first, or give a file".into(),
            ));
        }
        file => file.and_then(checked),
    };
    opened.map_err(|error| fault(format!(" cannot be written ({error}): give a file that can")))
}

/// The file, blocking from now on: a thread of its own writes to it.
fn checked(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_block_device() {
        return Err(io::Error::other("it is a disk"));
    }
    if kind.is_char_device() {
        // Writes nothing, and fails where any write fails.
        rustix::io::write(&file, &[])?;
    }
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
