//! An election by its name.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::admin::{Admin, Transfer, Transferred};
use crate::backoff::Backoff;
use crate::candidate::Candidate;
use crate::clock::{Clock, nanoseconds};
use crate::driver::{Pool, Registrant, broadcast, over};
use crate::error::Error;
use crate::event::Participant;
use crate::leadership::Leadership;
use crate::observer::Leaders;
use crate::store::Store;
use crate::types::{Candidacy, Contest, ElectionId, Failure, Observation};

/// The shortest pause after work that ended at once, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// An election by its name. Cheap to clone; does nothing by itself.
///
/// All candidates of a name have to agree on the [`contest`](Self::contest).
#[derive(Clone, Debug)]
pub struct Election {
    pool: Pool,
    name: String,
    contest: Contest,
    value: Vec<u8>,
    priority: i32,
    preempt_after: Option<Duration>,
}

impl Election {
    pub(crate) fn new(pool: Pool, name: String) -> Self {
        let value = pool.first().identity.as_bytes().into();
        Self { pool, name, contest: Contest::Queue, value, priority: 0, preempt_after: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The identity of the session.
    pub fn identity(&self) -> &str {
        &self.pool.first().identity
    }

    /// The clock of the session.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.pool.first().clock
    }

    /// The runtime on which the session lives.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.pool.first().runtime
    }

    /// How candidates share the election: [`Contest::Queue`] unless set.
    #[must_use]
    pub fn contest(mut self, contest: Contest) -> Self {
        self.contest = contest;
        self
    }

