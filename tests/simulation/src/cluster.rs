//! The store's members: which of them reach one another, and which one leads.

use fastrand::Rng;

use super::store::Store;
use super::world::Request;

/// A store of several members, with one content.
#[derive(Debug)]
pub struct Cluster {
    /// What they agree on.
    pub store: Store,
    /// The members.
    pub members: Vec<Member>,
    /// Which one leads; none while they have not agreed on one.
    pub leader: Option<usize>,
    /// Proposals that wait for a leader, and the members that made them.
    pub waiting: Vec<(usize, Request)>,
}

/// One member.
#[derive(Debug, Default)]
pub struct Member {
    /// How many faults keep it down.
    pub down: u32,
    /// How many faults have it stopped.
    pub paused: u32,
    /// How many faults keep it from the others.
    pub cut_off: u32,
    /// What arrived while it was stopped.
    pub backlog: Vec<Request>,
}

impl Cluster {
    /// So many members, of which the first one leads.
    pub fn new(members: usize) -> Cluster {
        Cluster {
            store: Store::default(),
            members: (0..members).map(|_| Member::default()).collect(),
            leader: Some(0),
            waiting: Vec::new(),
        }
    }

    /// Whether enough members speak with one another.
    pub fn has_quorum(&self) -> bool {
        self.able().count() * 2 > self.members.len()
    }

    /// Whether a member can get things done.
    pub fn serves(&self, member: usize) -> bool {
        self.is_able(member) && self.leader.is_some()
    }

    /// Drops a leader that cannot lead any more. True if an election is due.
    pub fn depose(&mut self) -> bool {
        if self.leader.is_some_and(|leader| !self.is_able(leader)) || !self.has_quorum() {
            self.leader = None;
        }
        self.leader.is_none()
    }

    /// Gives itself a leader, if it can.
    pub fn elect(&mut self, rng: &mut Rng) -> bool {
        if !self.has_quorum() {
            return false;
        }
        let able: Vec<usize> = self.able().collect();
        self.leader = able.get(rng.usize(..able.len())).copied();
        self.leader.is_some()
    }

    fn able(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|&member| self.is_able(member))
    }

    /// Whether a member runs, and speaks with the others, if there are any.
    fn is_able(&self, member: usize) -> bool {
        let Member { down, paused, cut_off, .. } = self.members[member];
        down == 0 && paused == 0 && (cut_off == 0 || self.members.len() == 1)
    }
}
