//! What the elector says of its elections: one function for each notice.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tracing::{debug, info, warn};

use super::queue::Queue;
use super::registrants::{OnLease, Registrant, Registrants};
use super::verify::{self, Ledger, Verified, broken, misnamed};
use crate::event::{self, Participant};
use crate::metrics;
use crate::term::Term;
use crate::types::{
    self, Demotion, ElectionId, Event, Extension, Joined, Leadership, LeaseId, Listing, Mark,
    Notice, Sighting, Trouble, Withdrawal, WriteOutcome, Written,
};

impl Registrants {
    /// All but `closed`, which is the driver's. What the elector has to be told goes to
    /// `events`.
    pub(super) fn notice(
        &mut self,
        now: Mark,
        notice: Notice,
        ledger: &Ledger,
        events: &mut Queue,
    ) -> Verified {
        match notice {
            Notice::Joined(joined) => self.joined(joined),
            Notice::Elected(leadership) => self.elected(now, leadership, ledger, events),
            Notice::Extended(extension) => self.extended(extension, ledger, events),
            Notice::Endangered(leadership) => self.endangered(&leadership),
            Notice::HandOver(term) => self.hand_over(term, events),
            Notice::Demoted(demotion) => self.demoted(demotion, events),
            Notice::Leader(sighting) => self.leader(sighting),
            Notice::Listed(listing) => self.listed(listing),
            Notice::Written(written) => self.written(written),
            Notice::Withdrawn(withdrawal) => self.withdrawn(withdrawal),
            Notice::Trouble(trouble) => self.trouble(trouble),
            Notice::Closed => Ok(()),
        }
    }

    fn joined(&mut self, joined: Joined) -> Verified {
        let candidate = self.candidate(joined.election)?;
        info!(election = candidate.candidacy.name, epoch = joined.created, "joined");
        metrics::joined(&candidate.candidacy.name);
        candidate.join();
        candidate.tell(event::Event::Joined { key: joined.key, epoch: joined.created.into() });
        Ok(())
    }

    fn elected(
        &mut self,
        now: Mark,
        leadership: Leadership,
        ledger: &Ledger,
        events: &mut Queue,
    ) -> Verified {
        let Leadership { term: id, valid_until, .. } = leadership;
        let lease = leadership.lease.into();
        ledger.valid_until(lease, valid_until)?;
        let candidate = self.candidate(id.election)?;
        verify::may_lead(candidate, now, &leadership)?;
        let election = candidate.candidacy.name.clone();
        info!(election, epoch = id.epoch, %lease, "elected");
        self.extend(lease, valid_until, events);
        let validity = match self.leases.get(&lease) {
            Some(shared) => {
                verify::not_shortened(lease, &shared.validity, valid_until)?;
                Arc::clone(&shared.validity)
            }
            None => self.deadlines.validity(lease, valid_until),
        };
        let shared = || OnLease { validity: Arc::clone(&validity), elections: BTreeSet::new() };
        self.leases.entry(lease).or_insert_with(shared).elections.insert(id.election);
        let term = Term::begin(&election, id, leadership.key, validity, &self.deadlines);
        self.candidate(id.election)?.lead(term);
        Ok(())
    }

    fn extended(
        &mut self,
        Extension { lease, valid_until }: Extension,
        ledger: &Ledger,
        events: &mut Queue,
    ) -> Verified {
        let lease = lease.into();
        ledger.valid_until(lease, valid_until)?;
        debug!(%lease, valid_until, "extended");
        self.extend(lease, valid_until, events);
        Ok(())
    }

    fn endangered(&mut self, leadership: &Leadership) -> Verified {
        let candidate = self.candidate(leadership.term.election)?;
        verify::leads(candidate, leadership.term)?;
        candidate.endanger();
        Ok(())
    }

    fn hand_over(&mut self, term: types::Term, events: &mut Queue) -> Verified {
        let candidate = self.candidate(term.election)?;
        verify::leads(candidate, term)?;
        if candidate.resigns_for_the_holder() {
            events.push(Event::Resign(term));
        }
        Ok(())
    }

    fn demoted(&mut self, demotion: Demotion, events: &mut Queue) -> Verified {
        let Demotion { term, reason } = demotion;
        let candidate = self.candidate(term.election)?;
        verify::leads(candidate, term)?;
        self.leads_no_more(term.election);
        if self.candidate(term.election)?.demoted(reason) {
            events.push(Event::Yielded(term));
        }
        Ok(())
    }

    fn leader(&mut self, sighting: Sighting) -> Verified {
        let leader = sighting.leader.map(Participant::from);
        match self.get(sighting.election)? {
            Registrant::Candidate(candidate) => candidate.tell(event::Event::Leader(leader)),
            Registrant::Observer { observation, sightings, .. } => {
                let epoch = leader.as_ref().map(|leader| i64::from(leader.epoch));
                debug!(election = observation.name, epoch, "leader seen");
                sightings.send(Ok(leader));
            }
            Registrant::Inspector { .. } => return Err(misnamed(sighting.election)),
        }
        Ok(())
    }

    fn listed(&mut self, listing: Listing) -> Verified {
        let Some(Registrant::Inspector { listed, .. }) = self.all.remove(&listing.election) else {
            return Err(misnamed(listing.election));
        };
        // The caller may have gone.
        let _ = listed.send(Ok(listing.candidates));
        Ok(())
    }

    fn written(&mut self, Written { ticket, outcome }: Written) -> Verified {
        let Some((pending, new_value)) = self.writes.remove(&ticket) else {
            return Err(broken(format!("nobody waits for the write {ticket}")));
        };
        if let (Some((election, value)), WriteOutcome::Applied(_)) = (new_value, &outcome)
            && let Ok(candidate) = self.candidate(election)
        {
            candidate.candidacy.value = value;
        }
        if outcome == WriteOutcome::Stale {
            metrics::fenced();
        }
        pending.answer(outcome);
        Ok(())
    }

    fn withdrawn(&mut self, withdrawal: Withdrawal) -> Verified {
        self.leads_no_more(withdrawal.election);
        if self.withdraw(withdrawal.election, withdrawal.cause) {
            return Ok(());
        }
        Err(misnamed(withdrawal.election))
    }

    fn trouble(&self, Trouble { election, failure }: Trouble) -> Verified {
        match election.and_then(|election| self.all.get(&election)) {
            Some(registrant) => warn!(election = registrant.election().1, %failure, "trouble"),
            None => warn!(%failure, "trouble"),
        }
        self.tell_trouble(election, failure);
        Ok(())
    }

    /// Moves the one deadline of all who lead on a lease. If the extension comes too late,
    /// their terms are over, and the elector is told, because it takes them to stand.
    fn extend(&mut self, lease: LeaseId, valid_until: Mark, events: &mut Queue) {
        let Entry::Occupied(shared) = self.leases.entry(lease) else {
            return;
        };
        if shared.get().validity.extend(valid_until) {
            return;
        }
        for election in shared.remove().elections {
            if let Some(term) = self.candidate(election).ok().and_then(|it| it.expire()) {
                events.push(Event::Resign(term));
            }
        }
    }

    fn leads_no_more(&mut self, election: ElectionId) {
        let Some(lease) = self.candidate(election).ok().and_then(|it| Some(it.led()?.lease()))
        else {
            return;
        };
        if let Entry::Occupied(mut shared) = self.leases.entry(lease) {
            shared.get_mut().elections.remove(&election);
            if shared.get().elections.is_empty() {
                shared.remove();
            }
        }
    }
}
