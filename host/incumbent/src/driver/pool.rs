//! The drivers of a session. Each has an elector and a lease of its own.
//!
//! An elector takes a bounded number of elections. When all of a session's are full, the next
//! registration starts another driver, and with it another lease. An elector refuses a second
//! candidate of a name, and lets one wait whose predecessor is about to leave: so a candidate
//! goes to the driver that has its name already, and some places of each driver are kept for
//! that.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::broadcast;
use super::handle::{Handle, Registration, Request};
use super::place::{Place, Places};
use super::recovery::chain;
use super::registrants::Registrant;
use super::test_hook::TestHooks;
use super::{Parts, start};
use crate::clock::Clock;
use crate::elector::Component;
use crate::error::Error;
use crate::limit::Limit;
use crate::recording::Recorder;
use crate::store::Store;
use crate::term::Deadlines;
use crate::types::{self, Config, ElectionId, Failure, Mark};

/// How many elections an elector takes.
pub(crate) const CAPACITY: usize = 10_000;
/// Of so many places, one is kept for candidates whose name the driver has already.
const SPARE: usize = 10;

/// The drivers of a session. A cheap clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    first: Handle,
    drivers: Mutex<Drivers>,
    places: Arc<Mutex<Places>>,
    template: Template,
}

struct Drivers {
    handles: Vec<Handle>,
    limit: Option<Limit>,
    /// How many terms are handed over at a time, if the session is drained.
    drain: Option<u32>,
    closed: bool,
}

impl Drivers {
    /// Tells each driver its part of the limit, by how many elections it holds.
    fn tell_limit(&self, places: &Mutex<Places>) {
        // One more, for the limit may come before the elections.
        let held: Vec<usize> = places.lock().held.iter().map(|held| held + 1).collect();
        let all_held = held.iter().sum();
        for (handle, held) in self.handles.iter().zip(held) {
            let at_once = |all| part(all, 1, self.handles.len());
            let drained = |all| types::Limit { at_most: 0, is_fair: false, at_once: at_once(all) };
            let limited = |limit: Limit| types::Limit {
                at_most: part(limit.at_most, held, all_held),
                is_fair: limit.is_fair,
                at_once: at_once(limit.at_once),
            };
            let limit = self.drain.map(drained).or(self.limit.map(limited));
            handle.send(Request::Limit(limit));
        }
    }

    /// Whether the parts are told anew, because one of several drivers holds so much now.
    fn is_limit_due(&self, held: usize) -> bool {
        let is_limited = self.drain.is_some() || self.limit.is_some();
        let is_noticeable = held.is_power_of_two() || held.is_multiple_of(CAPACITY / 20);
        is_limited && self.handles.len() > 1 && is_noticeable
    }
}

/// The part of `all` for `held` of `all_held`: at least one.
fn part(all: u32, held: usize, all_held: usize) -> u32 {
    let part = u64::from(all) * held as u64 / all_held as u64;
    if all == u32::MAX { all } else { u32::try_from(part.max(1)).unwrap_or(all) }
}

/// What another driver is started with. A closed session has to drop its store and its thread,
/// so neither is kept here.
struct Template {
    store: Weak<dyn Store>,
    deadlines: Weak<Deadlines>,
    clock: Arc<dyn Clock>,
    component: Component,
    identity: String,
    config: Config,
    capacity: usize,
    recorder: Option<Recorder>,
    test_hooks: Option<TestHooks>,
    /// How many drivers followed the first, in all sessions that were made of it.
    started: Arc<AtomicU64>,
}

