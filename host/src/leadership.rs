//! One term: how its holder knows that it stands, how it ends, and how its
//! writes are guarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::candidate::Candidate;
use crate::clock::Clock;
use crate::driver::{Handle, Wish};
use crate::error::{Error, WriteError, written};
use crate::types::{self, Expectation, Mark, Mutation, Put, Reason};

/// One term of leadership, from its election on. It can touch no later term.
///
/// Leadership is a matter of time: it stands until [`valid_until`], which moves
/// ahead with every renewal of the lease. Whoever does work of a leader's asks
/// [`is_valid`] before each step, or runs the work beside [`lost`], and writes
/// through a [`Fence`], which the store refuses once the term is over.
///
/// Dropping it says that the work has stopped, and resigns: the next candidate
/// may lead at once. So keep it until the work *has* stopped, even when the term
/// is lost; this candidate does not lead again before that.
///
/// ```no_run
/// # async fn work(fence: incumbent::Fence) {}
/// # async fn example(election: incumbent::Election) -> Result<(), incumbent::Error> {
/// let leadership = election.campaign().await?;
/// tokio::select! {
///     reason = leadership.lost() => eprintln!("demoted: {reason}"),
///     () = work(leadership.fence()) => leadership.resign().await?,
/// }
/// # Ok(())
/// # }
/// ```
///
/// [`valid_until`]: Self::valid_until
/// [`is_valid`]: Self::is_valid
/// [`lost`]: Self::lost
#[derive(Debug)]
pub struct Leadership {
    term: Arc<Term>,
    handle: Handle,
    /// The candidacy that was made for this term alone.
    candidate: Option<Candidate>,
}

impl Leadership {
    pub(crate) fn new(term: Arc<Term>, handle: Handle) -> Self {
        Self { term, handle, candidate: None }
    }

    /// Ties a candidacy to its only term.
    pub(crate) fn with_candidate(mut self, candidate: Candidate) -> Self {
        self.candidate = Some(candidate);
        self
    }

    pub(crate) fn term(&self) -> Arc<Term> {
        Arc::clone(&self.term)
    }

    /// The fencing token: it rises strictly from one leadership of an election
    /// to the next, and is never 0.
    pub fn epoch(&self) -> i64 {
        self.term.id.epoch
    }

    /// The leader key.
    pub fn key(&self) -> &[u8] {
        &self.term.key
    }

    /// The lease that the leader key is attached to.
    pub fn lease(&self) -> i64 {
        self.term.lease
    }

    /// When the work must have stopped, as extended until now: a mark of the
    /// session's clock. It stays what it was when the term ends.
    pub fn valid_until(&self) -> Mark {
        self.term.deadline.load(Ordering::Acquire)
    }

    /// What is left of the term, as extended until now; zero once it is over.
    pub fn remaining(&self) -> Duration {
        let limit = self.term.limit.load(Ordering::Acquire);
        Duration::from_nanos(limit.saturating_sub(self.term.clock.now()))
    }

    /// Whether the term stands at this moment, by the clock. Takes no lock.
    pub fn is_valid(&self) -> bool {
        self.term.is_valid()
    }

    /// For the work: writes that are made only while the term stands.
    pub fn fence(&self) -> Fence {
        Fence { term: Arc::clone(&self.term), handle: self.handle.clone() }
    }

    /// Waits until the term is over, at [`valid_until`](Self::valid_until) at
    /// the latest, whatever the store and the session do. Cancel safe, and
    /// ready at once if the term is over.
    pub async fn lost(&self) -> Reason {
        self.term.lost(Duration::ZERO).await
    }

    /// Waits until renewals fail and less than half of the time is left, or the
    /// term is over: for work that needs time to stop. A renewal may still
    /// come. Cancel safe.
    pub async fn endangered(&self) {
        self.term.endangered().await;
    }

    /// Gives the leadership back. The work must have stopped.
    ///
    /// Returns once the leader key is released where [`campaign`] made this
    /// term, and as soon as the term is over where the candidate stays in line.
    /// Cancel safe: the resignation takes its course without the future.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the term was over before,
    /// [`Error::Withdrawn`] if the key could not be released: it is gone after
    /// one lease time.
    ///
    /// [`campaign`]: crate::Election::campaign
    pub async fn resign(mut self) -> Result<(), Error> {
        let term = self.term();
        let candidate = self.candidate.take();
        drop(self);
        let reason = term.lost(Duration::ZERO).await;
        if let Some(mut candidate) = candidate {
            candidate.over().await?;
        }
        match reason {
            Reason::Resigned => Ok(()),
            Reason::Expired
            | Reason::LeaseLost
            | Reason::Deposed
            | Reason::Fenced
            | Reason::Other(_) => Err(Error::Lost(reason)),
        }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.term.mark_yielded();
        self.handle.send(Wish::Yielded(self.term.id));
    }
}

/// Guarded writes of one term: each is made only while the term's key stands, in
/// one transaction with that check. A cheap clone, for the work.
///
/// Not cancel safe: what a dropped future asked for may happen.
///
/// ```no_run
/// # use incumbent::{Fence, Write, WriteError};
/// # async fn example(fence: Fence) -> Result<(), WriteError> {
/// let revision = fence.put("/data/result", "41").await?;
/// // Only if nobody has changed it since:
/// let write = Write::new().expect("/data/result", revision).put("/data/result", "42");
/// fence.write(write).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    term: Arc<Term>,
    handle: Handle,
}

