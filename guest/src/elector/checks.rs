//! The regular check: reads whether watches are silent, for all that rests on them.

use alloc::vec::Vec;

use super::{Elector, FIRST, PORTION, Participation, after};
use crate::candidate::Reading;
use crate::context::{Asker, Purpose, RECHECK};
use crate::layout::point_of_key;
use crate::timers::Timer;
use crate::types::{Entry, Failure, Operation, Revision, Selection, Snapshot};
use crate::wish::Wish;

/// How many keys one read of a check asks for, because a store caps the size of a transaction.
pub(super) const MOST_CHECKED: usize = 64;

impl Elector {
    /// Has reads check whether watches are silent: a portion of them at a time, and all of them
    /// once in each period.
    pub(super) fn recheck(&mut self) {
        if self.rechecked.is_none() && self.context.hears_wishes() {
            match self.wishes_rest.checked_sub(1) {
                Some(rest) => self.wishes_rest = rest,
                None => self.read_wishes(),
            }
        }
        let mut selections = Vec::new();
        let mut asked = Vec::new();
        for _ in 0..PORTION {
            let Some(asker) = self.next_from(self.rechecked.unwrap_or(FIRST)) else {
                self.rechecked = None;
                break;
            };
            self.rechecked = Some(after(asker));
            if let Asker::Election(election) = asker
                && let Some(Participation::Observer(observer)) = self.elections.get_mut(&election)
                && observer.searches_again(&mut self.context)
            {
                continue;
            }
            let selected = self.rechecks(asker);
            if selections.len() + selected.len() > MOST_CHECKED {
                let read = Operation::Read(core::mem::take(&mut selections));
                self.context.call(Purpose::Recheck(core::mem::take(&mut asked)), read);
            }
            if !selected.is_empty() {
                asked.push((asker, keys_of(&selected)));
                selections.extend(selected);
            }
        }
        if !asked.is_empty() {
            self.context.call(Purpose::Recheck(asked), Operation::Read(selections));
        }
        if self.rechecked.is_some_and(|from| self.next_from(from).is_none()) {
            self.rechecked = None;
        }
        let all = self.elections.len() + self.cleanup.len();
        let portions = all.div_ceil(PORTION).max(1) as u64;
        self.context.set_timer(Timer::Recheck, RECHECK / portions);
    }

    /// The reads that check one asker's watches.
    pub(super) fn rechecks(&mut self, asker: Asker) -> Vec<Selection> {
        match asker {
            Asker::Election(election) => match self.elections.get_mut(&election) {
                Some(Participation::Candidate(candidate)) => candidate.selections(&self.context),
                Some(Participation::Observer(observer)) => {
                    observer.selection().into_iter().collect()
                }
                Some(Participation::Inspection(_)) | None => Vec::new(),
            },
            Asker::Cleanup(id) => {
                self.cleanup.awaited(id).map(|key| point_of_key(key.into())).into_iter().collect()
            }
        }
    }

    pub(super) fn rechecked(&mut self, asked: Vec<(Asker, Vec<Vec<u8>>)>, snapshot: Snapshot) {
        let Snapshot { at, found } = snapshot;
        let mut found = found.into_iter();
        for (asker, keys) in asked {
            let found: Vec<Vec<Entry>> = found.by_ref().take(keys.len()).collect();
            match asker {
                Asker::Election(election) => match self.elections.get_mut(&election) {
                    Some(Participation::Candidate(candidate)) => {
                        let wishes = Wish::keys_of(&candidate.layout().name);
                        let reading = Reading::new(keys, found, at);
                        let wishes = reading.below(&wishes);
                        self.input(election, |state, cx| state.examine(cx, reading));
                        if let Some(wishes) = wishes {
                            self.found_wishes(election, &wishes, at);
                        }
                    }
                    Some(Participation::Observer(observer)) => {
                        if let Some(found) = found.first() {
                            observer.examine(&mut self.context, found, at);
                        }
                    }
                    Some(Participation::Inspection(_)) | None => {}
                },
                Asker::Cleanup(id) => {
                    if let Some(found) = found.first() {
                        self.cleanup.examine(&mut self.context, id, found);
                    }
                }
            }
        }
    }

    /// A check has failed. The wishes that it asked for may be the cause: the next one does without them.
    pub(super) fn recheck_failed(&mut self, asked: Vec<(Asker, Vec<Vec<u8>>)>, failure: &Failure) {
        if let Failure::Timeout | Failure::Unavailable = failure {
            return;
        }
        for (asker, keys) in asked {
            if let Asker::Election(election) = asker
                && keys.iter().any(|key| key.starts_with(&Wish::keys()))
            {
                self.found_wishes(election, &[], Revision::MAX);
            }
        }
    }
}

/// The keys that are read.
pub(super) fn keys_of(selections: &[Selection]) -> Vec<Vec<u8>> {
    selections.iter().map(|it| it.key.clone()).collect()
}
