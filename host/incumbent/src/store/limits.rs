//! The limits of etcd, which hold here as well, so that a move to etcd holds no surprise.

use crate::store::memory::keys_of;
use crate::types::{Failure, Mutation, Operation};

/// In one request. etcd takes 1.5 MiB, with what it needs around the data.
const MOST_BYTES: usize = 1_500_000;
/// In one transaction.
const MOST_OPERATIONS: usize = 128;
/// Nanoseconds: 285 years.
const LONGEST_LEASE: u64 = 9_000_000_000 * 1_000_000_000;

pub(super) fn check(operation: &Operation) -> Result<(), Failure> {
    let (keys, twice) = keys_of(operation);
    if keys.iter().any(|key| key.is_empty()) {
        return invalid("an empty key: keys have one byte at least");
    }
    if twice {
        return invalid("a key that is changed twice in one request: change it once");
    }
    let bytes = match operation {
        Operation::Grant(grant) => {
            if grant.lease == 0 {
                return invalid("a lease of id 0, which stands for none: choose another");
            }
            if grant.ttl > LONGEST_LEASE {
                return invalid("a lease of more than 9,000,000,000 s: ask for less");
            }
            0
        }
        Operation::KeepAlive(_) | Operation::Revoke(_) => 0,
        Operation::Claim(claim) => claim.key.len() + claim.value.len(),
        Operation::Read(selections) => {
            count(selections.len(), "reads")?;
            selections.iter().map(|selection| selection.key.len()).sum()
        }
        Operation::Guarded(guarded) => {
            count(guarded.expect.len(), "expectations")?;
            count(guarded.mutations.len(), "changes")?;
            let values = guarded.mutations.iter().map(|mutation| match mutation {
                Mutation::Put(put) => put.value.len(),
                Mutation::Proclaim(value) => value.len(),
                Mutation::Delete(_) => 0,
            });
            keys.iter().map(|key| key.len()).chain(values).sum()
        }
    };
    if bytes > MOST_BYTES {
        return invalid(&format!(
            "{bytes} bytes in one request: write it in parts, because this store takes 1.5 MB at most, \
             about as etcd does"
        ));
    }
    Ok(())
}

/// How many bytes an operation puts into the store. None if it puts nothing there.
pub(super) fn put(operation: &Operation) -> Option<usize> {
    match operation {
        Operation::Claim(claim) => Some(claim.key.len() + claim.value.len()),
        Operation::Guarded(guarded) => guarded
            .mutations
            .iter()
            .filter_map(|mutation| match mutation {
                Mutation::Put(put) => Some(put.key.len() + put.value.len()),
                Mutation::Proclaim(value) => Some(guarded.guard.key.len() + value.len()),
                Mutation::Delete(_) => None,
            })
            .reduce(|all, one| all + one),
        Operation::Grant(_) => Some(0),
        Operation::KeepAlive(_) | Operation::Revoke(_) | Operation::Read(_) => None,
    }
}

fn count(operations: usize, what: &str) -> Result<(), Failure> {
    if operations > MOST_OPERATIONS {
        return invalid(&format!(
            "{operations} {what} in one request: {MOST_OPERATIONS} at most, as on etcd"
        ));
    }
    Ok(())
}

fn invalid<T>(what: &str) -> Result<T, Failure> {
    Err(Failure::Invalid(what.into()))
}
