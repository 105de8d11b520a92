//! Starts the candidates, does to them what is asked for, and reads what they report and what
//! the store says. All of it goes into the journal.

use std::hash::{BuildHasher as _, RandomState};
use std::io::PipeWriter;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{BootClock, Clock, Election, Mark, Options, Participant, Session, StoreUrl};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::candidate::Part;
use crate::counter::{ANSWER, Counter};
use crate::end::{End, cannot, shortened};
use crate::journal::Journal;
use crate::process::Process;
use crate::record::{Action, Candidate, Place, Record};
use crate::report::{self, Report};

/// The names that candidates get, in this order.
const NAMES: [&str; 9] = ["ada", "ben", "cleo", "dora", "emil", "fay", "gus", "hana", "ivo"];

/// How often the queue and the counter are read.
const READ: Duration = Duration::from_millis(200);

/// How long candidates may take to end in order.
const END: Duration = Duration::from_secs(5);

/// How long the store may take to show that a paused candidate does not hold it up.
const FREE: Duration = Duration::from_millis(300);

/// How often a pause is tried.
const PAUSES: usize = 20;

/// Something that was observed.
#[derive(Debug)]
enum Event {
    /// By the candidate of this name, of itself.
    Reported(String, Report),
    /// By the store.
    Queue(Vec<Place>),
    Counted(u64),
}

#[derive(Debug)]
pub struct Controller {
    store: StoreUrl,
    pub ttl: Duration,
    pub journal: Journal,
    /// In the order of the record's candidates.
    processes: Vec<Process>,
    /// Where they report.
    reports: PipeWriter,
    session: Session,
    election: Election,
    counter: Counter,
    watching: JoinHandle<()>,
    events: UnboundedReceiver<Event>,
}

impl Controller {
    /// There is no candidate yet.
    pub async fn open(store: StoreUrl, ttl: Duration) -> Result<Self, End> {
        // Two demonstrations on one store are two elections.
        let name = format!("demo-{:08x}", RandomState::new().hash_one(()) >> 32);
        let options = Options::default();
        let connected = incumbent::connect(&store, &options).await?;
        let session = Session::open(Arc::clone(&connected), options).await?;
        let counter = Counter::new(connected, &name);
        let election = session.election(name);
        let (event, events) = unbounded_channel();
        let watching = tokio::spawn(watch(election.clone(), counter.clone(), event.clone()));
        // Fails when nobody listens any more.
        let tell = move |name, report| _ = event.send(Event::Reported(name, report));
        let reports = report::listen(tell).map_err(cannot("listen to candidates"))?;
        let (journal, processes) = (Journal::new(now()), Vec::new());
        Ok(Self {
            store,
            ttl,
            journal,
            processes,
            reports,
            session,
            election,
            counter,
            watching,
            events,
        })
    }

    /// In which election, and how far that reaches.
    pub fn place(&self) -> String {
        let (election, store) = (self.election.name(), &self.store);
        match store.path() {
            Ok(Some(file)) => {
                format!("election {election}, for this machine only, in {}", file.display())
            }
            Ok(None) | Err(_) => format!("election {election} on {store}"),
        }
    }

    /// Waits for an event, and notes it. Cancel safe.
    pub async fn next(&mut self) {
        // The thread that reads the reports holds a sender, so the channel never ends.
        let mut next = self.events.recv().await;
        while let Some(event) = next {
            self.note(event);
            next = self.events.try_recv().ok();
        }
    }

    fn note(&mut self, event: Event) {
        let record = &mut self.journal.record;
        match event {
            Event::Reported(name, report) => {
                let Some(who) = record.named(&name) else { return };
                if report == Report::Ended
                    && let Some(process) = self.processes.get_mut(who)
                {
                    // Fails only if another part of the program has reaped it, and none does.
                    let _ = process.reap();
                }
                self.journal.reported(who, &report, now());
            }
            Event::Queue(queue) => record.queue = queue,
            Event::Counted(counter) => record.counter = Some(counter),
        }
    }

    // Actions. An action that is not possible ends in a remark.

    /// Starts the first candidate that is not there: a new one, or one that has ended.
    pub fn add(&mut self) -> Result<(), End> {
        let record = &mut self.journal.record;
        let free = NAMES.iter().find(|name| {
            let known = record.named(name).and_then(|who| record.get(who));
            known.is_none_or(Candidate::is_gone)
        });
        let Some(name) = free else {
            self.journal.remark(now(), format!("{} candidates are enough", NAMES.len()));
            return Ok(());
        };
        let at = now();
        let part = Part {
            election: self.election.name().to_owned(),
            name: (*name).to_owned(),
            ttl: self.ttl,
            store: self.store.to_string(),
        };
        let process =
            Process::start(&part, &self.reports).map_err(cannot("start itself as a candidate"))?;
        let who = record.started(name, process.pid(), at);
        match self.processes.get_mut(who) {
            Some(former) => *former = process,
            None => self.processes.push(process),
        }
        Ok(())
    }

