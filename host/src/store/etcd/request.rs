//! The operations that are one request each: how they are put to etcd, and what
//! its answers mean.

use std::panic::catch_unwind;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, Error, GetOptions, LeaseGrantOptions, PutOptions, SortOrder,
    SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::failure::{is_lease_missing, is_lease_present};
use super::keyspace::Keyspace;
use crate::types::{
    Claim, Claimed, Entry, Expectation, Grant, Guard, Guarded, LeaseId, Mutation, Order, Response,
    Revision, Selection, Snapshot,
};

const NANOSECONDS: u64 = 1_000_000_000;

pub(super) async fn grant(client: Client, grant: Grant) -> Result<Response, Error> {
    let seconds = i64::try_from(grant.ttl.div_ceil(NANOSECONDS)).unwrap_or(i64::MAX);
    let options = LeaseGrantOptions::new().with_id(grant.lease);
    match client.lease_client().grant(seconds.max(1), Some(options)).await {
        Ok(granted) => Ok(Response::Granted(time_to_live(granted.ttl()))),
        Err(error) if is_lease_present(&error) => Ok(Response::Exists),
        Err(error) => Err(error),
    }
}

pub(super) async fn revoke(client: Client, lease: LeaseId) -> Result<Response, Error> {
    match client.lease_client().revoke(lease).await {
        Ok(_) => Ok(Response::Revoked),
        Err(error) => expired(error),
    }
}

pub(super) async fn claim(
    client: Client,
    keyspace: Keyspace,
    claim: Claim,
) -> Result<Response, Error> {
    let key = keyspace.wire(&claim.key);
    let under_lease = PutOptions::new().with_lease(claim.lease);
    let txn = Txn::new()
        .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key.clone(), claim.value.clone(), Some(under_lease))])
        .or_else([TxnOp::get(key, None)]);
    let answer = match kv(client).txn(txn).await {
        Ok(answer) => answer,
        Err(error) => return expired(error),
    };
    let at = revision(&answer)?;
    if answer.succeeded() {
        let entry = Entry {
            key: claim.key,
            value: claim.value,
            lease: claim.lease,
            created: at,
            modified: at,
        };
        return Ok(Response::Claimed(Claimed { entry, at }));
    }
    let entry = found(&keyspace, &answer)?
        .into_iter()
        .flatten()
        .next()
        .ok_or_else(|| unexpected("says that a key exists, and does not show it"))?;
    Ok(Response::Taken(Claimed { entry, at }))
}

pub(super) async fn read(
    client: Client,
    keyspace: Keyspace,
    selections: Vec<Selection>,
) -> Result<Response, Error> {
    let wanted = selections.len();
    let mut gets: Vec<TxnOp> =
        selections.into_iter().map(|selection| select(&keyspace, selection)).collect();
    if gets.is_empty() {
        // A transaction without any read would be answered from an old state.
        gets.push(TxnOp::get([0], Some(GetOptions::new().with_count_only())));
    }
    let answer = kv(client).txn(Txn::new().and_then(gets)).await?;
    let mut found = found(&keyspace, &answer)?;
    found.truncate(wanted);
    if found.len() != wanted {
        return Err(unexpected("answers another number of reads than asked"));
    }
    let at = revision(&answer)?;
    Ok(Response::Snapshot(Snapshot { at, found }))
}

pub(super) async fn guarded(
    client: Client,
    keyspace: Keyspace,
    guarded: Guarded,
) -> Result<Response, Error> {
    let Guarded { guard, expect, mutations } = guarded;
    let leader_key = keyspace.wire(&guard.key);
    let changes: Vec<TxnOp> =
        mutations.into_iter().map(|mutation| change(&keyspace, &leader_key, mutation)).collect();
    // One transaction within the other tells a guard that does not hold from an
    // expectation that does not.
    let inner = Txn::new().when(expectations(&keyspace, expect)).and_then(changes);
    let txn = Txn::new().when(guards(leader_key, &guard)).and_then([TxnOp::txn(inner)]);
    let answer = kv(client).txn(txn).await?;
    if !answer.succeeded() {
        return Ok(Response::Stale);
    }
    let expected = operations(&answer)?.into_iter().any(|response| match response {
        TxnOpResponse::Txn(inner) => inner.succeeded(),
        TxnOpResponse::Put(_) | TxnOpResponse::Get(_) | TxnOpResponse::Delete(_) => false,
    });
    if expected { Ok(Response::Applied(revision(&answer)?)) } else { Ok(Response::Conflict) }
}

