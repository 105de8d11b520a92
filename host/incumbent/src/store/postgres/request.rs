//! Operations as the functions of `schema.sql` take them, and their answers.

use serde_json::{Value, json};

use crate::store::end_of_prefix;
use crate::store::read::misanswered;
use crate::types::{
    Answer, Change, Claimed, Deletion, Entry, Failure, Mutation, Operation, Order, Response,
    Selection, Snapshot,
};

/// The shortest lease, in nanoseconds.
const SHORTEST_LEASE: u64 = 1_000_000_000;

/// What `perform` takes.
pub(super) fn request(operation: &Operation) -> Value {
    match operation {
        Operation::Grant(grant) => {
            json!({"do": "grant", "lease": grant.lease, "ttl": ttl(grant.ttl)})
        }
        // It has a function of its own.
        Operation::KeepAlive(lease) => json!({"do": "renew", "lease": lease}),
        Operation::Revoke(lease) => json!({"do": "revoke", "lease": lease}),
        Operation::Claim(claim) => json!({
            "do": "claim",
            "key": hex(&claim.key),
            "value": hex(&claim.value),
            "lease": claim.lease,
        }),
        Operation::Read(selections) => {
            let selections: Vec<Value> = selections.iter().map(selection).collect();
            json!({"do": "read", "selections": selections})
        }
        Operation::Guarded(guarded) => {
            let expect = guarded.expect.iter().map(|it| json!([hex(&it.key), it.modified]));
            let changes = guarded.mutations.iter().map(|mutation| match mutation {
                Mutation::Put(put) => json!(["put", hex(&put.key), hex(&put.value)]),
                Mutation::Proclaim(value) => json!(["proclaim", hex(value)]),
                Mutation::Delete(key) => json!(["delete", hex(key)]),
            });
            json!({
                "do": "guarded",
                "key": hex(&guarded.guard.key),
                "epoch": guarded.guard.epoch,
                "lease": guarded.guard.lease,
                "expect": expect.collect::<Vec<_>>(),
                "changes": changes.collect::<Vec<_>>(),
            })
        }
    }
}

fn selection(selection: &Selection) -> Value {
    let order = match selection.order {
        Order::OldestFirst => "oldest",
        Order::NewestFirst => "newest",
        Order::ByKey => "key",
    };
    json!({
        "key": hex(&selection.key),
        "prefix": selection.prefix,
        "end": end_of_prefix(&selection.key).map(|end| hex(&end)),
        "from": selection.from.as_deref().map(hex),
        "before": selection.created_before,
        "order": order,
        "limit": selection.limit,
        "bare": selection.keys_only,
    })
}

/// What the answer to an operation means.
pub(super) fn response(operation: &Operation, answer: &Value) -> Answer {
    let word = answer.as_str();
    if word == Some("later") {
        return Err(Failure::Other(
            "another server has become the primary, or a backup was restored: nobody new gets in line \
             before the leases that may be lost are over"
                .into(),
        ));
    }
    if word == Some("fenced") {
        return Err(Failure::Other(
            "a transaction that has called the fence of this epoch is open, and cannot be ended: it is \
             prepared (see pg_prepared_xacts), or another role's (GRANT pg_signal_backend, and a \
             superuser's only a superuser ends)"
                .into(),
        ));
    }
    let read = || {
        Some(match operation {
            Operation::Grant(grant) if answer.get("granted").is_some() => {
                Response::Granted(ttl(grant.ttl).unsigned_abs())
            }
            Operation::Grant(_) if word == Some("exists") => Response::Exists,
            Operation::KeepAlive(_) if answer.is_null() => Response::Expired,
            Operation::KeepAlive(_) => Response::Renewed(answer.get(0)?.as_u64()?),
            Operation::Revoke(_) if word == Some("revoked") => Response::Revoked,
            Operation::Revoke(_) | Operation::Claim(_) if word == Some("expired") => {
                Response::Expired
            }
            Operation::Claim(claim) => match answer.get("claimed") {
                Some(at) => {
                    let at = at.as_i64()?;
                    let entry = Entry {
                        key: claim.key.clone(),
                        value: claim.value.clone(),
                        lease: claim.lease,
                        created: at,
                        modified: at,
                    };
                    Response::Claimed(Claimed { entry, at })
                }
                None => {
                    let entry = entry(answer.get("taken")?)?;
                    Response::Taken(Claimed { entry, at: answer.get("at")?.as_i64()? })
                }
            },
            Operation::Read(_) => {
                let found = answer.get("found")?.as_array()?;
                let entries = |found: &Value| found.as_array()?.iter().map(entry).collect();
                let found = found.iter().map(entries).collect::<Option<_>>()?;
                Response::Snapshot(Snapshot { at: answer.get("at")?.as_i64()?, found })
            }
            Operation::Guarded(_) => match word {
                Some("stale") => Response::Stale,
                Some("conflict") => Response::Conflict,
                Some(_) => return None,
                None => Response::Applied(answer.get("applied")?.as_i64()?),
            },
            Operation::Grant(_) | Operation::Revoke(_) => return None,
        })
    };
    read().ok_or_else(|| misanswered(operation.name()))
}

