//! What can happen next.

use super::*;

impl World {
    /// What can happen next, in an order that only depends on the state.
    pub fn actions(&self, actions: &mut Vec<Action>) {
        if !self.broken.is_empty() {
            return;
        }
        for (who, candidate) in self.candidates.iter().enumerate() {
            self.actions_of(who, candidate, actions);
        }
        if self.left.removals > 0 {
            for index in 0..self.store.keys().count() {
                actions.extend([Action::Depose(index), Action::Revoke(index)]);
            }
        }
        let due = self.candidates.iter().any(|candidate| candidate.is_due(self.now));
        if !due && self.next_mark().is_some() && (self.left.delays > 0 || self.is_quiet()) {
            actions.push(Action::Pass);
        }
        if self.store.next_end().is_some_and(|end| end <= self.now) {
            actions.push(Action::Tick);
        }
    }

    fn actions_of(&self, who: usize, candidate: &Candidate, actions: &mut Vec<Action>) {
        let left = &self.left;
        for stray in 0..candidate.strays.len() {
            actions.push(Action::Land(who, stray));
        }
        if candidate.dead {
            return;
        }
        if left.deaths > 0 {
            actions.push(Action::Die(who));
        }
        if candidate.cut {
            actions.push(Action::Mend(who));
        } else {
            self.deliveries(who, candidate, actions);
        }
        if candidate.asleep.is_some() {
            actions.push(Action::Resume(who));
            return;
        }
        if candidate.is_due(self.now) {
            actions.push(Action::Wake(who));
        }
        if left.wishes > 0 && candidate.wishes.is_some() {
            let keys = self.store.keys().count();
            for (after, target) in (0..keys).flat_map(|it| (it + 1..keys).map(move |to| (it, to))) {
                let minded = |now: &bool| self.minds(who, after, target, *now);
                let wish = |now| Action::Wish(who, after, target, now);
                actions.extend([false, true].into_iter().filter(minded).map(wish));
            }
        }
        if left.pauses > 0 {
            actions.push(Action::Pause(who));
        }
        if left.cuts > 0 && !candidate.cut {
            actions.push(Action::Cut(who));
        }
        if left.departures > 0 && !candidate.withdrawn {
            actions.push(Action::Leave(who));
        }
        if let Some(held) = &candidate.term {
            let is_asked = candidate.asked == Some(held.leadership.term);
            if !held.over && (is_asked || left.resignations > 0) {
                actions.push(Action::Resign(who));
            }
            if held.over && !held.yielded {
                actions.push(Action::Yield(who));
            }
            if left.writes > 0 {
                actions.push(Action::Write(who, false));
            }
        }
        if candidate.earlier.is_some() && left.writes > 0 {
            actions.push(Action::Write(who, true));
        }
    }

    /// What the store and the network can do.
    fn deliveries(&self, who: usize, candidate: &Candidate, actions: &mut Vec<Action>) {
        let faulty = self.left.faults > 0;
        for Pending { call, answer, .. } in &candidate.calls {
            actions.push(Action::Answer(who, call.id));
            if faulty && answer.is_none() {
                actions.push(Action::Keep(who, call.id));
                actions.push(Action::Fail(who, call.id));
                actions.push(Action::Lose(who, call.id));
            }
        }
        for open in &candidate.watches {
            let id = open.watch.id;
            if open.told.is_none() {
                actions.push(Action::Start(who, id));
            } else if open.news(&self.store).next().is_some() {
                actions.push(Action::Tell(who, id));
            }
            if faulty {
                actions.push(Action::Break(who, id));
            }
        }
    }

    /// Whether nothing is left to be done or delivered before time passes.
    pub(super) fn is_quiet(&self) -> bool {
        self.candidates.iter().filter(|candidate| candidate.asleep.is_none()).all(|candidate| {
            let delivered = candidate.calls.iter().all(|pending| pending.answer.is_some())
                && candidate
                    .watches
                    .iter()
                    .all(|open| open.told.is_some() && open.news(&self.store).next().is_none());
            let yielded = candidate.term.as_ref().is_none_or(|term| !term.over || term.yielded);
            (candidate.cut || delivered) && yielded
        })
    }

    /// When something is due next.
    pub fn next_mark(&self) -> Option<Mark> {
        let deadlines = self.candidates.iter().filter_map(|candidate| candidate.deadline);
        // Those who sleep through a deadline may wake before or after the term's.
        let ends = self.terms().map(|held| held.leadership.valid_until);
        let leases = self.store.leases().filter_map(|lease| self.store.end_of(lease));
        let marks = deadlines.chain(ends).chain(leases);
        marks.map(in_steps).filter(|mark| *mark > self.now).min()
    }
}
