//! The operations that are one request each: what etcd is asked, and what its answers mean.

use std::iter;
use std::panic::catch_unwind;

use etcd_client::{
    Client, Compare, CompareOp, Error, GetOptions, GetResponse, LeaseGrantOptions, PutOptions,
    ResponseHeader, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::failure::{is_lease_missing, is_lease_present, is_revision_unreadable};
use super::keyspace::Keyspace;
use crate::store::end_of_prefix;
use crate::types::{
    Claim, Claimed, Entry, Expectation, Grant, Guard, Guarded, Mutation, Order, Response,
    Selection, Snapshot,
};

const NANOSECONDS: u64 = 1_000_000_000;
/// How many bytes an answer may have: more than etcd takes in one value by default.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// How many selections of one read are requested at once.
const SIDE_BY_SIDE: usize = 16;

pub(super) async fn grant(client: Client, grant: Grant) -> Result<Response, Error> {
    let seconds = i64::try_from(grant.ttl.div_ceil(NANOSECONDS)).unwrap_or(i64::MAX);
    let options = LeaseGrantOptions::new().with_id(grant.lease);
    match client.lease_client().grant(seconds.max(1), Some(options)).await {
        Ok(granted) => Ok(Response::Granted(time_to_live(granted.ttl()))),
        Err(error) if is_lease_present(&error) => Ok(Response::Exists),
        Err(error) => Err(error),
    }
}

pub(super) async fn revoke(client: Client, lease: i64) -> Result<Response, Error> {
    match client.lease_client().revoke(lease).await {
        Ok(_) => Ok(Response::Revoked),
        Err(error) => expired(error),
    }
}

pub(super) async fn claim(
    client: Client,
    keyspace: &Keyspace,
    claim: Claim,
) -> Result<Response, Error> {
    let key = keyspace.wire(&claim.key);
    let txn = Txn::new()
        .when([is_absent(key.clone())])
        .and_then([put(key.clone(), &claim)])
        .or_else([TxnOp::get(key, None)]);
    let answer = match kv(&client).txn(txn).await {
        Ok(answer) => answer,
        Err(error) => return expired(error),
    };
    let at = revision(answer.header())?;
    if answer.succeeded() {
        return Ok(claimed(claim, at));
    }
    let entry = found(keyspace, &answer)?
        .into_iter()
        .next()
        .ok_or_else(|| unexpected("says that a key exists, and does not show it"))?;
    Ok(Response::Taken(Claimed { entry, at }))
}

/// Reads all selections at one revision, without a transaction, because some versions of
/// etcd do not survive one that only reads (see [`version`](super::version)). The first selection is read as it is
/// now, and its answer names the revision. The others are read at that revision, side by side.
///
/// The first read is linearizable: the member asks the cluster for the latest revision. The
/// member may answer the others by itself: a revision is the same on every member that has it,
/// and a member that does not have it says so.
///
/// No read of an election may be answered by a member that is behind:
///
/// - **Predecessor check** (the keys in front of ours, and our key). An old answer that shows
///   our key shows everything that was created before it, so it never makes two candidates
///   leaders. But it may show our key after an operator has deleted it, or a predecessor that
///   has gone: the candidate would then wait for a deletion that its watch, which begins later,
///   never tells. An old answer without our key ends the candidate's place in the queue,
///   although its key exists.
/// - **Check** of single keys, once their watches have started. It covers the gap before the
///   watches. An old answer shows the predecessor as it was before the gap, and the next check
///   comes half a minute later.
/// - **Check after a silence.** It finds changes that a watch did not tell. A member that is
///   behind tells its watches nothing, and its answers would show nothing either.
/// - **Reads for an observer, `leader`, `candidates` and an inspection.** An old answer names a
///   former leader, or leaves the present one out.
/// - **`depose`, and a write with `--fence` from another process,** look for the leader first.
///   The guard makes an old answer harmless, but not true: a write of the present leader is
///   refused as stale, and the present leader is not deposed.
/// - **A fence's `get`, and `get --consistency l`.** A leader that reads, changes and writes
///   would build on a value that is gone, which only an expectation finds out.
///
/// Only the answer of [`peek`], which is `get --consistency s`, may be old.
pub(super) async fn read(
    client: Client,
    keyspace: &Keyspace,
    selections: &[Selection],
) -> Result<Response, Error> {
    loop {
        match snapshot(&client, keyspace, selections).await {
            // Between the first read and the others. The next try begins at a newer one.
            Err(error) if is_revision_unreadable(&error) => {}
            answer => return answer.map(Response::Snapshot),
        }
    }
}

async fn snapshot(
    client: &Client,
    keyspace: &Keyspace,
    selections: &[Selection],
) -> Result<Snapshot, Error> {
    let ranges: Vec<_> = selections.iter().map(|selection| range(keyspace, selection)).collect();
    let mut ranges = ranges.into_iter();
    // A read of nothing has a revision, too.
    let nothing = || (vec![0], GetOptions::new().with_count_only());
    let (key, options) = ranges.next().unwrap_or_else(nothing);
    let first = kv(client).get(key, Some(options)).await?;
    let at = revision(first.header())?;
    let others: Vec<_> = ranges
        .map(|(key, options)| {
            let mut kv = kv(client);
            let options = options.with_revision(at).with_serializable();
            async move { kv.get(key, Some(options)).await }
        })
        .collect();
    let others: Vec<_> = stream::iter(others).buffered(SIDE_BY_SIDE).try_collect().await?;
    let entries = |answer: GetResponse| -> Vec<Entry> {
        answer.kvs().iter().map(|found| keyspace.entry(found)).collect()
    };
    let answers = iter::once(first).chain(others).take(selections.len());
    Ok(Snapshot { at, found: answers.map(entries).collect() })
}

pub(super) async fn guarded(
    client: Client,
    keyspace: &Keyspace,
    guarded: Guarded,
) -> Result<Response, Error> {
    let Guarded { guard, expect, mutations } = guarded;
    let leader_key = keyspace.wire(&guard.key);
    let changes: Vec<TxnOp> =
        mutations.into_iter().map(|mutation| change(keyspace, &leader_key, mutation)).collect();
    // One transaction within the other tells a guard that does not hold from an
    // expectation that does not.
    let inner = Txn::new().when(expectations(keyspace, &expect)).and_then(changes);
    let txn = Txn::new().when(guards(leader_key, &guard)).and_then([TxnOp::txn(inner)]);
    let answer = kv(&client).txn(txn).await?;
    if !answer.succeeded() {
        return Ok(Response::Stale);
    }
    let expected = operations(&answer)?
        .iter()
        .any(|response| matches!(response, TxnOpResponse::Txn(inner) if inner.succeeded()));
    if expected {
        Ok(Response::Applied(revision(answer.header())?))
    } else {
        Ok(Response::Conflict)
    }
}

/// One key as the member has it, outside of any transaction.
pub(super) async fn peek(
    client: Client,
    keyspace: &Keyspace,
    key: &[u8],
) -> Result<Option<Entry>, Error> {
    let options = GetOptions::new().with_serializable();
    let answer = kv(&client).get(keyspace.wire(key), Some(options)).await?;
    Ok(answer.kvs().first().map(|found| keyspace.entry(found)))
}

/// What etcd grants, in nanoseconds.
pub(super) fn time_to_live(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(NANOSECONDS)
}

/// A client with a limit on the length of an answer, because other applications may put large
/// values beside the candidates. The call of a longer answer fails.
pub(super) fn kv(client: &Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(LONGEST_ANSWER)
}

/// What etcd is asked for one selection.
pub(super) fn range(keyspace: &Keyspace, selection: &Selection) -> (Vec<u8>, GetOptions) {
    let key = keyspace.wire(&selection.key);
    let from = selection.from.as_ref().map(|from| keyspace.wire(from));
    let from = from.filter(|from| *from > key);
    let end = if selection.prefix { end_of_prefix(&key) } else { from.clone() };
    let mut options = GetOptions::new().with_limit(selection.limit.into());
    options = match selection.order {
        Order::OldestFirst => options.with_sort(SortTarget::Create, SortOrder::Ascend),
        Order::NewestFirst => options.with_sort(SortTarget::Create, SortOrder::Descend),
        // As etcd has them: it stops at the limit.
        Order::ByKey => options,
    };
    if selection.keys_only {
        options = options.with_keys_only();
    }
    let is_beyond = from.as_ref().zip(end.as_ref()).is_some_and(|(from, end)| from >= end);
    let mut before = selection.created_before;
    if is_beyond {
        // A range that ends before it begins would be forbidden to most users. One key is
        // asked for instead, as of before the first revision.
        before = Some(0);
    }
    if let Some(before) = before {
        // 0 would mean no bound, and revision 1 is that of an empty etcd.
        options = options.with_max_create_revision(before.saturating_sub(1).max(1));
    }
    if is_beyond || !selection.prefix {
        return (non_empty(key), options);
    }
    // etcd's name for the end of all keys.
    let end = end.unwrap_or_else(|| vec![0]);
    (non_empty(from.unwrap_or(key)), options.with_range(end))
}

/// The key, or the first key that etcd takes in place of an empty one.
fn non_empty(key: Vec<u8>) -> Vec<u8> {
    if key.is_empty() { vec![0] } else { key }
}

pub(super) fn is_absent(key: Vec<u8>) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// Makes a candidate's key.
pub(super) fn put(key: Vec<u8>, claim: &Claim) -> TxnOp {
    let under_lease = PutOptions::new().with_lease(claim.lease);
    TxnOp::put(key, claim.value.clone(), Some(under_lease))
}

pub(super) fn claimed(claim: Claim, at: i64) -> Response {
    let Claim { key, value, lease } = claim;
    Response::Claimed(Claimed { entry: Entry { key, value, lease, created: at, modified: at }, at })
}

pub(super) fn guards(leader_key: Vec<u8>, guard: &Guard) -> Vec<Compare> {
    let created = Compare::create_revision(leader_key.clone(), CompareOp::Equal, guard.epoch);
    let leased = guard.lease.map(|lease| Compare::lease(leader_key, CompareOp::Equal, lease));
    [Some(created), leased].into_iter().flatten().collect()
}

pub(super) fn expectations(keyspace: &Keyspace, expect: &[Expectation]) -> Vec<Compare> {
    expect
        .iter()
        .map(|expectation| {
            let key = keyspace.wire(&expectation.key);
            Compare::mod_revision(key, CompareOp::Equal, expectation.modified)
        })
        .collect()
}

pub(super) fn change(keyspace: &Keyspace, leader_key: &[u8], mutation: Mutation) -> TxnOp {
    match mutation {
        Mutation::Put(put) => TxnOp::put(keyspace.wire(&put.key), put.value, None),
        Mutation::Proclaim(value) => {
            let keeps_lease = PutOptions::new().with_ignore_lease();
            TxnOp::put(leader_key, value, Some(keeps_lease))
        }
        Mutation::Delete(key) => TxnOp::delete(keyspace.wire(&key), None),
    }
}

/// What the reads of a transaction found.
fn found(keyspace: &Keyspace, answer: &TxnResponse) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    for response in operations(answer)? {
        if let TxnOpResponse::Get(get) = response {
            found.extend(get.kvs().iter().map(|kv| keyspace.entry(kv)));
        }
    }
    Ok(found)
}

/// What each operation of a transaction came to. etcd-client panics where an answer
/// does not say of what operation it is.
pub(super) fn operations(answer: &TxnResponse) -> Result<Vec<TxnOpResponse>, Error> {
    catch_unwind(|| answer.op_responses())
        .map_err(|_| unexpected("answers, and does not say of what operation"))
}

pub(super) fn revision(header: Option<&ResponseHeader>) -> Result<i64, Error> {
    header.map(ResponseHeader::revision).ok_or_else(|| unexpected("answers without a revision"))
}

fn expired(error: Error) -> Result<Response, Error> {
    if is_lease_missing(&error) { Ok(Response::Expired) } else { Err(error) }
}

pub(super) fn unexpected(what: &str) -> Error {
    Error::Internal(format!("etcd {what}"))
}