impl Fence {
    /// The term's epoch: for sinks that keep the highest one they have seen, and
    /// refuse what bears a lower one.
    pub fn epoch(&self) -> i64 {
        self.term.id.epoch
    }

    /// Whether the term stands at this moment, by the clock. Takes no lock.
    pub fn is_valid(&self) -> bool {
        self.term.is_valid()
    }

    /// Sets a key, under no lease, and returns the revision of the change.
    ///
    /// # Errors
    ///
    /// [`WriteError::Stale`] once the term is over; otherwise as its cases say.
    pub async fn put(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<i64, WriteError> {
        self.write(Write::new().put(key, value)).await
    }

    /// Deletes a key, if it is there, and returns the revision.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<i64, WriteError> {
        self.write(Write::new().delete(key)).await
    }

    /// Makes several changes at once, all or none, and returns their revision.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put), and [`WriteError::Conflict`] if an expectation
    /// does not hold.
    pub async fn write(&self, write: Write) -> Result<i64, WriteError> {
        if !self.term.is_valid() {
            return Err(WriteError::Stale);
        }
        let (outcome, answer) = oneshot::channel();
        let sent = self.handle.send(Wish::Write {
            term: self.term.id,
            expect: write.expect,
            mutations: write.mutations,
            outcome,
        });
        if !sent {
            return Err(WriteError::Closed);
        }
        // The driver was ended after it had taken the write.
        answer.await.map_or(Err(WriteError::Unknown), written)
    }
}

/// Several changes, and what must hold for them. See [`Fence::write`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a write is made by Fence::write"]
pub struct Write {
    expect: Vec<Expectation>,
    mutations: Vec<Mutation>,
}

impl Write {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the key's last change was made at this revision; 0: only if there
    /// is no such key.
    pub fn expect(mut self, key: impl Into<Vec<u8>>, modified: i64) -> Self {
        let key = key.into();
        self.expect.push(Expectation { key, modified });
        self
    }

    /// Sets a key, under no lease.
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.mutations.push(Mutation::Put(Put { key, value }));
        self
    }

    /// Deletes a key, if it is there.
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.mutations.push(Mutation::Delete(key.into()));
        self
    }
}

/// What driver and holder share of one term.
#[derive(Debug)]
pub(crate) struct Term {
    id: types::Term,
    key: Vec<u8>,
    lease: i64,
    /// As extended; never taken back.
    deadline: AtomicU64,
    /// The deadline while the term stands, 0 after it.
    limit: AtomicU64,
    standing: watch::Sender<Standing>,
    /// Someone holds a [`Leadership`] of it, or nobody ever will.
    taken: AtomicBool,
    yielded: AtomicBool,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Firm,
    Endangered,
    Over(Reason),
}

impl Term {
    pub(crate) fn new(leadership: types::Leadership, clock: Arc<dyn Clock>) -> Self {
        Self {
            id: leadership.term,
            key: leadership.key,
            lease: leadership.lease,
            deadline: AtomicU64::new(leadership.valid_until),
            limit: AtomicU64::new(leadership.valid_until),
            standing: watch::Sender::new(Standing::Firm),
            taken: AtomicBool::new(false),
            yielded: AtomicBool::new(false),
            clock,
        }
    }

    pub(crate) fn id(&self) -> types::Term {
        self.id
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    pub(crate) fn deadline(&self) -> Mark {
        self.deadline.load(Ordering::Acquire)
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.clock.now() < self.limit.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Over(_))
    }

    /// True for the first who asks: that one says `yielded`.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn mark_yielded(&self) {
        self.yielded.store(true, Ordering::Release);
    }

    pub(crate) fn is_yielded(&self) -> bool {
        self.yielded.load(Ordering::Acquire)
    }

    /// Only the driver extends, endangers and ends: one after the other.
    pub(crate) fn extend(&self, valid_until: Mark) {
        self.deadline.fetch_max(valid_until, Ordering::AcqRel);
        self.limit.fetch_max(valid_until, Ordering::AcqRel);
        self.standing.send_if_modified(|standing| match standing {
            Standing::Endangered => {
                *standing = Standing::Firm;
                true
            }
            Standing::Firm | Standing::Over(_) => false,
        });
    }

    pub(crate) fn endanger(&self) {
        self.standing.send_replace(Standing::Endangered);
    }

    pub(crate) fn end(&self, reason: Reason) {
        self.limit.store(0, Ordering::Release);
        self.standing.send_replace(Standing::Over(reason));
    }

    /// Waits for the end of the term, or until no more than `early` is left.
    pub(crate) async fn lost(&self, early: Duration) -> Reason {
        let early = crate::clock::nanoseconds(early);
        let mut standing = self.standing.subscribe();
        loop {
            if let Standing::Over(reason) = &*standing.borrow_and_update() {
                return reason.clone();
            }
            let end = self.deadline().saturating_sub(early);
            if end <= self.clock.now() {
                return Reason::Expired;
            }
            tokio::select! {
                _ = standing.changed() => {}
                () = self.clock.sleep_until(end) => {}
            }
        }
    }

    async fn endangered(&self) {
        let mut standing = self.standing.subscribe();
        tokio::select! {
            _ = standing.wait_for(|standing| *standing != Standing::Firm) => {}
            _ = self.lost(Duration::ZERO) => {}
        }
    }
}
