//! `incumbent demo-candidate`: one candidate of the demonstration, a process of its own.
//!
//! It uses the library as any application does: it joins, and while it leads it counts
//! a number up, through its fence. Only on the order to write late it does what no
//! application should: it writes in a term that is over.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use incumbent::types::Guard;
use incumbent::{BootClock, Candidate, Clock, Event, Fence, Leadership, Mark, Session};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::counter::Counter;
use super::report::Report;
use crate::cli::args::{Common, DemoCandidate};
use crate::cli::campaign::no_signals;
use crate::cli::exit::{End, Status};
use crate::cli::session::{self, farewell};
use crate::cli::signals::Signals;

/// How often a leader writes.
const WORK: Duration = Duration::from_millis(200);

/// The order to write in a term that is over.
pub const WRITE_LATE: &str = "write-late";

pub async fn candidate(common: &Common, part: &DemoCandidate) -> Result<Status, End> {
    let mut signals = Signals::listen().map_err(no_signals)?;
    let options = session::competing(common, &part.candidate)?;
    let opened = async {
        let store = session::store(common).await?;
        let session = Session::open(Arc::clone(&store), options).await?;
        Ok::<_, End>((store, session))
    };
    let (store, session) = tokio::select! {
        opened = opened => opened?,
        _ = signals.next() => return Ok(Status::Done),
    };
    let counter = Counter::new(store, &part.election, common.command_timeout);
    let election = session::election(&session, common, &part.candidate, &part.election);

    let terms = Terms::default();
    let (stop, stopping) = watch::channel(false);
    let mut candidate = election.enter();
    let events = candidate.events();
    let end = tokio::select! {
        // What happened is told before what is done about it.
        biased;
        never = tell(events) => match never {},
        end = lead_on(&mut candidate, &counter, &terms, stopping) => end,
        never = async {
            tokio::select! {
                _ = signals.next() => {}
                () = obey(&counter, &terms) => {}
            }
            stop.send_replace(true);
            std::future::pending::<Infallible>().await
        } => match never {},
    };
    let (held, failed) = match end {
        Ok(held) => (held, None),
        Err(error) => (None, Some(error)),
    };
    let within = common.command_timeout;
    let rest = Some((candidate, held));
    let status = farewell(&session, rest, None, within, &mut signals, Status::Done).await;
    failed.map_or(Ok(status), |error| Err(error.into()))
}

/// Leads term after term, until it is asked to stop: then the last term is returned,
/// if one stood, and its work has stopped.
async fn lead_on(
    candidate: &mut Candidate,
    counter: &Counter,
    terms: &Terms,
    mut stop: watch::Receiver<bool>,
) -> Result<Option<Leadership>, incumbent::Error> {
    loop {
        let leadership = tokio::select! {
            elected = candidate.elected() => elected?,
            () = asked(&mut stop) => return Ok(None),
        };
        let epoch = leadership.epoch();
        say(&Report::Elected { at: now(), epoch, valid_until: leadership.valid_until() });
        terms.begin(&leadership);
        let fence = leadership.fence();
        let is_asked = tokio::select! {
            biased;
            _ = leadership.lost() => false,
            () = count(&fence, counter, terms, &mut stop) => true,
        };
        say(&Report::Stopped { at: now(), epoch });
        if is_asked {
            return Ok(Some(leadership));
        }
    }
}

/// The work: between two writes it may be asked to stop.
async fn count(fence: &Fence, counter: &Counter, terms: &Terms, stop: &mut watch::Receiver<bool>) {
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
                say(&Report::Trouble { sentence: failure.to_string() });
                continue;
            }
        };
        let value = reading.value + 1;
        terms.wrote(value);
        say(&Report::Writing { at: now(), epoch, value, is_late: false });
        let outcome = counter.count_up(fence, reading).await;
        say(&Report::Written { at: now(), epoch, value, outcome });
    }
}

/// Does as it is told on standard input, until that is closed: whoever started us is
/// no more.
async fn obey(counter: &Counter, terms: &Terms) {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(order)) = orders.next_line().await {
        if order != WRITE_LATE {
            continue;
        }
        let Some((guard, value)) = terms.last_over() else {
            say(&Report::NothingToWriteLate { at: now() });
            continue;
        };
        let epoch = guard.epoch;
        say(&Report::Writing { at: now(), epoch, value, is_late: true });
        let outcome = counter.write_late(guard, value).await;
        say(&Report::Written { at: now(), epoch, value, outcome });
    }
}

async fn tell(mut events: impl Stream<Item = Event> + Unpin) -> Infallible {
    while let Some(event) = events.next().await {
        let at = now();
        match event {
            Event::Joined { epoch, .. } => say(&Report::Joined { at, epoch }),
            Event::Extended { epoch, valid_until, .. } => {
                say(&Report::Extended { at, epoch, valid_until });
            }
            Event::Demoted { epoch, reason } => {
                say(&Report::Demoted { at, epoch, reason: reason.to_string() });
            }
            Event::Trouble(failure) => say(&Report::Trouble { sentence: failure.to_string() }),
            // `lead_on` tells of its terms, and the rest is for others.
            Event::Elected { .. }
            | Event::Endangered { .. }
            | Event::Leader(_)
            | Event::Withdrawn(_)
            | _ => {}
        }
    }
    // Why there is nothing more, `lead_on` says.
    std::future::pending().await
}

async fn asked(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody can ask any more.
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

/// What it led, the newest last.
#[derive(Clone, Debug, Default)]
struct Terms(Arc<Mutex<Vec<Held>>>);

#[derive(Debug)]
struct Held {
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
        let held = Held { guard, fence: leadership.fence(), value: 0 };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(held);
    }

    fn wrote(&self, value: u64) {
        let mut terms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = terms.last_mut() {
            last.value = value;
        }
    }

    /// The newest term that is over, and the number that it would have written next.
    fn last_over(&self) -> Option<(Guard, u64)> {
        let terms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = terms.iter().rev().find(|held| !held.fence.is_valid())?;
        Some((over.guard.clone(), over.value + 1))
    }
}

fn now() -> Mark {
    BootClock.now()
}

/// At once, and not by a thread: what was said is known even of one that is killed
/// right after it. Whoever started us reads it all the time.
fn say(report: &Report) {
    let mut line = report.line();
    line.push('\n');
    let mut stdout = io::stdout().lock();
    // Fails where nobody is left to read it, and then we end anyway.
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
}
