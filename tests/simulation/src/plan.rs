//! What a seed draws before anything happens: who takes part, and what goes wrong
//! when, and how hard.

use fastrand::Rng;
use incumbent_guest::types::{Contest, Duration, Limit, Mark};

use super::{MILLISECOND, SECOND};

/// All that is decided before a run. Everything else follows from it and its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seeds what is drawn while it runs.
    pub seed: u64,
    /// How many members the store has.
    pub members: usize,
    /// How many processes take part.
    pub processes: usize,
    /// How many of them follow the elections as well.
    pub observers: usize,
    /// The elections: each process is a candidate in each of them.
    pub elections: Vec<Election>,
    /// As every elector is opened with.
    pub lease_ttl: Duration,
    /// As every elector is opened with.
    pub safety_margin: Duration,
    /// As every elector is opened with.
    pub request_timeout: Duration,
    /// How long one way through the network takes at most while all is well.
    pub delay: Duration,
    /// Whether hosts mend broken watches by themselves, or say that they ended.
    pub hosts_mend: bool,
    /// Whether leaders write.
    pub writes: bool,
    /// Whether they write with expectations.
    pub expectations: bool,
    /// Whether some applications have a candidacy for each term, and others drop theirs at
    /// any moment, and campaign again.
    pub drops: bool,
    /// Whether all processes go by one name.
    pub one_identity: bool,
    /// How long leaders like to lead, on average.
    pub term: Duration,
    /// How long work may take to stop: also beyond its deadline.
    pub stopping: Duration,
    /// The priority of each process; 0 of those that are not here.
    pub priorities: Vec<i32>,
    /// After which time those with a priority want to lead themselves, if they do.
    pub preempt_after: Option<Duration>,
    /// How much the processes lead: each of these is for every so many-th of them. As much as comes,
    /// if there are none.
    pub limits: Vec<Limit>,
    /// What is wrong with the hosts; nothing, unless a test wants to see it found.
    pub flaw: Option<Flaw>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// When the last fault is over.
    pub unrest: Duration,
}

/// What a host may do wrong, while its elector is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flaw {
    /// It revokes the lease of an elector that broke as soon as the applications were
    /// told that their terms are over, and does not wait for their work.
    RevokesOnceTold,
    /// An application campaigns again while the work of its last term goes on.
    CampaignsBesideItsWork,
}

/// One election.
#[derive(Clone, Debug)]
pub struct Election {
    /// Its name.
    pub name: String,
    /// How it is decided.
    pub contest: Contest,
}

/// One thing that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// When it begins.
    pub at: Mark,
    /// How long it lasts, where it lasts.
    pub lasts: Duration,
    /// What it is.
    pub kind: Kind,
}

