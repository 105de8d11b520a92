//! For users without a session: writes guarded by a term of another process, and an
//! operator's orders.

mod drain;
mod short_lived;
mod transfer;

use std::time::Duration;

pub use self::drain::{Drain, Drained, drain};
pub use self::transfer::{Transfer, Transferred};
use crate::event::{KeyValue, Participant};
use crate::store::Store;
use crate::store::read::{self, misanswered, oldest};
use crate::types::{
    Contest, Entry, Epoch, Failure, Guard, Guarded, Mutation, Operation, Order, Put, Response,
    Revision, Selection,
};
use crate::write::WriteError;

/// How many keys a page has at most, where others' data lie below an election's name.
const PAGE: u32 = 1_000;

/// How many candidates are read with their values at once.
const AT_ONCE: u32 = 64;

/// Reads one key, as it is now, in at most this time. Cancel safe.
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

/// An election on a store, for users without a session. A cheap copy; does nothing by itself.
///
/// ```
/// use incumbent::MemoryStore;
/// use incumbent::admin::Admin;
/// # use incumbent::{Options, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::default();
/// # let session = Session::open(store.clone(), Options::default()).await?;
/// # let leadership = session.election("my-service").campaign().await?;
/// let admin = Admin::new(&store, "my-service");
/// if let Some(leader) = admin.leader().await? {
///     admin.fenced_put(leader.epoch, "/data/result", "42").await?;
///     admin.depose(Some(leader.epoch)).await?;
/// }
/// # leadership.lost().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    store: &'a dyn Store,
    election: &'a str,
    contest: Contest,
    timeout: Duration,
}

impl<'a> Admin<'a> {
    /// The election of this name.
    pub fn new(store: &'a dyn Store, election: &'a str) -> Self {
        Self { store, election, contest: Contest::Queue, timeout: Duration::from_secs(5) }
    }

    /// How its candidates share it: [`Contest::Queue`] unless set.
    #[must_use]
    pub fn contest(self, contest: Contest) -> Self {
        Self { contest, ..self }
    }