    /// What others read of a candidate: the session's identity unless set, at most 4,096
    /// bytes.
    #[must_use]
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.value = value.into();
        self
    }

    /// How much a candidate should be preferred: 0 unless set, as for all candidates of other
    /// clients. Candidates in line with a lower priority get behind one with a higher priority;
    /// the leader leads on. One with a priority below zero leads only if nobody else is in line.
    ///
    /// The election goes on without a moment's pause for it: a preferred candidate that came at the
    /// very moment of a handover leads after the next one. In a race there is no line, and
    /// priorities mean nothing.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Has a leader with a lower priority hand over to a candidate, once that one has been next in
    /// line and the other one has led for this time. A candidate that has led does not do that again:
    /// it waits for its turn, so one that fails again and again does not take the lead away again
    /// and again.
    #[must_use]
    pub fn preempt_after(mut self, time: Duration) -> Self {
        self.preempt_after = Some(time);
        self
    }

    /// Joins, waits its turn, and leads one term. A term that is over is not
    /// followed by another: for that, campaign again, [`join`](Self::join), or
    /// [`lead`](Self::lead).
    ///
    /// Dropping the future leaves the queue, and nothing behind.
    ///
    /// # Errors
    ///
    /// [`Error::Withdrawn`] if the store refuses the candidate, or the name or
    /// value is not possible, or this session has a candidate of that name;
    /// [`Error::Closed`] if the session is closed. A store that is away is
    /// waited for.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        let (candidate, leadership) = self.one_term().await?;
        Ok(candidate.tie_to(leadership))
    }

    /// Starts to join, and returns at once: [`Candidate::joined`] waits for the place in line,
    /// [`Candidate::elected`] for a term, and [`Candidate::events`] tells everything.
    ///
    /// ```
    /// # use incumbent::{Options, Session};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), incumbent::Error> {
    /// # let session = Session::connect("memory:", Options::default()).await?;
    /// # let election = session.election("my-service");
    /// let mut candidate = election.join();
    /// candidate.joined().await?;
    /// println!("in line with {} others", election.candidates().await?.len() - 1);
    /// let leadership = candidate.elected().await?;
    /// # assert!(leadership.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn join(&self) -> Candidate {
        self.candidate(true)
    }

    /// Leads again and again. In each term `work` is called with the
    /// leadership, and its future is run.
    ///
    /// - When the future ends, the term is resigned.
    /// - When the term ends, or a fortieth of its time is left without a
    ///   renewal, the future is dropped.
    /// - Then the candidate gets back in line. Work that ended by itself within
    ///   10 s of its start comes back only after a pause, of 1 s at first and
    ///   doubling to 30 s, so that another instance has its turn.
    ///
    /// The next term comes only when the leadership that `work` was given has
    /// been dropped. A future can be dropped only where it awaits: work that
    /// computes for long without that asks [`Leadership::is_valid`], and work
    /// that it spawns elsewhere takes the leadership along. Dropping
    /// `lead`'s own future drops the work's, resigns and leaves the queue.
    ///
    /// ```
    /// # use incumbent::{Fence, Options, Session};
    /// # async fn work(fence: Fence, session: Session) { let _ = session.close().await; }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), incumbent::Error> {
    /// # let session = Session::connect("memory:", Options::default()).await?;
    /// # let election = session.election("my-service");
    /// # let work = |fence| work(fence, session.clone());
    /// election
    ///     .lead(|leadership| async move { work(leadership.fence()).await })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`campaign`](Self::campaign), but it returns `Ok` when the session
    /// is closed.
    pub async fn lead<W, F>(&self, mut work: W) -> Result<(), Error>
    where
        W: FnMut(Leadership) -> F,
        F: Future<Output = ()>,
    {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut election = self.clone();
        loop {
            let (candidate, leadership) = match election.one_term().await {
                Ok(elected) => elected,
                Err(Error::Closed) => return Ok(()),
                Err(error) => return Err(error),
            };
            // It has led.
            election.preempt_after = None;
            let term = leadership.term();
            let stage = candidate.stage();
            let early = leadership.remaining() / 40;
            let leadership = candidate.tie_to(leadership);

            let start = self.pool.first().clock.now();
            let finished = tokio::select! {
                () = term.runs_out(early) => false,
                () = work(leadership) => true,
            };
            // The next round says what went wrong.
            let _ = over(&stage).await;
            // The work may have given the leadership to a task. Without a next term, nobody
            // waits for that.
            tokio::select! {
                () = term.yielded() => {}
                () = self.pool.first().closed() => {}
            }

            let now = self.pool.first().clock.now();
            if finished && now.saturating_sub(start) < nanoseconds(Duration::from_secs(10)) {
                let end = now.saturating_add(nanoseconds(backoff.pause_at_most()));
                tokio::select! {
                    () = self.pool.first().clock.sleep_until(end) => {}
                    () = self.pool.first().closing() => return Ok(()),
                }
            } else {
                backoff.reset();
            }
        }
    }

    /// Follows who leads, from now on, without being a candidate.
    pub fn observe(&self) -> Leaders {
        let (sightings, receiver) = broadcast::channel();
        let registration = self.pool.register(None, |id, place| Registrant::Observer {
            observation: self.observation(id),
            sightings,
            _place: place,
        });
        Leaders::new(receiver, registration)
    }

    /// The candidates in line, the leader first; in a race, the leader alone. Several calls on
    /// one session are answered one after the other. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Error::Withdrawn`] if the store refuses, or there are more than 30,000 candidates or
    /// 64 MiB of their keys and values;
    /// [`Error::Closed`] if the session is closed.
    pub async fn candidates(&self) -> Result<Vec<Participant>, Error> {
        let (listed, answer) = oneshot::channel();
        let _registration = self.pool.register(None, |id, place| Registrant::Inspector {
            observation: self.observation(id),
            listed,
            _place: place,
        });
        let entries = answer.await.map_err(|_| Error::Closed)?;
        let entries = entries.map_err(Error::Withdrawn)?;
        Ok(entries.into_iter().map(Participant::from).collect())
    }

    /// Who leads now, if anybody does. Cancel safe.
    ///
    /// # Errors
    ///
    /// As for [`candidates`](Self::candidates).
    pub async fn leader(&self) -> Result<Option<Participant>, Error> {
        Ok(self.candidates().await?.into_iter().next())
    }

    /// Has a certain candidate in line lead next, as [`Admin::transfer`] does.
    ///
    /// ```
    /// use incumbent::admin::{Transfer, Transferred};
    /// # use incumbent::{Error, MemoryStore, Options, Session};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::default();
    /// # let of = |identity: &str| Options { identity: identity.into(), ..Options::default() };
    /// # let session = Session::open(store.clone(), of("one")).await?;
    /// # let election = session.election("my-service");
    /// # let leadership = election.campaign().await?;
    /// # let another = Session::open(store, of("two")).await?;
    /// # let mut two = another.election("my-service").join();
    /// # two.joined().await?;
    /// # let work = tokio::spawn(async move {
    /// #     leadership.asked_to_resign().await;
    /// #     leadership.resign().await
    /// # });
    /// # let leads = tokio::spawn(async move { (two.elected().await, two) });
    /// match election.transfer(Transfer::to("two")).await? {
    ///     Transferred::Done { leader, .. } => println!("epoch {}", leader.epoch),
    ///     other => eprintln!("two does not lead: {other:?}"),
    /// }
    /// # work.await??;
    /// # let (leadership, _two) = leads.await?;
    /// # assert!(leadership?.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the store says instead of an answer.
    pub async fn transfer(&self, transfer: Transfer) -> Result<Transferred, Failure> {
        let (name, contest) = (self.name.clone(), self.contest);
        let ask = |store: Arc<dyn Store>, timeout| async move {
            let admin = Admin::new(&*store, &name).contest(contest).timeout(timeout);
            admin.transfer(transfer).await
        };
        self.pool.first().ask(ask).await
    }

    /// The next term, with the candidate that was made for it alone.
    async fn one_term(&self) -> Result<(Candidate, Leadership), Error> {
        loop {
            let mut candidate = self.candidate(false);
            match candidate.elected().await {
                Ok(leadership) => return Ok((candidate, leadership)),
                Err(Error::Closed) if candidate.was_in_line() => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn candidate(&self, rejoin: bool) -> Candidate {
        Candidate::new(&self.pool, &self.name, |election| Candidacy {
            election,
            name: self.name.clone(),
            contest: self.contest,
            value: self.value.clone(),
            rejoin,
            priority: self.priority,
            preempt_after: self.preempt_after.map(nanoseconds),
        })
    }

    fn observation(&self, election: ElectionId) -> Observation {
        Observation { election, name: self.name.clone(), contest: self.contest }
    }
}
