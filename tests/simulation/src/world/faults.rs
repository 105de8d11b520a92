//! What each fault does when it begins, and when it ends.

use incumbent_guest::types::*;

use super::{Happening, Held, World};
use crate::laws::Broken;
use crate::plan::{Kind, Moment};
use crate::{MILLISECOND, SECOND};

/// How long the store takes at most to give itself a leader.
pub const STORE_ELECTION: Duration = 2 * SECOND;

/// What the store adds to every lease when its leader changes.
pub const ELECTION_TIMEOUT: Duration = SECOND;

impl World<'_> {
    pub(super) fn begin(&mut self, index: usize) -> Result<(), Broken> {
        let fault = self.plan.faults[index];
        self.run.faults += 1;
        self.story.note(self.now, &format!("{:?} begins", fault.kind));
        match fault.kind {
            Kind::Pause(process) => self.processes[process].paused += 1,
            Kind::Crash(process) => self.kill(process),
            Kind::Trap(process, Moment::Now) => self.trap(process)?,
            Kind::Trap(process, moment) => self.processes[process].traps.push(moment),
            // Nobody reads it.
            Kind::WallClock(_) => {}
            Kind::CutToStore(process) => self.cut(process, None, true, false),
            Kind::CutFromStore(process) => self.cut(process, None, false, true),
            Kind::Cut(process) => self.cut(process, None, true, true),
            Kind::CutMember(process, member) => self.cut(process, Some(member), true, true),
            Kind::Slow(most) => self.slow.push(most),
            Kind::Loss(share) => self.loss.push(share),
            Kind::Repeat(share) => self.repeat.push(share),
            Kind::SilentWatches(process) => {
                self.run.silent = true;
                for watch in self.processes[process].stream.watches.values_mut() {
                    watch.silent = true;
                }
            }
            Kind::SilentWatch(process) => {
                let watches = &mut self.processes[process].stream.watches;
                let one = self.rng.usize(..watches.len().max(1));
                if let Some(watch) = watches.values_mut().nth(one) {
                    self.run.silent = true;
                    watch.silent = true;
                }
            }
            Kind::LostNews(process, share) => {
                self.run.silent = true;
                self.processes[process].lost.push(share);
            }
            Kind::SlowOffice(office, most) => self.laggards.push((office, most)),
            Kind::DropAll(process) => self.drop_all(process)?,
            Kind::Leave(process, office) => self.leave(process, office),
            Kind::BrokenStream(process) => {
                if self.processes[process].runs {
                    self.break_stream(process, self.plan.hosts_mend);
                }
            }
            Kind::MemberDown(member) => {
                self.cluster.members[member].down += 1;
                self.cluster.members[member].backlog.clear();
                self.leave_member(member);
            }
            Kind::MemberPaused(member) => self.cluster.members[member].paused += 1,
            Kind::MemberCutOff(member) => self.cluster.members[member].cut_off += 1,
            Kind::NoQuorum => {
                for member in 0..self.plan.members {
                    self.cluster.members[member].paused += 1;
                }
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
            Kind::Denied(process) => self.processes[process].denied += 1,
            Kind::Revoke(office) => self.revoke_lease_of(self.leaders_key(office)),
            Kind::Depose(office) => self.delete(self.leaders_key(office)),
            Kind::Delete(office) => self.delete(self.candidates(office).pop()),
            Kind::RevokeLast(office) => self.revoke_lease_of(self.candidates(office).pop()),
            Kind::Overwrite(office) => {
                if let Some(entry) = self.leaders_key(office) {
                    self.laws.meddled_with(entry.created);
                    // A full store does not let it.
                    let _ = self.cluster.store.put(entry.key, b"meddled".into(), 0);
                    self.changed();
                }
            }
            Kind::Revalue(office) => {
                if let Some(entry) = self.leaders_key(office) {
                    let _ = self.cluster.store.put(entry.key, b"meddled".into(), entry.lease);
                    self.changed();
                }
            }
            Kind::Compact => {
                let revision = self.cluster.store.revision();
                self.cluster.store.compact(revision);
            }
        }
        self.members_changed();
        Ok(())
    }

    pub(super) fn end(&mut self, index: usize) {
        let fault = self.plan.faults[index];
        self.story.note(self.now, &format!("{:?} ends", fault.kind));
        match fault.kind {
            Kind::Pause(process) => self.resume(process),
            Kind::Crash(process) => {
                if !self.processes[process].runs {
                    self.start(process);
                }
            }
            Kind::Trap(process, moment) => remove(&mut self.processes[process].traps, moment),
            Kind::LostNews(process, share) => remove(&mut self.processes[process].lost, share),
            Kind::SlowOffice(office, most) => remove(&mut self.laggards, (office, most)),
            Kind::WallClock(_)
            | Kind::SilentWatches(_)
            | Kind::SilentWatch(_)
            | Kind::DropAll(_)
            | Kind::Leave(..)
            | Kind::BrokenStream(_)
            | Kind::Election
            | Kind::WrongRevocation
            | Kind::Revoke(_)
            | Kind::Depose(_)
            | Kind::Delete(_)
            | Kind::RevokeLast(_)
            | Kind::Overwrite(_)
            | Kind::Revalue(_)
            | Kind::Compact => {}
            Kind::CutToStore(process) => self.mend(process, None, true, false),
            Kind::CutFromStore(process) => self.mend(process, None, false, true),
            Kind::Cut(process) => self.mend(process, None, true, true),
            Kind::CutMember(process, member) => self.mend(process, Some(member), true, true),
            Kind::Slow(most) => remove(&mut self.slow, most),
            Kind::Loss(share) => remove(&mut self.loss, share),
            Kind::Repeat(share) => remove(&mut self.repeat, share),
            Kind::MemberDown(member) => {
                let member = &mut self.cluster.members[member];
                member.down = member.down.saturating_sub(1);
            }
            Kind::MemberPaused(member) => self.resume_member(member),
            Kind::MemberCutOff(member) => {
                let member = &mut self.cluster.members[member];
                member.cut_off = member.cut_off.saturating_sub(1);
            }
            Kind::NoQuorum => {
                for member in 0..self.plan.members {
                    self.resume_member(member);
                }
            }
            Kind::Restore { bumped } => self.restore(bumped),
            Kind::NoSpace => self.cluster.store.full = false,
            Kind::Denied(process) => {
                let it = &mut self.processes[process];
                it.denied = it.denied.saturating_sub(1);
            }
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

    /// An operator deletes a key.
    fn delete(&mut self, entry: Option<Entry>) {
        if let Some(Entry { key, created, .. }) = entry {
            self.laws.meddled_with(created);
            self.cluster.store.delete(&key);
            self.changed();
        }
    }

    pub(super) fn resume(&mut self, process: usize) {
        let it = &mut self.processes[process];
        it.paused = it.paused.saturating_sub(1);
        if it.paused == 0 {
            for what in std::mem::take(&mut it.stuck) {
                self.after(0, what);
            }
        }
    }

    pub(super) fn resume_member(&mut self, member: usize) {
        let it = &mut self.cluster.members[member];
        it.paused = it.paused.saturating_sub(1);
        if it.paused == 0 {
            for request in std::mem::take(&mut it.backlog) {
                let pause = self.rng.u64(..10 * MILLISECOND);
                self.after(pause, Happening::Arrive { member, request });
            }
        }
    }

    pub(super) fn cut(&mut self, process: usize, member: Option<usize>, to: bool, from: bool) {
        let it = &mut self.processes[process];
        for other in 0..self.plan.members {
            if member.is_none_or(|member| member == other) {
                it.cut_to[other] += u32::from(to);
                it.cut_from[other] += u32::from(from);
            }
        }
    }

    pub(super) fn mend(&mut self, process: usize, member: Option<usize>, to: bool, from: bool) {
        let it = &mut self.processes[process];
        for other in 0..self.plan.members {
            if member.is_none_or(|member| member == other) {
                it.cut_to[other] -= u32::from(to);
                it.cut_from[other] -= u32::from(from);
            }
        }
        let free = |held: &mut Held| {
            let it = &self.processes[held.process];
            let cuts = if held.to_store { &it.cut_to } else { &it.cut_from };
            cuts[held.member] == 0
        };
        let freed: Vec<Held> = self.held.extract_if(.., free).collect();
        for held in freed {
            let delay = self.delay();
            self.after(delay, held.what);
        }
        self.supervise_soon(process);
    }

    /// Streams to a member that is gone break at once.
    pub(super) fn leave_member(&mut self, member: usize) {
        for process in 0..self.processes.len() {
            if self.processes[process].member == member && self.processes[process].runs {
                self.supervise_soon(process);
            }
        }
    }

    pub(super) fn members_changed(&mut self) {
        if self.cluster.depose() && !self.election_due {
            self.election_due = true;
            let pause = STORE_ELECTION / 2 + self.rng.u64(..STORE_ELECTION / 2);
            self.after(pause, Happening::Elect);
        }
    }

    pub(super) fn elect(&mut self) {
        self.election_due = false;
        if self.cluster.leader.is_some() || !self.cluster.elect(&mut self.rng) {
            return;
        }
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

    pub(super) fn restore(&mut self, bumped: bool) {
        let Some(mut store) = self.backup.take() else { return };
        if bumped {
            store.bump(1_000_000);
        }
        store.full = self.cluster.store.full;
        store.extend_leases(self.now, 0);
        self.laws.restored([&self.cluster.store, &store], &self.processes, bumped);
        self.cluster.store = store;
        self.cluster.waiting.clear();
        for process in 0..self.processes.len() {
            self.break_stream(process, false);
        }
    }
}

/// Ends one of several that may be alike.
fn remove<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if let Some(index) = all.iter().position(|other| *other == one) {
        all.swap_remove(index);
    }
}
