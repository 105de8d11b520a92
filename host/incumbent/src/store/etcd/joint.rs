//! Several operations in one request: what etcd is asked, and what its answer means for each.
//!
//! No transaction is within another one: before 3.4.42, 3.5.28 and 3.6.9, etcd does not look
//! whether the user may do what is nested.

use std::ops::Add;

use etcd_client::{Client, Error, GetOptions, Txn, TxnOp, TxnOpResponse};

use super::endpoint::Contact;
use super::failure::{is_refused, is_request_too_large, is_too_many_operations};
use super::keyspace::Keyspace;
use super::request::{
    change, claimed, expectations, guards, is_absent, kv, operations, put, range, revision,
    unexpected,
};
use crate::types::{
    Claim, Claimed, Entry, Guarded, Mutation, Operation, Put, Response, Selection, Snapshot,
};

/// How many keys one selection may ask for, if it goes with others. etcd serves nothing else
/// meanwhile.
const FEW_KEYS: u32 = 16;

/// What came of a request for several operations.
pub(super) enum Joint {
    /// For each operation its answer. Those without were not done, because of others.
    Answers(Vec<Option<Response>>),
    /// Nothing was done.
    Refused(Refusal),
}

/// Why etcd did nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    TooManyOperations,
    TooLarge,
    /// Perhaps for a reason of a single operation.
    Other,
}

/// What operations take of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Comparisons, changes or reads, whatever there is most of.
    pub(super) operations: usize,
    /// In keys and values.
    pub(super) bytes: usize,
}

impl Size {
    pub(super) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Claim(Claim { key, value, .. }) => {
                Self { operations: 1, bytes: 3 * key.len() + value.len() }
            }
            Operation::Guarded(Guarded { guard, expect, mutations }) => {
                let compared = 2 + expect.len();
                let keys = expect.iter().map(|expect| 2 * expect.key.len()).sum::<usize>();
                let changed = mutations.iter().map(|mutation| match mutation {
                    Mutation::Put(Put { key, value }) => key.len() + value.len(),
                    Mutation::Proclaim(value) => guard.key.len() + value.len(),
                    Mutation::Delete(key) => key.len(),
                });
                let bytes = 3 * guard.key.len() + keys + changed.sum::<usize>();
                Self { operations: compared.max(mutations.len()), bytes }
            }
            Operation::Read(selections) => {
                let keys = selections.iter().map(|selection| 2 * selection.key.len());
                Self { operations: selections.len(), bytes: keys.sum() }
            }
            Operation::Grant(_) | Operation::KeepAlive(_) | Operation::Revoke(_) => Self::default(),
        }
    }

    pub(super) fn is_within(self, limit: Self) -> bool {
        self.operations <= limit.operations && self.bytes <= limit.bytes
    }
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { operations: self.operations + other.operations, bytes: self.bytes + other.bytes }
    }
}

/// Whether a read may go with others.
pub(super) fn is_small(selections: &[Selection]) -> bool {
    let is_small = |it: &Selection| !it.prefix || (1..=FEW_KEYS).contains(&it.limit);
    !selections.is_empty() && selections.iter().all(is_small)
}

