//! For the tests of an application: a store in memory, a clock that the test moves, and
//! everything that can happen to a leader, in microseconds.
//!
//! A [`World`] is the store and the clock; its [`Process`]es are what would be instances of
//! the application, each with a session of its own. The code under test is given that
//! session, or what is made from it, and cannot tell the difference. The test lets time
//! [`pass`](World::pass), [`pause`](Process::pause)s a process, [`cut`](Process::cut)s it
//! off from the store, or [`depose`](World::depose)s its leader, at whatever line it likes.
//!
//! ```
//! use std::time::Duration;
//! use incumbent::testing::World;
//! use incumbent::{Reason, WriteError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), incumbent::Error> {
//! let world = World::new();
//! let worker = world.process("worker").await?;
//! let leadership = worker.session().election("jobs").campaign().await?;
//! let rival = world.process("rival").await?;
//! let mut candidate = rival.session().election("jobs").join();
//! candidate.joined().await?;
//!
//! // A healthy leader leads on: its lease, of 10 s, is renewed again and again.
//! world.pass(Duration::from_secs(3600)).await;
//! assert!(leadership.is_valid());
//! leadership.fence().put("/result", "by the worker").await.expect("it leads");
//!
//! // One that is stopped for longer than its lease is followed by another ...
//! worker.pause().await;
//! world.pass(Duration::from_secs(11)).await;
//! let successor = candidate.elected().await?;
//! assert!(successor.epoch() > leadership.epoch());
//! successor.fence().put("/result", "by the rival").await.expect("it leads");
//!
//! // ... and when it goes on, it knows, and its write is refused.
//! assert!(!leadership.is_valid());
//! worker.resume().await;
//! let late = leadership.fence().put("/result", "too late").await;
//! assert_eq!(late, Err(WriteError::Stale));
//! assert_eq!(leadership.lost().await, Reason::Expired);
//! assert_eq!(world.get("/result").await.as_deref(), Some(&b"by the rival"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! What is directed here returns when its effect has reached every session of the world,
//! and everything that follows from it at that moment: no test has to sleep. On tokio's
//! current-thread runtime, which `#[tokio::test]` has by default, the application's tasks
//! that were woken by it have had a few turns as well, and a test goes the same way every
//! time. A longer chain of tasks that wake one another is not seen, and on a runtime of
//! several threads they may still be about to: await what they do.
//!
//! Time is the world's alone. Code under test that waits for time itself has to wait by
//! [`World::clock`]; tokio's timers know nothing of it.
//!
//! It is the elector, the driver and the API of production, on another store. What it is
//! not: etcd with its members, its authentication, its limits and its pace, and a network.
//! For that, test on a real store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::yield_now;

use crate::admin::{self, Admin};
use crate::clock::{Clock, ManualClock, nanoseconds};
use crate::driver::test_hook::TestController;
use crate::error::Error;
use crate::event::Participant;
use crate::options::Options;
use crate::store::memory::MemoryStore;
use crate::types::{Contest, Failure};
use crate::write::WriteError;

mod link;
mod process;

pub use process::Process;

/// How many turns the application's tasks have before the drivers are asked again.
const TURNS: usize = 4;
/// After so many rounds without quiet we give up, because some work never pauses.
const ROUNDS: usize = 1_000;
/// The store answers at once.
const WITHIN: Duration = Duration::from_secs(1);

