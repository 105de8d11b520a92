//! The terms of broken electors, and their leases.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::term::Term;
use crate::types::{ElectionId, LeaseId, Mark};

/// Terms that have neither yielded nor reached their deadlines, and the leases of their
/// electors. A lease stays as long as one of its terms needs it.
#[derive(Default)]
pub(super) struct Orphans {
    /// By deadline, with their leases.
    terms: BTreeMap<(Mark, ElectionId), LeaseId>,
    /// How many terms need each lease.
    leases: BTreeMap<LeaseId, usize>,
    /// Leases to give back.
    unneeded: Vec<LeaseId>,
}

impl Orphans {
    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.unneeded.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Mark> {
        self.terms.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Takes out a term whose deadline has come.
    pub(super) fn due(&mut self, now: Mark) -> Option<ElectionId> {
        let first = self.terms.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, election), lease) = first.remove_entry();
        self.needs_no_more(lease);
        Some(election)
    }

    /// Keeps leases for the terms that are inserted next.
    pub(super) fn keep(&mut self, leases: BTreeSet<LeaseId>) {
        for lease in leases {
            self.leases.entry(lease).or_default();
        }
    }

    pub(super) fn insert(&mut self, election: ElectionId, term: &Term) {
        if let Some(terms) = self.leases.get_mut(&term.lease()) {
            *terms += 1;
        }
        // Nothing extends it any more.
        self.terms.insert((term.deadline(), election), term.lease());
    }

    pub(super) fn remove(&mut self, election: ElectionId, term: &Term) {
        if let Some(lease) = self.terms.remove(&(term.deadline(), election)) {
            self.needs_no_more(lease);
        }
    }

    pub(super) fn take_unneeded(&mut self) -> Vec<LeaseId> {
        mem::take(&mut self.unneeded)
    }

    fn needs_no_more(&mut self, lease: LeaseId) {
        if let Some(terms) = self.leases.get_mut(&lease) {
            *terms = terms.saturating_sub(1);
            if *terms == 0 {
                self.leases.remove(&lease);
                self.unneeded.push(lease);
            }
        }
    }

    /// Gives up the leases that no term needs.
    pub(super) fn let_go(&mut self) {
        self.unneeded.extend(self.leases.extract_if(.., |_, terms| *terms == 0).map(|(id, _)| id));
    }
}
