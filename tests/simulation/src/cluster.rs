//! The store's members: which of them reach one another, and which one leads.

use incumbent_guest::types::Duration;

use super::plan::Kind;
use super::store::Store;
use super::world::{Happening, Request, World};
use super::{MILLISECOND, SECOND};

/// How long the store takes at most to give itself a leader.
pub const STORE_ELECTION: Duration = 2 * SECOND;

/// What the store adds to every lease when its leader changes.
pub const ELECTION_TIMEOUT: Duration = SECOND;

/// A store of several members, with one content.
#[derive(Debug)]
pub struct Cluster {
    /// What they agree on.
    pub store: Store,
    /// Which one leads; none while they have not agreed on one.
    pub leader: Option<usize>,
    /// Proposals that wait for a leader, and the members that made them.
    pub waiting: Vec<(usize, Request)>,
    /// What arrived at members while they were stopped.
    pub backlog: Vec<(usize, Request)>,
}

impl Default for Cluster {
    /// The first member leads.
    fn default() -> Cluster {
        let (waiting, backlog) = (Vec::new(), Vec::new());
        Cluster { store: Store::default(), leader: Some(0), waiting, backlog }
    }
}

impl World<'_> {
    /// Whether a member can get things done.
    pub fn serves(&self, member: usize) -> bool {
        self.is_able(member) && self.cluster.leader.is_some()
    }

    /// Whether a fault has stopped a member.
    pub fn is_stopped(&self, member: usize) -> bool {
        self.is_active(Kind::MemberPaused(member)) || self.is_active(Kind::NoQuorum)
    }

    /// Whether a member runs, and speaks with the others, if there are any.
    fn is_able(&self, member: usize) -> bool {
        let cut_off = self.plan.members > 1 && self.is_active(Kind::MemberCutOff(member));
        !cut_off && !self.is_active(Kind::MemberDown(member)) && !self.is_stopped(member)
    }

    /// The members that speak with one another; none if they are too few.
    fn quorum(&self) -> Vec<usize> {
        let mut able: Vec<usize> = (0..self.plan.members).collect();
        able.retain(|&member| self.is_able(member));
        if able.len() * 2 > self.plan.members { able } else { Vec::new() }
    }

    /// Drops a leader that cannot lead any more, and has the members elect another.
    pub fn members_changed(&mut self) {
        let quorum = self.quorum();
        self.cluster.leader.take_if(|leader| !quorum.contains(leader));
        if self.cluster.leader.is_none() && !self.election_due {
            self.election_due = true;
            let pause = STORE_ELECTION / 2 + self.rng.u64(..STORE_ELECTION / 2);
            self.after(pause, Happening::Elect);
        }
    }

    /// The members give themselves a leader, if they can.
    pub fn elect(&mut self) {
        self.election_due = false;
        let quorum = self.quorum();
        if self.cluster.leader.is_some() || quorum.is_empty() {
            return;
        }
        self.cluster.leader = Some(quorum[self.rng.usize(..quorum.len())]);
        self.cluster.store.extend_leases(self.now, ELECTION_TIMEOUT);
        for (member, request) in std::mem::take(&mut self.cluster.waiting) {
            // Some are done after all, the others were never more than asked.
            if self.rng.bool() {
                let pause = self.rng.u64(..100 * MILLISECOND);
                self.after(pause, Happening::Arrive { member, request });
            }
        }
        self.changed();
    }

    /// A member that is not stopped any more takes what has arrived meanwhile.
    pub fn resume_member(&mut self, member: usize) {
        if !self.is_stopped(member) {
            let of_it = |(of, _): &mut (usize, Request)| *of == member;
            let arrived: Vec<_> = self.cluster.backlog.extract_if(.., of_it).collect();
            for (_, request) in arrived {
                let pause = self.rng.u64(..10 * MILLISECOND);
                self.after(pause, Happening::Arrive { member, request });
            }
        }
    }
}
