//! The terms of broken electors, and their leases.

use std::collections::{BTreeMap, BTreeSet};

use crate::term::Term;
use crate::types::{ElectionId, LeaseId, Mark};

/// Terms that have neither yielded nor reached their deadlines, and the leases of their
/// electors. A lease stays as long as one of its terms needs it.
#[derive(Default)]
pub(super) struct Orphans {
    /// By deadline, with their leases.
    terms: BTreeMap<(Mark, ElectionId), LeaseId>,
    leases: BTreeSet<LeaseId>,
}

impl Orphans {
    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Mark> {
        self.terms.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Takes out a term whose deadline has come.
    pub(super) fn due(&mut self, now: Mark) -> Option<ElectionId> {
        let first = self.terms.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove_entry().0.1)
    }

    /// Keeps leases for the terms that are inserted next.
    pub(super) fn keep(&mut self, leases: BTreeSet<LeaseId>) {
        self.leases.extend(leases);
    }

    pub(super) fn insert(&mut self, election: ElectionId, term: &Term) {
        // Nothing extends it any more.
        self.terms.insert((term.deadline(), election), term.lease());
    }

    pub(super) fn remove(&mut self, election: ElectionId, term: &Term) {
        self.terms.remove(&(term.deadline(), election));
    }

    /// Gives up the leases that no term needs.
    pub(super) fn take_unneeded(&mut self) -> impl Iterator<Item = LeaseId> {
        let Self { terms, leases } = self;
        leases.extract_if(.., |lease| !terms.values().any(|needed| needed == lease))
    }
}