/// A store in memory and a clock that only the test moves, for any number of processes. A
/// cheap clone: all clones are the same world.
#[derive(Clone, Debug)]
pub struct World {
    clock: ManualClock,
    store: MemoryStore,
    controllers: Arc<Mutex<Vec<TestController>>>,
    /// How many processes there have been.
    started: Arc<AtomicU64>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// An empty store, and a clock at 0.
    pub fn new() -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::new(Arc::new(clock.clone()));
        Self { clock, store, controllers: Arc::default(), started: Arc::default() }
    }

    /// A process whose session has this identity, and the options' defaults: a lease of
    /// 10 s. It lives on tokio's runtime, as a session does.
    ///
    /// # Errors
    ///
    /// As for [`Session::open`](crate::Session::open).
    pub async fn process(&self, identity: impl Into<String>) -> Result<Process, Error> {
        let identity = identity.into();
        self.process_with(Options { identity, ..Options::default() }).await
    }

    /// A process whose session has these options, but the world's clock.
    ///
    /// # Errors
    ///
    /// As for [`Session::open`](crate::Session::open): [`Error::Component`] for bad times,
    /// or for a bad component.
    pub async fn process_with(&self, options: Options) -> Result<Process, Error> {
        let seed = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let options = Options { clock: Arc::new(self.clock.clone()), ..options };
        Process::start(self.clone(), options, seed).await
    }

    /// The clock of everybody in this world. Its marks are nanoseconds since the world's
    /// beginning. To move it, let time [`pass`](Self::pass): code that moves the clock
    /// itself has to [`settle`](Self::settle).
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The store of everybody in this world, as an operator reaches it: no
    /// [`cut`](Process::cut) is in the way. What is changed there has reached everybody
    /// when it has [`settle`](Self::settle)d.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    // What time does.

    /// Lets time pass as it does for healthy processes: the clock goes from one timer that is
    /// due to the next, and each acts on the way. Leases are renewed, or run out if nobody
    /// renews them, deadlines come, waits end.
    ///
    /// Cancel safe: time has passed as far as it has come.
    pub async fn pass(&self, time: Duration) {
        let end = self.clock.now().saturating_add(nanoseconds(time));
        loop {
            self.settle().await;
            let now = self.clock.now();
            if end <= now {
                return;
            }
            let due = self.clock.next_due().into_iter().chain(self.store.shared.sweep());
            let next = due.filter(|mark| now < *mark).fold(end, u64::min);
            self.clock.advance(Duration::from_nanos(next - now));
        }
    }

    /// Everybody sleeps for a time, and wakes at its end, as on a machine that was
    /// suspended: the clock goes on, and nobody acts on the way. For one process alone, see
    /// [`Process::pause`]. Cancel safe: the time has passed.
    pub async fn suspend(&self, time: Duration) {
        self.clock.advance(time);
        self.settle().await;
    }

    /// Waits until nobody has anything left to do at this moment. Takes no time of the
    /// world's; all that is directed here ends with it. Cancel safe.
    ///
    /// Work that never pauses, such as one write after the other, is not waited for. What
    /// was hung on the end of a term ([`on_end`](crate::Leadership::on_end)) is, and so is a
    /// runtime of another session of this world: they must not block.
    pub async fn settle(&self) {
        let mut before = None;
        for _ in 0..ROUNDS {
            let controllers = self.controllers();
            for controller in &controllers {
                controller.deadlines_idle().await;
            }
            for _ in 0..TURNS {
                yield_now().await;
            }
            let mut turns = Vec::new();
            let answers: Vec<_> = controllers.iter().map(TestController::ask).collect();
            for answer in answers {
                turns.push(answer.await.ok());
            }
            let now = (turns, self.store.revision());
            if before.as_ref() == Some(&now) {
                return;
            }
            before = Some(now);
        }
    }

    // What operators do.

    /// Removes the leader's key, as `incumbent depose` does: the leader is demoted with
    /// [`Reason::Deposed`](crate::Reason::Deposed), and the next in line leads.
    /// Returns the leader that was removed, if there was one. Not cancel safe.
    pub async fn depose(&self, election: &str) -> Option<Participant> {
        let deposed = self
            .either(|contest| async move {
                match self.admin(election, contest).depose(None).await {
                    Ok(deposed) => Ok(deposed),
                    Err(WriteError::Failed(failure)) => Err(failure),
                    Err(other) => Err(Failure::Other(other.to_string())),
                }
            })
            .await;
        self.settle().await;
        deposed
    }

    /// Ends the leader's lease at once, as `etcdctl lease revoke` does: all terms on it are
    /// demoted with [`Reason::LeaseLost`](crate::Reason::LeaseLost) or
    /// [`Reason::Deposed`](crate::Reason::Deposed), by what their session hears first.
    /// Returns the leader, if there was one. Not cancel safe.
    pub async fn revoke(&self, election: &str) -> Option<Participant> {
        let leader = self.leader(election).await;
        if let Some(leader) = &leader {
            self.store.revoke(leader.lease);
        }
        self.settle().await;
        leader
    }

    // What the store holds.

    /// The leader of an election, a queue or a race; none if nobody leads. Cancel safe.
    pub async fn leader(&self, election: &str) -> Option<Participant> {
        self.either(|contest| self.admin(election, contest).leader()).await
    }

    /// The value of a key, if it is there. Cancel safe.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Option<Vec<u8>> {
        let entry = admin::get(&self.store, key, WITHIN).await;
        entry.ok().flatten().map(|entry| entry.value)
    }

    /// An election is a queue or a race: the first of the two where there is a leader. A
    /// store in memory fails only for names that are none.
    async fn either<F>(&self, mut find: impl FnMut(Contest) -> F) -> Option<Participant>
    where
        F: Future<Output = Result<Option<Participant>, Failure>>,
    {
        match find(Contest::Queue).await {
            Ok(Some(leader)) => Some(leader),
            Ok(None) | Err(_) => find(Contest::Race).await.ok().flatten(),
        }
    }

    fn admin<'a>(&'a self, election: &'a str, contest: Contest) -> Admin<'a> {
        Admin::new(&self.store, election).contest(contest)
    }

    fn controllers(&self) -> Vec<TestController> {
        let mut controllers = self.controllers.lock();
        controllers.retain(TestController::is_needed);
        controllers.clone()
    }
}
