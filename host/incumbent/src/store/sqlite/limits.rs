//! The limits of etcd, which hold here as well, so that a move to etcd holds no surprise.

use std::collections::BTreeSet;

use crate::types::{Failure, Guarded, Mutation, Operation};

/// In one request. etcd takes 1.5 MiB, with what it needs around the data.
const MOST_BYTES: usize = 1_500_000;
/// In one transaction.
const MOST_OPERATIONS: usize = 128;
/// Nanoseconds: 285 years.
const LONGEST_LEASE: u64 = 9_000_000_000 * 1_000_000_000;

const TWICE: &str = "a key that is changed twice in one request: change it once";

pub(super) fn check(operation: &Operation) -> Result<(), Failure> {
    let mut request = Request::default();
    match operation {
        Operation::Grant(grant) => {
            if grant.lease == 0 {
                return invalid("a lease of id 0, which stands for none: choose another");
            }
            if grant.ttl > LONGEST_LEASE {
                return invalid("a lease of more than 9,000,000,000 s: ask for less");
            }
        }
        Operation::KeepAlive(_) | Operation::Revoke(_) => {}
        Operation::Claim(claim) => request.add(&claim.key, &claim.value)?,
        Operation::Read(selections) => {
            for selection in selections {
                if selection.prefix {
                    request.bytes += selection.key.len();
                } else {
                    request.add(&selection.key, &[])?;
                }
            }
            request.count(selections.len(), "reads")?;
        }
        Operation::Guarded(guarded) => {
            request.add(&guarded.guard.key, &[])?;
            for expectation in &guarded.expect {
                request.add(&expectation.key, &[])?;
            }
            request.count(guarded.expect.len(), "expectations")?;
            request.mutations(guarded)?;
            request.count(guarded.mutations.len(), "changes")?;
        }
    }
    if request.bytes > MOST_BYTES {
        return invalid(&format!(
            "{} bytes in one request: etcd takes about 1.5 MB, and so does this store",
            request.bytes
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

#[derive(Default)]
struct Request {
    bytes: usize,
}

impl Request {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        if key.is_empty() {
            return invalid("an empty key: keys have one byte at least");
        }
        self.bytes += key.len() + value.len();
        Ok(())
    }

    fn count(&self, operations: usize, what: &str) -> Result<(), Failure> {
        if operations > MOST_OPERATIONS {
            return invalid(&format!(
                "{operations} {what} in one request: {MOST_OPERATIONS} at most, as on etcd"
            ));
        }
        Ok(())
    }

    /// No key may be put twice, or put and deleted as well.
    fn mutations(&mut self, guarded: &Guarded) -> Result<(), Failure> {
        let (mut put, mut deleted) = (BTreeSet::new(), BTreeSet::new());
        for mutation in &guarded.mutations {
            let (key, value, once) = match mutation {
                Mutation::Put(new) => (&new.key, new.value.as_slice(), put.insert(&new.key)),
                Mutation::Proclaim(value) => {
                    let key = &guarded.guard.key;
                    (key, value.as_slice(), put.insert(key))
                }
                Mutation::Delete(key) => {
                    deleted.insert(key);
                    (key, [].as_slice(), true)
                }
            };
            self.add(key, value)?;
            if !once {
                return invalid(TWICE);
            }
        }
        if put.is_disjoint(&deleted) { Ok(()) } else { invalid(TWICE) }
    }
}

fn invalid<T>(what: &str) -> Result<T, Failure> {
    Err(Failure::Invalid(what.into()))
}