impl Pool {
    /// Starts with one driver, on the runtime of the caller.
    pub(crate) fn start(parts: Parts) -> Result<Self, Error> {
        let template = Template {
            store: Arc::downgrade(&parts.store),
            deadlines: Arc::downgrade(&parts.deadlines),
            clock: Arc::clone(&parts.clock),
            component: parts.component.clone(),
            identity: parts.identity.clone(),
            config: parts.config,
            capacity: parts.capacity,
            started: Arc::clone(&parts.started),
            recorder: parts.recorder.clone(),
            test_hooks: parts.test_hooks.clone(),
        };
        let (troubles, _) = broadcast::channel();
        let first = start(parts, troubles)?;
        let handles = vec![first.clone()];
        let drivers = Drivers { handles, limit: None, drain: None, closed: false };
        let places = Places::new(template.capacity);
        let (drivers, places) = (Mutex::new(drivers), Arc::new(Mutex::new(places)));
        Ok(Self(Arc::new(Shared { first, drivers, places, template })))
    }

    /// Another session's, with the same parts and a lease of its own.
    pub(crate) fn another(&self) -> Result<Self, Error> {
        if self.0.drivers.lock().closed {
            return Err(Error::Closed);
        }
        let _runtime = self.first().runtime.enter();
        Self::start(self.0.template.parts().ok_or(Error::Closed)?)
    }

    /// The driver that the session was started with.
    pub(crate) fn first(&self) -> &Handle {
        &self.0.first
    }

    /// Registers a candidate of this name, or somebody who is no candidate.
    pub(crate) fn register(
        &self,
        candidate: Option<&str>,
        registrant: impl FnOnce(ElectionId, Place) -> Registrant,
    ) -> Registration {
        let mut drivers = self.0.drivers.lock();
        let name = candidate.map_or(0, |name| self.0.places.lock().hash(name));
        let (driver, failure) = match self.place(&mut drivers, name) {
            Ok(driver) => (driver, None),
            Err(failure) => (0, Some(failure)),
        };
        // A candidate that is refused does not move those of its name.
        let name = if failure.is_some() { 0 } else { name };
        let handle = drivers.handles.get(driver).unwrap_or(self.first()).clone();
        let place = Place::take(&self.0.places, driver, name);
        let held = self.0.places.lock().held.get(driver).copied();
        if held.is_some_and(|held| drivers.is_limit_due(held)) {
            drivers.tell_limit(&self.0.places);
        }
        drop(drivers);
        match failure {
            None => Registration::new(handle, |id| registrant(id, place)),
            Some(failure) => Registration::refused(handle, failure, |id| registrant(id, place)),
        }
    }

    /// Closes all drivers at once, and waits for them. Cancel safe: it goes on without the
    /// future.
    pub(crate) async fn close(&self) {
        let closings: Vec<_> = {
            let mut drivers = self.0.drivers.lock();
            drivers.closed = true;
            let close = |handle: &Handle| {
                let (done, closed) = oneshot::channel();
                handle.send(Request::Close(done));
                closed
            };
            drivers.handles.iter().map(close).collect()
        };
        // Without its driver it is closed as well.
        join_all(closings).await;
        if let Some(recorder) = &self.0.template.recorder {
            recorder.flush().await;
        }
    }

    /// Has all drivers lead nothing, or take part again.
    pub(crate) fn drain(&self, at_once: Option<u32>) {
        let mut drivers = self.0.drivers.lock();
        drivers.drain = at_once;
        drivers.tell_limit(&self.0.places);
    }

    /// How much all drivers lead together while it is not drained.
    pub(crate) fn limit(&self, limit: Option<Limit>) {
        let mut drivers = self.0.drivers.lock();
        drivers.limit = limit;
        drivers.tell_limit(&self.0.places);
    }

    /// When the store answered one of the drivers last.
    pub(crate) fn store_answered(&self) -> Option<Mark> {
        let drivers = self.0.drivers.lock();
        drivers.handles.iter().filter_map(|handle| handle.answered.get()).max()
    }

    /// Whether it leads nothing, or is about to.
    pub(crate) fn is_drained(&self) -> bool {
        self.0.drivers.lock().drain.is_some()
    }

    /// How many terms stand.
    pub(crate) async fn terms(&self) -> Result<usize, Error> {
        Ok(self.ask(Request::Terms).await?.into_iter().sum())
    }

