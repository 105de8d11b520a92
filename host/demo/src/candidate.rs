//! One candidate of the demonstration, a process of its own.
//!
//! It uses the library as any application does: it joins, and while it leads it counts
//! a number up, through its fence. Only when it is told to write late it does what no
//! application should: it writes in a term that is over.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use incumbent::types::Guard;
use incumbent::{
    BootClock, Candidate, Clock, Error, Event, Fence, Leadership, Mark, Options, Session, StoreUrl,
    TermInfo,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::counter::{ANSWER, Counter};
use crate::end::{End, cannot, say, shortened};
use crate::report::{self, Report};

/// How often a leader writes.
const WORK: Duration = Duration::from_millis(200);

/// The first argument of a candidate; its part is the second.
pub const CANDIDATE: &str = "candidate";

/// The line on standard input that has it write in a term that is over.
pub const WRITE_LATE: &str = "write-late";

/// What a candidate is told of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub election: String,
    pub name: String,
    pub ttl: Duration,
    pub store: String,
}

impl Part {
    /// None if these are no arguments of a candidate.
    pub fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        arguments.next().filter(|first| first == CANDIDATE)?;
        serde_json::from_str(arguments.next()?.to_str()?).ok()
    }
}

/// Until it is asked to stop, or the demonstration has ended.
pub async fn candidate(part: Part) -> Result<(), End> {
    // If the demonstration ends before this, standard input ends as well.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(cannot("end with the demonstration"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot("listen to signals"))?;
    let options = Options { identity: part.name.clone(), ttl: part.ttl, ..Options::default() };
    let url: StoreUrl = part.store.parse().map_err(cannot("read the name of the store"))?;
    let opened = async {
        let store = incumbent::connect(&url, &options).await?;
        let session = Session::open(Arc::clone(&store), options).await?;
        Ok::<_, Error>((store, session))
    };
    let (store, session) = tokio::select! {
        opened = opened => opened?,
        _ = terminate.recv() => return Ok(()),
    };
    let mut candidate = session.election(part.election.as_str()).value(part.name.as_str()).join();
    let events = candidate.events();
    let counter = Counter::new(store, &part.election);
    let worker = Worker { name: part.name, counter, terms: RefCell::default() };
    let (stop, stopping) = watch::channel(false);
    let end = tokio::select! {
        // An event is reported before what is done about it.
        biased;
        never = worker.tell(events) => match never {},
        end = worker.lead(&mut candidate, stopping) => end,
        never = async {
            tokio::select! {
                _ = terminate.recv() => {}
                () = worker.obey() => {}
            }
            stop.send_replace(true);
            pending::<Infallible>().await
        } => match never {},
    };
    let (held, end) = match end {
        Ok(held) => (held, Ok(())),
        Err(error) => (None, Err(error.into())),
    };
    // The session closes first, so that the end of the term is not taken for a wish to lead again.
    let closing = async { tokio::join!(session.close(), async { drop((held, candidate)) }) };
    if timeout(ANSWER, closing).await.is_err() {
        say("the store did not confirm the end: what is left goes with the lease");
    }
    end
}

struct Worker {
    name: String,
    counter: Counter,
    /// What it led, the newest last.
    terms: RefCell<Vec<Term>>,
}

struct Term {
    guard: Guard,
    fence: Fence,
    /// The last number that it wrote.
    value: u64,
}

impl Worker {
    /// Leads term after term, until it is asked to stop: then the last term is returned,
    /// if one stood, and its work has stopped.
    async fn lead(
        &self,
        candidate: &mut Candidate,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Option<Leadership>, Error> {
        loop {
            let leadership = tokio::select! {
                elected = candidate.elected() => elected?,
                () = asked(&mut stop) => return Ok(None),
            };
            let epoch = leadership.epoch().into();
            let (key, lease) = (leadership.key().to_vec(), Some(leadership.lease().into()));
            let guard = Guard { key, epoch, lease };
            self.say(&Report::Elected { at: now(), epoch, valid_until: leadership.valid_until() });
            let fence = leadership.fence();
            self.terms.borrow_mut().push(Term { guard, fence: fence.clone(), value: 0 });
            let is_asked = tokio::select! {
                biased;
                _ = leadership.lost() => false,
                () = self.count(&fence, &mut stop) => true,
            };
            self.say(&Report::Stopped { at: now(), epoch });
            if is_asked {
                return Ok(Some(leadership));
            }
        }
    }

    /// The work: between two writes it may be asked to stop.
    async fn count(&self, fence: &Fence, stop: &mut watch::Receiver<bool>) {
        let mut turns = interval(WORK);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let epoch = fence.epoch().into();
        loop {
            tokio::select! {
                biased;
                () = asked(stop) => return,
                _ = turns.tick() => {}
            }
            let reading = match self.counter.read().await {
                Ok(reading) => reading,
                Err(failure) => {
                    self.say(&Report::Trouble(shortened(failure)));
                    continue;
                }
            };
            let value = reading.value + 1;
            if let Some(term) = self.terms.borrow_mut().last_mut() {
                term.value = value;
            }
            self.say(&Report::Writing { at: now(), epoch, value, is_late: false });
            let outcome = self.counter.count_up(fence, reading).await;
            self.say(&Report::Written { at: now(), epoch, value, outcome });
        }
    }

    /// Obeys orders from standard input, which ends with the demonstration.
    async fn obey(&self) {
        let mut orders = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(order)) = orders.next_line().await {
            if order == WRITE_LATE {
                self.write_late().await;
            }
        }
    }

    /// Writes the next number in the newest term that is over.
    async fn write_late(&self) {
        let over = |term: &&Term| !term.fence.is_valid();
        let term =
            self.terms.borrow().iter().rev().find(over).map(|it| (it.guard.clone(), it.value));
        let Some((guard, last)) = term else {
            return self.say(&Report::NothingToWriteLate { at: now() });
        };
        let (epoch, value) = (guard.epoch, last + 1);
        self.say(&Report::Writing { at: now(), epoch, value, is_late: true });
        let outcome = self.counter.write_late(guard, value).await;
        self.say(&Report::Written { at: now(), epoch, value, outcome });
    }

    async fn tell(&self, mut events: impl Stream<Item = Event> + Unpin) -> Infallible {
        while let Some(event) = events.next().await {
            let at = now();
            self.say(&match event {
                Event::Joined { epoch, .. } => Report::Joined { at, epoch: epoch.into() },
                Event::Extended(TermInfo { epoch, valid_until, .. }) => {
                    Report::Extended { at, epoch: epoch.into(), valid_until }
                }
                Event::Demoted { epoch, reason } => {
                    Report::Demoted { at, epoch: epoch.into(), reason: reason.to_string() }
                }
                Event::Trouble(failure) => Report::Trouble(shortened(failure)),
                // `lead` tells of its terms, and the rest is for others.
                Event::Elected(_)
                | Event::Endangered(_)
                | Event::HandOver { .. }
                | Event::Leader(_)
                | Event::Withdrawn(_) => continue,
                _ => continue,
            });
        }
        // `lead` says why there is nothing more.
        pending().await
    }

    fn say(&self, report: &Report) {
        // Fails only if the demonstration has ended.
        let _ = report::write(&mut io::stdout().lock(), &self.name, report);
    }
}

async fn asked(stop: &mut watch::Receiver<bool>) {
    // Fails if the sender is gone: then no stop will come.
    if stop.wait_for(|stop| *stop).await.is_err() {
        pending().await
    }
}

fn now() -> Mark {
    BootClock.now()
}