/// What can go wrong. Processes and members are counted from 0, elections too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A process stops, and goes on later as if nothing had been.
    Pause(usize),
    /// A process is killed, and started again later.
    Crash(usize),
    /// A process's component traps, at this moment.
    Trap(usize, Moment),
    /// What a process sends does not arrive.
    CutToStore(usize),
    /// What is sent to a process does not arrive.
    CutFromStore(usize),
    /// Both.
    Cut(usize),
    /// A process cannot speak with one member.
    CutMember(usize, usize),
    /// Everything takes longer, up to so much one way.
    Slow(Duration),
    /// Of a thousand requests this many land late, and of a thousand answers this many come late: by up
    /// to this long, which may be far beyond the time-out and the end of the lease.
    Late(u32, Duration),
    /// Half of the grants of leases land late, by up to this long: perhaps when their lease has ended.
    LateGrants(Duration),
    /// Half of the answers to reads are late, by up to this long.
    LateReads(Duration),
    /// What a process sends to renew its leases does not arrive, and all else does: as where the one stream of
    /// renewals hangs.
    NoRenewals(usize),
    /// So many of a thousand messages are lost.
    Loss(u32),
    /// So many of a thousand answers and news come twice.
    Repeat(u32),
    /// Watches of a process go silent, and stay so until they are opened anew.
    SilentWatches(usize),
    /// One watch of a process goes silent, and stays so until it is opened anew.
    SilentWatch(usize),
    /// So many of a thousand events are never delivered to a process's watches, which
    /// otherwise go on.
    LostNews(usize, u32),
    /// Half of what concerns one election takes longer, up to so much one way.
    SlowElection(usize, Duration),
    /// A process drops all of its candidacies and terms at once, and campaigns again.
    DropAll(usize),
    /// A process drops its candidacy in one election, and does not come back.
    Leave(usize, usize),
    /// The stream of a process's watches breaks.
    BrokenStream(usize),
    /// A member is killed, and started again later.
    MemberDown(usize),
    /// A member stops, and goes on later.
    MemberPaused(usize),
    /// A member does not reach the others.
    MemberCutOff(usize),
    /// All members are away.
    NoQuorum,
    /// The store gives itself another leader.
    Election,
    /// The store revokes a lease that was kept alive.
    WrongRevocation,
    /// The store is put back to what it held when the fault began.
    Restore {
        /// Whether revisions are bumped up beyond all that were used.
        bumped: bool,
    },
    /// The store has no space left.
    NoSpace,
    /// The store allows a process nothing but to keep its leases.
    Denied(usize),
    /// An operator revokes the lease of an election's leader.
    Revoke(usize),
    /// An operator deletes the key of an election's leader.
    Depose(usize),
    /// An operator deletes the key of the last in line.
    Delete(usize),
    /// An operator revokes the lease of the last in line.
    RevokeLast(usize),
    /// An operator writes into a leader's key, and takes its lease off.
    Overwrite(usize),
    /// An operator writes a new value into a leader's key.
    Revalue(usize),
    /// An operator wants a certain candidate to lead next: those in front of it make room, and
    /// when the fault ends, the leader should resign.
    Wish(usize),
    /// An operator drains a process, until the fault ends.
    Drain(usize),
    /// An operator compacts the history.
    Compact,
}

/// When a component traps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// At once.
    Now,
    /// In its next step: what the step was given is lost.
    Step,
    /// Right after a step that ended a term.
    Demotion,
    /// Right after a step that claims or removes a key.
    Asking,
    /// In a step while it closes.
    Closing,
    /// In its next step, and so does each successor while the fault lasts.
    Again,
}

impl Moment {
    /// Each of them.
    pub const ALL: [Self; 6] =
        [Self::Now, Self::Step, Self::Demotion, Self::Asking, Self::Closing, Self::Again];
}

/// The number of `Kind::Late` among the kinds that are drawn.
const LATE: usize = 33;
/// The most elections of a seed.
const MOST_ELECTIONS: usize = 300;
/// Leases live again in runs of so many.
const FEW_ELECTIONS: usize = 3;

impl Plan {
    /// What this seed draws.
    pub fn draw(seed: u64) -> Plan {
        let mut plan = Plan::draw_most(seed);
        plan.draw_second_lives(&mut Rng::with_seed(seed.swap_bytes()));
        plan
    }