/// One key as the member has it, outside of any transaction.
pub(super) async fn peek(
    client: Client,
    keyspace: Keyspace,
    key: Vec<u8>,
) -> Result<Option<Entry>, Error> {
    let options = GetOptions::new().with_serializable();
    let answer = kv(client).get(keyspace.wire(&key), Some(options)).await?;
    Ok(answer.kvs().first().map(|found| keyspace.entry(found)))
}

/// What etcd grants, in nanoseconds.
pub(super) fn time_to_live(seconds: i64) -> u64 {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        .as_nanos()
        .try_into()
        .unwrap_or(u64::MAX)
}

/// A client that takes answers of any length: others may have put large values
/// where candidates are.
fn kv(client: Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(usize::MAX)
}

fn select(keyspace: &Keyspace, selection: Selection) -> TxnOp {
    let order = match selection.order {
        Order::OldestFirst => SortOrder::Ascend,
        Order::NewestFirst => SortOrder::Descend,
    };
    let mut options =
        GetOptions::new().with_sort(SortTarget::Create, order).with_limit(selection.limit.into());
    if selection.prefix {
        options = options.with_prefix();
    }
    if let Some(before) = selection.created_before {
        // 0 would mean no bound, and no key was created before revision 1.
        let last = before.saturating_sub(1);
        options = options.with_max_create_revision(if last > 0 { last } else { -1 });
    }
    TxnOp::get(keyspace.wire(&selection.key), Some(options))
}

fn guards(leader_key: Vec<u8>, guard: &Guard) -> Vec<Compare> {
    let created = Compare::create_revision(leader_key.clone(), CompareOp::Equal, guard.epoch);
    let leased = guard.lease.map(|lease| Compare::lease(leader_key, CompareOp::Equal, lease));
    [Some(created), leased].into_iter().flatten().collect()
}

fn expectations(keyspace: &Keyspace, expect: Vec<Expectation>) -> Vec<Compare> {
    expect
        .into_iter()
        .map(|expectation| {
            let key = keyspace.wire(&expectation.key);
            Compare::mod_revision(key, CompareOp::Equal, expectation.modified)
        })
        .collect()
}

fn change(keyspace: &Keyspace, leader_key: &[u8], mutation: Mutation) -> TxnOp {
    match mutation {
        Mutation::Put(put) => TxnOp::put(keyspace.wire(&put.key), put.value, None),
        Mutation::Proclaim(value) => {
            let keeps_lease = PutOptions::new().with_ignore_lease();
            TxnOp::put(leader_key, value, Some(keeps_lease))
        }
        Mutation::Delete(key) => TxnOp::delete(keyspace.wire(&key), None),
    }
}

/// What each read of a transaction found.
fn found(keyspace: &Keyspace, answer: &TxnResponse) -> Result<Vec<Vec<Entry>>, Error> {
    let found = operations(answer)?
        .into_iter()
        .map(|response| match response {
            TxnOpResponse::Get(get) => get.kvs().iter().map(|kv| keyspace.entry(kv)).collect(),
            TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => Vec::new(),
        })
        .collect();
    Ok(found)
}

/// What each operation of a transaction came to. etcd-client panics where an answer
/// does not say of what operation it is.
fn operations(answer: &TxnResponse) -> Result<Vec<TxnOpResponse>, Error> {
    catch_unwind(|| answer.op_responses())
        .map_err(|_| unexpected("answers, and does not say of what operation"))
}

fn revision(answer: &TxnResponse) -> Result<Revision, Error> {
    answer
        .header()
        .map(etcd_client::ResponseHeader::revision)
        .ok_or_else(|| unexpected("answers without a revision"))
}

fn expired(error: Error) -> Result<Response, Error> {
    if is_lease_missing(&error) { Ok(Response::Expired) } else { Err(error) }
}

fn unexpected(what: &str) -> Error {
    Error::Internal(format!("etcd {what}"))
}
