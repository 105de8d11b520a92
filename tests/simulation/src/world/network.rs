//! Requests between processes and members: sent, delayed, lost, repeated and answered.

use incumbent_guest::types::*;

use super::{Happening, Held, Request, Sender, World};
use crate::SECOND;
use crate::laws::Broken;
use crate::plan::Kind;
use crate::store::Together;

/// How much of what happens next is looked through for what goes together.
const SOON: usize = 16;

impl World<'_> {
    pub(super) fn call(&mut self, process: usize, now: Mark, call: Call) -> Result<(), Broken> {
        self.laws.call(process, now, &call, &self.processes[process].terms)?;
        self.run.reads += u64::from(matches!(call.operation, Operation::Read(_)));
        let it = &mut self.processes[process];
        if let Operation::Grant(grant) = &call.operation
            && !it.leases.contains(&grant.lease)
        {
            it.leases.push(grant.lease);
        }
        let generation = it.generation;
        // Who was not answered in time is asked no more.
        if self.laws.unanswered(process, now) {
            it.member = (it.member + 1) % self.plan.members;
        }
        let from = Sender::Elector { generation, id: call.id };
        let request = Request { process, from, operation: call.operation };
        let pause = self.rng.u64(..100_000);
        self.after(pause, Happening::Depart { request, generation });
        Ok(())
    }

    /// Sends something that no elector asked for.
    pub fn send(&mut self, request: Request) {
        let generation = self.processes[request.process].generation;
        self.after(10_000, Happening::Depart { request, generation });
    }

    pub(super) fn depart(&mut self, request: Request) {
        let (process, member) = (request.process, self.processes[request.process].member);
        let is_renewal = matches!(request.operation, Operation::KeepAlive(_));
        if is_renewal && self.is_active(Kind::NoRenewals(process)) {
            self.run.lost += 1;
            return;
        }
        let lag = self.lag(&request.operation).max(self.lateness());
        let is_grant = matches!(request.operation, Operation::Grant(_));
        let lag = lag.max(self.lateness_of_half(|kind| match kind {
            Kind::LateGrants(most) if is_grant => Some(most),
            _ => None,
        }));
        let what = Happening::Arrive { member, request };
        self.carry(process, member, true, lag, what);
    }

    /// How much longer than others this takes.
    pub(super) fn lag(&mut self, operation: &Operation) -> Duration {
        let slow = |kind: &Kind| match *kind {
            Kind::SlowElection(election, most) => Some((election, most)),
            _ => None,
        };
        let slow: Vec<(usize, Duration)> = self.faults.iter().filter_map(slow).collect();
        if slow.is_empty() {
            return 0;
        }
        let key = match operation {
            Operation::Claim(claim) => &claim.key,
            Operation::Guarded(guarded) => &guarded.guard.key,
            Operation::Read(selections) => match selections.first() {
                Some(selection) => &selection.key,
                None => return 0,
            },
            Operation::Grant(_) | Operation::KeepAlive(_) | Operation::Revoke(_) => return 0,
        };
        let is_of = |election: usize| {
            let rest = key.strip_prefix(self.plan.elections[election].name.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let most = slow.into_iter().filter(|(election, _)| is_of(*election)).map(|(_, most)| most);
        let most = most.max().unwrap_or(1);
        if self.rng.bool() {
            return 0;
        }
        let late = self.rng.u64(..most);
        self.before_calm(late)
    }

    /// How much longer a request, or an answer, is on its way now that some are late.
    fn lateness(&mut self) -> Duration {
        let late = self.hardest(|kind| match kind {
            Kind::Late(share, most) => Some((share, most)),
            _ => None,
        });
        match late {
            (share @ 1.., most) if self.rng.u32(..1_000) < share => {
                let late = self.rng.u64(..most);
                self.before_calm(late)
            }
            _ => 0,
        }
    }

    /// How much longer half of such messages are on their way, while this fault is going on.
    fn lateness_of_half(&mut self, of: impl Fn(Kind) -> Option<Duration>) -> Duration {
        let most = self.hardest(of);
        if most == 0 || self.rng.bool() {
            return 0;
        }
        let late = self.rng.u64(..most);
        self.before_calm(late)
    }

    /// Nothing is late when all is well.
    fn before_calm(&self, late: Duration) -> Duration {
        late.min((self.plan.unrest + SECOND).saturating_sub(self.now))
    }

    pub(super) fn carry(
        &mut self,
        process: usize,
        member: usize,
        to_store: bool,
        lag: Duration,
        what: Happening,
    ) {
        let loss = self.hardest(|kind| match kind {
            Kind::Loss(share) => Some(share),
            _ => None,
        });
        if self.is_cut(process, member, to_store) {
            // A connection may outlive the cut, or break.
            if self.rng.bool() {
                self.held.push(Held { process, member, to_store, what });
            } else {
                self.run.lost += 1;
            }
        } else if loss > 0 && self.rng.u32(..1_000) < loss {
            self.run.lost += 1;
        } else {
            let delay = self.delay();
            self.after(delay + lag, what);
        }
    }

    pub(super) fn delay(&mut self) -> Duration {
        let slow = self.hardest(|kind| match kind {
            Kind::Slow(most) => Some(most),
            _ => None,
        });
        100_000 + self.rng.u64(..slow.max(self.plan.delay))
    }

    /// Whether an answer or an event comes twice this time.
    pub(super) fn repeats(&mut self) -> bool {
        let share = self.hardest(|kind| match kind {
            Kind::Repeat(share) => Some(share),
            _ => None,
        });
        share > 0 && self.rng.u32(..1_000) < share
    }

    pub(super) fn arrive(&mut self, member: usize, request: Request) {
        let process = request.process;
        if self.is_active(Kind::MemberDown(member)) {
            return self.reply(member, request, Err(Failure::Unavailable));
        }
        if self.is_stopped(member) {
            self.cluster.backlog.push((member, request));
            return;
        }
        if !self.serves(member) {
            if self.rng.bool() {
                self.cluster.waiting.push((member, request));
            } else {
                self.reply(member, request, Err(Failure::Unavailable));
            }
            return;
        }
        let is_denied = self.is_active(Kind::Denied(process));
        if is_denied && !matches!(request.operation, Operation::KeepAlive(_)) {
            let denied = Failure::Denied("permission denied".into());
            return self.reply(member, request, Err(denied));
        }
        let batch = self.batch(member, request);
        let operations = batch.iter().map(|request| &request.operation);
        let outcomes = self.cluster.store.perform_together(self.now, operations);
        self.changed();
        for (request, outcome) in batch.into_iter().zip(outcomes) {
            self.reply(member, request, outcome);
        }
    }

    /// A request, and perhaps others of its process that arrive soon, in one transaction.
    fn batch(&mut self, member: usize, first: Request) -> Vec<Request> {
        let process = first.process;
        let mut together = Together::default();
        let mut is_part = |request: &Request| {
            let is_write = matches!(request.operation, Operation::Claim(_) | Operation::Guarded(_));
            is_write && request.process == process && together.admits(&request.operation)
        };
        if !is_part(&first) || self.rng.bool() {
            return vec![first];
        }
        let soon = self.queue.range(..).take(SOON).filter_map(|(at, what)| match what {
            Happening::Arrive { member: to, request } if *to == member && is_part(request) => {
                Some(*at)
            }
            _ => None,
        });
        let mut batch = vec![first];
        for at in soon.collect::<Vec<_>>() {
            if let Some(Happening::Arrive { request, .. }) = self.queue.remove(&at) {
                batch.push(request);
            }
        }
        batch
    }

    pub(super) fn reply(
        &mut self,
        member: usize,
        request: Request,
        outcome: Result<Response, Failure>,
    ) {
        let process = request.process;
        if self.repeats() {
            let (request, outcome) = (request.clone(), outcome.clone());
            self.carry(process, member, false, 0, Happening::Answer { request, outcome });
        }
        let lag = self.lag(&request.operation).max(self.lateness());
        let is_read = matches!(request.operation, Operation::Read(_));
        let lag = lag.max(self.lateness_of_half(|kind| match kind {
            Kind::LateReads(most) if is_read => Some(most),
            _ => None,
        }));
        self.carry(process, member, false, lag, Happening::Answer { request, outcome });
    }

    pub(super) fn answered(&mut self, request: Request, outcome: Result<Response, Failure>) {
        let process = request.process;
        if let Err(Failure::Unavailable) = outcome {
            let it = &mut self.processes[process];
            it.member = (it.member + 1) % self.plan.members;
        }
        match request.from {
            Sender::Elector { generation, id } => {
                if self.processes[process].generation == generation {
                    self.tell(process, Event::Reply(Reply { id, outcome }));
                }
            }
            Sender::Host => {}
            Sender::Application { life, part, epoch, increment } => {
                let it = &mut self.processes[process];
                let reading = &mut it.parts[part].reading;
                if it.life == life && reading.take_if(|(it, _)| *it == increment).is_some() {
                    self.counter_read(process, part, epoch, increment, outcome);
                }
            }
        }
    }
}
