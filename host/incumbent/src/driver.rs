//! The loop between elector, store and application.
//!
//! One task of one loop: whatever happened goes to the elector in one batch, and the driver
//! does what the elector says, in the order in which it says it. Nothing else touches the
//! state of an election. What the driver knows beside it serves two ends: to pass on what
//! concerns each registrant, and to go on when the elector breaks.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::coop::consume_budget;
use tracing::info;

use crate::clock::Clock;
use crate::elector::{Component, ComponentError};
use crate::recording::Recorder;
use crate::store::Store;
use crate::term::Deadlines;
use crate::types::{Command, Config, Event, Failure, Mark, Notice, Step};

pub(crate) mod broadcast;
mod calls;
mod candidate;
mod channel;
mod handle;
mod notices;
mod place;
mod pool;
mod queue;
mod recovery;
mod registrants;
mod requests;
pub(crate) mod test_hook;
mod verify;

use calls::Calls;
pub(crate) use candidate::CandidateState;
pub(crate) use channel::{CandidateReceiver, Stage, Told, channel, over};
pub(crate) use handle::{Handle, Registration, Request};
pub(crate) use pool::{CAPACITY, Pool};
use queue::{BATCH, Queue};
use recovery::Recovery;
use registrants::Registrants;
pub(crate) use registrants::{Observed, Registrant};
use test_hook::{TestHook, TestHooks};
use verify::{Verified, broken};

/// What a session is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) component: Component,
    pub(crate) identity: String,
    /// Unless a seed is given, one is drawn; and anew for each elector that follows.
    pub(crate) config: Config,
    pub(crate) deadlines: Arc<Deadlines>,
    /// How many elections an elector takes.
    pub(crate) capacity: usize,
    /// How many drivers followed the first, in all sessions that were made of it.
    pub(crate) started: Arc<AtomicU64>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) test_hooks: Option<TestHooks>,
}

/// Starts a driver on the runtime of the caller. It ends when the session is
/// closed, or when the last handle is gone and nothing is left in the store.
fn start(parts: Parts, troubles: broadcast::Sender<Failure>) -> Result<Handle, ComponentError> {
    let Parts { store, clock, component, identity, config, deadlines, .. } = parts;
    let timeout = Duration::from_nanos(config.request_timeout);
    let weak = troubles.downgrade();
    let (handle, inbox) = Handle::new(&identity, Arc::clone(&clock), &store, timeout, weak);
    let recording = parts.recorder.as_ref().map(Recorder::stream);
    let kept = Arc::clone(&store);
    let recovery = Recovery::start(component, config, kept, clock.now(), recording)?;
    let driver = Driver {
        requests: Some(inbox.requests),
        open: Some(inbox.open),
        clock,
        config,
        deadline: None,
        events: Queue::default(),
        calls: Calls::new(store, handle.answered.clone()),
        registrants: Registrants::new(deadlines, troubles),
        recovery,
        sleep: None,
        closing: None,
        close_by: Mark::MAX,
    };
    tokio::spawn(driver.run(parts.test_hooks.map(|new_hook| new_hook())));
    Ok(handle)
}

struct Driver {
    /// Until the last handle is gone.
    requests: Option<mpsc::UnboundedReceiver<Request>>,
    /// Until the session closes.
    open: Option<watch::Sender<()>>,
    clock: Arc<dyn Clock>,
    config: Config,
    /// When the elector wants to be woken.
    deadline: Option<Mark>,
    /// What the elector is told next.
    events: Queue,
    calls: Calls,
    registrants: Registrants,
    recovery: Recovery,
    sleep: Option<(Mark, BoxFuture<'static, ()>)>,
    /// Callers that wait for the end of the session.
    closing: Option<Vec<oneshot::Sender<()>>>,
    /// An elector that has not closed by then is given up.
    close_by: Mark,
}

impl Driver {
    async fn run(mut self, test_hook: Option<Arc<TestHook>>) {
        while !self.recovery.is_done(self.closing.is_some()) {
            self.set_sleep();
            poll_fn(|context| match &test_hook {
                Some(hook) => hook.poll(context, |context| self.poll(context)),
                None => self.poll(context),
            })
            .await;
            self.turn();
            // An elector that always wants to be woken at once leaves others their turn.
            consume_budget().await;
        }
        for (_, registrant) in mem::take(&mut self.registrants.all) {
            registrant.withdraw(None);
        }
        if let Some(recording) = &mut self.recovery.recording {
            recording.close();
        }
        for done in self.closing.take().into_iter().flatten() {
            // The caller may have gone.
            let _ = done.send(());
        }
    }

