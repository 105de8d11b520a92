//! What each fault does when it begins, and when it ends.

use incumbent_guest::types::*;

use super::stream::ChangesByKey;
use super::{Held, World};
use crate::laws::Broken;
use crate::plan::{Election, Kind, Moment};

/// The lease of what operators wish.
const OPERATORS: LeaseId = 1;

impl World<'_> {
    /// Whether this fault is going on.
    pub fn is_active(&self, fault: Kind) -> bool {
        self.faults.contains(&fault)
    }

    /// How hard the hardest of the faults is that are going on and of this kind.
    pub(super) fn hardest<T: Ord + Default>(&self, of: impl Fn(Kind) -> Option<T>) -> T {
        self.faults.iter().copied().filter_map(of).max().unwrap_or_default()
    }

    /// Whether a process cannot speak with a member, or cannot hear it.
    pub(super) fn is_cut(&self, process: usize, member: usize, to_store: bool) -> bool {
        let one_way =
            if to_store { Kind::CutToStore(process) } else { Kind::CutFromStore(process) };
        let cuts = [one_way, Kind::Cut(process), Kind::CutMember(process, member)];
        cuts.into_iter().any(|cut| self.is_active(cut))
    }

    pub(super) fn begin(&mut self, index: usize) -> Result<(), Broken> {
        let kind = self.plan.faults[index].kind;
        self.run.faults += 1;
        self.note_leader();
        self.story.note(self.now, &format!("{kind:?} begins"));
        self.faults.push(kind);
        match kind {
            Kind::Crash(process) => self.kill(process),
            Kind::Trap(process, Moment::Now) => self.trap(process)?,
            Kind::SilentWatches(process) => {
                self.run.silent = true;
                self.processes[process].stream.silence_all();
            }
            Kind::SilentWatch(process) => {
                let watches = &mut self.processes[process].stream;
                let one = self.rng.usize(..watches.len().max(1));
                self.run.silent |= watches.silence(one);
            }
            Kind::LostNews(..) => self.run.silent = true,
            Kind::DropAll(process) => self.drop_all(process)?,
            Kind::Leave(process, election) => self.leave(process, election),
            Kind::BrokenStream(process) => {
                if self.processes[process].runs {
                    self.break_stream(process, self.plan.hosts_mend);
                }
            }
            Kind::MemberDown(member) => {
                self.cluster.backlog.retain(|(of, _)| *of != member);
                self.leave_member(member);
            }
            Kind::Election => self.cluster.leader = None,
            Kind::WrongRevocation => {
                let leases: Vec<LeaseId> = self.cluster.store.leases().collect();
                if !leases.is_empty() {
                    let lease = leases[self.rng.usize(..leases.len())];
                    self.laws.meddled_with_lease(lease, &self.cluster.store);
                    self.cluster.store.end_lease(lease);
                    self.changed();
                }
            }
            Kind::Restore { .. } => self.backup = Some(self.cluster.store.clone()),
            Kind::NoSpace => self.cluster.store.full = true,
            Kind::Revoke(election) => self.revoke_lease_of(self.leaders_key(election)),
            Kind::Depose(election) => self.delete(self.leaders_key(election)),
            Kind::Delete(election) => self.delete(self.candidates(election).pop()),
            Kind::RevokeLast(election) => self.revoke_lease_of(self.candidates(election).pop()),
            Kind::Overwrite(election) => {
                if let Some(entry) = self.leaders_key(election) {
                    self.laws.meddled_with(entry.created);
                    // A full store does not let it.
                    let _ = self.cluster.store.put(entry.key, b"meddled".into(), 0);
                    self.changed();
                }
            }
            Kind::Revalue(election) => {
                if let Some(entry) = self.leaders_key(election) {
                    let _ = self.cluster.store.put(entry.key, b"meddled".into(), entry.lease);
                    self.changed();
                }
            }
            Kind::Wish(election) => self.wish(election, ""),
            Kind::Drain(process) => self.tell_limit(process),
            Kind::Compact => {
                let revision = self.cluster.store.revision();
                self.cluster.store.compact(revision);
            }
            // It is looked up where it matters.
            Kind::Pause(_)
            | Kind::Trap(..)
            | Kind::CutToStore(_)
            | Kind::CutFromStore(_)
            | Kind::Cut(_)
            | Kind::CutMember(..)
            | Kind::Slow(_)
            | Kind::Late(..)
            | Kind::LateGrants(_)
            | Kind::LateReads(_)
            | Kind::NoRenewals(_)
            | Kind::Loss(_)
            | Kind::Repeat(_)
            | Kind::SlowElection(..)
            | Kind::MemberPaused(_)
            | Kind::MemberCutOff(_)
            | Kind::NoQuorum
            | Kind::Denied(_) => {}
        }
        self.members_changed();
        Ok(())
    }

    pub(super) fn end(&mut self, index: usize) {
        let kind = self.plan.faults[index].kind;
        self.story.note(self.now, &format!("{kind:?} ends"));
        // A trap that has happened has ended. Several faults may be alike.
        if let Some(index) = self.faults.iter().position(|other| *other == kind) {
            self.faults.swap_remove(index);
        }
        match kind {
            Kind::Pause(process) => self.resume(process),
            Kind::Crash(process) if !self.processes[process].runs => self.start(process),
            Kind::CutToStore(process)
            | Kind::CutFromStore(process)
            | Kind::Cut(process)
            | Kind::CutMember(process, _) => self.mend(process),
            Kind::MemberPaused(member) => self.resume_member(member),
            Kind::NoQuorum => (0..self.plan.members).for_each(|member| self.resume_member(member)),
            Kind::Restore { bumped } => self.restore(bumped),
            Kind::NoSpace => self.cluster.store.full = false,
            Kind::Wish(election) => self.wish(election, " now"),
            Kind::Drain(process) => self.tell_limit(process),
            _ => {}
        }
        self.members_changed();
        self.changed();
    }

    /// An operator ends the lease that a key is attached to.
    fn revoke_lease_of(&mut self, entry: Option<Entry>) {
        if let Some(Entry { lease, .. }) = entry {
            self.laws.meddled_with_lease(lease, &self.cluster.store);
            self.cluster.store.end_lease(lease);
            self.changed();
        }
    }

    /// An operator wants one of the candidates that wait to lead next.
    fn wish(&mut self, election: usize, now: &str) {
        let candidates = self.candidates(election);
        if let [leader, waiting @ ..] = candidates.as_slice()
            && !waiting.is_empty()
        {
            let target = waiting[self.rng.usize(..waiting.len())].created;
            let key = self.operators_wish(election);
            let value = format!("{} {target}{now}", leader.created);
            let grant = Operation::Grant(Grant { lease: OPERATORS, ttl: u64::MAX / 4 });
            // There may be one, and a full store does not let it put a key.
            self.cluster.store.perform_together(self.now, [&grant]);
            let _ = self.cluster.store.put(key, value.into(), OPERATORS);
            self.changed();
        }
    }

    /// The lease of operators who wished something has ended.
    pub(super) fn forget_wishes(&mut self) {
        self.cluster.store.end_lease(OPERATORS);
        self.changed();
    }

    fn operators_wish(&self, election: usize) -> Vec<u8> {
        let Election { name, .. } = &self.plan.elections[election];
        format!("incumbent-wishes/{name}/transfer").into()
    }

    /// Tells an elector how much its process leads, and whether it is drained.
    pub(super) fn tell_limit(&mut self, process: usize) {
        let is_drained = self.is_active(Kind::Drain(process));
        let drained = Limit { at_most: 0, is_fair: false, at_once: 1 };
        let limit = if is_drained {
            Some(drained)
        } else {
            self.plan.limits.iter().cycle().nth(process).copied()
        };
        self.tell(process, Event::Limit(limit));
    }

    /// An operator deletes a key.
    fn delete(&mut self, entry: Option<Entry>) {
        if let Some(Entry { key, created, .. }) = entry {
            self.laws.meddled_with(created);
            self.cluster.store.delete(&key);
            self.changed();
        }
    }

    /// Streams to a member that is gone break at once.
    fn leave_member(&mut self, member: usize) {
        for process in 0..self.processes.len() {
            if self.processes[process].member == member && self.processes[process].runs {
                self.supervise_soon(process);
            }
        }
    }

    fn resume(&mut self, process: usize) {
        if !self.is_active(Kind::Pause(process)) {
            for what in std::mem::take(&mut self.processes[process].stuck) {
                self.after(0, what);
            }
        }
    }

    /// What a cut held up goes on its way, unless another one holds it up.
    fn mend(&mut self, process: usize) {
        let held = std::mem::take(&mut self.held);
        let is_held = |held: &Held| self.is_cut(held.process, held.member, held.to_store);
        let (held, freed): (Vec<Held>, Vec<Held>) = held.into_iter().partition(is_held);
        self.held = held;
        for held in freed {
            let delay = self.delay();
            self.after(delay, held.what);
        }
        self.supervise_soon(process);
    }

    fn restore(&mut self, bumped: bool) {
        let Some(mut store) = self.backup.take() else { return };
        if bumped {
            store.bump(1_000_000);
        }
        store.full = self.cluster.store.full;
        store.extend_leases(self.now, 0);
        self.laws.restored([&self.cluster.store, &store], &self.processes, bumped);
        self.cluster.store = store;
        self.changes = ChangesByKey::default();
        self.cluster.waiting.clear();
        for process in 0..self.processes.len() {
            self.break_stream(process, false);
        }
    }
}
