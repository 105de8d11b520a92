//! The session: gets a lease, keeps it alive, notices its loss, and gives it back.
//!
//! The lease stays when a term ends, also after its deadline: the key is deleted, and claimed
//! again under the same lease. A new lease comes only when the store says that the old one is gone.

use alloc::vec::Vec;

use crate::backoff::{self, CAP};
use crate::context::{Answer, Context, Dirty, Purpose, unfit};
use crate::timers::{FAR, MILLISECOND, SECOND, Timer};
use crate::types::{
    Config, ConfigError, Duration, Failure, Grant, LeaseId, Mark, Operation, RequestId, Response,
};

/// How long a lease is kept that is not needed. The next campaign saves a grant, and the
/// revocation does not delay the successor's read.
const SPARE: Duration = SECOND;

/// A lease is given back when its renewals have been acknowledged too late for this many lease times.
const LATE_LEASE_TIMES: u64 = 3;

/// The lease, and the ones that are being given back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    ttl: Duration,
    margin: Duration,
    lease: Lease,
    retired: Vec<(LeaseId, Retired)>,
    /// Renewals of the last lease had failed: the store was away, and other hosts come
    /// back as well. Or that lease did not even live until its first renewal, and the
    /// next one may not either.
    come_back_slowly: bool,
    /// How often in a row the store refused a lease.
    refused: u32,
    /// Why the store refused a lease. The candidacies up to this one have not all been
    /// told yet.
    refusal: Option<(u32, Failure)>,
    /// The deadlines of lost leases. The terms on them have not all been told yet.
    past: Vec<(LeaseId, Mark)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Lease {
    /// No lease is needed, or the next try waits for its timer.
    #[default]
    None,
    Granting(Granting),
    Held(Held),
}

/// A lease that the store was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Granting {
    id: LeaseId,
    /// How many grants were sent under this id.
    asked: u32,
    call: Option<RequestId>,
}

/// A lease that the store granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Held {
    id: LeaseId,
    ttl: Duration,
    /// When the last acknowledged grant or renewal was sent; none while the store has
    /// only said that the lease exists.
    acknowledged: Option<Mark>,
    /// How long one may lead on it. It never goes back, because it was announced.
    valid_until: Mark,
    /// Whether a renewal was ever acknowledged.
    proven: bool,
    /// When the last grant or renewal was sent, acknowledged or not.
    last_sent: Mark,
    /// Renewals without an answer yet.
    renewals: Vec<Renewal>,
    /// Renewals that failed since the last acknowledged one.
    failed: u32,
    /// What is left of the lease is enough, so it is not renewed.
    lapsing: bool,
    /// See `Validity`.
    stretch: u32,
    /// The present deadline has passed.
    expired: bool,
    /// How often renewals failed until less than half of the time was left.
    dangers: u32,
    /// Less than that is left now.
    endangered: bool,
    /// Since when every acknowledged renewal has come too late to lead on.
    late_since: Option<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Renewal {
    id: RequestId,
    sent: Mark,
    /// The next renewal is not sent before this one has an answer, or has timed out.
    awaited: bool,
}

/// A lease that is being given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Retired {
    /// It expires by then at the latest.
    until: Mark,
    failed: u32,
}

/// A lease, and how long one may lead on it. A candidate may wait on a lease whose deadline has
/// passed, but not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub lease: LeaseId,
    pub until: Mark,
    /// A deadline that passes begins the next stretch of time, and so does the renewal after it. No
    /// term outlives its stretch. What was asked before it tells nothing of a key in it: the store may
    /// have ended the lease meanwhile, and made it anew by a grant that was given up, without its keys.
    pub stretch: u32,
    /// If renewals fail and less than half of the time is left: how often that has happened.
    pub danger: Option<u32>,
}

impl Session {
    pub fn new(config: &Config) -> Result<Session, ConfigError> {
        if config.lease_ttl == 0 {
            return Err(ConfigError::Other("the lease time is 0: give it a second or more".into()));
        }
        if config.request_timeout == 0 {
            return Err(ConfigError::Other(
                "the request time-out is 0: give it a second or more".into(),
            ));
        }
        let (ttl, margin) = (config.lease_ttl, config.safety_margin);
        if margin >= ttl {
            return Err(ConfigError::MarginExceedsTtl);
        }
        Ok(Session { ttl, margin, ..Session::default() })
    }