/// Makes changes: all of them, if everything is as each operation expects, or none.
pub(super) async fn write(
    client: Client,
    keyspace: &Keyspace,
    writes: &[&Operation],
) -> Result<Joint, Error> {
    let (mut compares, mut changes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for operation in writes {
        match operation {
            Operation::Claim(claim) => {
                let key = keyspace.wire(&claim.key);
                compares.push(is_absent(key.clone()));
                changes.push(put(key.clone(), claim));
                reads.push(TxnOp::get(key, None));
            }
            Operation::Guarded(Guarded { guard, expect, mutations }) => {
                let leader_key = keyspace.wire(&guard.key);
                let keys = [&guard.key].into_iter().chain(expect.iter().map(|expect| &expect.key));
                let without_value = || Some(GetOptions::new().with_keys_only());
                reads.extend(keys.map(|key| TxnOp::get(keyspace.wire(key), without_value())));
                let change = |mutation: &Mutation| change(keyspace, &leader_key, mutation.clone());
                changes.extend(mutations.iter().map(change));
                compares.extend(expectations(keyspace, expect));
                compares.extend(guards(leader_key, guard));
            }
            Operation::Read(_)
            | Operation::Grant(_)
            | Operation::KeepAlive(_)
            | Operation::Revoke(_) => return Ok(Joint::Refused(Refusal::Other)),
        }
    }
    let txn = Txn::new().when(compares).and_then(changes).or_else(reads);
    let answer = match kv(&client).txn(txn).await {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    let at = revision(answer.header())?;
    if answer.succeeded() {
        return Ok(Joint::Answers(
            writes.iter().map(|operation| Some(done(operation, at))).collect(),
        ));
    }
    let mut found = operations(&answer)?.into_iter();
    let mut next = || match found.next() {
        Some(TxnOpResponse::Get(get)) => Ok(get.kvs().first().map(|found| keyspace.entry(found))),
        _ => Err(unexpected("does not show what it compared")),
    };
    let answers = writes.iter().map(|operation| undone(operation, at, &mut next));
    Ok(Joint::Answers(answers.collect::<Result<_, _>>()?))
}

/// What a write came to that is done.
fn done(operation: &Operation, at: i64) -> Response {
    if let Operation::Claim(claim) = operation {
        return claimed(claim.clone(), at);
    }
    Response::Applied(at)
}

/// What a write came to in a transaction that changed nothing, by what that has shown of the
/// keys. Nothing, if it was not for this write.
fn undone(
    operation: &Operation,
    at: i64,
    next: &mut impl FnMut() -> Result<Option<Entry>, Error>,
) -> Result<Option<Response>, Error> {
    let Operation::Guarded(Guarded { guard, expect, .. }) = operation else {
        return Ok(next()?.map(|entry| Response::Taken(Claimed { entry, at })));
    };
    let holds = next()?.is_some_and(|entry| {
        entry.created == guard.epoch && guard.lease.is_none_or(|lease| lease == entry.lease)
    });
    let mut as_expected = true;
    for expect in expect {
        as_expected &= next()?.map_or(0, |entry| entry.modified) == expect.modified;
    }
    Ok(match (holds, as_expected) {
        (false, _) => Some(Response::Stale),
        (true, false) => Some(Response::Conflict),
        (true, true) => None,
    })
}

/// Reads at one revision. Where a transaction that only reads would be a danger to the member, an
/// empty transaction, which is never reached, makes it another kind.
pub(super) async fn read(
    contact: Contact,
    keyspace: &Keyspace,
    reads: &[&Operation],
) -> Result<Joint, Error> {
    let mut selections = Vec::new();
    for operation in reads {
        let Operation::Read(of_one) = operation else {
            return Ok(Joint::Refused(Refusal::Other));
        };
        selections.push(of_one);
    }
    let gets = selections.iter().copied().flatten().map(|selection| {
        let (key, options) = range(keyspace, selection);
        TxnOp::get(key, Some(options))
    });
    let mut txn = Txn::new().and_then(gets.collect::<Vec<_>>());
    if !contact.connection.version.reads_in_transactions(&contact.client) {
        txn = txn.or_else([TxnOp::txn(Txn::new())]);
    }
    let answer = match kv(&contact.client).txn(txn).await {
        Ok(answer) => answer,
        Err(error) => return refused(error),
    };
    let at = revision(answer.header())?;
    let mut answers = operations(&answer)?.into_iter();
    let mut next = |_: &Selection| match answers.next() {
        Some(TxnOpResponse::Get(get)) => {
            Ok(get.kvs().iter().map(|found| keyspace.entry(found)).collect())
        }
        _ => Err(unexpected("does not show what was read")),
    };
    let snapshots = selections.into_iter().map(|selections| {
        let found = selections.iter().map(&mut next).collect::<Result<_, Error>>()?;
        Ok(Some(Response::Snapshot(Snapshot { at, found })))
    });
    Ok(Joint::Answers(snapshots.collect::<Result<_, Error>>()?))
}

fn refused(error: Error) -> Result<Joint, Error> {
    if !is_refused(&error) {
        return Err(error);
    }
    Ok(Joint::Refused(if is_too_many_operations(&error) {
        Refusal::TooManyOperations
    } else if is_request_too_large(&error) {
        Refusal::TooLarge
    } else {
        Refusal::Other
    }))
}