    /// All but the second lives of leases.
    fn draw_most(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed);
        let members = [1, 3, 3, 5][rng.usize(..4)];
        let processes = rng.usize(2..=4);
        let contest = if rng.u8(..4) == 0 { Contest::Race } else { Contest::Queue };
        let mut elections = vec![Election { name: "jobs".into(), contest }];
        match rng.u8(..8) {
            0 => elections.push(Election { name: "jobs/night".into(), contest: Contest::Queue }),
            1 => elections.push(Election { name: "mail".into(), contest: Contest::Race }),
            2 => elections.push(Election { name: "mail".into(), contest: Contest::Queue }),
            _ => {}
        }
        let lease_ttl = [2, 5, 10, 10, 10, 30][rng.usize(..6)] * SECOND;
        let safety_margin = [0, 0, lease_ttl / 20][rng.usize(..3)];
        let unrest = rng.u64(90..150) * SECOND;
        let mut plan = Plan {
            seed: rng.u64(..),
            members,
            processes,
            observers: rng.usize(..2),
            elections,
            lease_ttl,
            safety_margin,
            delay: rng.u64(1..10) * MILLISECOND,
            hosts_mend: rng.bool(),
            drops: true,
            one_identity: rng.u8(..8) == 0,
            term: rng.u64(2..60) * SECOND,
            stopping: [50 * MILLISECOND, 500 * MILLISECOND, lease_ttl, 3 * lease_ttl]
                [rng.usize(..4)],
            unrest,
            ..Plan::quiet(0)
        };
        if rng.u8(..) == 0 {
            // Most often not so many.
            let many = (MOST_ELECTIONS >> rng.u8(..7)).max(3);
            plan.hold_many(many, &mut rng);
        }
        plan.draw_faults(&mut rng);
        plan.draw_preferences(&mut Rng::with_seed(!seed));
        plan
    }

    /// In one run of eight, leases that have ended live again, because their first grant lands late, and what
    /// was asked in their former life is answered in this one. Where `Waiting` does not look at that (the stretch
    /// of its lease), once in some thousand of these runs a candidate leads on a key that is gone.
    fn draw_second_lives(&mut self, rng: &mut Rng) {
        if rng.u8(..8) != 0 || self.elections.len() > FEW_ELECTIONS {
            return;
        }
        self.faults.clear();
        self.term = rng.u64(2..12) * SECOND;
        self.all_the_time(Kind::LateGrants(rng.u64(1..4) * self.lease_ttl));
        self.all_the_time(Kind::LateReads(rng.u64(1..=5) * SECOND));
        for process in 0..self.processes {
            self.all_the_time(Kind::LostNews(process, 500));
            let mut at = rng.u64(..2 * self.lease_ttl);
            while at < self.unrest {
                let lasts = self.lease_ttl / 2 + rng.u64(..self.lease_ttl);
                let lasts = lasts.min(self.unrest - at);
                self.faults.push(Fault { at, lasts, kind: Kind::NoRenewals(process) });
                at += lasts + rng.u64(..2 * self.lease_ttl);
            }
        }
    }

    /// All the time, until all faults are healed.
    fn all_the_time(&mut self, kind: Kind) {
        self.faults.push(Fault { at: 0, lasts: self.unrest, kind });
    }

    /// In some runs, processes have priorities, in some they are drained, and in some they lead a
    /// part only.
    fn draw_preferences(&mut self, rng: &mut Rng) {
        if rng.u8(..3) == 0 {
            self.priorities = (0..self.processes).map(|_| rng.i32(-1..3)).collect();
            self.preempt_after = rng.bool().then(|| rng.u64(1..60) * SECOND);
        }
        if rng.u8(..3) == 0 {
            for _ in 0..rng.usize(1..6) {
                let at = rng.u64(..self.unrest);
                let lasts = rng.u64(..self.unrest - at);
                let kind = Kind::Drain(rng.usize(..self.processes));
                self.faults.push(Fault { at, lasts, kind });
            }
        }
        if rng.u8(..4) == 0 {
            let half = (self.elections.len() as u32 / 2).max(1);
            self.limits = (0..rng.usize(1..3))
                .map(|_| {
                    let at_most = [1, 2, half, u32::MAX][rng.usize(..4)];
                    Limit { at_most, is_fair: rng.bool(), at_once: rng.u32(1..8) }
                })
                .collect();
        }
    }

    /// What this seed draws where every process campaigns in so many elections.
    pub fn draw_many(seed: u64, elections: usize) -> Plan {
        let mut rng = Rng::with_seed(seed);
        let mut plan = Plan { faults: Vec::new(), ..Plan::draw_most(seed) };
        plan.hold_many(elections, &mut rng);
        plan.draw_faults(&mut rng);
        plan
    }

    /// Many elections on one lease: names that differ only in the end of a long prefix.
    fn hold_many(&mut self, many: usize, rng: &mut Rng) {
        let Election { contest, .. } = self.elections[0];
        let name = |number| format!("{}/{number:03}", "a-name-that-all-have-in-common/".repeat(3));
        self.elections = (0..many).map(|number| Election { name: name(number), contest }).collect();
        self.processes = 2;
        self.observers = 0;
        self.writes = false;
        self.unrest = rng.u64(30..60) * SECOND;
    }

    /// Some kinds of faults, as often and as hard as the seed likes.
    fn draw_faults(&mut self, rng: &mut Rng) {
        const KINDS: usize = 35;
        let gap = rng.u64(4..24) * SECOND;
        let longest = [2, 8, 20, 40][rng.usize(..4)] * SECOND;
        let mut chosen: Vec<usize> = (0..KINDS).filter(|_| rng.u8(..3) == 0).collect();
        chosen.retain(|&number| {
            // What breaks the store's word is rare: most laws do not hold after it.
            match self.kind(number, &mut Rng::with_seed(0)) {
                Kind::WrongRevocation | Kind::Restore { .. } => rng.u8(..4) == 0,
                _ => true,
            }
        });
        if chosen.is_empty() {
            chosen.push(0);
        }
        let mut at = 0;
        loop {
            at += 1 + rng.u64(..2 * gap);
            if at >= self.unrest {
                break;
            }
            let lasts = (100 * MILLISECOND + rng.u64(..longest)).min(self.unrest - at);
            let kind = self.kind(chosen[rng.usize(..chosen.len())], rng);
            self.faults.push(Fault { at, lasts, kind });
        }
        // In one run of eight, requests and answers are late all the time.
        if rng.u8(..8) == 0 {
            let kind = self.kind(LATE, rng);
            self.all_the_time(kind);
        }
    }

    fn kind(&self, number: usize, rng: &mut Rng) -> Kind {
        let process = rng.usize(..self.processes);
        let member = rng.usize(..self.members);
        let election = rng.usize(..self.elections.len());
        match number {
            0 => Kind::Pause(process),
            1 => Kind::Crash(process),
            2 => Kind::Trap(process, Moment::ALL[rng.usize(..Moment::ALL.len())]),
            3 => Kind::CutToStore(process),
            4 => Kind::CutFromStore(process),
            5 => Kind::Cut(process),
            6 => Kind::CutMember(process, member),
            7 => Kind::Slow(rng.u64(20..3_000) * MILLISECOND),
            8 => Kind::Loss(rng.u32(10..400)),
            9 => Kind::Repeat(rng.u32(10..400)),
            10 => Kind::SilentWatches(process),
            11 => Kind::BrokenStream(process),
            12 => Kind::MemberDown(member),
            13 => Kind::MemberPaused(member),
            14 => Kind::MemberCutOff(member),
            15 => Kind::NoQuorum,
            16 => Kind::Election,
            17 => Kind::WrongRevocation,
            18 => Kind::Restore { bumped: rng.bool() },
            19 => Kind::NoSpace,
            20 => Kind::Denied(process),
            21 => Kind::Revoke(election),
            22 => Kind::Depose(election),
            23 => Kind::Delete(election),
            24 => Kind::Overwrite(election),
            25 => Kind::Revalue(election),
            26 => Kind::RevokeLast(election),
            27 => Kind::SilentWatch(process),
            28 => Kind::LostNews(process, [100, 500, 1_000][rng.usize(..3)]),
            29 => Kind::SlowElection(election, rng.u64(1..15) * SECOND),
            30 => Kind::DropAll(process),
            31 => Kind::Leave(process, election),
            32 => Kind::Wish(election),
            LATE => Kind::Late(rng.u32(50..900), rng.u64(1..4) * self.lease_ttl),
            _ => Kind::Compact,
        }
    }

    /// Nothing goes wrong, and leaders stay: for scenarios to change.
    pub fn quiet(seed: u64) -> Plan {
        Plan {
            seed,
            members: 3,
            processes: 3,
            observers: 0,
            elections: vec![Election { name: "jobs".into(), contest: Contest::Queue }],
            lease_ttl: 10 * SECOND,
            safety_margin: 0,
            request_timeout: 5 * SECOND,
            delay: 2 * MILLISECOND,
            hosts_mend: false,
            writes: true,
            expectations: true,
            drops: false,
            one_identity: false,
            term: 100_000 * SECOND,
            stopping: 100 * MILLISECOND,
            priorities: Vec::new(),
            preempt_after: None,
            limits: Vec::new(),
            flaw: None,
            faults: Vec::new(),
            unrest: 60 * SECOND,
        }
    }

    /// The same without one of its faults.
    pub fn without(&self, fault: usize) -> Plan {
        let mut plan = self.clone();
        plan.faults.remove(fault);
        plan
    }
}
