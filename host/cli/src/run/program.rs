//! Whether a command can be run: checked before the candidate joins.
//!
//! Not the crate `which`, which does not tell a command that cannot be executed (126) from one
//! that does not exist (127).

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::exit::{End, Status, bad_input};

/// As a shell says it.
const NOT_EXECUTABLE: Status = Status::Passed(126);
const MISSING: Status = Status::Passed(127);

/// Where execvp looks if it is not told.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Looks for the command as execvp will.
pub fn find(command: &[OsString]) -> Result<(), End> {
    let name = match command.first() {
        Some(name) if !name.is_empty() => name,
        Some(_) | None => return Err(bad_input("CMD is empty: give a command after --")),
    };
    let places = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        env::split_paths(&path).map(|folder| Path::new(".").join(folder).join(name)).collect()
    };
    let mut not_executable = false;
    for place in &places {
        match fs::metadata(place) {
            Ok(it) if it.is_file() && access(place, Access::EXEC_OK).is_ok() => return Ok(()),
            Err(error) if is_absence(&error) => {}
            Ok(_) | Err(_) => not_executable = true,
        }
    }
    let name = name.to_string_lossy();
    Err(if not_executable {
        End::new(
            NOT_EXECUTABLE,
            format!(
                "the command {name} cannot be executed: is it a program, and is it permitted (chmod +x)?"
            ),
        )
    } else {
        End::new(
            MISSING,
            format!("the command {name} does not exist: is it spelt right, and in PATH?"),
        )
    })
}

/// What was found and does not start all the same.
pub fn not_started(error: &io::Error) -> End {
    let status = if error.kind() == io::ErrorKind::NotFound { MISSING } else { NOT_EXECUTABLE };
    End::new(status, format!("the command does not start: {error}"))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
