//! The faults of a soak, by name.

use std::time::Duration;

use fastrand::Rng;
use incumbent::Mark;
use serde::{Deserialize, Serialize};

use super::log::Settings;
use crate::cluster::Failure;
use crate::etcd::Version;

/// Leases of this time and longer outlive the election of another etcd leader.
const OUTLIVES_AN_ELECTION: Duration = Duration::from_secs(10);

/// Something that goes wrong, from its line in the log until it is healed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// SIGKILL; healed by another process in its place.
    KillHost {
        /// Which one.
        host: String,
    },
    /// SIGSTOP, until SIGCONT.
    PauseHost {
        /// Which one.
        host: String,
    },
    /// A host's own links to members, which others still reach.
    CutHost {
        /// Which one.
        host: String,
        /// From which members.
        members: Vec<usize>,
        /// In which way.
        cut: Cut,
    },
    /// All of a host's own links are slow, differently for each piece.
    SlowHost {
        /// Which one.
        host: String,
        /// How long each piece takes at least, each way.
        delay_ms: u64,
        /// Up to this much longer.
        jitter_ms: u64,
    },
    /// Members fail.
    FailMembers {
        /// In which way.
        failure: Failure,
        /// Which.
        members: Vec<usize>,
        /// etcd's leader, or the primary, is among them.
        leader: bool,
    },
    /// The primary is killed, and the standby takes its place.
    Promote {
        /// How long the standby had not followed before: what was acknowledged then is lost.
        behind_ms: u64,
    },
    /// The primary is killed, and starts again with another clock.
    StepClock {
        /// How far it is from the true time.
        seconds: i64,
    },
    /// All connections of others to the primary are ended.
    Terminate,
    /// All tables are written anew, and locked meanwhile.
    Vacuum,
    /// All of etcd's history is dropped.
    Compact,
    /// A member defragments its data, and does nothing else meanwhile.
    Defragment {
        /// Which one.
        member: usize,
    },
    /// An operator removes the leader.
    Depose {
        /// Of which term.
        epoch: i64,
        /// In which way.
        by: Removal,
    },
}

/// How a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// What the host asks does not arrive.
    Requests,
    /// What etcd answers does not arrive.
    Replies,
    /// Neither.
    Both,
    /// Connections are closed, and each new one at once.
    Refused,
}

/// How an operator removes a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removal {
    /// `incumbent depose`
    Order,
    /// The leader's key is deleted.
    Key,
    /// The leader's lease is revoked.
    Lease,
}

impl Fault {
    /// What the report counts it as.
    pub fn name(&self) -> String {
        match self {
            Self::KillHost { .. } => "host killed".into(),
            Self::PauseHost { .. } => "host paused".into(),
            Self::CutHost { members, .. } if members.len() == 1 => {
                "host cut off from one member".into()
            }
            Self::CutHost { cut, .. } => format!("host cut off: {cut:?}").to_lowercase(),
            Self::SlowHost { .. } => "host slowed".into(),
            Self::FailMembers { failure, members, leader } => {
                let members = match (members.len(), leader) {
                    (1, false) => "following member",
                    (1, true) => "leading member",
                    _ => "two members",
                };
                format!("{members} {failure:?}").to_lowercase()
            }
            Self::Promote { behind_ms: 0 } => "standby promoted".into(),
            Self::Promote { .. } => "standby promoted, with commits lost".into(),
            Self::StepClock { .. } => "database's clock stepped".into(),
            Self::Terminate => "connections ended".into(),
            Self::Vacuum => "tables written anew".into(),
            Self::Compact => "compaction".into(),
            Self::Defragment { .. } => "defragmentation".into(),
            Self::Depose { by: Removal::Order, .. } => "operator: depose".into(),
            Self::Depose { by: Removal::Key, .. } => "operator: key deleted".into(),
            Self::Depose { by: Removal::Lease, .. } => "operator: lease revoked".into(),
        }
    }