    /// Waits until all drivers have come round.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        self.ask(Request::Ping).await?;
        Ok(())
    }

    /// Asks all drivers, and waits for their answers.
    async fn ask<T>(
        &self,
        request: impl Fn(oneshot::Sender<T>) -> Request,
    ) -> Result<Vec<T>, Error> {
        let ask = |handle: &Handle| {
            let (answer, answered) = oneshot::channel();
            handle.send(request(answer));
            answered
        };
        let asked: Vec<_> = self.0.drivers.lock().handles.iter().map(ask).collect();
        try_join_all(asked).await.map_err(|_| Error::Closed)
    }

    /// Where there is a place: with the driver that has candidates of the name, with the first
    /// one that has room, or with a new one.
    fn place(&self, drivers: &mut Drivers, name: u64) -> Result<usize, Failure> {
        let found = {
            let places = self.0.places.lock();
            places.of_name(name).or_else(|| places.with_room(places.capacity / SPARE))
        };
        // A closed session's first driver withdraws what comes.
        if let Some(driver) = found.or(drivers.closed.then_some(0)) {
            return Ok(driver);
        }
        let number = drivers.handles.len();
        match self.start_another() {
            Ok(Some(handle)) => {
                // Its first election tells all drivers their limits.
                drivers.handles.push(handle);
                self.0.places.lock().held.push(0);
                info!(leases = number + 1, "the session takes another lease");
                Ok(number)
            }
            Ok(None) => Ok(0),
            Err(error) => {
                let error = chain(&error);
                error!(error, "no further elector could be started");
                let sentence = || {
                    format!(
                        "the session's {number} electors are full, and no further one could be \
                         started: leave other elections, or try again ({error})"
                    )
                };
                self.0.places.lock().with_room(0).ok_or_else(|| Failure::Other(sentence()))
            }
        }
    }

    /// None if the session has ended.
    fn start_another(&self) -> Result<Option<Handle>, Error> {
        let troubles = self.first().troubles_sender();
        let (Some(parts), Some(troubles)) = (self.0.template.parts(), troubles) else {
            return Ok(None);
        };
        let _runtime = self.first().runtime.enter();
        Ok(Some(start(parts, troubles)?))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first().fmt(f)
    }
}

impl Template {
    /// For one more driver; none if the session has ended.
    fn parts(&self) -> Option<Parts> {
        let serial = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let mut config = self.config;
        // Electors of one seed would draw the same leases.
        if config.seed != (0, 0) {
            config.seed.1 ^= serial << 32;
        }
        Some(Parts {
            store: self.store.upgrade()?,
            deadlines: self.deadlines.upgrade()?,
            clock: Arc::clone(&self.clock),
            component: self.component.clone(),
            identity: self.identity.clone(),
            config,
            capacity: self.capacity,
            started: Arc::clone(&self.started),
            recorder: self.recorder.clone(),
            test_hooks: self.test_hooks.clone(),
        })
    }
}

#[cfg(test)]
impl Pool {
    /// How many registrants each driver has, and how many names have candidates.
    pub(crate) fn places(&self) -> (Vec<usize>, usize) {
        let places = self.0.places.lock();
        (places.held.clone(), places.names.len())
    }

    /// No further driver can be started from now on.
    pub(crate) fn starts_no_more(&mut self) {
        let shared = Arc::get_mut(&mut self.0).expect("has no clones yet");
        shared.template.config.lease_ttl = 0;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_limit_is_divided_by_what_the_drivers_hold() {
        let parts =
            |all, held: [usize; 2]| held.map(|one| super::part(all, one, held.iter().sum()));
        assert_eq!(parts(1_000, [9_000, 1]), [999, 1]);
        assert_eq!(parts(1_000, [9_000, 9_000]), [500, 500]);
        assert_eq!(parts(u32::MAX - 1, [1_000, 0]), [u32::MAX - 1, 1]);
        assert_eq!(parts(u32::MAX, [1, 1]), [u32::MAX, u32::MAX]);
    }
}
