//! Reads keys past any elector.

use std::time::Duration;

use super::Store;
use crate::types::{Entry, Failure, Operation, Response, Selection};

/// Reads one key, as it is now. Cancel safe.
pub(crate) async fn get(
    store: &dyn Store,
    key: Vec<u8>,
    within: Duration,
) -> Result<Option<Entry>, Failure> {
    found(store.call(one_key(key), within).await?)
}

/// The operation that reads one key.
pub(crate) fn one_key(key: Vec<u8>) -> Operation {
    Operation::Read(vec![oldest(key, false)])
}

/// Selects the oldest key, with its value.
pub(crate) fn oldest(key: Vec<u8>, prefix: bool) -> Selection {
    Selection { prefix, limit: 1, ..Selection::of_key(key) }
}

/// The first entry of an answer.
pub(crate) fn found(response: Response) -> Result<Option<Entry>, Failure> {
    Ok(entries(response)?.into_iter().next())
}

pub(crate) async fn read(
    store: &dyn Store,
    selection: Selection,
    within: Duration,
) -> Result<Vec<Entry>, Failure> {
    Ok(at(store, vec![selection], within).await?.1)
}

/// All that these selections find, and its revision.
pub(crate) async fn at(
    store: &dyn Store,
    selections: Vec<Selection>,
    within: Duration,
) -> Result<(i64, Vec<Entry>), Failure> {
    let Response::Snapshot(snapshot) = store.call(Operation::Read(selections), within).await?
    else {
        return Err(misanswered("read"));
    };
    Ok((snapshot.at, snapshot.found.into_iter().flatten().collect()))
}

fn entries(response: Response) -> Result<Vec<Entry>, Failure> {
    let Response::Snapshot(snapshot) = response else {
        return Err(misanswered("read"));
    };
    Ok(snapshot.found.into_iter().flatten().collect())
}

pub(crate) fn misanswered(operation: &str) -> Failure {
    Failure::Other(format!("the store's answer does not fit the operation `{operation}`"))
}
