//! What the states of a candidate share: the candidacy, the context that they work in, the
//! inputs that they take, and the changes of state.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::priority::Priority;
use super::round::Round;
use crate::cleanup::{AbandonedKey, Cleanup};
use crate::context::{Answer, Context, Purpose, WatchHandle};
use crate::layout::{Layout, check_value};
use crate::session::{Session, Validity};
use crate::timers::Timer;
use crate::types::{
    Change, Contest, ElectionId, Entry, Epoch, Failure, Guard, Guarded, Joined, LeaseId, Mark,
    Mutation, Notice, Operation, Reason, RequestId, Revision, Selection, Sighting, Ticket,
    WriteOutcome,
};
use crate::wish::Wish;

pub const WENT_BACK: &str = "the store went back behind this election's last epoch, as one that \
                             is restored from a backup does: waiting until it is beyond";

/// How many wishes a candidate keeps while it does not know its place in line.
const MOST_PENDING_WISHES: usize = 16;

/// What a state does with each input, and which state comes next. By default, nothing happens.
pub trait Inputs {
    // The application's requests.

    /// The application gives this term back.
    fn resign(&mut self, _: &mut CandidateContext<'_>, _epoch: Epoch) -> Next {
        Next::Stay
    }
    /// The work of this term has stopped.
    fn yielded(&mut self, _: &mut CandidateContext<'_>, _epoch: Epoch) -> Next {
        Next::Stay
    }
    /// A certain candidate should lead next.
    fn wished(&mut self, _: &mut CandidateContext<'_>, _: &Wish<'_>) -> Next {
        Next::Stay
    }
    /// It may do again what was wished of it.
    fn wishes_due(&mut self, _: &mut CandidateContext<'_>) -> Next {
        Next::Stay
    }
    /// Somebody else is in line, and should lead.
    fn hand_over(&mut self, _: &mut CandidateContext<'_>) -> Next {
        Next::Stay
    }
    /// A leader with a lower priority may have led for long enough.
    fn preempt(&mut self, _: &mut CandidateContext<'_>) {}
    /// The application ends the candidacy.
    fn leave(&mut self, _: &mut CandidateContext<'_>) -> Next {
        Next::Stay
    }
    /// There may be a value to proclaim. It stays queued until there is a key to write it into.
    fn proclaim_next(&mut self, _: &mut CandidateContext<'_>) {}

    // The lease.

    /// The store says that the lease is gone, and with it the key.
    fn lease_lost(&mut self, _: &mut CandidateContext<'_>) -> Next {
        Next::Stay
    }
    /// The store refuses this candidacy a lease, or the removal of the key that it has to claim.
    fn refused(&mut self, _: &mut CandidateContext<'_>, _cause: Failure) -> Next {
        Next::Stay
    }
    /// The validity of the lease may have ended or been extended, or may be in danger.
    fn validity_changed(&mut self, _: &mut CandidateContext<'_>, _validity: Validity) -> Next {
        Next::Stay
    }

    // What falls due.

    /// Something changed that this candidate may have waited for.
    fn reconcile(&mut self, _: &mut CandidateContext<'_>) -> Next {
        Next::Stay
    }
    /// The election's timer fired.
    fn due(&mut self, _: &mut CandidateContext<'_>) -> Next {
        Next::Stay
    }

    // The store's answers.

    /// The answer to a claim. If the lease is gone, the session takes the answer instead.
    fn claimed(&mut self, _: &mut CandidateContext<'_>, _: Answer) -> Next {
        Next::Stay
    }
    /// The answer to a read of who is in front, or of the keys that this state relies on.
    fn checked(&mut self, _: &mut CandidateContext<'_>, _: Answer) -> Next {
        Next::Stay
    }
    /// What the regular check of all watches found at the keys that this state relies on.
    fn examine(&mut self, _: &mut CandidateContext<'_>, _: Reading) -> Next {
        Next::Stay
    }
    /// The store refused a write because the key of this epoch is not there.
    fn fenced(&mut self, _: &mut CandidateContext<'_>, _epoch: Epoch) -> Next {
        Next::Stay
    }

    // What the watches report.

    /// A change of this candidate's own key, or in a race of the one key.
    fn own_key_changed(&mut self, _: &mut CandidateContext<'_>, _: Change) -> Next {
        Next::Stay
    }
    /// A change of the key in front of this candidate's.
    fn predecessor_changed(&mut self, _: &mut CandidateContext<'_>, _: Change) -> Next {
        Next::Stay
    }
    /// A change of the key in front of the predecessor's.
    fn farther_changed(&mut self, _: &mut CandidateContext<'_>, _: Change) -> Next {
        Next::Stay
    }

    /// The reads of the keys that this state relies on.
    fn selections(&mut self) -> Vec<Selection> {
        Vec::new()
    }
}

/// The state that follows an input.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// The same one.
    Stay,
    /// There is no key: claims one, at once or after a pause.
    Idle(Pause),
    /// Claims this key under this lease.
    Claiming { key: Vec<u8>, lease: LeaseId, watch: WatchHandle },
    /// A rival has the one key of a race, as seen at this revision.
    LostRace { key: Vec<u8>, watch: WatchHandle, rival: Entry, seen: Revision },
    /// Has a key of its own.
    Waiting(OwnKey),
    /// Nobody is in front, and our key was there at the revision `seen`. The candidate leads for as long
    /// as the lease is valid. If no read has shown this (`is_read`), one follows.
    Leading { own: OwnKey, validity: Validity, seen: Revision, is_read: bool },
    /// The term is over. Its deadline was `until`, and its key may still be in the store.
    Ended { own: OwnKey, key_remains: bool, until: Mark, reason: Reason },
    /// The candidacy is over.
    Over,
}

/// How long a candidate without a key waits before it claims one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    None,
    /// As its failures in a row demand.
    BackOff,
    /// A random moment: all losers of a race saw the key go at the same instant.
    Jitter,
    /// A while: it has made room for others, and would be in their way.
    Room,
}

