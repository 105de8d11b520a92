//! What an elector says, and whether it may.

use super::*;

impl World {
    pub(super) fn called(&mut self, who: usize, call: Call) {
        let now = self.now;
        let term = self.candidates[who].term.clone();
        match &call.operation {
            Operation::Revoke(lease) => {
                let works =
                    |tenancy: &Tenancy| tenancy.leadership.lease == *lease && tenancy.may_work(now);
                let stopped = !term.as_ref().is_some_and(works);
                self.law(7, stopped, "a lease is revoked while work may go on");
            }
            Operation::Claim(claim) => {
                let yielded = term.as_ref().is_none_or(|term| term.over && term.yielded);
                self.law(8, yielded, "a key is claimed before the work has stopped");
                let of_old = |entry: &Entry| {
                    term.as_ref().is_some_and(|term| {
                        entry.lease == claim.lease && entry.created == term.leadership.term.epoch
                    })
                };
                let dead = !self.store.keys().any(of_old);
                self.law(6, dead, "a key is claimed while that of an ended epoch is there");
            }
            Operation::Guarded(guarded) => {
                let of = term.as_ref().filter(|tenancy| tenancy.is_of(&guarded.guard));
                let deletes = guarded.mutations.iter().any(|m| matches!(m, Mutation::Delete(_)));
                if deletes {
                    let stopped = !of.is_some_and(|tenancy| tenancy.may_work(now));
                    self.law(7, stopped, "a key is deleted while work may go on");
                    let own = *guarded.mutations == [Mutation::Delete(guarded.guard.key.clone())];
                    self.law(7, own, "a removal removes something else");
                }
                if writes_data(guarded) {
                    let stands = of.is_some_and(|tenancy| {
                        tenancy.stands(now) && guarded.guard.lease == Some(tenancy.leadership.lease)
                    });
                    self.law(5, stands, "a write is not guarded by its term");
                    let in_last = !guarded.mutations.iter().any(is_earlier);
                    self.law(5, in_last, "a write of an earlier term is sent");
                }
            }
            Operation::Grant(_) | Operation::KeepAlive(_) | Operation::Read(_) => {}
        }
        self.candidate(who).calls.push(Pending { sent: now, call, answer: None });
    }

    pub(super) fn noticed(&mut self, who: usize, notice: Notice, told: &[Told]) {
        match notice {
            Notice::Elected(leadership) => self.elected(who, leadership, told),
            Notice::Extended(Extension { lease, valid_until }) => {
                self.check_deadline(who, lease, valid_until);
                let now = self.now;
                let mut revived = true;
                if let Some(tenancy) = &mut self.candidate(who).term
                    && !tenancy.over
                    && tenancy.leadership.lease == lease
                {
                    revived = tenancy.leadership.valid_until <= now;
                    tenancy.leadership.valid_until = valid_until;
                }
                self.law(4, !revived, "a term that is over is extended");
            }
            Notice::Demoted(demotion) => {
                if let Some(tenancy) = &mut self.candidate(who).term
                    && tenancy.leadership.term == demotion.term
                {
                    tenancy.over = true;
                }
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
        self.law(3, leadership.valid_until > self.now, "elected when the deadline is over");
        let shown = told.iter().any(|told| told.shows(&leadership));
        self.law(3, shown, "elected, and no read has shown it");
        let epoch = leadership.term.epoch;
        self.law(6, epoch > self.newest, "an epoch does not rise");
        self.newest = epoch;
        let keeps_earlier = self.left.writes > 0;
        let tenancy = Tenancy { leadership, over: false, yielded: false };
        let candidate = self.candidate(who);
        let last = candidate.term.replace(tenancy);
        if keeps_earlier {
            candidate.earlier = last.as_ref().map(|last| last.leadership.term);
        }
        let over = last.is_none_or(|last| last.over && last.yielded);
        self.law(8, over, "elected before the work of the last term has stopped");
    }

    fn check_deadline(&mut self, who: usize, lease: LeaseId, valid_until: Mark) {
        let granted = self.candidates[who]
            .allowed
            .iter()
            .any(|(of, until)| *of == lease && valid_until <= *until);
        self.law(2, granted, "a deadline is later than the store granted");
    }
}
