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
    store,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::counter::{ANSWER, Counter};
use crate::end::{End, say};
use crate::report::{self, Report};
use crate::text::shortened;

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

    fn say(&self, report: &Report) {
        // Fails where nobody is left to read it, and then we end anyway.
        let _ = report::write(&mut io::stdout().lock(), &self.name, report);
    }
}

/// Until it is asked to stop, or whoever started it is no more.
pub async fn candidate(part: &Part) -> Result<(), End> {
    // Whoever started us may be killed. Had it ended before this, standard input would tell.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| End::bad_input(format!("the system refuses to bind us: {error}")))?;
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| End::bad_input(format!("no signal can be heard: {error}")))?;
    let options = Options { identity: part.name.clone(), ttl: part.ttl, ..Options::default() };
    let url: StoreUrl = part.store.parse().map_err(|error| End::bad_input(format!("{error}")))?;
    let opened = async {
        let store = store::connect(&url, &options).await?;
        let session = Session::open(Arc::clone(&store), options).await?;
        Ok::<_, Error>((store, session))
    };
    let (store, session) = tokio::select! {
        opened = opened => opened?,
        _ = terminate.recv() => return Ok(()),
    };
    let counter = Counter::new(store, &part.election);
    let terms = Terms::default();
    let (stop, stopping) = watch::channel(false);
    let mut candidate = session.election(part.election.as_str()).value(part.name.as_str()).enter();
    let events = candidate.events();
    let end = tokio::select! {
        // What happened is told before what is done about it.
        biased;
        never = tell(part, events) => match never {},
        end = lead(part, &mut candidate, &counter, &terms, stopping) => end,
        never = async {
            tokio::select! {
                _ = terminate.recv() => {}
                () = obey(part, &counter, &terms) => {}
            }
            stop.send_replace(true);
            pending::<Infallible>().await
        } => match never {},
    };
    let (held, end) = match end {
        Ok(held) => (held, Ok(())),
        Err(error) => (None, Err(error.into())),
    };
    // Leaves first, so that the end of the term is not taken for a wish to lead again.
    let closing = async { tokio::join!(session.close(), async { drop((held, candidate)) }) };
    if timeout(ANSWER, closing).await.is_err() {
        say("the store did not confirm the end: what is left goes with the lease");
    }
    end
}

/// Leads term after term, until it is asked to stop: then the last term is returned,
/// if one stood, and its work has stopped.
async fn lead(
    part: &Part,
    candidate: &mut Candidate,
    counter: &Counter,
    terms: &Terms,
    mut stop: watch::Receiver<bool>,
) -> Result<Option<Leadership>, Error> {
    loop {
        let leadership = tokio::select! {
            elected = candidate.elected() => elected?,
            () = asked(&mut stop) => return Ok(None),
        };
        let epoch = leadership.epoch();
        part.say(&Report::Elected { at: now(), epoch, valid_until: leadership.valid_until() });
        terms.begin(&leadership);
        let fence = leadership.fence();
        let is_asked = tokio::select! {
            biased;
            _ = leadership.lost() => false,
            () = count(part, &fence, counter, terms, &mut stop) => true,
        };
        part.say(&Report::Stopped { at: now(), epoch });
        if is_asked {
            return Ok(Some(leadership));
        }
    }
}

/// The work: between two writes it may be asked to stop.
async fn count(
    part: &Part,
    fence: &Fence,
    counter: &Counter,
    terms: &Terms,
    stop: &mut watch::Receiver<bool>,
) {
    let mut turns = interval(WORK);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let epoch = fence.epoch();
    loop {
        tokio::select! {
            biased;
            () = asked(stop) => return,
            _ = turns.tick() => {}
        }
        let reading = match counter.read().await {
            Ok(reading) => reading,
            Err(failure) => {
                part.say(&Report::Trouble(shortened(failure)));
                continue;
            }
        };
        let value = reading.value + 1;
        terms.wrote(value);
        part.say(&Report::Writing { at: now(), epoch, value, is_late: false });
        let outcome = counter.count_up(fence, reading).await;
        part.say(&Report::Written { at: now(), epoch, value, outcome });
    }
}

/// Does as it is told on standard input, until that is closed: whoever started us is
/// no more.
async fn obey(part: &Part, counter: &Counter, terms: &Terms) {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(order)) = orders.next_line().await {
        if order != WRITE_LATE {
            continue;
        }
        let Some((guard, value)) = terms.last_over() else {
            part.say(&Report::NothingToWriteLate { at: now() });
            continue;
        };
        let epoch = guard.epoch;
        part.say(&Report::Writing { at: now(), epoch, value, is_late: true });
        let outcome = counter.write_late(guard, value).await;
        part.say(&Report::Written { at: now(), epoch, value, outcome });
    }
}

async fn tell(part: &Part, mut events: impl Stream<Item = Event> + Unpin) -> Infallible {
    while let Some(event) = events.next().await {
        let at = now();
        match event {
            Event::Joined { epoch, .. } => part.say(&Report::Joined { at, epoch }),
            Event::Extended { epoch, valid_until, .. } => {
                part.say(&Report::Extended { at, epoch, valid_until });
            }
            Event::Demoted { epoch, reason } => {
                part.say(&Report::Demoted { at, epoch, reason: reason.to_string() });
            }
            Event::Trouble(failure) => part.say(&Report::Trouble(shortened(failure))),
            // `lead` tells of its terms, and the rest is for others.
            Event::Elected { .. }
            | Event::Endangered { .. }
            | Event::Leader(_)
            | Event::Withdrawn(_)
            | _ => {}
        }
    }
    // Why there is nothing more, `lead` says.
    pending().await
}

async fn asked(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody can ask any more.
    if stop.wait_for(|stop| *stop).await.is_err() {
        pending().await
    }
}

/// What it led, the newest last.
#[derive(Debug, Default)]
struct Terms(RefCell<Vec<Term>>);

#[derive(Debug)]
struct Term {
    guard: Guard,
    fence: Fence,
    /// The last number that it wrote.
    value: u64,
}

impl Terms {
    fn begin(&self, leadership: &Leadership) {
        let guard = Guard {
            key: leadership.key().to_vec(),
            epoch: leadership.epoch(),
            lease: Some(leadership.lease()),
        };
        let term = Term { guard, fence: leadership.fence(), value: 0 };
        self.0.borrow_mut().push(term);
    }

    fn wrote(&self, value: u64) {
        if let Some(last) = self.0.borrow_mut().last_mut() {
            last.value = value;
        }
    }

    /// The newest term that is over, and the number that it would have written next.
    fn last_over(&self) -> Option<(Guard, u64)> {
        let terms = self.0.borrow();
        let over = terms.iter().rev().find(|term| !term.fence.is_valid())?;
        Some((over.guard.clone(), over.value + 1))
    }
}

fn now() -> Mark {
    BootClock.now()
}