/// The candidacy, in whichever state it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Common {
    pub election: ElectionId,
    pub layout: Layout,
    /// What other candidates and observers read.
    pub value: Vec<u8>,
    /// Whether the candidate campaigns again after a term.
    pub rejoin: bool,
    /// How many candidacies there were up to this one.
    pub admitted: u32,
    /// The lease under which a key was claimed last; 0 for none, or one that is gone.
    pub lease: LeaseId,
    /// Values to proclaim one after the other, once there is a key.
    pub proclamations: VecDeque<Proclamation>,
    /// A proclamation has no answer yet.
    pub proclaiming: bool,
    /// Claims under the present lease that got no answer, and may still land.
    pub given_up: u32,
    /// The create revision of the last key that was announced.
    pub announced: Option<Revision>,
    /// It leads only in an epoch above: the newest one in which its elector led before it began, in any
    /// election, or that it has seen, in a race also a rival's.
    pub newest: Epoch,
    /// Whether that epoch is of this election.
    pub newest_is_of_name: bool,
    /// Whether a read has looked for the other layout under this name.
    pub layouts_compared: bool,
    /// Failures in a row.
    pub failed: u32,
    /// Until when it keeps its place, and shows that it leads, because an operator named it.
    pub named_until: Mark,
    /// Its term is handed over because the session is drained, or has been, and its key is not gone
    /// yet.
    pub hands_over: bool,
    pub priority: Priority,
    pub round: Round,
    /// The last wishes that came while this candidate did not know its place in line, or had made room of late.
    pub pending_wishes: Vec<Wish<'static>>,
    /// All wishes up to this revision are known, and the watch of wishes tells later ones.
    pub wishes_known_at: Revision,
    /// Whether the application was told of a leased key below the name that is no candidate's.
    pub reported_foreign_key: bool,
}

impl Common {
    /// Whether there may be wishes that it has neither heard nor read.
    pub fn misses_wishes(&self, context: &Context) -> bool {
        self.layout.contest == Contest::Queue && context.missed_wishes_since(self.wishes_known_at)
    }

    /// Whether a term of this election stays if it comes back, or has come back.
    pub fn has_handed_on(&self, context: &Context) -> bool {
        context.share.has_handed_on(self.layout.hash)
    }

    pub fn timer(&self) -> Timer {
        Timer::Election(self.election)
    }

    pub fn is_named(&self, now: Mark) -> bool {
        now < self.named_until
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proclamation {
    /// None for one that the application did not ask for: an older value was found in the key.
    pub ticket: Option<Ticket>,
    pub value: Vec<u8>,
}

/// A key of this candidate in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnKey {
    pub key: Vec<u8>,
    pub lease: LeaseId,
    pub created: Revision,
    pub watch: WatchHandle,
}

impl OwnKey {
    /// Takes the key out of a state that ends.
    pub fn take(&mut self) -> OwnKey {
        let OwnKey { lease, created, watch, .. } = *self;
        OwnKey { key: core::mem::take(&mut self.key), lease, created, watch }
    }

    /// The guard of a write under this key.
    pub fn guard(&self) -> Guard {
        Guard { key: self.key.clone(), epoch: self.created, lease: Some(self.lease) }
    }

    /// Whether this is the key as we made it. A new value is no loss, because our own
    /// proclamation looks the same.
    pub fn is_intact(&self, entry: Option<&Entry>) -> bool {
        entry.is_some_and(|entry| entry.created == self.created && entry.lease == self.lease)
    }

