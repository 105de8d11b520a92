//! An operator has an instance give up all that it leads, or take part again.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::short_lived::{any_lease, claim};
use crate::drain::{Request, answered, key};
use crate::store::{Store, Watches};
use crate::types::{Change, Failure, Operation, Watch};

/// How long the instance may take to say that it has heard.
const HEARD: Duration = Duration::from_secs(5);
/// How often the lease of the request is renewed.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(86_400);

/// That an instance should lead nothing, or take part again.
#[derive(Clone, Debug)]
#[must_use = "admin::drain makes it happen"]
pub struct Drain {
    id: String,
    request: Request,
    wait: Duration,
}

impl Drain {
    /// Of the instance with this identity: one that
    /// [heeds drains](crate::Session::heed_drains).
    pub fn of(id: impl Into<String>) -> Self {
        Self { id: id.into(), request: Request::Drain(16), wait: Duration::from_secs(10) }
    }

    /// How many terms it gives up at a time: 16 unless set.
    pub fn at_once(self, at_once: u32) -> Self {
        Self { request: Request::Drain(at_once), ..self }
    }

    /// Ends the drain instead.
    pub fn undo(self) -> Self {
        Self { request: Request::Undo, ..self }
    }

    /// How long it may take altogether: 10 s unless set, and a day at most. The instance goes on
    /// after that.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: wait.min(LONGEST), ..self }
    }
}

/// What became of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// The instance leads nothing, and stands in no line; or it takes part again.
    Done,
    /// It goes on, and still holds so many terms: nobody else is in line, or their work has not
    /// stopped yet.
    Holds(usize),
    /// No instance of this identity has said that it heard.
    Unheard,
    /// Another request to this instance is under way.
    UnderWay,
}

/// Has an instance give up its terms one after the other, each to somebody in line, and lead
/// nothing until that is undone; and tells what became of that.
///
/// Cancel safe: the instance goes on with what it has heard.
///
/// # Errors
///
/// What the store says instead of an answer. It may happen all the same.
pub async fn drain(store: &dyn Store, drain: Drain, within: Duration) -> Result<Drained, Failure> {
    let lease = any_lease()?;
    let drained = ask(store, drain, within, lease).await;
    // Otherwise it ends by itself.
    let _ = store.call(Operation::Revoke(lease), within).await;
    drained
}

async fn ask(
    store: &dyn Store,
    Drain { id, request, wait }: Drain,
    within: Duration,
    lease: i64,
) -> Result<Drained, Failure> {
    let began = Instant::now();
    let deadline = began + wait;
    let mut watches = store.watches();
    watches.open(Watch { id: 1, key: key(&id), prefix: false, since: None });
    let started = next(&mut *watches, deadline.min(began + within)).await?;
    if !matches!(started, Some(Change::Started(_))) {
        return Err(Failure::Timeout);
    }
    if claim(store, within, lease, key(&id), request.text()).await?.is_none() {
        return Ok(Drained::UnderWay);
    }
    let mut holds = None;
    let mut renewed = Instant::now();
    loop {
        let by = if holds.is_none() { deadline.min(began + HEARD) } else { deadline };
        if Instant::now() >= by {
            return Ok(holds.map_or(Drained::Unheard, Drained::Holds));
        }
        if renewed.elapsed() >= AGAIN {
            renewed = Instant::now();
            store.call(Operation::KeepAlive(lease), within).await?;
        }
        let Some(change) = next(&mut *watches, by.min(renewed + AGAIN)).await? else { continue };
        if let Change::Put(entry) = change
            && let Some(terms) = answered(&entry.value)
        {
            if terms == 0 || request == Request::Undo {
                return Ok(Drained::Done);
            }
            holds = Some(terms);
        }
    }
}

/// The next change; none by then.
async fn next(watches: &mut dyn Watches, by: Instant) -> Result<Option<Change>, Failure> {
    tokio::select! {
        watched = poll_fn(|context| watches.poll_next(context)) => {
            if let Change::Ended(failure) = watched.change { Err(failure) } else { Ok(Some(watched.change)) }
        }
        () = sleep_until(by.into()) => Ok(None),
    }
}