    /// The lease that the store has granted, if there is one.
    /// How long a lease lives.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    pub fn validity(&self) -> Option<Validity> {
        match &self.lease {
            Lease::Held(held) => {
                let Held { id: lease, valid_until: until, stretch, .. } = *held;
                let danger = held.endangered.then_some(held.dangers);
                Some(Validity { lease, until, stretch, danger })
            }
            Lease::None | Lease::Granting(_) => None,
        }
    }

    /// How long one could lead on a lease, also on one that was lost just now.
    pub fn deadline_of(&self, lease: LeaseId) -> Mark {
        match self.validity() {
            Some(validity) if validity.lease == lease => validity.until,
            Some(_) | None => {
                let past = self.past.iter().find(|(of, _)| *of == lease);
                past.map_or(0, |(_, until)| *until)
            }
        }
    }

    /// Why the store refuses this candidacy a lease, if it does.
    pub fn refusal(&self, admitted: u32) -> Option<&Failure> {
        let (last, failure) = self.refusal.as_ref()?;
        (admitted <= *last).then_some(failure)
    }

    /// Everything on the lease has caught up since it changed.
    pub fn swept(&mut self) {
        self.refusal = None;
        self.past = Vec::new();
    }

    /// Whether there is no lease, and none to give back.
    pub fn is_over(&self) -> bool {
        self.retired.is_empty() && matches!(self.lease, Lease::None)
    }

    // What the elections need.

    /// Gets, renews or gives back the lease, depending on what needs it. Candidates need it to
    /// live on. Deletions only need what is left of it.
    pub fn reconcile(&mut self, context: &mut Context, candidates: bool, deletions: bool) {
        if candidates || deletions {
            context.timers.cancel(Timer::GiveBack);
        }
        match &mut self.lease {
            Lease::None if candidates && !context.timers.is_set(Timer::Grant) => {
                self.come_back(context);
            }
            Lease::Held(held) if candidates && held.lapsing => {
                held.lapsing = false;
                context.timers.cancel(Timer::LeaseEnd);
                held.schedule_renewal(context);
            }
            Lease::Held(held) if !candidates => {
                if !held.lapsing {
                    held.lapsing = true;
                    context.timers.cancel(Timer::Renewal);
                    context.timers.set(Timer::LeaseEnd, held.last_sent.saturating_add(held.ttl));
                }
                if !deletions && !context.timers.is_set(Timer::GiveBack) {
                    context.set_timer(Timer::GiveBack, SPARE);
                }
            }
            Lease::None | Lease::Granting(_) | Lease::Held(_) => {}
        }
    }

    /// Forgets a lease, because the store says that it is gone.
    pub fn lose(&mut self, context: &mut Context, lease: LeaseId) {
        if let Lease::Held(held) = &self.lease
            && held.id == lease
        {
            let sentence = "the store says that the lease is gone: getting back in line";
            context.trouble(None, Failure::Other(sentence.into()));
            self.come_back_slowly = held.failed > 0 || !held.proven;
            self.drop_lease(context);
        }
    }

    // What falls due.

    /// Ends all terms on the lease if its deadline has passed.
    pub fn pass_deadline(&mut self, context: &mut Context) {
        if let Lease::Held(held) = &mut self.lease
            && held.valid_until <= context.now
            && !held.expired
        {
            context.timers.cancel(Timer::Deadline);
            held.expired = true;
            held.stretch += 1;
            context.sweep = true;
        }
    }

    /// Renewals fail, and less than half of the time is left.
    pub fn endanger(&mut self, context: &mut Context) {
        if let Lease::Held(held) = &mut self.lease {
            held.endangered = true;
            held.dangers += 1;
            context.sweep = true;
        }
    }

    /// Asks for a lease: at once, or a little later if many other hosts may do so too.
    fn come_back(&mut self, context: &mut Context) {
        if core::mem::take(&mut self.come_back_slowly) {
            let pause = 1 + context.random.below(CAP);
            context.set_timer(Timer::Grant, pause);
        } else {
            self.ask(context);
        }
    }

    /// Asks for a lease, under the id of the last try or a new one.
    pub fn ask(&mut self, context: &mut Context) {
        let (id, asked) = match &self.lease {
            Lease::None => (context.random.lease(), 1),
            Lease::Granting(granting) => (granting.id, granting.asked.saturating_add(1)),
            Lease::Held(_) => return,
        };
        let call = context.call(
            Purpose::Grant { sent: context.now },
            Operation::Grant(Grant { lease: id, ttl: self.ttl }),
        );
        self.lease = Lease::Granting(Granting { id, asked, call: Some(call) });
    }

    /// Sends a keep-alive.
    pub fn renew(&mut self, context: &mut Context) {
        let Lease::Held(held) = &mut self.lease else { return };
        let now = context.now;
        let ttl = held.ttl;
        // A renewal that was sent a lease time ago extends nothing. Its answer shows how slow answers are.
        let slowest = ttl.saturating_mul(LATE_LEASE_TIMES + 1);
        held.renewals.retain(|renewal| renewal.sent.saturating_add(slowest) > now);
        let id = context.call_renewal((ttl / 6).max(1), Operation::KeepAlive(held.id));
        held.renewals.push(Renewal { id, sent: now, awaited: true });
        held.last_sent = now;
    }

    /// Counts a renewal as failed that got no answer in time. Returns false if the call is not
    /// a renewal.
    pub fn give_up(&mut self, context: &mut Context, id: RequestId) -> bool {
        let Lease::Held(held) = &mut self.lease else { return false };
        let Some(renewal) = held.renewals.iter_mut().find(|renewal| renewal.id == id) else {
            return false;
        };
        renewal.awaited = false;
        held.renewal_failed(context, Failure::Timeout);
        true
    }

    /// Gives the lease back, if there is one or the store may have granted one.
    pub fn retire(&mut self, context: &mut Context) {
        // Where there is no candidacy, nobody can do what is wished.
        context.ignore_wishes();
        let (id, until) = match &self.lease {
            Lease::None => {
                context.timers.cancel(Timer::Grant);
                return;
            }
            Lease::Granting(granting) => {
                context.forget(granting.call);
                (granting.id, context.now.saturating_add(self.ttl))
            }
            Lease::Held(held) => (held.id, held.last_sent.saturating_add(held.ttl)),
        };
        self.drop_lease(context);
        // A store keeps a lease for at least a second, even if it was asked for less.
        let until = until.max(context.now.saturating_add(SECOND));
        self.retired.push((id, Retired { until, failed: 0 }));
        self.revoke(context, id);
    }

    /// Asks the store to revoke a lease, for the first time or again.
    pub fn revoke(&mut self, context: &mut Context, lease: LeaseId) {
        match self.retired(lease) {
            Some(retired) if retired.until > context.now => {
                context.call(Purpose::Revoke(lease), Operation::Revoke(lease));
            }
            Some(_) => self.forget(context, lease),
            None => {}
        }
    }

    fn retired(&mut self, lease: LeaseId) -> Option<&mut Retired> {
        self.retired.iter_mut().find(|(id, _)| *id == lease).map(|(_, retired)| retired)
    }

    /// Forgets a lease that was given back.
    fn forget(&mut self, context: &mut Context, lease: LeaseId) {
        self.retired.retain(|(id, _)| *id != lease);
        context.lease_is_dirty = true;
    }

    // What the store answers.

    /// Takes the answer to a grant that was sent at `sent`.
    pub fn granted(&mut self, context: &mut Context, sent: Mark, outcome: Answer) {
        let Lease::Granting(granting) = &mut self.lease else { return };
        granting.call = None;
        let (id, asked) = (granting.id, granting.asked);
        let failure = match outcome {
            Ok(Response::Granted(ttl)) => {
                let ttl = ttl.min(FAR);
                if margin_of(self.margin, ttl) < ttl {
                    self.hold(context, id, ttl, Some(sent));
                    return;
                }
                let sentence = "the store grants less time than the safety margin takes: lower \
                                the margin, or ask for more";
                return self.refuse(context, Failure::Invalid(sentence.into()));
            }
            // An earlier try made it. The answer does not say how long it lives, but the
            // answer to a renewal will.
            Ok(Response::Exists) if asked > 1 => {
                self.hold(context, id, self.ttl, None);
                self.renew(context);
                return;
            }
            // Another client drew the same id.
            Ok(Response::Exists) => {
                self.lease = Lease::None;
                self.ask(context);
                return;
            }
            Ok(_) => unfit("grant"),
            Err(failure @ (Failure::Denied(_) | Failure::Invalid(_))) => {
                return self.refuse(context, failure);
            }
            Err(failure) => failure,
        };
        if asked == 1 {
            context.trouble(None, failure);
        }
        context.retry(Timer::Grant, asked);
    }

    /// Takes the answer to a renewal, even a late one. Returns false if the call is not a renewal.
    pub fn renewed(&mut self, context: &mut Context, id: RequestId, outcome: &Answer) -> bool {
        let Lease::Held(held) = &mut self.lease else { return false };
        let Some(index) = held.renewals.iter().position(|renewal| renewal.id == id) else {
            return false;
        };
        let renewal = held.renewals.swap_remove(index);
        context.timers.cancel(Timer::GiveUp(id));
        let extends = renewal.sent.saturating_add(held.ttl) > context.now;
        match outcome {
            Ok(Response::Renewed(ttl)) if *ttl > 0 => {
                held.proven = true;
                if held.acknowledged.is_none_or(|sent| sent < renewal.sent) {
                    if extends {
                        held.acknowledge(renewal.sent, (*ttl).min(FAR), self.margin);
                        held.failed = 0;
                        held.schedule(context);
                    }
                    if held.renews_too_late(context.now) {
                        let sentence = "the store's answers take longer than the lease lives: giving the \
                                        lease back, so that others can lead. Ask for a longer one";
                        context.trouble(None, Failure::Other(sentence.into()));
                        self.come_back_slowly = true;
                        self.retire(context);
                    }
                }
            }
            Ok(Response::Expired | Response::Renewed(_)) if !extends => {}
            Ok(Response::Expired | Response::Renewed(_)) => {
                let lease = held.id;
                self.lose(context, lease);
            }
            Ok(_) if renewal.awaited => held.renewal_failed(context, unfit("keep-alive")),
            Err(failure) if renewal.awaited => held.renewal_failed(context, failure.clone()),
            Ok(_) | Err(_) => {}
        }
        true
    }

    /// Takes the answer to a revocation.
    pub fn revoked(&mut self, context: &mut Context, lease: LeaseId, outcome: &Answer) {
        let Some(retired) = self.retired(lease) else { return };
        match outcome {
            Ok(Response::Revoked | Response::Expired)
            | Err(Failure::Denied(_) | Failure::Invalid(_)) => self.forget(context, lease),
            Ok(_) | Err(_) if retired.until <= context.now => self.forget(context, lease),
            Ok(_) | Err(_) => {
                retired.failed = retired.failed.saturating_add(1);
                let failed = retired.failed;
                context.retry(Timer::Revoke(lease), failed);
            }
        }
    }

    // Steps.

    fn hold(&mut self, context: &mut Context, id: LeaseId, ttl: Duration, sent: Option<Mark>) {
        let mut held = Held {
            id,
            ttl,
            last_sent: sent.unwrap_or(context.now),
            expired: sent.is_none(),
            ..Held::default()
        };
        if let Some(sent) = sent {
            held.acknowledge(sent, ttl, self.margin);
        }
        held.schedule(context);
        self.lease = Lease::Held(held);
        self.refused = 0;
        // From here on the elector has each idle candidate claim its key.
        context.lease = Some(id);
        context.lease_is_dirty = true;
        context.sweep = true;
    }

    /// The store refuses a lease: tells the candidacies.
    fn refuse(&mut self, context: &mut Context, failure: Failure) {
        self.retire(context);
        self.refused = self.refused.saturating_add(1);
        // Candidacies that come later try again.
        context.retry(Timer::Grant, self.refused);
        self.refusal = Some((context.admitted, failure));
        context.sweep = true;
    }

    /// Forgets the lease. The store has ended it, or soon will.
    pub fn drop_lease(&mut self, context: &mut Context) {
        if let Lease::Held(held) = &self.lease {
            self.past.push((held.id, held.valid_until));
            for renewal in &held.renewals {
                context.timers.cancel(Timer::GiveUp(renewal.id));
            }
        }
        for timer in [
            Timer::Deadline,
            Timer::Endangered,
            Timer::Renewal,
            Timer::LeaseEnd,
            Timer::GiveBack,
            Timer::Grant,
        ] {
            context.timers.cancel(timer);
        }
        self.lease = Lease::None;
        context.lease = None;
        context.overdue.clear();
        context.lease_is_dirty = true;
        context.sweep = true;
    }
}

