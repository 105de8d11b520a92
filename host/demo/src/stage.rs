//! The stage: the candidates' processes, what is done to them, and the store as an
//! observer sees it. All that happens goes into the picture.

use std::io::{self, PipeWriter};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::{BootClock, Clock, Election, Leader, Mark, Options, Session, StoreUrl, store};
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::candidate::Part;
use crate::counter::{ANSWER, Counter};
use crate::end::End;
use crate::picture::{Picture, Place};
use crate::process::Process;
use crate::report::{self, Report};
use crate::text::shortened;

/// Whom there can be.
const NAMES: [&str; 9] = ["ada", "ben", "cleo", "dora", "emil", "fay", "gus", "hana", "ivo"];

/// How often the line and the counter are read.
const LOOK: Duration = Duration::from_millis(200);

/// How long candidates may take to end in order.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Something that was observed.
#[derive(Debug)]
enum Happened {
    /// By the candidate of this name, of itself.
    Reported(String, Report),
    /// By the store.
    Leads(Option<Place>),
    Listed(Vec<Place>),
    Counted(u64),
}

/// How long the store may take to show that a sleeper does not hold it up.
const NAP: Duration = Duration::from_millis(300);

/// How often a pause is tried.
const NAPS: usize = 20;

#[derive(Debug)]
pub struct Stage {
    store: StoreUrl,
    ttl: Duration,
    election: String,
    pub picture: Picture,
    processes: Vec<Process>,
    /// Where they report.
    reports: PipeWriter,
    session: Session,
    office: Election,
    counter: Counter,
    watching: JoinHandle<()>,
    happened: UnboundedReceiver<Happened>,
}

impl Stage {
    /// Nobody is on it yet.
    pub async fn open(store: StoreUrl, ttl: Duration) -> Result<Self, End> {
        // Two demonstrations on one store are two elections.
        let number = getrandom::u32().map_err(|error| {
            End::bad_input(format!("the system gives no random number: {error}"))
        })?;
        let election = format!("demo-{number:08x}");
        let options = Options::default();
        let connected = store::connect(&store, &options).await?;
        let session = Session::open(Arc::clone(&connected), options).await?;
        let counter = Counter::new(connected, &election);
        let office = session.election(election.as_str());
        let (happening, happened) = unbounded_channel();
        let watching = tokio::spawn(watch(office.clone(), counter.clone(), happening.clone()));
        // Fails when we do not listen any more.
        let tell = move |name, report| _ = happening.send(Happened::Reported(name, report));
        let reports = report::listen(tell)
            .map_err(|error| End::bad_input(format!("no candidate can be heard: {error}")))?;
        Ok(Self {
            store,
            ttl,
            election,
            picture: Picture::new(now()),
            processes: Vec::new(),
            reports,
            session,
            office,
            counter,
            watching,
            happened,
        })
    }

    /// Where it is played: in which election, and how far that reaches.
    pub fn place(&self) -> String {
        let Self { election, store, .. } = self;
        match store.path() {
            Ok(Some(file)) => {
                format!("election {election}, for this machine only, in {}", file.display())
            }
            Ok(None) | Err(_) => format!("election {election} on {store}"),
        }
    }

    /// The store is a file, which processes of this machine share.
    fn is_file(&self) -> bool {
        matches!(self.store.path(), Ok(Some(_)))
    }

    /// Waits for something to happen, and puts it into the picture. Cancel safe.
    pub async fn next(&mut self) {
        // Who reports holds a sender: there is always more to come.
        if let Some(happened) = self.happened.recv().await {
            self.note(happened);
        }
        while let Ok(happened) = self.happened.try_recv() {
            self.note(happened);
        }
    }

