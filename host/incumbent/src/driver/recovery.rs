//! When the elector breaks: its terms go on to their deadlines, and another elector takes
//! its place.

use std::collections::BTreeSet;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tracing::{error, info, warn};

use super::registrants::{Registrant, Registrants};
use crate::backoff::Backoff;
use crate::clock::nanoseconds;
use crate::elector::{Component, ComponentError, Elector};
use crate::metrics;
use crate::recording::{HostAction, NamedTerm, Stream};
use crate::store::Store;
use crate::types::{self, Config, ElectionId, Failure, LeaseId, Mark, Operation, WriteOutcome};

mod orphans;
mod successor;

use orphans::Orphans;
use successor::Successor;

/// The first pause before a broken elector is replaced, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// An elector that has worked for so long is replaced after the first pause.
const PROBATION: Duration = Duration::from_secs(60);

/// The elector, and what has to go on when it breaks.
pub(super) struct Recovery {
    state: ElectorState,
    component: Component,
    config: Config,
    store: Arc<dyn Store>,
    /// When the elector was opened, or broke.
    opened: Mark,
    backoff: Backoff,
    pub(super) successor: Successor,
    orphans: Orphans,
    revocations: FuturesUnordered<BoxFuture<'static, ()>>,
    pub(super) recording: Option<Stream>,
}

enum ElectorState {
    Running(Elector),
    /// Another elector is opened at this mark.
    Broken(Mark),
    /// The elector has said `closed`.
    Closed,
}

