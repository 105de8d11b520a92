//! One term: how its holder knows that it stands, how it ends, and how its
//! writes are guarded.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::driver::{Handle, Registration, Request, Stage, over};
use crate::error::Error;
use crate::event::KeyValue;
use crate::metrics;
use crate::observable::Observable;
#[cfg(feature = "postgres")]
use crate::postgres_fence::PostgresFence;
use crate::term::{Standing, Term};
use crate::types::{Epoch, Failure, LeaseId, Mark, Reason, Revision};
use crate::write::{Write, WriteError};

/// One term of leadership, from its election on. It can touch no later term.
///
/// Leadership is a matter of time: it stands until [`valid_until`], which moves
/// ahead with every renewal of the lease. The leader's work asks
/// [`is_valid`] before each step, or runs beside [`lost`], and writes
/// through a [`Fence`], which the store refuses once the term is over.
///
/// Dropping it says that the work has stopped, and resigns: the next candidate
/// may lead at once. So keep it until the work *has* stopped, even when the term
/// is lost; this candidate does not lead again before that.
///
/// ```
/// # use incumbent::{Options, Session};
/// # async fn work(fence: incumbent::Fence) {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), incumbent::Error> {
/// # let election = Session::connect("memory:", Options::default()).await?.election("my-service");
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
    term: Term,
    handle: Handle,
    /// The candidacy that was made for this term alone.
    candidacy: Option<(Registration, Arc<Observable<Stage>>)>,
}

impl Leadership {
    pub(crate) fn new(term: Term, handle: Handle) -> Self {
        Self { term, handle, candidacy: None }
    }

    pub(crate) fn with_candidacy(
        mut self,
        registration: Registration,
        stage: Arc<Observable<Stage>>,
    ) -> Self {
        self.candidacy = Some((registration, stage));
        self
    }

    pub(crate) fn term(&self) -> Term {
        self.term.clone()
    }

    /// The election's name.
    pub fn election(&self) -> &str {
        &self.term.election
    }

    /// The fencing token: it rises strictly from one leadership of an election to the next.
    pub fn epoch(&self) -> Epoch {
        self.term.epoch()
    }

    /// The leader key.
    pub fn key(&self) -> &[u8] {
        &self.term.key
    }

    /// The lease that the leader key is attached to.
    pub fn lease(&self) -> LeaseId {
        self.term.lease()
    }

    /// When the work must have stopped, as extended until now: a mark of the
    /// session's clock. It stays what it was when the term ends.
    pub fn valid_until(&self) -> Mark {
        self.term.deadline()
    }

    /// What is left of the term, as extended until now; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// Whether the term stands at this moment, by the clock. Takes no lock.
    pub fn is_valid(&self) -> bool {
        self.term.is_valid()
    }

    /// For the work: writes that are made only while the term stands.
    pub fn fence(&self) -> Fence {
        Fence { term: self.term(), handle: self.handle.clone() }
    }

    /// Waits until the term is over, at [`valid_until`](Self::valid_until) at
    /// the latest, whatever the store and the session do. Cancel safe, and
    /// ready at once if the term is over.
    ///
    /// If the runtime that polls it is starved, the future is late;
    /// [`on_end`](Self::on_end) is not.
    pub async fn lost(&self) -> Reason {
        self.term.lost().await
    }

    /// Waits until an operator wants another candidate to lead. Cancel safe.
    ///
    /// Such a wish ends the term at once, and [`lost`](Self::lost) gives
    /// [`Reason::Resigned`], unless this was called before. From the first poll on the term
    /// stands until the caller resigns, which gives the work time to stop while its writes are
    /// still accepted:
    ///
    /// ```
    /// # use incumbent::{Error, Options, Session};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let election = Session::connect("memory:", Options::default()).await?.election("my-service");
    /// # let work = async || {};
    /// # let stop_the_work = async || {};
    /// let leadership = election.campaign().await?;
    /// tokio::select! {
    ///     reason = leadership.lost() => eprintln!("demoted: {reason}"),
    ///     () = leadership.asked_to_resign() => stop_the_work().await,
    ///     () = work() => {}
    /// }
    /// leadership.resign().await
    /// # }
    /// ```
    pub async fn asked_to_resign(&self) {
        self.term.asked_to_resign().await;
    }

    /// Makes this call once, when the term is over, with the reason that
    /// [`lost`](Self::lost) gives: at [`valid_until`](Self::valid_until) at the latest,
    /// and soon if the term is over already. For work that is not an async task, and for
    /// work that has to stop even while the async runtime is starved.
    ///
    /// The call is made on a thread of the session that keeps the deadlines, and needs
    /// neither the runtime nor the store nor the elector. All other terms of the session
    /// wait for it: set a flag, signal a process, close a socket, and do not block. A
    /// panic ends this call alone, and is logged. It does not replace
    /// [`is_valid`](Self::is_valid): where the whole process is stopped, so is the thread,
    /// and the clock goes on.
    ///
    /// The call cannot be taken back. A resigned or dropped leadership is an end like any other,
    /// and so is the end of the session or its runtime; the end of the process is not.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::thread;
    ///
    /// # use incumbent::{Error, Options, Session};
    /// # fn compute_a_bit() {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let store = incumbent::MemoryStore::default();
    /// # let session = Session::open(store.clone(), Options::default()).await?;
    /// # let leadership = session.election("my-service").campaign().await?;
    /// # let lease = leadership.lease();
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let stops = Arc::clone(&stop);
    /// leadership.on_end(move |_| stops.store(true, Ordering::Relaxed));
    /// let work = thread::spawn(move || {
    ///     while !stop.load(Ordering::Relaxed) {
    ///         compute_a_bit();
    ///     }
    ///     // It has stopped: another one may lead.
    ///     drop(leadership);
    /// });
    /// # store.revoke(lease);
    /// # session.close().await?;
    /// # work.join().expect("the work stops");
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_end(&self, call: impl FnOnce(Reason) + Send + 'static) {
        self.term.on_end(call);
    }

