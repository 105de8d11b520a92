//! Which driver of a session has how many registrants, and which candidates.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use parking_lot::Mutex;

/// Which driver has how many registrants, and which candidates.
pub(super) struct Places {
    pub(super) capacity: usize,
    pub(super) held: Vec<usize>,
    /// By the hash of the name: two names of one hash only share a driver.
    pub(super) names: HashMap<u64, Named>,
}

/// Where the candidates of a name are.
pub(super) struct Named {
    driver: u32,
    candidates: u32,
}

/// A registrant's place with a driver. The driver keeps it until the elector has forgotten the
/// registrant, so a free place here is a free place there.
pub(crate) struct Place {
    places: Arc<Mutex<Places>>,
    /// A candidate's; 0 if it is none.
    name: u64,
    driver: u32,
}

impl Places {
    /// Of one driver.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, held: vec![0], names: HashMap::new() }
    }

    pub(super) fn hash(&self, name: &str) -> u64 {
        self.names.hasher().hash_one(name).max(1)
    }

    pub(super) fn of_name(&self, name: u64) -> Option<usize> {
        let driver = self.names.get(&name)?.driver as usize;
        // Many leave and campaign again at once: a full driver has no place for the second.
        self.held.get(driver).filter(|held| **held < self.capacity).map(|_| driver)
    }

    /// The first driver with more free places than that.
    pub(super) fn with_room(&self, spare: usize) -> Option<usize> {
        self.held.iter().position(|held| held + spare < self.capacity)
    }
}

impl Place {
    pub(super) fn take(places: &Arc<Mutex<Places>>, driver: usize, name: u64) -> Self {
        let mut all = places.lock();
        if let Some(held) = all.held.get_mut(driver) {
            *held += 1;
        }
        // There are never as many drivers.
        let driver = u32::try_from(driver).unwrap_or(u32::MAX);
        if name != 0 {
            let named = all.names.entry(name).or_insert(Named { driver, candidates: 0 });
            if named.driver != driver {
                *named = Named { driver, candidates: 0 };
            }
            named.candidates += 1;
        }
        drop(all);
        Self { places: Arc::clone(places), name, driver }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.places.lock();
        if let Some(held) = all.held.get_mut(self.driver as usize) {
            *held -= 1;
        }
        if let Some(named) = all.names.get_mut(&self.name)
            && named.driver == self.driver
        {
            named.candidates = named.candidates.saturating_sub(1);
            if named.candidates == 0 {
                all.names.remove(&self.name);
            }
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("driver", &self.driver).finish_non_exhaustive()
    }
}