    /// Whether a change took the key from us, and what is in its place.
    pub fn taken_by(&self, change: Change) -> Option<Option<Entry>> {
        match change {
            Change::Put(entry) => (entry.modified >= self.created && !self.is_intact(Some(&entry)))
                .then_some(Some(entry)),
            Change::Deleted(deletion) => (deletion.at > self.created).then_some(None),
            Change::Started(_) | Change::Ended(_) => None,
        }
    }
}

/// The reads that show what the watches of some keys may have missed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// The revision at which the keys were last read.
    pub seen: Revision,
    pub call: Option<RequestId>,
}

impl Check {
    pub fn new(seen: Revision) -> Check {
        Check { seen, call: None }
    }

    /// Reads the keys, unless a read is under way.
    pub fn start(&mut self, cx: &mut CandidateContext<'_>, selections: Vec<Selection>) -> Next {
        if self.call.is_none() {
            cx.context.timers.cancel(cx.timer());
            let purpose = Purpose::Check(cx.common.election);
            self.call = Some(cx.context.call(purpose, Operation::Read(selections)));
        }
        Next::Stay
    }

    /// Whether a read has to show what happened between the last one and the beginning of these
    /// watches. That cannot be told before all of them are on.
    pub fn is_due(&self, cx: &mut CandidateContext<'_>, watches: &[WatchHandle]) -> bool {
        if watches.iter().any(|watch| watch.started.is_none()) {
            return false;
        }
        let covered = watches.iter().all(|watch| watch.covers(self.seen));
        if covered {
            cx.common.failed = 0;
        }
        !covered
    }
}

/// What a read found at single keys.
#[derive(Debug)]
pub struct Reading {
    pub at: Revision,
    keys: Vec<Vec<u8>>,
    found: Vec<Vec<Entry>>,
}

impl Reading {
    pub fn new(keys: Vec<Vec<u8>>, found: Vec<Vec<Entry>>, at: Revision) -> Reading {
        Reading { at, keys, found }
    }

    /// What was at one key; none if it was not read.
    pub fn entry(&self, key: &[u8]) -> Option<Option<Entry>> {
        let index = self.keys.iter().position(|read| read == key)?;
        Some(self.found.get(index)?.first().cloned())
    }

    /// All that was found below a prefix; none if that was not read.
    pub fn below(&self, prefix: &[u8]) -> Option<Vec<Entry>> {
        let index = self.keys.iter().position(|read| read == prefix)?;
        self.found.get(index).cloned()
    }
}

pub fn other(sentence: &str) -> Failure {
    Failure::Other(sentence.into())
}

/// What the states of a candidate work with.
#[derive(Debug)]
pub struct CandidateContext<'a> {
    pub common: &'a mut Common,
    pub context: &'a mut Context,
    pub cleanup: &'a mut Cleanup,
    pub session: &'a Session,
    /// The lease that the session holds, and how long one may lead on it.
    pub validity: Option<Validity>,
}