impl Recovery {
    /// Opens the first elector. A seed that was given is its alone, so that the leases of a
    /// broken elector are not taken for the next one's.
    pub(super) fn start(
        component: Component,
        config: Config,
        store: Arc<dyn Store>,
        now: Mark,
        recording: Option<Stream>,
    ) -> Result<Self, ComponentError> {
        Ok(Self {
            state: ElectorState::Running(open(&component, config, now, recording.as_ref())?),
            component,
            config: Config { seed: (0, 0), ..config },
            store,
            opened: now,
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
            successor: Successor::default(),
            orphans: Orphans::default(),
            revocations: FuturesUnordered::new(),
            recording,
        })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, ElectorState::Running(_))
    }

    pub(super) fn running(&mut self) -> Option<&mut Elector> {
        if let ElectorState::Running(elector) = &mut self.state { Some(elector) } else { None }
    }

    /// Whether nothing is left to do once the session closes.
    pub(super) fn is_done(&self, closing: bool) -> bool {
        let over = match self.state {
            ElectorState::Running(_) => false,
            ElectorState::Broken(_) => closing,
            ElectorState::Closed => true,
        };
        over && self.orphans.is_empty() && self.revocations.is_empty()
    }

    /// When the driver has to wake; a running elector wants it at `deadline`.
    pub(super) fn next_wake(&self, deadline: Option<Mark>, closing: bool) -> Option<Mark> {
        let wake = match self.state {
            ElectorState::Running(_) => deadline,
            ElectorState::Broken(reopen) => Some(reopen).filter(|_| !closing),
            ElectorState::Closed => None,
        };
        self.orphans.next_deadline().into_iter().chain(wake).min()
    }

    /// Whether the elector has to be told of more elections right now.
    pub(super) fn has_untold(&self) -> bool {
        self.is_running() && self.successor.has_next()
    }

    pub(super) fn closed(&mut self) {
        self.state = ElectorState::Closed;
    }

    /// Ready once for each lease that is given back.
    pub(super) fn poll_revoked(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        self.revocations.poll_next_unpin(context)
    }

    /// The elector broke, and may have left these leases. Its terms go on to their deadlines,
    /// and the leases are kept until then. It was not told that the work of these terms has stopped.
    pub(super) fn broke(
        &mut self,
        now: Mark,
        error: &ComponentError,
        leases: BTreeSet<LeaseId>,
        untold: Vec<types::Term>,
        registrants: &mut Registrants,
    ) {
        let in_a_row = now.saturating_sub(self.opened) <= nanoseconds(PROBATION);
        if !in_a_row {
            self.backoff.reset();
        }
        let (error, pause) = (chain(error), self.backoff.pause());
        error!(error, ?pause, "the elector is replaced");
        metrics::replaced();
        let trouble = format!("the elector is replaced, in {pause:?}: {error}");
        self.did(HostAction::Broke(error));
        registrants.tell_trouble(None, Failure::Other(trouble));
        self.state = ElectorState::Broken(now.saturating_add(nanoseconds(pause)));
        self.opened = now;
        for (_, (write, _)) in mem::take(&mut registrants.writes) {
            write.answer(WriteOutcome::Unknown);
        }
        registrants.leases.clear();

        self.orphans.keep(leases);
        let mut orphaned = Vec::new();
        for (id, registrant) in &mut registrants.all {
            if let Registrant::Candidate(candidate) = registrant
                && let Some(term) = candidate.orphan()
            {
                self.orphans.insert(*id, &term);
                orphaned.push(*id);
            }
        }
        for types::Term { election, epoch } in untold {
            if let Some(Registrant::Candidate(candidate)) = registrants.all.get(&election)
                && candidate.orphaned().is_none()
            {
                let name = candidate.candidacy.name.clone();
                self.did(HostAction::Yielded(NamedTerm { name, epoch }));
            }
        }
        for id in orphaned {
            self.end_orphan(id, false, registrants);
        }
        self.end_due(now, registrants);
        self.give_back();
        if let Some(culprit) = self.successor.broke(in_a_row) {
            let sentence = "the elector breaks whenever it is told of this election: try again, and \
                            report this with the log";
            registrants.withdraw(culprit, Some(Failure::Other(sentence.into())));
        }
        for (_, leaving) in registrants.all.extract_if(.., |_, it| it.is_leaving()) {
            leaving.withdraw(None);
        }
    }

    /// Opens another elector, when it is time, which is told of all who wait.
    pub(super) fn reopen(
        &mut self,
        now: Mark,
        registrants: &Registrants,
    ) -> Result<(), ComponentError> {
        if let ElectorState::Broken(reopen) = self.state
            && reopen <= now
        {
            let elector = open(&self.component, self.config, now, self.recording.as_ref())?;
            info!("another elector is at work");
            self.state = ElectorState::Running(elector);
            self.opened = now;
            self.successor.tell_all(registrants.all.keys());
        }
        Ok(())
    }

    /// Ends terms without an elector whose deadlines have come.
    pub(super) fn end_due(&mut self, now: Mark, registrants: &mut Registrants) {
        while let Some(id) = self.orphans.due(now) {
            self.end_orphan(id, true, registrants);
        }
        self.give_back();
    }

    /// Ends a term without an elector that is due, or has yielded, and lets its candidate
    /// campaign again once it has yielded.
    pub(super) fn end_orphan(
        &mut self,
        id: ElectionId,
        is_due: bool,
        registrants: &mut Registrants,
    ) {
        let Some(Registrant::Candidate(candidate)) = registrants.all.get_mut(&id) else {
            return;
        };
        let Some(term) = candidate.orphaned().cloned() else {
            return;
        };
        if is_due || term.is_yielded() {
            candidate.end_orphaned();
            self.orphans.remove(id, &term);
        }
        let yielded = term.is_yielded().then(|| candidate.candidacy.name.clone());
        // Nobody was told of the term, so nobody works for it.
        if is_due && term.take() {
            term.mark_yielded();
        }
        if let Some(name) = yielded {
            self.did(HostAction::Yielded(NamedTerm { name, epoch: term.epoch().into() }));
        }
        if term.is_yielded() {
            candidate.forget_orphaned();
            if candidate.leaving || !candidate.candidacy.rejoin {
                registrants.withdraw(id, None);
            } else {
                self.successor.tell(id);
            }
        }
        self.give_back();
    }

    /// Gives back the leases that no term without an elector needs any more, because each has
    /// yielded, or reached its deadline.
    fn give_back(&mut self) {
        let within = Duration::from_nanos(self.config.request_timeout);
        for lease in self.orphans.take_unneeded().collect::<Vec<_>>() {
            self.did(HostAction::GaveBack(lease.into()));
            let revoked = self.store.call(Operation::Revoke(lease.into()), within);
            let logged = revoked.map(move |outcome| {
                if let Err(failure) = outcome {
                    warn!(%lease, %failure, "a lease is left to run out");
                }
            });
            self.revocations.push(logged.boxed());
        }
    }

    fn did(&self, action: HostAction) {
        if let Some(recording) = &self.recording {
            recording.did(action);
        }
    }
}

fn open(
    component: &Component,
    config: Config,
    now: Mark,
    recording: Option<&Stream>,
) -> Result<Elector, ComponentError> {
    let config = reseeded(config)?;
    let opened = Elector::open(component, config, now);
    if let Some(recording) = recording {
        let refused = match &opened {
            Err(ComponentError::Config(error)) => Some(error.clone()),
            Err(_) | Ok(_) => None,
        };
        recording.opened(now, config, refused);
    }
    opened
}

/// With a seed of its own, unless one was given.
fn reseeded(mut config: Config) -> Result<Config, ComponentError> {
    if config.seed == (0, 0) {
        let draw = || Ok((getrandom::u64()?, getrandom::u64()?));
        let draws = draw();
        config.seed =
            draws.map_err(|error: getrandom::Error| ComponentError::Random(error.into()))?;
    }
    Ok(config)
}

/// An error and what caused it, on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    // Some errors tell their cause themselves.
    texts.dedup_by(|cause, told| told.ends_with(cause.as_str()));
    // Backtraces have several.
    texts.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}