    /// The host that it hits, where it is one host's alone.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::KillHost { host }
            | Self::PauseHost { host }
            | Self::CutHost { host, .. }
            | Self::SlowHost { host, .. } => Some(host),
            Self::FailMembers { .. }
            | Self::Promote { .. }
            | Self::StepClock { .. }
            | Self::Terminate
            | Self::Vacuum
            | Self::Compact
            | Self::Defragment { .. }
            | Self::Depose { .. } => None,
        }
    }

    /// Whether it alone may cost a host its term. What concerns one member only must not.
    pub fn is_grave(&self, settings: &Settings) -> bool {
        let outlives_an_election = Duration::from_nanos(settings.ttl) >= OUTLIVES_AN_ELECTION;
        // A follower that was alone comes back with a higher term of Raft's, and the
        // leader has to go. From 3.5 on, etcd asks before (--pre-vote).
        let returns_as_a_rival = settings.store == Version::V3_4.to_string();
        match self {
            Self::KillHost { .. } | Self::PauseHost { .. } | Self::Promote { .. } => true,
            // On a busy machine the start may take most of a lease.
            Self::StepClock { .. } => true,
            // Of PostgreSQL there is one server only.
            Self::FailMembers { leader, .. } if settings.is_postgres() => *leader,
            Self::CutHost { .. } if settings.is_postgres() => true,
            Self::CutHost { members, .. } => members.len() > 1,
            Self::FailMembers { failure, members, leader } => {
                let is_rival = *failure == Failure::Isolated && returns_as_a_rival;
                members.len() > 1 || (*leader || is_rival) && !outlives_an_election
            }
            Self::SlowHost { .. }
            | Self::Terminate
            | Self::Vacuum
            | Self::Compact
            | Self::Defragment { .. }
            | Self::Depose { .. } => false,
        }
    }
}

/// A kind of fault, before it is known what it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    KillHost,
    PauseHost { beyond: bool },
    CutHost(Cut),
    CutHostFromOne(Cut),
    SlowHost,
    Fail(Members, Failure),
    Promote { behind: bool },
    StepClock,
    Terminate,
    Vacuum,
    Compact,
    Defragment,
    Depose(Removal),
}

/// Which members a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Members {
    Follower,
    Leader,
    Two,
}

impl Kind {
    const OF_HOSTS: [Self; 10] = [
        Self::KillHost,
        Self::PauseHost { beyond: false },
        Self::PauseHost { beyond: true },
        Self::CutHost(Cut::Requests),
        Self::CutHost(Cut::Replies),
        Self::CutHost(Cut::Both),
        Self::CutHost(Cut::Refused),
        Self::CutHostFromOne(Cut::Both),
        Self::CutHostFromOne(Cut::Replies),
        Self::SlowHost,
    ];
    const OF_ETCD: [Self; 10] = [
        Self::Fail(Members::Follower, Failure::Killed),
        Self::Fail(Members::Leader, Failure::Killed),
        Self::Fail(Members::Two, Failure::Killed),
        Self::Fail(Members::Follower, Failure::Paused),
        Self::Fail(Members::Leader, Failure::Paused),
        Self::Fail(Members::Two, Failure::Paused),
        Self::Fail(Members::Follower, Failure::Isolated),
        Self::Fail(Members::Leader, Failure::Isolated),
        Self::Compact,
        Self::Defragment,
    ];
    const OF_POSTGRES: [Self; 10] = [
        Self::Fail(Members::Follower, Failure::Killed),
        Self::Fail(Members::Follower, Failure::Paused),
        Self::Fail(Members::Leader, Failure::Killed),
        Self::Fail(Members::Leader, Failure::Paused),
        Self::Promote { behind: false },
        Self::Promote { behind: true },
        Self::StepClock,
        Self::StepClock,
        Self::Terminate,
        Self::Vacuum,
    ];
    const OPERATOR: [Self; 3] =
        [Self::Depose(Removal::Order), Self::Depose(Removal::Key), Self::Depose(Removal::Lease)];

    /// Whether both may be in one phase.
    fn goes_with(self, other: Self) -> bool {
        // When etcd's leader wakes, etcd before 3.5.13 revokes leases that were renewed
        // meanwhile. Alone, so that this can be told from faults of ours.
        let is_alone = |kind| kind == Self::Fail(Members::Leader, Failure::Paused);
        // What was killed becomes healthy only with a quorum of the others.
        let is_of_members = |kind| {
            // Or needs one that answers.
            let needs_it = matches!(kind, Self::Terminate | Self::Vacuum);
            needs_it || matches!(kind, Self::Fail(..) | Self::Promote { .. } | Self::StepClock)
        };
        let both_of_members = is_of_members(self) && is_of_members(other);
        !is_alone(self) && !is_alone(other) && !both_of_members
    }

    /// How long it lasts, where leases live for `ttl`.
    fn lasts(self, ttl: Duration, rng: &mut Rng) -> Duration {
        let (least, most) = match self {
            Self::Promote { .. } | Self::StepClock | Self::Terminate | Self::Vacuum => {
                return Duration::ZERO;
            }
            Self::Compact | Self::Defragment | Self::Depose(_) => return Duration::ZERO,
            Self::PauseHost { beyond: false } => (0.05, 0.6),
            Self::PauseHost { beyond: true } => (1.1, 2.0),
            Self::KillHost => (0.0, 1.5),
            Self::CutHost(_) | Self::CutHostFromOne(_) | Self::SlowHost | Self::Fail(..) => {
                (0.1, 2.0)
            }
        };
        ttl.mul_f64(least + (most - least) * rng.f64())
    }
}

