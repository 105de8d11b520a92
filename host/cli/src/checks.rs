//! What one flag's parser cannot see: flags that depend on each other, and the files that
//! they name.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent::recording::Recording;
use incumbent::{Credentials, StoreUrl};
use parking_lot::Mutex;

use super::args::{Candidate, Common, Contest, Lease, Record};
use super::event::time_before;
use super::exit::{End, bad_input, say};
use super::parse::LONGEST_VALUE;

/// In a file's mode: users who are neither its owner nor in its group may read it.
const OTHERS_READ: u32 = 0o004;

/// Checks flags that depend on each other.
pub fn check_lease(lease: &Lease) -> Result<(), End> {
    if let Some(margin) = lease.margin
        && margin >= lease.ttl
    {
        return Err(bad_input(format!(
            "--margin {} leaves nothing of --ttl {}: give a smaller margin or a longer time",
            humantime::format_duration(margin),
            humantime::format_duration(lease.ttl),
        )));
    }
    Ok(())
}

/// Checks what a candidate is given.
pub fn check_candidate(common: &Common, candidate: &Candidate) -> Result<(), End> {
    check_lease(&candidate.lease)?;
    if candidate.priority != 0 && common.contest == Contest::Race {
        return Err(bad_input(
            "--priority means nothing with --contest race, which has no line: leave it out",
        ));
    }
    if candidate.preempt && candidate.priority <= 0 {
        return Err(bad_input(format!(
            "--preempt is for a candidate that is preferred, and --priority is {}: give it a number \
             above that of others, such as --priority 1",
            candidate.priority
        )));
    }
    let length = candidate.value.as_ref().map_or(0, |value| value.len());
    if length > LONGEST_VALUE {
        return Err(bad_input(format!("--value has {length} bytes: give at most {LONGEST_VALUE}")));
    }
    Ok(())
}

/// What a candidate proclaims.
pub fn value_of(candidate: &Candidate, identity: &str) -> Vec<u8> {
    candidate.value.as_ref().map_or_else(|| identity.into(), |value| value.as_bytes().to_vec())
}

/// What is recorded, and where.
pub fn recording(record: &Record) -> Option<Recording> {
    let dir = record.record.as_ref()?;
    let mut recording = Recording::new(dir, || time_before(Duration::ZERO));
    recording.limit = record.record_limit;
    recording.values = record.record_values;
    Some(recording)
}

/// What we show to the store.
pub fn credentials(common: &Common) -> Result<Credentials, End> {
    let store = common.store();
    let given = [
        ("--cacert (INCUMBENT_CACERT)", common.cacert.is_some()),
        ("--cert (INCUMBENT_CERT)", common.cert.is_some()),
        ("--key (INCUMBENT_KEY)", common.key.is_some()),
        ("--user (INCUMBENT_USER)", common.user.is_some()),
        ("--password-file (INCUMBENT_PASSWORD_FILE)", common.password_file.is_some()),
    ];
    let has_servers = matches!(store, StoreUrl::Etcd(_) | StoreUrl::Postgres(_));
    if let (false, Some((flag, _))) = (has_servers, given.iter().find(|(_, is_given)| *is_given)) {
        return Err(bad_input(format!(
            "{flag} is for etcd and PostgreSQL, and --store {store} is a file or memory: leave it out"
        )));
    }
    for (flag, file) in
        [("--cacert", &common.cacert), ("--cert", &common.cert), ("--key", &common.key)]
    {
        let Some(file) = file else { continue };
        read(flag, file)?;
        if let StoreUrl::Etcd(store) = &store
            && !store.tls()
        {
            return Err(bad_input(format!(
                "{flag} is for TLS, and --store {store} is not: write etcds://{}",
                store.to_string().trim_start_matches("etcd://")
            )));
        }
    }
    match (&common.cert, &common.key) {
        (Some(_), None) => return Err(bad_input("--cert needs its private key: add --key FILE")),
        (None, Some(_)) => return Err(bad_input("--key needs its certificate: add --cert FILE")),
        (Some(_), Some(_)) | (None, None) => {}
    }
    // PostgreSQL may let a user in without a password, whom the URL may name.
    let (needs_password, named) =
        if let StoreUrl::Postgres(url) = &store { (false, url.user()) } else { (true, None) };
    match (common.user.as_deref().or(named), &common.password_file) {
        (Some(_), Some(file)) => check_secret("--password-file", file, "password")?,
        (Some(user), None) if needs_password => {
            return Err(bad_input(format!(
                "--user {user:?} needs a password: add --password-file FILE"
            )));
        }
        (None, Some(_)) => {
            return Err(bad_input(
                "--password-file needs the user whose password it is: add --user NAME",
            ));
        }
        (Some(_) | None, None) => {}
    }
    let mut credentials = Credentials::default();
    credentials.ca = common.cacert.clone();
    credentials.cert = common.cert.clone();
    credentials.key = common.key.clone();
    credentials.user = common.user.clone();
    credentials.password_file = common.password_file.clone();
    Ok(credentials)
}

/// Whether a file has a secret as its first line. It is read again whenever the secret is needed,
/// because the file may change.
pub fn check_secret(flag: &str, file: &Path, secret: &str) -> Result<(), End> {
    let text = read(flag, file)?;
    match text.as_slice().lines().next() {
        Some(Ok(line)) if !line.is_empty() => {}
        Some(Err(error)) => return Err(unreadable(flag, file, &error)),
        Some(Ok(_)) | None => {
            return Err(bad_input(format!(
                "{flag} {}: its first line is empty: write the {secret} there",
                file.display()
            )));
        }
    }
    let mode = fs::metadata(file).map_or(0, |metadata| metadata.mode());
    // Once for each, although each session of a command checks it.
    static SAID: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if mode & OTHERS_READ != 0 && SAID.lock().insert(file.into()) {
        say(&format!(
            "{flag} {0} can be read by every user of this machine: chmod 600 {0}",
            file.display()
        ));
    }
    Ok(())
}

/// Reads all of a file, which the store reads again whenever it may have changed.
fn read(flag: &str, file: &Path) -> Result<Vec<u8>, End> {
    let unreadable = |error: io::Error| unreadable(flag, file, &error);
    let kind = fs::metadata(file).map_err(unreadable)?.file_type();
    // The end of a pipe may never come.
    if !kind.is_file() && !kind.is_dir() {
        let what = if kind.is_fifo() { "a pipe" } else { "not a regular file" };
        return Err(bad_input(format!(
            "{flag} {} is {what}, which can be read only once, and the file is read again \
             whenever it may have been replaced: give a regular file",
            file.display()
        )));
    }
    fs::read(file).map_err(unreadable)
}

fn unreadable(flag: &str, file: &Path, error: &io::Error) -> End {
    bad_input(format!(
        "{flag} {} cannot be read ({error}): give a file that is there and that we may read",
        file.display()
    ))
}
