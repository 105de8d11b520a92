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

impl Member {
    /// Whether it does anything at all.
    pub fn runs(&self) -> bool {
        self.down == 0 && self.paused == 0
    }

    fn speaks(&self) -> bool {
        self.runs() && self.cut_off == 0
    }
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

    /// Whether enough members speak with one another. One that is cut off from the
    /// others still has itself.
    pub fn has_quorum(&self) -> bool {
        let speaking = self.members.iter().filter(|member| member.speaks()).count();
        if self.members.len() == 1 {
            self.members[0].runs()
        } else {
            speaking * 2 > self.members.len()
        }
    }

    /// Whether a member can get things done.
    pub fn serves(&self, member: usize) -> bool {
        let reaches = self.members[member].speaks() || self.members.len() == 1;
        self.members[member].runs() && reaches && self.leader.is_some()
    }

    /// Drops a leader that cannot lead any more. True if an election is due.
    pub fn depose(&mut self) -> bool {
        let able = |leader: usize| {
            self.members.len() == 1 && self.members[leader].runs() || self.members[leader].speaks()
        };
        if self.leader.is_some_and(|leader| !able(leader)) || !self.has_quorum() {
            self.leader = None;
        }
        self.leader.is_none()
    }

    /// Gives itself a leader, if it can.
    pub fn elect(&mut self, rng: &mut Rng) -> bool {
        if !self.has_quorum() {
            return false;
        }
        let alone = self.members.len() == 1;
        let able: Vec<usize> = (0..self.members.len())
            .filter(|&member| alone || self.members[member].speaks())
            .collect();
        self.leader = able.get(rng.usize(..able.len().max(1))).copied();
        self.leader.is_some()
    }
}