    pub async fn act(&mut self, who: usize, action: Action) {
        let Some(candidate) = self.journal.record.get(who) else { return };
        if let Some(why) = why_not(candidate, action) {
            return self.remark(who, why);
        }
        for _ in 0..PAUSES {
            let Some(process) = self.processes.get_mut(who) else { return };
            // Read before the action: the noted time is never too late.
            let at = now();
            if let Err(error) = process.act(action) {
                return self.remark(who, &format!("is not reached: {error}"));
            }
            // A candidate that is paused in the middle of a transaction on a file keeps the others
            // out until it wakes up. That is safe, but then there is nothing to see.
            let is_file = matches!(self.store.path(), Ok(Some(_)));
            if action != Action::Pause || !is_file || self.counter.is_free(FREE).await {
                return self.journal.done(who, action, at);
            }
            if let Some(process) = self.processes.get_mut(who) {
                // Fails if the process has ended; then the next try fails too.
                let _ = process.act(Action::Resume);
            }
            sleep(FREE / 10).await;
        }
        self.remark(who, "was busy with the store each time it was to be paused: try again");
    }

    fn remark(&mut self, who: usize, what: &str) {
        let name = self.journal.record.get(who).map_or("", |candidate| &candidate.name);
        let sentence = format!("{name} {what}");
        self.journal.remark(now(), sentence);
    }

    // The end.

    /// Ends all candidates, and returns the counter after that; none if the store does not
    /// answer. No process is left, and, if the store answers, no key.
    pub async fn close(&mut self) -> Option<u64> {
        let until = Instant::now() + END;
        // The leader last, so that no other candidate leads for a moment.
        let leader = self.journal.record.leading(now()).map(|(who, ..)| who);
        let all = 0..self.processes.len();
        let (last, first): (Vec<_>, Vec<_>) = all.partition(|who| Some(*who) == leader);
        for some in [first, last] {
            for who in &some {
                self.end(*who).await;
            }
            let is_gone = |record: &Record, who| record.get(who).is_none_or(Candidate::is_gone);
            while !some.iter().all(|who| is_gone(&self.journal.record, *who))
                && timeout_at(until, self.next()).await.is_ok()
            {}
        }
        // Processes that have not ended are killed.
        self.processes.clear();
        self.watching.abort();
        let counter = timeout(ANSWER, self.clean_up()).await;
        // What is left goes with its lease.
        let _ = timeout(ANSWER, self.session.close()).await;
        counter.ok().flatten()
    }

    async fn end(&mut self, who: usize) {
        let Some(candidate) = self.journal.record.get(who) else { return };
        let (is_alive, is_paused) = (candidate.is_alive(), candidate.is_paused());
        let is_asked = candidate.life().is_some_and(|life| life.asked.is_some());
        if is_paused {
            self.act(who, Action::Resume).await;
        }
        if is_alive && !is_asked {
            self.act(who, Action::Stop).await;
        }
    }

    /// Ends the leases of candidates that were killed, and deletes the counter, as the
    /// last leader.
    async fn clean_up(&self) -> Option<u64> {
        for killed in self.election.candidates().await.unwrap_or_default() {
            // Fails if the lease is over, which is as good.
            let _ = self.counter.revoke(killed.lease.into()).await;
        }
        let reading = self.counter.read().await.ok()?;
        if let Ok(leadership) = self.election.campaign().await {
            // If this fails, one small key is left.
            let _ = self.counter.delete(&leadership.fence()).await;
            let _ = leadership.resign().await;
        }
        Some(reading.value)
    }
}

/// Why this action is not possible, if it is not.
fn why_not(candidate: &Candidate, action: Action) -> Option<&'static str> {
    let is_paused = candidate.is_paused();
    match action {
        _ if !candidate.is_alive() => Some("is gone: add brings it back"),
        Action::Stop if is_paused => Some("is paused: resume it before you stop it"),
        Action::Pause if is_paused => Some("is paused already"),
        Action::Resume if !is_paused => Some("is not paused"),
        Action::WriteLate if !candidate.has_past_term(now()) => {
            Some("has no term that is over: pause the leader until another candidate leads")
        }
        Action::Stop | Action::Kill | Action::Pause | Action::Resume | Action::WriteLate => None,
    }
}

/// Reads what the store says, again and again.
async fn watch(election: Election, counter: Counter, event: UnboundedSender<Event>) {
    loop {
        // Where the store does not answer, the record stays as it is.
        if let Ok(queue) = election.candidates().await {
            let _ = event.send(Event::Queue(queue.into_iter().map(place).collect()));
        }
        if let Ok(reading) = counter.read().await {
            let _ = event.send(Event::Counted(reading.value));
        }
        sleep(READ).await;
    }
}

fn place(leader: Participant) -> Place {
    Place { name: shortened(String::from_utf8_lossy(&leader.value)), epoch: leader.epoch.into() }
}

pub fn now() -> Mark {
    BootClock.now()
}
