//! What the next elector is told, and which election breaks each elector.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::driver::registrants::Registrant;
use crate::types::{ElectionId, Event, Limit};

/// How many elections a successor is told of at once, at first.
const PORTION: usize = 128;

/// Tells the next elector of all elections, in portions, which get smaller when it breaks as
/// well. So no number of them is too much for a step, and an election that breaks each
/// elector is found.
pub(in crate::driver) struct Successor {
    /// Those at which the elector before broke come last.
    untold: BTreeSet<(bool, ElectionId)>,
    portion: usize,
    /// The elector has been told of these, and has not come to rest since.
    being_told: Vec<ElectionId>,
    suspects: BTreeSet<ElectionId>,
    /// An elector broke when it was told of this election, and of nothing else.
    culprit: Option<ElectionId>,
    limit: Option<Limit>,
    /// The elector has to be told of the limit before anything else.
    limit_is_untold: bool,
    closed: bool,
}

impl Default for Successor {
    fn default() -> Self {
        Self {
            untold: BTreeSet::new(),
            portion: PORTION,
            being_told: Vec::new(),
            suspects: BTreeSet::new(),
            culprit: None,
            limit: None,
            limit_is_untold: false,
            closed: false,
        }
    }
}

impl Successor {
    pub(super) fn tell_all<'a>(&mut self, elections: impl Iterator<Item = &'a ElectionId>) {
        self.limit_is_untold = self.limit.is_some();
        self.untold = elections.map(|id| (self.suspects.contains(id), *id)).collect();
    }

    pub(super) fn tell(&mut self, election: ElectionId) {
        self.untold.insert((self.suspects.contains(&election), election));
    }

    /// What each elector is told first.
    pub(in crate::driver) fn limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
    }

    /// Whether it had still to be told of this election.
    pub(in crate::driver) fn forget(&mut self, election: ElectionId) -> bool {
        self.untold.remove(&(false, election)) || self.untold.remove(&(true, election))
    }

    /// There is nothing more to tell: the session closes.
    pub(in crate::driver) fn close(&mut self) {
        self.closed = true;
        self.untold.clear();
    }

    /// Whether there is something to tell right now.
    pub(in crate::driver) fn has_next(&self) -> bool {
        self.being_told.is_empty() && !self.untold.is_empty()
    }

    /// The next portion, once it has dealt with the one before.
    pub(in crate::driver) fn next(&mut self, all: &BTreeMap<ElectionId, Registrant>) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.being_told.is_empty() {
            return events;
        }
        if mem::take(&mut self.limit_is_untold) {
            events.push(Event::Limit(self.limit));
        }
        while events.len() < self.portion
            && let Some((_, election)) = self.untold.pop_first()
        {
            if let Some(event) = all.get(&election).and_then(Registrant::event) {
                self.being_told.push(election);
                events.push(event);
            }
        }
        events
    }

    /// Whether this portion is told without anything else.
    pub(in crate::driver) fn is_told_alone(&self) -> bool {
        self.portion == 1 && !self.being_told.is_empty()
    }

    /// It has come to rest.
    pub(in crate::driver) fn has_taken(&mut self) {
        self.being_told.clear();
    }

    /// It broke. Returns the election that is to blame, if that is certain.
    pub(super) fn broke(&mut self, in_a_row: bool) -> Option<ElectionId> {
        self.untold.clear();
        let being_told = mem::take(&mut self.being_told);
        let alone = being_told.first().copied().filter(|_| self.portion == 1);
        if alone.is_some() && alone == self.culprit {
            *self = Self { limit: self.limit, ..Self::default() };
            return alone;
        }
        self.culprit = alone;
        self.portion = match being_told.len() {
            _ if !in_a_row => PORTION,
            0 => self.portion / 2,
            many => self.portion.min(many) / 2,
        }
        .max(1);
        self.suspects = being_told.into_iter().collect();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_that_was_left_is_not_told() {
        let mut successor = Successor::default();
        assert!(!successor.has_next());
        successor.suspects.insert(2);
        successor.tell_all([1, 2, 3].iter());
        assert!(successor.forget(1) && successor.forget(2));
        assert!(!successor.forget(1) && !successor.forget(2));
        assert!(successor.has_next());
        successor.close();
        assert!(!successor.has_next());
    }
}
