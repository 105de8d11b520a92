//! What the users of a session want.

use tokio::sync::oneshot;

use super::Driver;
use super::handle::Request;
use super::registrants::Pending;
use crate::types::{ElectionId, Event, Failure, GuardedWrite, Proclamation, Ticket, WriteOutcome};
use crate::write::Write;

impl Driver {
    pub(super) fn take(&mut self, request: Request) {
        match request {
            Request::Register(registrant) if self.closing.is_some() => registrant.withdraw(None),
            Request::Register(registrant) => {
                let event = self.registrants.register(registrant);
                // A broken elector's successor is told of all at its start.
                self.events.extend(event.filter(|_| self.recovery.is_running()));
            }
            Request::Proclaim { election, value, pending } => {
                self.write(pending, |ticket| {
                    Event::Proclaim(Proclamation { election, ticket, value })
                });
            }
            Request::Write { term, write: Write { expect, mutations }, pending } => {
                self.write(pending, |ticket| {
                    Event::Write(GuardedWrite { term, ticket, expect, mutations })
                });
            }
            Request::Yielded(term) => {
                if self.registrants.work_stopped(term) {
                    self.events.push(Event::Yielded(term));
                }
                self.recovery.end_orphan(term.election, false, &mut self.registrants);
            }
            Request::Leave(election) => self.leave(election),
            Request::Limit(limit) => {
                self.recovery.successor.limit(limit);
                self.events.push(Event::Limit(limit));
            }
            Request::Terms(tell) => {
                // The caller may have gone.
                let _ = tell.send(self.registrants.terms());
            }
            Request::Ping(done) => {
                // The caller may have gone.
                let _ = done.send(());
            }
            Request::Close(done) => self.close(Some(done)),
        }
    }

    fn write(&mut self, pending: Pending, event: impl FnOnce(Ticket) -> Event) {
        if self.recovery.is_running() {
            self.events.extend(self.registrants.write(pending, event));
        } else {
            let sentence = "the elector broke, and is being replaced: try again in some seconds";
            pending.answer(WriteOutcome::Failed(Failure::Other(sentence.into())));
        }
    }

    fn leave(&mut self, election: ElectionId) {
        if !self.registrants.leaves(election) {
            return;
        }
        let told = !self.recovery.successor.forget(election);
        if told && self.recovery.is_running() {
            self.events.push(Event::Leave(election));
        } else {
            self.registrants.withdraw(election, None);
        }
    }

    pub(super) fn close(&mut self, done: Option<oneshot::Sender<()>>) {
        if self.closing.is_none() && self.recovery.is_running() {
            self.recovery.successor.close();
            self.events.push(Event::Close);
            // Terms that are held to their end, and after them the lease.
            let now = self.clock.now();
            let lease = self.calls.ledger.longest_lease(now).max(self.config.lease_ttl);
            let whole = lease.saturating_add(self.config.request_timeout).saturating_mul(2);
            self.close_by = now.saturating_add(whole);
        }
        self.open = None;
        self.closing.get_or_insert_default().extend(done);
    }
}