    /// How long each request to the store may take: 5 s unless set.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets a key, under no lease, while the term of `epoch` stands, under any leader. For the work
    /// of a term in another process, which knows the epoch. Returns the revision of the change.
    ///
    /// Makes two requests. Not cancel safe: what a dropped future asked for may happen.
    ///
    /// # Errors
    ///
    /// [`WriteError::Stale`] if the epoch does not lead, [`WriteError::Unknown`] if
    /// there was no answer to the write, [`WriteError::Failed`] if the leader is not
    /// found out, or for a key of the election itself.
    pub async fn fenced_put(
        self,
        epoch: Epoch,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<Revision, WriteError> {
        let key = key.into();
        if is_own_key(self.election, self.contest, &key) {
            return Err(WriteError::Failed(Failure::Invalid(format!(
                "this key belongs to the election itself (`{}`): write to another",
                self.election
            ))));
        }
        let leader = self
            .leader()
            .await
            .map_err(WriteError::Failed)?
            .filter(|leader| leader.epoch == epoch)
            .ok_or(WriteError::Stale)?;
        let put = Put { key, value: value.into() };
        let lease = Some(leader.lease.into()).filter(|lease| *lease != 0);
        let guard = Guard { key: leader.key, epoch: epoch.into(), lease };
        self.guarded(guard, Mutation::Put(put)).await
    }

    /// Removes the leader: that of `epoch`, or the present one. Returns the leader that was
    /// removed; none if nobody leads, or not in that epoch.
    ///
    /// The leader learns of it by its watch, a moment after it has lost its key: for
    /// that long two may believe that they lead, and only guarded writes are safe.
    /// Makes two requests. Not cancel safe: what a dropped future asked for may happen.
    ///
    /// # Errors
    ///
    /// [`WriteError::Unknown`] if there was no answer to the deletion,
    /// [`WriteError::Failed`] if the leader is not found out.
    pub async fn depose(self, epoch: Option<Epoch>) -> Result<Option<Participant>, WriteError> {
        let leader = self
            .leader()
            .await
            .map_err(WriteError::Failed)?
            .filter(|leader| epoch.is_none_or(|epoch| leader.epoch == epoch));
        let Some(leader) = leader else {
            return Ok(None);
        };
        let guard = Guard { key: leader.key.clone(), epoch: leader.epoch.into(), lease: None };
        match self.guarded(guard, Mutation::Delete(leader.key.clone())).await {
            Ok(_) => Ok(Some(leader)),
            // It went by itself meanwhile; its successor was not meant.
            Err(WriteError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Who leads now. Makes one request, unless others' data lie below the election's name:
    /// these are read page by page, without their values. Cancel safe.
    ///
    /// # Errors
    ///
    /// What the store says instead of an answer.
    pub async fn leader(self) -> Result<Option<Participant>, Failure> {
        let Self { store, election, contest, timeout } = self;
        let first = match contest {
            Contest::Queue => oldest(format!("{election}/").into_bytes(), true),
            Contest::Race => oldest(election.into(), false),
        };
        loop {
            let found = read::read(store, first.clone(), timeout).await?.into_iter().next();
            let Some(found) = found else {
                return Ok(None);
            };
            if is_candidate(election, contest, &found) {
                return Ok(Some(found.into()));
            }
            let Some(leader) = self.oldest_of_all(&first).await? else {
                return Ok(None);
            };
            // It may have gone since its page was read, and others be there.
            let found = read::get(store, leader.key, timeout).await?;
            let is_it = |found: &Entry| {
                found.created == leader.created && is_candidate(election, contest, found)
            };
            if let Some(found) = found.filter(is_it) {
                return Ok(Some(found.into()));
            }
        }
    }

    /// The oldest candidate in a queue, without its value.
    async fn oldest_of_all(self, first: &Selection) -> Result<Option<Entry>, Failure> {
        let mut page =
            Selection { order: Order::ByKey, limit: PAGE, keys_only: true, ..first.clone() };
        let mut leader: Option<Entry> = None;
        loop {
            let entries = read::read(self.store, page.clone(), self.timeout).await?;
            // The first key that is not on the page.
            let next = entries.last().map(|last| [last.key.as_slice(), &[0]].concat());
            let complete = entries.len() < PAGE as usize;
            let counts = |entry: &Entry| is_candidate(self.election, Contest::Queue, entry);
            let candidates = entries.into_iter().filter(counts);
            leader = candidates.chain(leader).min_by_key(|entry| entry.created);
            if complete {
                return Ok(leader);
            }
            page.from = next;
        }
    }

    /// The candidates in line, the leader first, and a revision at which they were. Those that come
    /// and go meanwhile may be in it or not. Makes one request, unless there are many, or others'
    /// data lie below the election's name.
    async fn line(self) -> Result<(Vec<Entry>, i64), Failure> {
        let prefix = oldest(format!("{}/", self.election).into_bytes(), true);
        let counts = |entry: &Entry| is_candidate(self.election, Contest::Queue, entry);
        let at_once = Selection { limit: AT_ONCE, ..prefix.clone() };
        let (at, first) = read::at(self.store, vec![at_once], self.timeout).await?;
        let mut line = Vec::new();
        if first.len() < AT_ONCE as usize && first.iter().all(counts) {
            return Ok((first, at));
        }
        let mut keys = Vec::new();
        let mut page = Selection { order: Order::ByKey, limit: PAGE, keys_only: true, ..prefix };
        loop {
            let entries = read::read(self.store, page.clone(), self.timeout).await?;
            let next = entries.last().map(|last| [last.key.as_slice(), &[0]].concat());
            let complete = entries.len() < PAGE as usize;
            keys.extend(entries.into_iter().filter(counts).map(|entry| entry.key));
            if complete {
                break;
            }
            page.from = next;
        }
        for keys in keys.chunks(AT_ONCE as usize) {
            let points = keys.iter().map(|key| oldest(key.clone(), false)).collect();
            line.extend(read::at(self.store, points, self.timeout).await?.1);
        }
        line.sort_by_key(|entry| entry.created);
        Ok((line, at))
    }

    async fn guarded(self, guard: Guard, mutation: Mutation) -> Result<Revision, WriteError> {
        let write =
            Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations: vec![mutation] });
        match self.store.call(write, self.timeout).await {
            Ok(Response::Applied(revision)) => Ok(revision.into()),
            Ok(Response::Stale) => Err(WriteError::Stale),
            Ok(Response::Conflict) => Err(WriteError::Conflict),
            Ok(_) => Err(WriteError::Failed(misanswered("guarded"))),
            Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => {
                Err(WriteError::Failed(failure))
            }
            Err(
                Failure::Timeout | Failure::Unavailable | Failure::Compacted(_) | Failure::Other(_),
            ) => Err(WriteError::Unknown),
        }
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
        Contest::Queue => id_of(election, key).is_some_and(is_lease),
        Contest::Race => key == election.as_bytes(),
    }
}

/// The key of a candidate of this election: in a queue it ends in the id of its own lease, as the
/// elector counts them.
fn is_candidate(election: &str, contest: Contest, entry: &Entry) -> bool {
    let Entry { key, lease, .. } = entry;
    let (sign, of) = (if *lease < 0 { "-" } else { "" }, lease.unsigned_abs());
    let ids = || [format!("{sign}{of:x}"), format!("{sign}{of:016x}"), format!("{sign}{of}")];
    match contest {
        Contest::Queue => {
            *lease != 0
                && id_of(election, key).is_some_and(|id| ids().iter().any(|it| it.as_bytes() == id))
        }
        Contest::Race => is_own_key(election, contest, key),
    }
}

/// What follows the election's name and a slash in a key.
fn id_of<'k>(election: &str, key: &'k [u8]) -> Option<&'k [u8]> {
    key.strip_prefix(election.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"))
}

/// What a lease's id looks like in a key: in hexadecimal, or in decimal.
fn is_lease(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let longest = if digits.iter().all(u8::is_ascii_digit) { 19 } else { 16 };
    (1..=longest).contains(&digits.len())
        && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