    /// Waits until renewals fail and less than half of the time is left, or somebody
    /// wants the work to [stop](Self::ask_to_stop), or the term is over: for work that needs
    /// time to stop. A renewal may still come. Cancel safe.
    pub async fn endangered(&self) {
        self.term.endangered().await;
    }

    /// Asks the work to stop, though renewals come: from now on
    /// [`endangered`](Self::endangered) is ready, and [`Fence::standing`] says so.
    /// The term stands all the same: work that stops may still write.
    pub fn ask_to_stop(&self) {
        self.term.ask_to_stop();
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
        let candidacy = self.candidacy.take();
        drop(self);
        let reason = term.lost().await;
        if let Some((_registration, stage)) = candidacy {
            over(&stage).await.map_err(Error::Withdrawn)?;
        }
        if reason == Reason::Resigned { Ok(()) } else { Err(Error::Lost(reason)) }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.term.mark_yielded();
        self.handle.send(Request::Yielded(self.term.id));
    }
}

/// Guarded writes of one term: each is made only while the term's key stands, in
/// one transaction with that check. A cheap clone, for the work.
///
/// Not cancel safe: what a dropped future asked for may happen.
///
/// A session has 256 writes under way; further ones wait for their turn, in the order in
/// which they were asked for.
///
/// ```
/// use incumbent::Write;
///
/// # use incumbent::{Options, Session};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = Session::connect("memory:", Options::default()).await?;
/// # let leadership = session.election("my-service").campaign().await?;
/// let fence = leadership.fence();
/// let revision = fence.put("/data/result", "41").await?;
/// // Only if nobody has changed it since:
/// let write = Write::new().expect("/data/result", revision).put("/data/result", "42");
/// fence.write(write).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    term: Term,
    handle: Handle,
}

impl Fence {
    /// The term's epoch: for sinks that keep the highest one they have seen, and
    /// refuse what bears a lower one.
    pub fn epoch(&self) -> Epoch {
        self.term.epoch()
    }

    /// Whether the term stands at this moment, by the clock. Takes no lock.
    pub fn is_valid(&self) -> bool {
        self.term.is_valid()
    }

    /// When the work must have stopped, as [`Leadership::valid_until`] says.
    pub fn valid_until(&self) -> Mark {
        self.term.deadline()
    }

    /// The session's identity.
    pub fn identity(&self) -> &str {
        &self.handle.identity
    }

    /// The clock of the session.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.handle.clock
    }

    /// The runtime on which the session lives.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.handle.runtime
    }

    /// What is left of the term, as extended until now; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// How the term stands at this moment, by the clock.
    pub fn standing(&self) -> Standing {
        self.term.standing()
    }

    /// Waits until the term's standing is another one than `last`, or the term is over. Cancel
    /// safe.
    pub async fn changed(&self, last: &Standing) -> Standing {
        self.term.changed(last).await
    }

    /// Waits until the term is over, as [`Leadership::lost`] does. Cancel safe.
    pub async fn lost(&self) -> Reason {
        self.term.lost().await
    }

    /// The output of `future`; none if the term's deadline comes first. Cancel safe if `future`
    /// is.
    pub async fn in_time<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.term.in_time(future).await
    }

    /// Ends the term as resigned. The task that holds the [`Leadership`] learns of it by
    /// [`Leadership::lost`], and releases the key when its work has stopped.
    pub fn step_down(&self) {
        self.term.end(Reason::Resigned);
    }

    /// Changes what others read of the leader: at most 4,096 bytes.
    ///
    /// # Errors
    ///
    /// [`WriteError::Stale`] once the term is over; otherwise as its cases say.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), WriteError> {
        if !self.is_valid() {
            metrics::fenced();
            return Err(WriteError::Stale);
        }
        self.handle.proclaim(self.term.id.election, value.into()).await
    }

    /// Reads a key, as it is now: what was acknowledged to anyone before shows in it. Cancel
    /// safe.
    ///
    /// Anybody may read: the term need not stand.
    ///
    /// # Errors
    ///
    /// What the store says instead of an answer.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<KeyValue>, Failure> {
        Ok(self.handle.get(key.into()).await?.map(KeyValue::from))
    }

    /// The fence in SQL: a statement for the transactions of the user in the same PostgreSQL. None on
    /// other stores, and once the session is closed.
    #[cfg(feature = "postgres")]
    pub fn postgres(&self) -> Option<PostgresFence> {
        Some(PostgresFence {
            statement: self.handle.store()?.0.fence_statement(self.term.lease().into())?,
            election: self.term.election.to_string(),
            epoch: self.epoch().into(),
        })
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
    ) -> Result<Revision, WriteError> {
        self.write(Write::new().put(key, value)).await
    }

    /// Deletes a key, if it is there, and returns the revision.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<Revision, WriteError> {
        self.write(Write::new().delete(key)).await
    }

    /// Makes several changes at once, all or none, and returns their revision.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put), and [`WriteError::Conflict`] if an expectation
    /// does not hold.
    pub async fn write(&self, write: Write) -> Result<Revision, WriteError> {
        if !self.term.is_valid() {
            metrics::fenced();
            return Err(WriteError::Stale);
        }
        self.handle.write(self.term.id, write).await
    }
}