    fn note(&mut self, happened: Happened) {
        let picture = &mut self.picture;
        match happened {
            Happened::Reported(name, report) => {
                let mut all = picture.candidates.iter();
                let Some(who) = all.position(|candidate| candidate.name == name) else { return };
                if report == Report::Ended
                    && let Some(process) = self.processes.get_mut(who)
                {
                    // Fails for one that somebody else has reaped, and nobody does.
                    let _ = process.reap();
                }
                picture.reported(who, report, now());
            }
            Happened::Leads(leader) => picture.leader = leader,
            Happened::Listed(line) => picture.line = line,
            Happened::Counted(counter) => picture.counter = Some(counter),
        }
    }

    // What can be done. What cannot is remarked upon.

    /// Brings in the first who is not there: somebody new, or back.
    pub fn add(&mut self) -> Result<(), End> {
        let free = NAMES.iter().find(|name| {
            let mut known = self.picture.candidates.iter();
            known.find(|candidate| candidate.name == **name).is_none_or(|known| known.is_gone())
        });
        let Some(name) = free else {
            self.picture.remark(now(), format!("{} candidates are enough", NAMES.len()));
            return Ok(());
        };
        let at = now();
        let known = self.picture.candidates.iter().position(|candidate| candidate.name == **name);
        let who = known.unwrap_or(self.processes.len());
        let part = Part {
            election: self.election.clone(),
            name: (*name).to_owned(),
            ttl: self.ttl,
            store: self.store.to_string(),
        };
        let process = Process::start(&part, &self.reports).map_err(|error| {
            End::bad_input(format!("the program cannot start itself as a candidate: {error}"))
        })?;
        self.picture.started(name, process.pid(), at);
        match self.processes.get_mut(who) {
            Some(former) => *former = process,
            None => self.processes.push(process),
        }
        Ok(())
    }

    pub fn kill(&mut self, who: usize) {
        if self.is_alive(who) {
            self.act(who, Picture::killed, Process::kill);
        }
    }

    pub fn stop(&mut self, who: usize) {
        if self.is_alive(who) && self.is_awake(who, "stop") {
            self.act(who, Picture::asked, |process| process.signal(Signal::TERM));
        }
    }

    /// Pauses it where it holds up nobody else. In a file, one that sleeps in the middle
    /// of a transaction keeps all others out until it wakes up: safe, and nothing to see.
    pub async fn pause(&mut self, who: usize) {
        if !self.is_alive(who) || !self.is_awake(who, "pause") {
            return;
        }
        for _ in 0..NAPS {
            let Some(process) = self.processes.get(who) else { return };
            let at = now();
            if let Err(error) = process.signal(Signal::STOP) {
                return self.remark(who, &format!("is not reached: {error}"));
            }
            if !self.is_file() || self.counter.is_free(NAP).await {
                return self.picture.paused(who, at);
            }
            if let Some(process) = self.processes.get(who) {
                // Fails where it has ended, which the next try finds out.
                let _ = process.signal(Signal::CONT);
            }
            sleep(NAP / 10).await;
        }
        self.remark(who, "was busy with the store each time it was to be paused: try again");
    }

    pub fn resume(&mut self, who: usize) {
        if !self.is_alive(who) {
            return;
        }
        if self.picture.get(who).is_some_and(|candidate| candidate.is_asleep()) {
            self.act(who, Picture::resumed, |process| process.signal(Signal::CONT));
        } else {
            self.remark(who, "is not paused");
        }
    }

    pub fn write_late(&mut self, who: usize) {
        if !self.is_alive(who) {
            return;
        }
        if self.picture.get(who).is_some_and(|candidate| candidate.has_past_term(now())) {
            self.act(who, Picture::told_to_write_late, Process::write_late);
        } else {
            let mend = "has no term that is over: pause who leads, until another does";
            self.remark(who, mend);
        }
    }

    /// What was done to it is known before it is done: it is earlier, if anything.
    fn act(
        &mut self,
        who: usize,
        tell: fn(&mut Picture, usize, Mark),
        deed: impl FnOnce(&mut Process) -> io::Result<()>,
    ) {
        let Some(process) = self.processes.get_mut(who) else { return };
        let at = now();
        match deed(process) {
            Ok(()) => tell(&mut self.picture, who, at),
            Err(error) => self.remark(who, &format!("is not reached: {error}")),
        }
    }

