//! The terms that a process holds, one of each election at most, and quick ways to find them: a
//! process may lead ten thousand elections, and each of its steps is judged.

use std::collections::{BTreeMap, BTreeSet};

use incumbent_guest::types::*;

use crate::client::{HeldTerm, extend};
use crate::laws::Broken;

/// The terms of one process.
#[derive(Debug, Default)]
pub struct Terms {
    /// By election: the last term, until its work has stopped.
    held: Vec<Option<HeldTerm>>,
    /// By election: a term whose work has stopped. Its elector has not heard of it yet.
    stopped: BTreeMap<usize, HeldTerm>,
    /// The elections of both, by epoch: keys that were claimed together share one.
    epochs: BTreeSet<(Epoch, usize)>,
    /// How many terms stand of each kind.
    standing: BTreeMap<Standing, usize>,
}

/// What the terms on one lease usually have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// The lease that the term is on.
    pub lease: LeaseId,
    /// As it was told last.
    pub valid_until: Mark,
    /// The application was told that renewals fail.
    pub endangered: bool,
}

impl Terms {
    /// None yet, in so many elections.
    pub fn none(elections: usize) -> Terms {
        Terms { held: vec![None; elections], ..Terms::default() }
    }

    /// The term in an election.
    pub fn of(&self, election: usize) -> Option<&HeldTerm> {
        self.held.get(election)?.as_ref()
    }

    /// The term of this epoch in an election.
    pub fn of_epoch(&self, election: usize, epoch: Epoch) -> Option<&HeldTerm> {
        self.of(election).filter(|term| term.leadership.term.epoch == epoch)
    }

    /// All terms whose work has not stopped, by election.
    pub fn held(&self) -> impl Iterator<Item = &HeldTerm> {
        self.held.iter().flatten()
    }

    /// All terms of which the elector has not heard that their work has stopped.
    pub fn unheard(&self) -> impl Iterator<Item = &HeldTerm> {
        self.held().chain(self.stopped.values())
    }

    /// Those of them that are of this epoch.
    pub fn unheard_of(&self, epoch: Epoch) -> impl Iterator<Item = &HeldTerm> {
        self.epochs.range((epoch, 0)..=(epoch, usize::MAX)).flat_map(move |&(_, election)| {
            let both = [self.of(election), self.stopped.get(&election)].into_iter().flatten();
            both.filter(move |term| term.leadership.term.epoch == epoch)
        })
    }

    /// Which kinds of terms there are of those that stand: neither over nor without an elector.
    pub fn standing(&self) -> impl Iterator<Item = Standing> {
        self.standing.keys().copied()
    }

    /// A term begins. The one before it has ended.
    pub fn begin(&mut self, election: usize, term: HeldTerm) {
        self.epochs.insert((term.leadership.term.epoch, election));
        self.count(&term, 1);
        self.held[election] = Some(term);
    }

    /// Changes a term, and returns whether there is one.
    pub fn change(
        &mut self,
        election: usize,
        epoch: Epoch,
        change: impl FnOnce(&mut HeldTerm),
    ) -> bool {
        let Some(mut term) = self.held[election].take_if(|it| it.leadership.term.epoch == epoch)
        else {
            return false;
        };
        self.count(&term, -1);
        change(&mut term);
        self.count(&term, 1);
        self.held[election] = Some(term);
        true
    }

    /// The work of a term has stopped. Returns the term.
    pub fn stop(&mut self, election: usize, epoch: Epoch) -> Option<HeldTerm> {
        let term = self.held[election].take_if(|it| it.leadership.term.epoch == epoch)?;
        self.count(&term, -1);
        if self.stopped.get(&election).is_none_or(|it| it.leadership.term.epoch != epoch) {
            self.epochs.remove(&(epoch, election));
        }
        Some(HeldTerm { yielded: true, ..term })
    }

    /// The elector is about to hear that the work of a term has stopped.
    pub fn tell_stopped(&mut self, election: usize, term: HeldTerm) {
        self.forget_stopped_in(election);
        self.epochs.insert((term.leadership.term.epoch, election));
        self.stopped.insert(election, term);
    }

    /// The elector has heard of all terms whose work has stopped.
    pub fn forget_stopped(&mut self) {
        while let Some((&election, _)) = self.stopped.first_key_value() {
            self.forget_stopped_in(election);
        }
    }

    fn forget_stopped_in(&mut self, election: usize) {
        if let Some(term) = self.stopped.remove(&election) {
            let epoch = term.leadership.term.epoch;
            if self.of_epoch(election, epoch).is_none() {
                self.epochs.remove(&(epoch, election));
            }
        }
    }

    /// Moves the deadlines of the terms that an extension is for.
    pub fn extend(&mut self, now: Mark, extension: &Extension) -> Result<(), Broken> {
        extend(self.held.iter_mut().flatten(), now, extension)?;
        self.count_again();
        Ok(())
    }

    /// The elector is gone, and the terms go on without it. Returns those that have not yet.
    pub fn orphan(&mut self) -> Vec<(usize, Leadership)> {
        let mut orphaned = Vec::new();
        for (election, term) in self.held.iter_mut().enumerate() {
            if let Some(term) = term.as_mut().filter(|term| !term.orphan) {
                term.orphan = true;
                orphaned.push((election, term.leadership.clone()));
            }
        }
        self.count_again();
        orphaned
    }

    fn count_again(&mut self) {
        self.standing.clear();
        let held = std::mem::take(&mut self.held);
        held.iter().flatten().for_each(|term| self.count(term, 1));
        self.held = held;
    }

    fn count(&mut self, term: &HeldTerm, by: isize) {
        if term.over || term.orphan {
            return;
        }
        let Leadership { lease, valid_until, .. } = term.leadership;
        let standing = Standing { lease, valid_until, endangered: term.endangered };
        let count = self.standing.entry(standing).or_default();
        *count = count.strict_add_signed(by);
        if *count == 0 {
            self.standing.remove(&standing);
        }
    }
}
