//! Requests between processes and members: sent, delayed, lost, repeated and answered.

use incumbent_guest::types::*;

use super::{Happening, Held, Request, Sender, Transit, World};
use crate::SECOND;
use crate::laws::Broken;

impl World<'_> {
    pub(super) fn call(&mut self, process: usize, now: Mark, call: Call) -> Result<(), Broken> {
        self.laws.call(process, now, &call, &self.processes[process].parts)?;
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
        let lag = self.lag(&request.operation);
        let what = Happening::Arrive { member, request };
        self.carry(process, member, true, lag, what);
    }

    /// How much longer than others this takes.
    pub(super) fn lag(&mut self, operation: &Operation) -> Duration {
        if self.laggards.is_empty() {
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
        let is_of = |office: usize| {
            let rest = key.strip_prefix(self.plan.offices[office].name.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let most = self.laggards.iter().filter(|(office, _)| is_of(*office)).map(|(_, most)| most);
        let most = most.max().copied().unwrap_or(0).max(1);
        if self.rng.bool() {
            return 0;
        }
        // Nothing is late when all is well.
        self.rng.u64(..most).min((self.plan.unrest + SECOND).saturating_sub(self.now))
    }

    pub(super) fn carry(
        &mut self,
        process: usize,
        member: usize,
        to_store: bool,
        lag: Duration,
        what: Happening,
    ) {
        match self.transit(process, member, to_store) {
            Transit::After(delay) => self.after(delay + lag, what),
            Transit::Held => self.held.push(Held { process, member, to_store, what }),
            Transit::Lost => self.run.lost += 1,
        }
    }

    pub(super) fn transit(&mut self, process: usize, member: usize, to_store: bool) -> Transit {
        let it = &self.processes[process];
        let cuts = if to_store { &it.cut_to } else { &it.cut_from };
        if cuts[member] > 0 {
            // A connection may outlive the cut, or break.
            return if self.rng.bool() { Transit::Held } else { Transit::Lost };
        }
        let loss = self.loss.iter().max().copied().unwrap_or(0);
        if loss > 0 && self.rng.u32(..1_000) < loss {
            return Transit::Lost;
        }
        Transit::After(self.delay())
    }

    pub(super) fn delay(&mut self) -> Duration {
        let most = self.slow.iter().max().copied().unwrap_or(0).max(self.plan.delay);
        100_000 + self.rng.u64(..most)
    }

    pub(super) fn arrive(&mut self, member: usize, request: Request) {
        let process = request.process;
        if self.cluster.members[member].down > 0 {
            return self.reply(member, request, Err(Failure::Unavailable));
        }
        if self.cluster.members[member].paused > 0 {
            self.cluster.members[member].backlog.push(request);
            return;
        }
        if !self.cluster.serves(member) {
            if self.rng.bool() {
                self.cluster.waiting.push((member, request));
            } else {
                self.reply(member, request, Err(Failure::Unavailable));
            }
            return;
        }
        let outcome = match &request.operation {
            Operation::Grant(_)
            | Operation::Revoke(_)
            | Operation::Claim(_)
            | Operation::Read(_)
            | Operation::Guarded(_)
                if self.processes[process].denied > 0 =>
            {
                Err(Failure::Denied("permission denied".into()))
            }
            operation => self.cluster.store.perform(self.now, operation),
        };
        self.changed();
        self.reply(member, request, outcome);
    }

    pub(super) fn reply(
        &mut self,
        member: usize,
        request: Request,
        outcome: Result<Response, Failure>,
    ) {
        let process = request.process;
        let repeat = self.repeat.iter().max().copied().unwrap_or(0);
        if repeat > 0 && self.rng.u32(..1_000) < repeat {
            let (request, outcome) = (request.clone(), outcome.clone());
            self.carry(process, member, false, 0, Happening::Answer { request, outcome });
        }
        let lag = self.lag(&request.operation);
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