    /// Sleeps until the first thing that is due by itself.
    fn set_sleep(&mut self) {
        let closing = self.closing.is_some();
        let close_by = closing.then_some(self.close_by);
        let next =
            self.recovery.next_wake(self.deadline.into_iter().chain(close_by).min(), closing);
        if next != self.sleep.as_ref().map(|(mark, _)| *mark) {
            self.sleep = next.map(|mark| (mark, self.clock.sleep_until(mark)));
        }
    }

    /// Collects what happened, up to a batch, or waits for it.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut found = !self.events.is_empty() || self.recovery.has_untold();
        // The store's answers first: no crowd of users may be in the way of a renewal.
        let now = self.clock.now();
        while self.events.takes_stores()
            && let Poll::Ready(event) = self.calls.poll_next(context, now)
        {
            self.events.push(event);
            found = true;
        }
        while self.events.takes_users()
            && let Some(requests) = &mut self.requests
            && let Poll::Ready(request) = requests.poll_recv(context)
        {
            match request {
                Some(request) => self.take(request),
                None => {
                    self.requests = None;
                    self.close(None);
                }
            }
            found = true;
        }
        while let Poll::Ready(Some(())) = self.recovery.poll_revoked(context) {
            found = true;
        }
        if let Some((_, sleep)) = &mut self.sleep
            && sleep.poll_unpin(context).is_ready()
        {
            self.sleep = None;
            found = true;
        }
        if found { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Tells the elector what happened, and does what it says.
    fn turn(&mut self) {
        self.recovery.end_due(self.clock.now(), &mut self.registrants);
        if self.closing.is_none()
            && let Err(error) = self.recovery.reopen(self.clock.now(), &self.registrants)
        {
            self.broke(&error);
        }
        let now = self.clock.now();
        if self.close_by <= now && self.recovery.is_running() {
            self.broke(&broken("it does not close"));
        }
        if !self.recovery.is_running() {
            // All terms are without an elector, and none of them has to be told.
            self.events.clear();
            return;
        }
        let mut events = self.recovery.successor.next(&self.registrants.all);
        if !self.recovery.successor.is_told_alone() {
            events.extend(self.events.take(BATCH - events.len()));
        }
        if events.is_empty() {
            if self.deadline.is_none_or(|deadline| now < deadline) {
                return;
            }
            events.push(Event::Wake);
        }
        let Some(elector) = self.recovery.running() else {
            return;
        };
        let step = elector.handle(now, &events);
        if let Some(recording) = &self.recovery.recording {
            recording.stepped(now, events, step.as_ref().ok().cloned());
        }
        match step.and_then(|step| self.obey(now, step)) {
            // An elector that wants to be woken at once has more to do.
            Ok(()) if self.deadline.is_none_or(|deadline| now.saturating_add(1) < deadline) => {
                self.recovery.successor.has_taken();
            }
            Ok(()) => {}
            Err(error) => self.broke(&error),
        }
    }

    fn obey(&mut self, now: Mark, step: Step) -> Verified {
        self.deadline = step.deadline;
        for command in step.commands {
            match command {
                Command::Call(call) => self.calls.call(now, call)?,
                Command::Watch(watch) => self.calls.watch(watch)?,
                Command::Unwatch(id) => self.calls.unwatch(id),
                Command::Notify(Notice::Closed) => self.closed()?,
                Command::Notify(notice) => {
                    let Self { calls, registrants, events, .. } = self;
                    registrants.notice(now, notice, &calls.ledger, events)?;
                }
            }
        }
        Ok(())
    }

    fn closed(&mut self) -> Verified {
        if self.closing.is_none() {
            return Err(broken("it closes, and nobody asked for it"));
        }
        info!("closed");
        self.recovery.closed();
        self.deadline = None;
        Ok(())
    }

    /// Drops all that is outstanding with the elector.
    fn broke(&mut self, error: &ComponentError) {
        self.deadline = None;
        let untold = self.events.clear();
        let leases = self.calls.give_up();
        self.recovery.broke(self.clock.now(), error, leases, untold, &mut self.registrants);
    }
}

/// A driver that is dropped with its runtime ends what nobody would extend.
impl Drop for Driver {
    fn drop(&mut self) {
        for registrant in self.registrants.all.values() {
            if let Registrant::Candidate(candidate) = registrant {
                candidate.end("the session has ended");
            }
        }
        self.registrants.deadlines.finish();
    }
}
