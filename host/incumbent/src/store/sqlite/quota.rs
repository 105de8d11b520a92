//! How much the store may hold.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Result};

use super::error::SqliteError;
use super::place::{LOG, beside};
use crate::types::Failure;

/// The default, as etcd's.
pub(super) const QUOTA: u64 = 2 << 30;
/// History takes this much at most, and a quarter of the quota where that is less.
const HISTORY: u64 = 64 << 20;
/// SQLite's log grows no longer than this, unless some process reads in it all the time.
const LOG_LENGTH: u64 = 16 << 20;

/// How many bytes the file may hold, and the log beyond its usual length with it.
#[derive(Debug)]
pub(super) struct Quota {
    path: PathBuf,
    log: PathBuf,
    bytes: u64,
}

impl Quota {
    pub(super) fn new(path: &Path, bytes: u64) -> Self {
        Self { path: path.to_owned(), log: beside(path, LOG), bytes }
    }

    /// How many bytes of history to keep.
    pub(super) fn history(&self) -> i64 {
        i64::try_from(HISTORY.min(self.bytes / 4)).unwrap_or(i64::MAX)
    }

    /// Fails if there is no room for so many more bytes.
    pub(super) fn check(
        &self,
        connection: &Connection,
        more: u64,
    ) -> Result<std::result::Result<(), Failure>> {
        let log = self.log_beyond();
        // In most cases the whole files are within the quota, and no query is needed.
        let files = length(&self.path).saturating_add(length(&self.log));
        if files.saturating_add(more) <= self.bytes {
            return Ok(Ok(()));
        }
        let mut read = connection.prepare_cached(
            "SELECT (page_count - freelist_count) * page_size
             FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
        )?;
        let in_use: i64 = read.query_row([], |row| row.get(0))?;
        let in_use = u64::try_from(in_use).unwrap_or_default();
        if in_use.saturating_add(log).saturating_add(more) <= self.bytes {
            return Ok(Ok(()));
        }
        let path = self.path.clone();
        let error = if log > in_use {
            SqliteError::LongLog { path, length: length(&self.log) }
        } else {
            SqliteError::OverQuota { path, quota: self.bytes }
        };
        Ok(Err(Failure::Other(error.to_string())))
    }

    /// How much longer than usual the log is: readers have kept SQLite from restarting it.
    pub(super) fn log_beyond(&self) -> u64 {
        length(&self.log).saturating_sub(LOG_LENGTH)
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}