impl CandidateContext<'_> {
    pub fn timer(&self) -> Timer {
        self.common.timer()
    }

    /// Whether an entry is attached to the lease that we hold.
    pub fn is_ours(&self, entry: &Entry) -> bool {
        self.validity.is_some_and(|validity| validity.lease == entry.lease)
    }

    /// Whether one may lead on the lease now.
    pub fn is_valid(&self) -> bool {
        self.validity.is_some_and(|validity| validity.until > self.context.now)
    }

    /// The present stretch of the lease's time.
    pub fn stretch(&self) -> Option<u32> {
        self.validity.map(|validity| validity.stretch)
    }

    /// Counts a failure, and tells the application of the first in a row.
    pub fn record_failure(&mut self, failure: Failure) {
        self.common.failed = self.common.failed.saturating_add(1);
        if self.common.failed == 1 {
            self.context.trouble(Some(self.common.election), failure);
        }
    }

    /// Records the failure of a call that the state sends again when its timer fires.
    pub fn try_later(&mut self, failure: Failure) -> Next {
        self.record_failure(failure);
        self.retry();
        Next::Stay
    }

    /// Sets the timer to the next try.
    pub fn retry(&mut self) {
        self.context.retry(self.timer(), self.common.failed);
    }

    /// Keeps a wish until this candidate knows its place, or may make room again.
    pub fn keep_wish(&mut self, wish: &Wish<'_>) {
        let pending = &mut self.common.pending_wishes;
        let wish = wish.nameless();
        if !pending.contains(&wish) {
            if pending.len() >= MOST_PENDING_WISHES {
                pending.remove(0);
            }
            pending.push(wish);
        }
    }

    // What the application is told.

    pub fn announce(&mut self, key: &[u8], created: Revision) {
        if self.common.announced != Some(created) {
            self.common.announced = Some(created);
            let joined = Joined { election: self.common.election, key: key.into(), created };
            self.context.notify(Notice::Joined(joined));
        }
    }

    pub fn tell_leader(&mut self, leader: Option<Entry>) {
        if let Some(leader) = &leader
            && leader.created > self.common.newest
        {
            (self.common.newest, self.common.newest_is_of_name) = (leader.created, true);
        }
        let sighting = Sighting { election: self.common.election, leader };
        self.context.notify(Notice::Leader(sighting));
    }

    // Proclamations.

    /// Queues a value that the application proclaims.
    pub fn proclaim(&mut self, ticket: Ticket, value: Vec<u8>) {
        match check_value(&value) {
            Ok(()) => {
                let proclamation = Proclamation { ticket: Some(ticket), value };
                self.common.proclamations.push_back(proclamation);
            }
            Err(sentence) => {
                let outcome = WriteOutcome::Failed(Failure::Invalid(sentence));
                self.context.written(ticket, outcome);
            }
        }
    }

    /// Writes the next value into our key, unless a write has no answer yet.
    pub fn proclaim_into(&mut self, own: &OwnKey) {
        if self.common.proclaiming {
            return;
        }
        if let Some(Proclamation { ticket, value }) = self.common.proclamations.pop_front() {
            self.common.value.clone_from(&value);
            let guarded = Guarded {
                guard: own.guard(),
                expect: Vec::new(),
                mutations: [Mutation::Proclaim(value)].into(),
            };
            let (election, created) = (self.common.election, own.created);
            let purpose = Purpose::Proclaim { election, created, ticket };
            self.context.call(purpose, Operation::Guarded(guarded));
            self.common.proclaiming = true;
        }
    }

    // Keys that have to go, and the end of a candidacy.

    /// Hands a key over to the cleanup. A candidacy that ends is over once the key is gone.
    pub fn abandon(
        &mut self,
        key: Vec<u8>,
        lease: LeaseId,
        watch: Option<WatchHandle>,
    ) -> AbandonedKey {
        AbandonedKey {
            layout: self.common.layout.clone(),
            key,
            lease,
            given_up: core::mem::take(&mut self.common.given_up),
            // A key of ours may be older than the term of another election, and still there.
            last_created: if self.common.newest_is_of_name { self.common.newest } else { 0 },
            watch,
            election: self.common.election,
            is_last: !self.common.rejoin,
            hands_over: core::mem::take(&mut self.common.hands_over),
        }
    }

    /// Whether it lets others lead, because its session leads enough.
    pub fn gives_way(&mut self) -> bool {
        if !self.context.leads_enough() {
            return false;
        }
        let now = self.context.now;
        let round = core::mem::take(&mut self.common.round);
        let gives_way = !round.is_on(now);
        if gives_way {
            self.common.round = Round::begin(now);
        } else if !round.is_open() {
            // All others in line lead enough as well.
            self.context.share.keep(self.common.layout.hash, now);
        }
        gives_way
    }

    /// The key of a term that was handed over is gone.
    pub fn handed_over(&mut self) {
        if core::mem::take(&mut self.common.hands_over) {
            self.context.share.under_way -= 1;
        }
    }

    /// Has the cleanup delete what claims that were given up may still make.
    pub fn await_landings(&mut self, watch: Option<WatchHandle>) {
        match self.validity {
            Some(Validity { lease, .. }) if self.common.given_up > 0 => {
                let key = self.common.layout.key(lease);
                let abandoned = AbandonedKey { is_last: false, ..self.abandon(key, lease, watch) };
                self.cleanup.await_landing(self.context, abandoned);
            }
            Some(_) | None => {
                if let Some(watch) = watch {
                    self.context.unwatch(watch);
                }
            }
        }
    }

    /// Deletes a key that stands in our place and must not lead. Ours is claimed again.
    pub fn clear(
        &mut self,
        key: Vec<u8>,
        lease: LeaseId,
        watch: WatchHandle,
        created: Revision,
    ) -> Next {
        self.context.unwatch(watch);
        let abandoned = AbandonedKey { is_last: false, ..self.abandon(key, lease, None) };
        self.cleanup.delete(self.context, abandoned, created);
        self.start_over()
    }

    /// Claims a key again: at once after the first failure, later after more of them.
    pub fn start_over(&self) -> Next {
        Next::Idle(if self.common.failed > 1 { Pause::BackOff } else { Pause::None })
    }

    /// Ends a candidacy that the store does not allow.
    pub fn withdraw(&mut self, cause: Failure) -> Next {
        self.context.withdraw(self.common.election, Some(cause));
        self.await_landings(None);
        Next::Over
    }

    /// Ends a candidacy that has no key.
    pub fn conclude(&mut self, watch: Option<WatchHandle>) -> Next {
        self.await_landings(watch);
        self.cleanup.conclude(self.context, &self.common.layout, self.common.election);
        Next::Over
    }
}
