//! Bounded waits: a test that waits in vain fails after three minutes, and says for what.

use std::fmt::Debug;
use std::panic::Location;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use incumbent::{Candidate, Election};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// How long anything may take before a test fails: on a busy machine, a lot.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Waits until the future is ready.
#[track_caller]
pub fn soon<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        let output = timeout(LIMIT, future).await;
        output.unwrap_or_else(|_| panic!("{caller}: waited {LIMIT:?} in vain: {what}"))
    }
}

/// Looks again and again until it holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let (caller, since) = (Location::caller(), Instant::now());
    async move {
        while !soon(what, holds()).await {
            assert!(since.elapsed() < LIMIT, "{caller}: waited {LIMIT:?} in vain: {what}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Joins an election, and waits for the place in line.
#[track_caller]
pub fn joins(election: &Election) -> impl Future<Output = Candidate> {
    let mut candidate = election.join();
    async move { candidate.joined().await.map(|()| candidate) }.expect_soon("joins")
}

/// What comes of a future that has to be there by now. Panics if it is not there.
#[track_caller]
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("is there by now")
}

/// A future that has begun, and must not be there yet. Panics if it is there.
#[track_caller]
pub fn not_yet<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(future.as_mut().now_or_never().is_none(), "it is there already");
    future
}

/// Lets all other tasks have some turns.
pub async fn yields() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// Futures that have to succeed.
pub trait ExpectSoon: Future + Sized {
    /// Waits until the future is ready, and panics if it has failed.
    #[track_caller]
    fn expect_soon<T>(self, what: &str) -> impl Future<Output = T>
    where
        Self::Output: Outcome<T>,
    {
        let (caller, outcome) = (Location::caller(), soon(what, self));
        async move { outcome.await.success().unwrap_or_else(|why| panic!("{caller}: {what}: {why}")) }
    }
}

impl<F: Future> ExpectSoon for F {}

/// What may be a failure.
pub trait Outcome<T> {
    /// Its value, or why there is none.
    fn success(self) -> Result<T, String>;
}

impl<T, E: Debug> Outcome<T> for Result<T, E> {
    fn success(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

impl<T> Outcome<T> for Option<T> {
    fn success(self) -> Result<T, String> {
        self.ok_or_else(|| "there is nothing".into())
    }
}
