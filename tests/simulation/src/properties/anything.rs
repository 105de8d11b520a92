// Data of the boundary, read from bytes. Included once for the native elector's types
// and once for the component's. Numbers and keys are mostly ones that occur elsewhere,
// or they would never meet.

use arbitrary::{Result, Unstructured};
use types::{Change, Claimed, Deletion, Entry, Failure, Response, Snapshot};

pub type Bytes<'a> = Unstructured<'a>;

/// What has occurred.
#[derive(Debug, Default)]
pub struct Known {
    pub keys: Vec<Vec<u8>>,
    pub leases: Vec<i64>,
}

/// The kinds of a response, by number.
pub const RESPONSES: u8 = 11;

pub fn number(bytes: &mut Bytes<'_>) -> Result<i64> {
    Ok(match bytes.int_in_range(0..=15)? {
        0..=7 => bytes.int_in_range(0..=12)?,
        8..=10 => bytes.int_in_range(0..=39)?,
        11 => -1,
        12 => i64::MIN,
        13 => i64::MAX,
        _ => bytes.arbitrary()?,
    })
}

/// A span of time, or a mark.
pub fn span(bytes: &mut Bytes<'_>) -> Result<u64> {
    const SECOND: u64 = 1_000_000_000;
    Ok(match bytes.int_in_range(0..=15)? {
        0 => 0,
        1 => 1,
        2..=5 => bytes.int_in_range(0..=1_000)? * (SECOND / 1_000),
        6..=9 => bytes.int_in_range(1..=20)? * SECOND,
        10 => 10 * SECOND,
        11 => u64::MAX,
        12 => u64::MAX / 8,
        13 => bytes.arbitrary::<u32>()?.into(),
        14 => bytes.arbitrary::<u64>()? >> bytes.int_in_range(0..=63)?,
        _ => bytes.arbitrary()?,
    })
}

pub fn text(bytes: &mut Bytes<'_>) -> Result<String> {
    Ok(match bytes.int_in_range(0..=7)? {
        0 => String::new(),
        1..=5 => "a".into(),
        6 => "é".repeat(bytes.int_in_range(0..=2_100)?),
        _ => bytes.arbitrary()?,
    })
}

pub fn key(bytes: &mut Bytes<'_>, known: &Known) -> Result<Vec<u8>> {
    Ok(match bytes.int_in_range(0..=15)? {
        0 => Vec::new(),
        1 => b"jobs/1f".into(),
        2 => text(bytes)?.into(),
        3 => bytes.arbitrary()?,
        _ if known.keys.is_empty() => b"jobs".into(),
        _ => bytes.choose(&known.keys)?.clone(),
    })
}

pub fn lease(bytes: &mut Bytes<'_>, known: &Known) -> Result<i64> {
    if known.leases.is_empty() || bytes.ratio(1, 6)? {
        return number(bytes);
    }
    Ok(*bytes.choose(&known.leases)?)
}

pub fn entry(bytes: &mut Bytes<'_>, known: &Known) -> Result<Entry> {
    let created = number(bytes)?;
    Ok(Entry {
        key: key(bytes, known)?,
        value: if bytes.ratio(1, 8)? { bytes.arbitrary()? } else { b"v".into() },
        lease: lease(bytes, known)?,
        created,
        modified: if bytes.arbitrary()? { created } else { number(bytes)? },
    })
}

pub fn entries(bytes: &mut Bytes<'_>, known: &Known) -> Result<Vec<Entry>> {
    let many = bytes.int_in_range(0..=2)?;
    (0..many).map(|_| entry(bytes, known)).collect()
}

pub fn failure(bytes: &mut Bytes<'_>) -> Result<Failure> {
    Ok(match bytes.int_in_range(0..=5)? {
        0 => Failure::Timeout,
        1 => Failure::Unavailable,
        2 => Failure::Compacted(number(bytes)?),
        3 => Failure::Denied(text(bytes)?),
        4 => Failure::Invalid(text(bytes)?),
        _ => Failure::Other(text(bytes)?),
    })
}

/// A response of the kind of this number, with so many findings if it has any.
pub fn response(
    bytes: &mut Bytes<'_>,
    known: &Known,
    kind: u8,
    findings: usize,
) -> Result<Response> {
    let claimed = |bytes: &mut Bytes<'_>| {
        Ok(Claimed { entry: entry(bytes, known)?, at: number(bytes)? })
    };
    Ok(match kind {
        0 => Response::Granted(span(bytes)?),
        1 => Response::Exists,
        2 => Response::Renewed(span(bytes)?),
        3 => Response::Expired,
        4 => Response::Revoked,
        5 => Response::Claimed(claimed(bytes)?),
        6 => Response::Taken(claimed(bytes)?),
        7 => Response::Snapshot(Snapshot {
            at: number(bytes)?,
            found: (0..findings).map(|_| entries(bytes, known)).collect::<Result<_>>()?,
        }),
        8 => Response::Applied(number(bytes)?),
        9 => Response::Stale,
        _ => Response::Conflict,
    })
}

pub fn outcome(
    bytes: &mut Bytes<'_>,
    known: &Known,
    fitting: &[u8],
    findings: usize,
) -> Result<std::result::Result<Response, Failure>> {
    Ok(match bytes.int_in_range(0..=7)? {
        0 => Err(failure(bytes)?),
        1 => {
            let kind = bytes.int_in_range(0..=RESPONSES - 1)?;
            let findings = bytes.int_in_range(0..=4)?;
            Ok(response(bytes, known, kind, findings)?)
        }
        _ => {
            let kind = *bytes.choose(fitting)?;
            Ok(response(bytes, known, kind, findings)?)
        }
    })
}

/// The numbers of the responses that an operation may have, and how many findings.
pub fn fitting(operation: &types::Operation) -> (&'static [u8], usize) {
    match operation {
        types::Operation::Grant(_) => (&[0, 0, 0, 1], 0),
        types::Operation::KeepAlive(_) => (&[2, 2, 2, 3], 0),
        types::Operation::Revoke(_) => (&[4, 3], 0),
        types::Operation::Claim(_) => (&[5, 5, 5, 6, 3], 0),
        types::Operation::Read(selections) => (&[7], selections.len()),
        types::Operation::Guarded(_) => (&[8, 8, 9, 10], 0),
    }
}

pub fn change(bytes: &mut Bytes<'_>, known: &Known) -> Result<Change> {
    Ok(match bytes.int_in_range(0..=7)? {
        0..=2 => Change::Started(number(bytes)?),
        3 | 4 => Change::Put(entry(bytes, known)?),
        5 | 6 => Change::Deleted(Deletion { key: key(bytes, known)?, at: number(bytes)? }),
        _ => Change::Ended(failure(bytes)?),
    })
}
