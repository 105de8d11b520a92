//! A key that an operator's program writes under a lease of its own, and that is gone soon after it.

use std::time::Duration;

use futures_util::future::join;

use crate::store::Store;
use crate::store::read::misanswered;
use crate::types::{Claim, Failure, Grant, Guard, Operation, Response};

/// The time of the lease, in nanoseconds.
const LEASE_TIME: u64 = 5_000_000_000;

/// Claims the key under this new lease. None if somebody else has it.
pub(super) async fn claim(
    store: &dyn Store,
    within: Duration,
    lease: i64,
    key: Vec<u8>,
    value: Vec<u8>,
) -> Result<Option<Guard>, Failure> {
    let call = |operation| store.call(operation, within);
    let grant = call(Operation::Grant(Grant { lease, ttl: LEASE_TIME }));
    let claim = || call(Operation::Claim(Claim { key: key.clone(), value: value.clone(), lease }));
    // Together, because the grant usually comes first.
    let (granted, mut claimed) = join(grant, claim()).await;
    if !matches!(granted?, Response::Granted(_)) {
        return Err(misanswered("grant"));
    }
    if matches!(claimed, Ok(Response::Expired)) {
        claimed = claim().await;
    }
    let claimed = claimed?;
    if let Response::Taken(_) = claimed {
        return Ok(None);
    }
    let Response::Claimed(claimed) = claimed else { return Err(misanswered("claim")) };
    Ok(Some(Guard { key, epoch: claimed.entry.created, lease: Some(lease) }))
}

/// A lease id that nobody else has.
pub(super) fn any_lease() -> Result<i64, Failure> {
    let drawn = getrandom::u64();
    let drawn = drawn.map_err(|error| Failure::Other(format!("no random number: {error}")))?;
    Ok((drawn >> 1).cast_signed().max(1))
}
