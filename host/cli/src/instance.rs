//! What is known of this instance: its commands write it, and the HTTP endpoint and what tells
//! systemd read it, each on its own thread. Its lock is never held while anything waits.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `log` | the events that are kept |
//! | `history` | what the status page draws: the candidates' lives, and the renewals |
//! | `own` | which candidate is this instance |
//! | `queue` | the candidates, as the store has them |
//! | `leaderless` | how long nobody has led |

pub mod history;
mod leaderless;
mod log;
pub mod own;
pub mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join;
use incumbent::{
    BootClock, Clock, Election, Epoch, Event, Fence, Leadership, Mark, Participant, Session,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::history::History;
use self::leaderless::Leaderless;
use self::log::Log;
use self::own::Own;
use self::queue::{Demand, Queue, Reading};
use super::text::{in_seconds, leader_line};

/// How long the driver may take to come round before it counts as stuck. Probes usually give up
/// after a second.
const DRIVER_TIMEOUT: Duration = Duration::from_millis(900);

/// How long it is remembered whether the driver came round, so that many probes cost one look.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// An answer of the store that is no older shows that it answers.
const LATELY: Duration = Duration::from_millis(500);

/// What never changes.
#[derive(Clone, Debug)]
pub struct Description {
    pub command: &'static str,
    pub election: String,
    pub id: String,
    pub contest: &'static str,
    pub store: String,
    /// How long the store may be silent before this instance is not ready.
    pub silence: Duration,
}

/// What is known of this instance. A cheap clone.
#[derive(Clone, Debug)]
pub struct InstanceView(Arc<Shared>);

#[derive(Debug)]
pub struct Shared {
    pub description: Description,
    pub started: Mark,
    pub log: Log,
    pub history: History,
    queue: Queue,
    pub leaderless: Leaderless,
    state: Mutex<State>,
    /// Wakes the thread that tells systemd.
    changed: Notify,
    is_followed: AtomicBool,
    is_connected: watch::Sender<bool>,
    /// The term that somebody wants to be resigned.
    resignation: watch::Sender<Epoch>,
    driver: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

#[derive(Debug)]
struct State {
    role: Role,
    /// It has been in line, or, as an observer, has seen the election.
    has_begun: bool,
    /// It gives up its place, and does not get back in line.
    is_ending: bool,
    /// Our candidate in line, or as it was last.
    own: Own,
    work: Option<Work>,
    connection: Option<(Session, Election)>,
}

/// Work that runs.
#[derive(Debug)]
struct Work {
    term: Fence,
    /// It was asked to stop.
    is_stopping: bool,
}

/// What this instance does in its election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It looks for the store.
    Connecting,
    /// It is no candidate.
    Observing,
    /// It is not in line, or not any more.
    Joining,
    Waiting,
    Leading,
    /// Its candidacy is over.
    Withdrawn,
}

impl InstanceView {
    pub fn new(description: Description) -> Self {
        let (role, own) = (Role::Connecting, Own::default());
        let (has_begun, is_ending) = (false, false);
        let state = State { role, has_begun, is_ending, own, work: None, connection: None };
        Self(Arc::new(Shared {
            description,
            started: BootClock.now(),
            log: Log::default(),
            history: History::default(),
            queue: Queue::default(),
            leaderless: Leaderless::default(),
            is_connected: watch::Sender::default(),
            state: Mutex::new(state),
            changed: Notify::new(),
            is_followed: AtomicBool::new(false),
            resignation: watch::Sender::new(Epoch::default()),
            driver: tokio::sync::Mutex::default(),
        }))
    }

    // What the instance says.

    /// The store has been reached, and this instance takes this role at first.
    pub fn connected(&self, session: &Session, election: &Election, role: Role) {
        self.change(|state| {
            state.connection = Some((session.clone(), election.clone()));
            state.role = role;
        });
        self.0.is_connected.send_replace(true);
    }

    /// Follows the election from the moment on at which the store has been reached, unless another
    /// thread does so already.
    pub async fn follow(self) {
        if self.0.is_followed.swap(true, Ordering::Relaxed) {
            return;
        }
        // Cannot fail: we hold the sender.
        let _ = self.0.is_connected.subscribe().wait_for(|is_connected| *is_connected).await;
        join(self.follow_leaders(), self.keep_running()).await;
    }

    async fn follow_leaders(&self) {
        let Some(election) = self.election() else { return };
        let mut leaders = election.observe();
        while let Some(Ok(leader)) = leaders.next().await {
            self.0.leaderless.seen(leader.is_some());
            self.saw_leader(leader.as_ref());
            self.0.queue.changed();
            self.0.changed.notify_one();
        }
    }

    fn saw_leader(&self, leader: Option<&Participant>) {
        let sentence = leader_line(&self.0.description.election, leader);
        self.0.history.leader(leader, &self.last(), sentence, BootClock.now());
    }

    /// Finds out when this process did not run.
    async fn keep_running(&self) {
        loop {
            self.0.history.runs(BootClock.now());
            tokio::time::sleep(history::TICK).await;
        }
    }

    /// An event has happened, which is this object in JSON, and perhaps a sentence for people.
    pub fn record(&self, event: &Event, object: String, sentence: Option<String>) {
        self.change(|state| match event {
            Event::Joined { key, epoch } => {
                state.own = Own { key: key.clone(), epoch: *epoch };
                state.role = Role::Waiting;
                state.has_begun = true;
            }
            Event::Elected(term) => {
                state.own = Own { key: term.key.clone(), epoch: term.epoch };
                state.role = Role::Leading;
            }
            Event::Leader(_) => state.has_begun = true,
            Event::Demoted { .. } => state.role = Role::Joining,
            Event::Withdrawn(_) => state.role = Role::Withdrawn,
            Event::Extended(_)
            | Event::Endangered(_)
            | Event::HandOver { .. }
            | Event::Trouble(_)
            | _ => {}
        });
        self.0.log.push(object, !matches!(event, Event::Extended(_)));
        self.0.history.event(event, sentence, BootClock.now());
    }

    /// The work of a term begins.
    pub fn work_begins(&self, term: Fence) {
        self.change(|state| state.work = Some(Work { term, is_stopping: false }));
    }

    /// The work was asked to stop: nothing more should be routed to it.
    pub fn work_stops(&self) {
        self.change(|state| {
            if let Some(work) = &mut state.work {
                work.is_stopping = true;
            }
        });
    }

    /// No part of the work runs any more.
    pub fn work_has_ended(&self) {
        self.change(|state| state.work = None);
    }

    /// This instance was asked to end, or ends by itself.
    pub fn ends(&self) {
        self.change(|state| state.is_ending = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.state.lock());
        self.0.changed.notify_one();
    }

    /// Waits until somebody wants this term to be resigned: here, or in the store. Cancel safe.
    pub async fn resignation(&self, leadership: &Leadership) {
        let mut wanted = self.0.resignation.subscribe();
        tokio::select! {
            // Cannot fail: we hold the sender.
            _ = wanted.wait_for(|wanted| *wanted == leadership.epoch()) => {}
            () = leadership.asked_to_resign() => {}
        }
    }

    // What the endpoint asks, and what tells systemd.

    pub fn shared(&self) -> &Shared {
        &self.0
    }

    pub fn role(&self) -> Role {
        self.0.state.lock().role
    }

    /// Whether it has been in line, or, as an observer, has seen the election.
    pub fn has_begun(&self) -> bool {
        self.0.state.lock().has_begun
    }

    pub fn is_ending(&self) -> bool {
        self.0.state.lock().is_ending
    }

    /// Waits until something else is known than when this was asked last. For one reader. Cancel
    /// safe.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Why this instance does not take part, or cannot know whether it still does.
    pub fn not_taking_part(&self) -> Option<String> {
        let why = match self.role() {
            Role::Observing | Role::Waiting | Role::Leading => {
                return match self.since_answer() {
                    Some(since) if since <= self.0.description.silence => None,
                    Some(since) => {
                        Some(format!("the store last answered {} ago", in_seconds(since)))
                    }
                    None => Some("the store has not answered yet".into()),
                };
            }
            Role::Connecting => "it has not reached the store yet",
            Role::Joining if self.is_drained() => "it is drained",
            Role::Joining => "it is not in line",
            Role::Withdrawn => "it is no candidate any more",
        };
        Some(why.into())
    }

    /// Whether it leads no more until that is undone.
    pub fn is_drained(&self) -> bool {
        self.session().is_some_and(|session| session.is_drained())
    }

    /// Our key in line.
    pub fn key(&self) -> Option<Vec<u8>> {
        self.in_line().map(|own| own.key)
    }

    fn in_line(&self) -> Option<Own> {
        let state = self.0.state.lock();
        matches!(state.role, Role::Waiting | Role::Leading).then(|| state.own.clone())
    }

    /// Our candidate in line, or as it was last.
    pub fn last(&self) -> Own {
        self.0.state.lock().own.clone()
    }

    /// The candidates, as the store has them.
    pub async fn candidates(&self, demand: Demand) -> Option<Arc<Reading>> {
        let reading = self.0.queue.read(&self.election()?, self.in_line(), demand).await?;
        let history = &self.0.history;
        let now = BootClock.now();
        let leader = reading.shown.first();
        // A store that was restored from a backup goes back, and its observers wait for what is
        // newer than what they have seen.
        if history.is_contradicted(leader, reading.age(), now) {
            self.saw_leader(leader);
        }
        history.candidates(&reading, &self.last(), now);
        Some(reading)
    }

    /// The term that stands, by the clock at this moment, and whose work runs.
    pub fn term(&self) -> Option<Fence> {
        self.of_work(|work| work.term.is_valid())
    }

    /// The same, unless its work was asked to stop.
    pub fn working_term(&self) -> Option<Fence> {
        self.of_work(|work| !work.is_stopping && work.term.is_valid())
    }

    /// The term whose work is being stopped.
    pub fn stopping_term(&self) -> Option<Fence> {
        self.of_work(|work| work.is_stopping || !work.term.is_valid())
    }

    /// The term whose deadline has passed though its work still runs.
    pub fn overdue_term(&self) -> Option<Fence> {
        let now = BootClock.now();
        self.of_work(|work| !work.term.is_valid() && work.term.valid_until() <= now)
    }

    /// Whether the store answers, as far as it has been asked.
    pub fn store_answers(&self) -> bool {
        self.since_answer().is_some_and(|silence| silence <= LATELY || self.0.queue.is_answered())
    }

    fn of_work(&self, is_such: impl Fn(&Work) -> bool) -> Option<Fence> {
        let state = self.0.state.lock();
        state.work.as_ref().filter(|work| is_such(work)).map(|work| work.term.clone())
    }

    pub fn election(&self) -> Option<Election> {
        Some(self.0.state.lock().connection.as_ref()?.1.clone())
    }

    pub fn session(&self) -> Option<Session> {
        Some(self.0.state.lock().connection.as_ref()?.0.clone())
    }

    /// Asks for the resignation of a term.
    pub fn resign(&self, epoch: Epoch) {
        self.0.resignation.send_replace(epoch);
    }

    /// How long ago the store answered last.
    pub fn since_answer(&self) -> Option<Duration> {
        let answered = self.session()?.store_answered()?;
        Some(Duration::from_nanos(BootClock.now().saturating_sub(answered)))
    }

    /// Whether the driver comes round. Looks at most five times a second.
    pub async fn driver_turns(&self) -> bool {
        let mut last = self.0.driver.lock().await;
        if let Some((at, turns)) = *last
            && at.elapsed() < LOOK_AGAIN
        {
            return turns;
        }
        let turns = match self.session() {
            Some(session) => tokio::time::timeout(DRIVER_TIMEOUT, session.ping())
                .await
                .is_ok_and(|pinged| pinged.is_ok()),
            // There is none yet, or none any more.
            None => true,
        };
        *last = Some((Instant::now(), turns));
        turns
    }
}