/// The lease that an operation has granted or renewed, its time to live, and the number of this renewal.
pub(super) fn renewal(operation: &Operation, answer: &Value) -> Option<(i64, u64, i64)> {
    match operation {
        Operation::Grant(grant) => {
            let number = answer.get("granted")?.as_i64()?;
            Some((grant.lease, ttl(grant.ttl).unsigned_abs(), number))
        }
        Operation::KeepAlive(lease) => {
            Some((*lease, answer.get(0)?.as_u64()?, answer.get(1)?.as_i64()?))
        }
        Operation::Revoke(_) | Operation::Claim(_) | Operation::Read(_) | Operation::Guarded(_) => {
            None
        }
    }
}

/// What `recent` tells.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) revision: i64,
    pub(super) compacted: i64,
    pub(super) changes: Vec<(i64, Change)>,
    /// The database's clock.
    pub(super) now: i64,
    pub(super) leases: Vec<Renewal>,
}

/// The last renewal of a lease.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    pub(super) lease: i64,
    pub(super) ttl: u64,
    pub(super) number: i64,
    pub(super) boot: String,
    pub(super) mark: u64,
    pub(super) wall: i64,
    pub(super) at: i64,
}

impl Recent {
    pub(super) fn read(told: &Value) -> Result<Self, Failure> {
        Self::try_read(told).ok_or_else(|| misanswered("recent"))
    }

    fn try_read(told: &Value) -> Option<Self> {
        let list = |name: &str| told.get(name).and_then(Value::as_array).into_iter().flatten();
        let change = |row: &Value| {
            let at = row.get(0)?.as_i64()?;
            let key = bytes(row.get(1)?)?;
            let value = row.get(2)?;
            let change = if value.is_null() {
                Change::Deleted(Deletion { key, at })
            } else {
                Change::Put(Entry {
                    key,
                    value: bytes(value)?,
                    lease: row.get(3)?.as_i64()?,
                    created: row.get(4)?.as_i64()?,
                    modified: at,
                })
            };
            Some((at, change))
        };
        let renewal = |row: &Value| {
            Some(Renewal {
                lease: row.get(0)?.as_i64()?,
                ttl: row.get(1)?.as_u64()?,
                number: row.get(2)?.as_i64()?,
                boot: row.get(3)?.as_str()?.into(),
                mark: row.get(4)?.as_u64()?,
                wall: row.get(5)?.as_i64()?,
                at: row.get(6)?.as_i64()?,
            })
        };
        Some(Self {
            revision: told.get("revision")?.as_i64()?,
            compacted: told.get("compacted")?.as_i64()?,
            now: told.get("now")?.as_i64()?,
            changes: list("changes").map(change).collect::<Option<_>>()?,
            leases: list("leases").map(renewal).collect::<Option<_>>()?,
        })
    }
}

fn entry(row: &Value) -> Option<Entry> {
    Some(Entry {
        key: bytes(row.get(0)?)?,
        value: bytes(row.get(1)?)?,
        lease: row.get(2)?.as_i64()?,
        created: row.get(3)?.as_i64()?,
        modified: row.get(4)?.as_i64()?,
    })
}

/// A time to live as PostgreSQL holds it.
fn ttl(wanted: u64) -> i64 {
    wanted.max(SHORTEST_LEASE).try_into().unwrap_or(i64::MAX)
}

fn hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

fn bytes(text: &Value) -> Option<Vec<u8>> {
    hex::decode(text.as_str()?).ok()
}
