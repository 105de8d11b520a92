//! What an elector says, and whether it may.

use super::*;

impl World {
    pub(super) fn called(&mut self, who: usize, call: Call) {
        let now = self.now;
        let term = self.candidates[who].term.clone();
        match &call.operation {
            Operation::Claim(claim) => {
                let yielded = term.as_ref().is_none_or(|term| term.over && term.yielded);
                self.law(
                    Law::YieldedFirst,
                    yielded,
                    "a key is claimed before the work has stopped",
                );
                let of_old = |entry: &Entry| {
                    term.as_ref().is_some_and(|term| {
                        entry.lease == claim.lease && entry.created == term.leadership.term.epoch
                    })
                };
                let dead = !self.store.keys().any(of_old);
                self.law(
                    Law::EpochsRise,
                    dead,
                    "a key is claimed while that of an ended epoch is there",
                );
            }
            Operation::Guarded(Guarded { guard, mutations, .. }) => {
                let deletes = mutations.iter().any(|it| matches!(it, Mutation::Delete(_)));
                let own = !deletes || *mutations == [Mutation::Delete(guard.key.clone())];
                self.law(Law::ReleasedAfterWork, own, "a removal removes something else");
                let in_last = !mutations.iter().any(is_earlier);
                self.law(Law::Guarded, in_last, "a write of an earlier term is sent");
            }
            _ => {}
        }
        self.broken.extend(judge(now, &call.operation, term.iter()).err());
        self.candidate(who).calls.push(Pending { sent: now, call, answer: None });
    }

    pub(super) fn noticed(&mut self, who: usize, notice: Notice, told: &[Told]) {
        match notice {
            Notice::Elected(leadership) => self.elected(who, leadership, told),
            Notice::Extended(Extension { lease, valid_until }) => {
                self.check_deadline(who, lease, valid_until);
                let now = self.now;
                let mut revived = true;
                if let Some(held) = &mut self.candidate(who).term
                    && !held.over
                    && held.leadership.lease == lease
                {
                    revived = held.leadership.valid_until <= now;
                    held.leadership.valid_until = valid_until;
                }
                self.law(Law::ByTheClock, !revived, "a term that is over is extended");
            }
            Notice::Demoted(demotion) => {
                if let Some(held) = &mut self.candidate(who).term
                    && held.leadership.term == demotion.term
                {
                    held.over = true;
                }
            }
            Notice::HandOver(term) => {
                let held = &self.candidate(who).term;
                let stands = held.as_ref().is_some_and(|held| !held.over);
                let is_last = held.as_ref().map(|held| held.leadership.term) == Some(term);
                self.law(Law::ByTheClock, stands && is_last, "a term that is over is handed over");
                self.candidate(who).asked = Some(term);
            }
            Notice::Withdrawn(_) => self.candidate(who).withdrawn = true,
            Notice::Joined(_)
            | Notice::Endangered(_)
            | Notice::Leader(_)
            | Notice::Listed(_)
            | Notice::Written(_)
            | Notice::Trouble(_)
            | Notice::Closed => {}
        }
    }

    fn elected(&mut self, who: usize, leadership: Leadership, told: &[Told]) {
        self.check_deadline(who, leadership.lease, leadership.valid_until);
        self.law(
            Law::ElectedWhenShown,
            leadership.valid_until > self.now,
            "elected when the deadline is over",
        );
        let shown = told.iter().any(|told| told.shows(&leadership));
        self.law(Law::ElectedWhenShown, shown, "elected, and no read has shown it");
        let epoch = leadership.term.epoch;
        self.law(Law::EpochsRise, epoch > self.newest, "an epoch does not rise");
        self.newest = epoch;
        let keeps_earlier = self.left.writes > 0;
        let held = HeldTerm::new(leadership);
        let candidate = self.candidate(who);
        let last = candidate.term.replace(held);
        if keeps_earlier {
            candidate.earlier = last.as_ref().map(|last| last.leadership.term);
        }
        let over = last.is_none_or(|last| last.over && last.yielded);
        self.law(Law::YieldedFirst, over, "elected before the work of the last term has stopped");
    }

    fn check_deadline(&mut self, who: usize, lease: LeaseId, valid_until: Mark) {
        let granted = self.candidates[who]
            .allowed
            .iter()
            .any(|(of, until)| *of == lease && valid_until <= *until);
        self.law(Law::ValidUntil, granted, "a deadline is later than the store granted");
    }
}