/// A plan of faults, drawn from a seed: phase after phase, without an end.
#[derive(Debug)]
pub(super) struct Plan {
    rng: Rng,
    ttl: Duration,
    kinds: Vec<Kind>,
    /// Each kind comes once before any comes again.
    deck: Vec<Kind>,
}

/// A fault of a phase, and when it begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) kind: Kind,
    pub(super) begins: Duration,
    pub(super) ends: Duration,
}

impl Plan {
    pub(super) fn on_etcd(seed: u64, ttl: Duration, operator: bool) -> Self {
        let mut kinds = [Kind::OF_HOSTS, Kind::OF_ETCD].concat();
        if operator {
            kinds.extend(Kind::OPERATOR);
        }
        Self::of(kinds, seed, ttl)
    }

    pub(super) fn on_postgres(seed: u64, ttl: Duration) -> Self {
        Self::of([Kind::OF_HOSTS, Kind::OF_POSTGRES].concat(), seed, ttl)
    }

    fn of(kinds: Vec<Kind>, seed: u64, ttl: Duration) -> Self {
        Self { rng: Rng::with_seed(seed), ttl, kinds, deck: Vec::new() }
    }

    pub(super) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// One to three faults, side by side.
    pub(super) fn phase(&mut self) -> Vec<Planned> {
        let faults = [1, 1, 1, 2, 2, 3][self.rng.usize(..6)];
        let mut phase: Vec<Planned> = Vec::new();
        for _ in 0..faults {
            let kind = self.draw();
            if phase.iter().any(|other| !kind.goes_with(other.kind)) {
                self.deck.insert(0, kind);
                continue;
            }
            let begins = self.ttl.mul_f64(0.5 * self.rng.f64());
            let ends = begins + kind.lasts(self.ttl, &mut self.rng);
            phase.push(Planned { kind, begins, ends });
        }
        phase
    }

    /// How long nothing is wrong between two phases.
    pub(super) fn calm(&mut self) -> Duration {
        self.ttl.mul_f64(0.1 + 0.7 * self.rng.f64())
    }

    fn draw(&mut self) -> Kind {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.kinds);
            self.rng.shuffle(&mut self.deck);
        }
        self.deck.pop().expect("there are kinds")
    }
}

/// A fault and when it was in force.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) id: u64,
    pub(super) fault: Fault,
    pub(super) since: Mark,
    pub(super) until: Mark,
}

/// Whether what was in force between two marks explains that a host lost its term:
/// something grave, or two things side by side.
pub(super) fn explain(
    faults: &[InForce],
    host: &str,
    (since, until): (Mark, Mark),
    settings: &Settings,
) -> bool {
    let felt = || {
        let felt = |one: &&InForce| {
            let is_felt = one.fault.host().is_none_or(|other| other == host);
            is_felt && one.since <= until && since <= one.until
        };
        faults.iter().filter(felt)
    };
    felt().any(|one| {
        let beside = |other: &InForce| {
            other.id != one.id && one.since <= other.until && other.since <= one.until
        };
        one.fault.is_grave(settings) || felt().any(beside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_come_and_go_together() {
        let ttl = Duration::from_secs(3);
        for new in [|ttl| Plan::on_etcd(1, ttl, true), |ttl| Plan::on_postgres(1, ttl)] {
            let mut plan = new(ttl);
            let mut kinds = Vec::new();
            for _ in 0..200 {
                let phase = plan.phase();
                assert!((1..=3).contains(&phase.len()), "{phase:?}");
                for (at, one) in phase.iter().enumerate() {
                    let others = phase[..at].iter().all(|other| one.kind.goes_with(other.kind));
                    assert!(others && one.begins <= one.ends && one.ends <= ttl * 3, "{phase:?}");
                    kinds.push(one.kind);
                }
            }
            for kind in plan.kinds {
                let count = kinds.iter().filter(|other| **other == kind).count();
                assert!(count >= 10, "{kind:?} comes {count} times");
            }
            assert_eq!(new(ttl).phase(), new(ttl).phase(), "a seed is a seed");
        }
    }

    #[test]
    fn a_follower_that_returns_is_a_rival_on_3_4_alone() {
        let (failure, members) = (Failure::Isolated, vec![1]);
        let isolated = Fault::FailMembers { failure, members, leader: false };
        let is_grave = |version, seconds| {
            isolated.is_grave(&Settings::new(version, Duration::from_secs(seconds), 0))
        };
        assert!(is_grave(Version::V3_4, 3));
        assert!(!is_grave(Version::V3_5, 3));
        assert!(!is_grave(Version::V3_4, 10), "its lease outlives that");
    }
}
