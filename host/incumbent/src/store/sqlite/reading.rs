//! Reads, inside of a transaction that fixes the view.

use rusqlite::{Connection, Result, Row, params};

use crate::store::end_of_prefix;
use crate::types::{Change, Deletion, Entry, Order, Response, Selection, Snapshot};

/// The state of the store as a whole.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) revision: i64,
    /// The oldest revision whose changes are still known.
    pub(super) compacted: i64,
    /// How many bytes of history there are.
    pub(super) history: i64,
    /// Whether leases and history are of this start of the machine.
    pub(super) this_boot: bool,
    /// When the next lease is over.
    pub(super) next_end: Option<i64>,
}

impl Head {
    /// Whether some lease is over, and has to be ended.
    pub(super) fn is_due(&self, now: i64) -> bool {
        !self.this_boot || self.next_end.is_some_and(|end| end <= now)
    }
}

/// Reads it. As the first read of a transaction it fixes the view.
pub(super) fn head(connection: &Connection, boot: &str) -> Result<Head> {
    let mut read = connection.prepare_cached(
        "SELECT revision, compacted, boot = ?1, (SELECT min(ends) FROM leases), history FROM meta",
    )?;
    read.query_row([boot], |row| {
        Ok(Head {
            revision: row.get(0)?,
            compacted: row.get(1)?,
            this_boot: row.get(2)?,
            next_end: row.get(3)?,
            history: row.get(4)?,
        })
    })
}

/// All selections, as they are now.
pub(super) fn read(connection: &Connection, at: i64, selections: &[Selection]) -> Result<Response> {
    let found = selections.iter().map(|selection| select(connection, selection));
    Ok(Response::Snapshot(Snapshot { at, found: found.collect::<Result<_>>()? }))
}

/// All changes from a revision on.
pub(super) fn changes_since(
    connection: &Connection,
    since: i64,
    mut tell: impl FnMut(i64, Change),
) -> Result<()> {
    let mut read = connection.prepare_cached(
        "SELECT revision, key, value, lease, created FROM history
         WHERE revision >= ?1 ORDER BY revision, part",
    )?;
    let mut rows = read.query([since])?;
    while let Some(row) = rows.next()? {
        let at = row.get(0)?;
        let key = row.get(1)?;
        let change = match row.get(2)? {
            Some(value) => Change::Put(Entry {
                key,
                value,
                lease: row.get(3)?,
                created: row.get(4)?,
                modified: at,
            }),
            None => Change::Deleted(Deletion { key, at }),
        };
        tell(at, change);
    }
    Ok(())
}

/// The keys of one revision come in their own order, either way.
fn select(connection: &Connection, selection: &Selection) -> Result<Vec<Entry>> {
    let before = selection.created_before.unwrap_or(i64::MAX);
    let limit = if selection.limit == 0 { -1 } else { i64::from(selection.limit) };
    let key = &selection.key;
    let from = selection.from.as_ref().map_or(key, |from| from.max(key));
    let value = if selection.keys_only { "x''" } else { "value" };
    if !selection.prefix {
        // A limit of one or more is no limit here.
        return connection
            .prepare_cached(&format!(
                "SELECT key, {value}, lease, created, modified FROM keys
                 WHERE key = ?1 AND key >= ?3 AND created < ?2"
            ))?
            .query_map(params![key, before, from], entry)?
            .collect();
    }
    let end = end_of_prefix(key);
    let below = if end.is_some() { "key < ?2" } else { "?2 IS NULL" };
    let order = match selection.order {
        Order::OldestFirst => "created ASC, key",
        Order::NewestFirst => "created DESC, key",
        Order::ByKey => "key",
    };
    connection
        .prepare_cached(&format!(
            "SELECT key, {value}, lease, created, modified FROM keys
             WHERE key >= ?1 AND {below} AND created < ?3
             ORDER BY {order} LIMIT ?4"
        ))?
        .query_map(params![from, end, before, limit], entry)?
        .collect()
}

pub(super) fn entry(row: &Row<'_>) -> Result<Entry> {
    Ok(Entry {
        key: row.get(0)?,
        value: row.get(1)?,
        lease: row.get(2)?,
        created: row.get(3)?,
        modified: row.get(4)?,
    })
}
