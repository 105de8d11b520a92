//! For users without a session: writes guarded by a term of another process, and an
//! operator's orders.

use std::time::Duration;

use crate::event::{KeyValue, Participant};
use crate::store::Store;
use crate::store::read::{self, misanswered, oldest, read};
use crate::types::{
    Contest, Entry, Epoch, Failure, Guard, Guarded, Mutation, Operation, Order, Put, Response,
    Revision, Selection,
};
use crate::write::WriteError;

/// How many keys a page has at most, where others' data lie below an election's name.
const PAGE: u32 = 1_000;

/// Reads one key, as it is now. Cancel safe.
///
/// # Errors
///
/// What the store says instead of an answer.
pub async fn get(
    store: &dyn Store,
    key: impl Into<Vec<u8>>,
    within: Duration,
) -> Result<Option<KeyValue>, Failure> {
    Ok(read::get(store, key.into(), within).await?.map(KeyValue::from))
}

/// Sets a key, under no lease, while the term of `epoch` stands in the election,
/// whoever leads it. For the work of a term in another process, which knows the
/// epoch. Returns the revision of the change.
///
/// Each of its two requests may take up to `within`. Not cancel safe: what a
/// dropped future asked for may happen.
///
/// # Errors
///
/// [`WriteError::Stale`] if the epoch does not lead, [`WriteError::Unknown`] if
/// there was no answer to the write, [`WriteError::Failed`] if the leader is not
/// found out, or for a key of the election itself.
pub async fn fenced_put(
    store: &dyn Store,
    election: &str,
    contest: Contest,
    epoch: Epoch,
    key: impl Into<Vec<u8>>,
    value: impl Into<Vec<u8>>,
    within: Duration,
) -> Result<Revision, WriteError> {
    let key = key.into();
    if is_own_key(election, contest, &key) {
        return Err(WriteError::Failed(Failure::Invalid(
            "this key belongs to the election itself".into(),
        )));
    }
    let leader = leader(store, election, contest, within)
        .await
        .map_err(WriteError::Failed)?
        .filter(|leader| leader.epoch == epoch)
        .ok_or(WriteError::Stale)?;
    let put = Put { key, value: value.into() };
    let lease = Some(leader.lease.into()).filter(|lease| *lease != 0);
    let guard = Guard { key: leader.key, epoch: epoch.into(), lease };
    guarded(store, guard, Mutation::Put(put), within).await
}

/// Removes the leader of an election: that of `epoch`, or the present one. Returns
/// the leader that was removed; none if nobody leads, or not in that epoch.
///
/// The leader learns of it by its watch, a moment after it has lost its key: for
/// that long two may believe that they lead, and only guarded writes are safe.
/// Each of the two requests may take up to `within`. Not cancel safe: what a
/// dropped future asked for may happen.
///
/// # Errors
///
/// [`WriteError::Unknown`] if there was no answer to the deletion,
/// [`WriteError::Failed`] if the leader is not found out.
pub async fn depose(
    store: &dyn Store,
    election: &str,
    contest: Contest,
    epoch: Option<Epoch>,
    within: Duration,
) -> Result<Option<Participant>, WriteError> {
    let leader = leader(store, election, contest, within)
        .await
        .map_err(WriteError::Failed)?
        .filter(|leader| epoch.is_none_or(|epoch| leader.epoch == epoch));
    let Some(leader) = leader else {
        return Ok(None);
    };
    let guard = Guard { key: leader.key.clone(), epoch: leader.epoch.into(), lease: None };
    let deletion = Mutation::Delete(leader.key.clone());
    match guarded(store, guard, deletion, within).await {
        Ok(_) => Ok(Some(leader)),
        // It went by itself meanwhile; its successor was not meant.
        Err(WriteError::Stale) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who leads an election now. Each request may take up to `within`; there is one, unless
/// others' data lie below the election's name: these are read page by page, without their
/// values. Cancel safe.
///
/// # Errors
///
/// What the store says instead of an answer.
pub async fn leader(
    store: &dyn Store,
    election: &str,
    contest: Contest,
    within: Duration,
) -> Result<Option<Participant>, Failure> {
    let first = match contest {
        Contest::Queue => oldest(format!("{election}/").into_bytes(), true),
        Contest::Race => oldest(election.into(), false),
    };
    loop {
        let found = read(store, first.clone(), within).await?.into_iter().next();
        let Some(found) = found else {
            return Ok(None);
        };
        if is_own_key(election, contest, &found.key) {
            return Ok(Some(found.into()));
        }
        let Some(leader) = oldest_of_all(store, election, &first, within).await? else {
            return Ok(None);
        };
        // It may have gone since its page was read, and others be there.
        let found = read::get(store, leader.key, within).await?;
        if let Some(found) = found.filter(|found| found.created == leader.created) {
            return Ok(Some(found.into()));
        }
    }
}

/// The oldest candidate in a queue, without its value.
async fn oldest_of_all(
    store: &dyn Store,
    election: &str,
    first: &Selection,
    within: Duration,
) -> Result<Option<Entry>, Failure> {
    let mut page = Selection { order: Order::ByKey, limit: PAGE, keys_only: true, ..first.clone() };
    let mut leader: Option<Entry> = None;
    loop {
        let entries = read(store, page.clone(), within).await?;
        // The first key that is not on the page.
        let next = entries.last().map(|last| [last.key.as_slice(), &[0]].concat());
        let complete = entries.len() < PAGE as usize;
        let candidates =
            entries.into_iter().filter(|entry| is_own_key(election, Contest::Queue, &entry.key));
        leader = candidates.chain(leader).min_by_key(|entry| entry.created);
        if complete {
            return Ok(leader);
        }
        page.from = next;
    }
}

async fn guarded(
    store: &dyn Store,
    guard: Guard,
    mutation: Mutation,
    within: Duration,
) -> Result<Revision, WriteError> {
    let write =
        Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations: vec![mutation] });
    match store.call(write, within).await {
        Ok(Response::Applied(revision)) => Ok(revision.into()),
        Ok(Response::Stale) => Err(WriteError::Stale),
        Ok(Response::Conflict) => Err(WriteError::Conflict),
        Ok(_) => Err(WriteError::Failed(misanswered())),
        Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => {
            Err(WriteError::Failed(failure))
        }
        Err(
            Failure::Timeout | Failure::Unavailable | Failure::Compacted(_) | Failure::Other(_),
        ) => Err(WriteError::Unknown),
    }
}

/// A key of an election of this name, in whichever contest: the name itself, and all keys
/// below it. Etcd's own tools take the oldest of the latter for the leader's, whatever it is
/// called.
pub fn is_below(election: &str, key: &[u8]) -> bool {
    key.strip_prefix(election.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// A key that a candidate of an election of this name may have, in whichever contest.
pub fn belongs_to(election: &str, key: &[u8]) -> bool {
    is_own_key(election, Contest::Queue, key) || is_own_key(election, Contest::Race, key)
}

/// A key that a candidate of this election may have.
fn is_own_key(election: &str, contest: Contest, key: &[u8]) -> bool {
    match contest {
        Contest::Queue => key
            .strip_prefix(election.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"/"))
            .is_some_and(is_lease),
        Contest::Race => key == election.as_bytes(),
    }
}

/// A lease id as Go's `%x` writes it.
fn is_lease(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    (1..=16).contains(&digits.len())
        && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