impl Held {
    /// Sets the timers by the last acknowledged grant or renewal.
    fn schedule(&self, context: &mut Context) {
        context.timers.cancel(Timer::Endangered);
        if self.acknowledged.is_none() {
            return;
        }
        if self.valid_until > context.now {
            context.timers.set(Timer::Deadline, self.valid_until);
            let overdue = core::mem::take(&mut context.overdue);
            context.dirty.extend(overdue.into_iter().map(Dirty::Election));
        }
        self.schedule_renewal(context);
    }

    /// Whether acknowledgements have come too late for so long that the lease should be given back. Its
    /// candidates could never lead, and would block those behind them.
    fn renews_too_late(&mut self, now: Mark) -> bool {
        if self.valid_until > now {
            self.late_since = None;
            return false;
        }
        let since = *self.late_since.get_or_insert(now);
        now.saturating_sub(since) >= self.ttl.saturating_mul(LATE_LEASE_TIMES)
    }

    fn renewal_failed(&mut self, context: &mut Context, failure: Failure) {
        self.failed = self.failed.saturating_add(1);
        let valid_until = self.valid_until;
        if self.failed == 1 {
            context.trouble(None, failure);
            let half = valid_until.saturating_sub(self.ttl / 2);
            if valid_until > context.now {
                context.timers.set(Timer::Endangered, half.max(context.now));
            }
        }
        if self.lapsing {
            return;
        }
        let mut pause = backoff::pause(self.failed, &mut context.random);
        // While somebody may lead, the next try must come in time.
        let left = valid_until.saturating_sub(context.now);
        if left > 0 {
            pause = pause.min(left / 4).max(MILLISECOND);
        }
        context.set_timer(Timer::Renewal, pause);
    }

    /// Sets the next renewal, unless one is under way or none is needed.
    fn schedule_renewal(&self, context: &mut Context) {
        let awaits = self.renewals.iter().any(|renewal| renewal.awaited);
        if !self.lapsing && !awaits {
            let due = self.acknowledged.map_or(0, |sent| sent.saturating_add(self.ttl / 3));
            let soonest = context.now.saturating_add(MILLISECOND);
            context.timers.set(Timer::Renewal, due.max(soonest));
        }
    }

    /// Notes the newest acknowledged grant or renewal. The lease is valid from the moment that
    /// it was sent, for the time that the store granted, less the margin.
    fn acknowledge(&mut self, sent: Mark, ttl: Duration, margin: Duration) {
        self.acknowledged = Some(sent);
        self.ttl = ttl;
        let led = ttl.saturating_sub(margin_of(margin, ttl));
        let until = sent.saturating_add(led);
        if until > self.valid_until {
            self.stretch += u32::from(self.expired);
            self.expired = false;
            self.valid_until = until;
        }
        self.endangered = false;
    }
}

/// What to subtract from a time to live: at least 1% of it.
fn margin_of(margin: Duration, ttl: Duration) -> Duration {
    margin.max(ttl / 100)
}