    fn is_alive(&mut self, who: usize) -> bool {
        let is_alive = self.picture.get(who).is_some_and(|candidate| candidate.is_alive());
        if !is_alive {
            self.remark(who, "is gone: add brings it back");
        }
        is_alive
    }

    fn is_awake(&mut self, who: usize, deed: &str) -> bool {
        let is_asleep = self.picture.get(who).is_some_and(|candidate| candidate.is_asleep());
        if is_asleep {
            self.remark(who, &format!("is paused: resume it before you {deed} it"));
        }
        !is_asleep
    }

    fn remark(&mut self, who: usize, what: &str) {
        let Some(candidate) = self.picture.get(who) else { return };
        let sentence = format!("{} {what}", candidate.name);
        self.picture.remark(now(), sentence);
    }

    // The end.

    /// Has all candidates end, and says what the counter is after that; none if the
    /// store does not say. Nothing is left running, nor in the store, if that answers.
    pub async fn close(&mut self) -> Option<u64> {
        let patience = Instant::now() + LAST_WORDS;
        // Those in line first: nobody is to lead for the moment that is left.
        let leader = self.picture.leading(now());
        let all = 0..self.processes.len();
        let (last, first): (Vec<_>, Vec<_>) = all.partition(|who| Some(*who) == leader);
        for some in [first, last] {
            some.iter().for_each(|who| self.send_home(*who));
            while !some.iter().all(|who| self.picture.get(*who).is_none_or(|it| it.is_gone())) {
                if timeout_at(patience, self.next()).await.is_err() {
                    break;
                }
            }
        }
        // All of them, whatever they were at: killed, and reaped.
        self.processes.clear();
        self.watching.abort();
        let tidied = timeout(ANSWER, self.tidy()).await;
        // What is left goes with its lease.
        let _ = timeout(ANSWER, self.session.close()).await;
        tidied.ok().flatten()
    }

    fn send_home(&mut self, who: usize) {
        let Some(candidate) = self.picture.get(who).filter(|it| it.is_alive()) else { return };
        let is_asked = candidate.life().is_some_and(|life| life.asked.is_some());
        if candidate.is_asleep() {
            self.resume(who);
        }
        if !is_asked {
            self.stop(who);
        }
    }

    /// Ends the leases of those who were killed, and takes the counter away, as the
    /// last leader.
    async fn tidy(&self) -> Option<u64> {
        for dead in self.office.candidates().await.unwrap_or_default() {
            // A lease that is over is what we want.
            let _ = self.counter.revoke(dead.lease).await;
        }
        let reading = self.counter.read().await.ok()?;
        if let Ok(leadership) = self.office.campaign().await {
            // A number of which nobody knows harms nobody.
            let _ = self.counter.remove(&leadership.fence()).await;
            let _ = leadership.resign().await;
        }
        Some(reading.value)
    }
}

/// What the store says, as an observer sees it, and now and then by reading.
async fn watch(office: Election, counter: Counter, happening: UnboundedSender<Happened>) {
    let mut leaders = office.observe();
    let sighted = async {
        while let Some(Ok(leader)) = leaders.next().await {
            let _ = happening.send(Happened::Leads(leader.map(place)));
        }
    };
    let looked = async {
        loop {
            // Where the store does not answer, the picture stays as it is.
            if let Ok(line) = office.candidates().await {
                let line = line.into_iter().map(place).collect();
                let _ = happening.send(Happened::Listed(line));
            }
            if let Ok(reading) = counter.read().await {
                let _ = happening.send(Happened::Counted(reading.value));
            }
            sleep(LOOK).await;
        }
    };
    tokio::join!(sighted, looked);
}

fn place(leader: Leader) -> Place {
    Place { name: shortened(String::from_utf8_lossy(&leader.value)), epoch: leader.epoch }
}

pub fn now() -> Mark {
    BootClock.now()
}
