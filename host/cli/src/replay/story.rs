//! What one instance's recording tells: sentences, and the terms and times that a picture shows.
//! All of it is what the elector was told and said. Nothing is guessed.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use incumbent::recording::{Head, HostAction, Line};
use incumbent::types::{Change, Command, Event, Notice, Operation, Reply, Response, Step, Watched};
use incumbent::{Mark, Reason};

use crate::text::{in_seconds, shown, shown_bytes};

/// An elector that is woken so late was kept from running.
const PAUSE: Mark = 500_000_000;
/// The wall clock was set if it moved by so much against ours.
const STEP: i128 = 100_000_000;
/// How many sentences and spans a story may have, how many calls of an elector may be without an
/// answer, and how many keys that went from in front of a candidate are remembered. Electors of ours
/// stay far below.
const MOST: usize = 1_000_000;
const CALLS: usize = 4_096;
const GONE: usize = 16;
/// How many bytes of a name are kept: the elector takes no longer ones.
const NAME: usize = 1_024;
/// Stands for a key in a sentence, until all instances are known whose key it could be.
pub const KEY: char = '\u{0}';

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Sentence {
    pub at: Mark,
    pub event: &'static str,
    pub election: String,
    pub epoch: Option<i64>,
    /// The revision of the store that it goes with.
    pub revision: Option<i64>,
    pub text: String,
    /// What stands for [`KEY`].
    pub key: Vec<u8>,
}

impl Sentence {
    pub fn new(at: Mark, event: &'static str, election: &str, text: String) -> Self {
        let (election, key) = (election.to_owned(), Vec::new());
        Self { at, event, election, epoch: None, revision: None, text, key }
    }
}

/// A part of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Waiting,
    Leading,
    Endangered,
    Paused,
}

#[derive(Clone, Debug)]
pub struct Span {
    pub election: String,
    pub kind: Kind,
    pub from: Mark,
    pub to: Mark,
    pub epoch: Option<i64>,
}

/// A term of this instance.
#[derive(Clone, Debug)]
pub struct Term {
    pub election: String,
    pub epoch: i64,
    pub key: Vec<u8>,
    pub from: Mark,
    pub to: Mark,
    /// When the last renewal that was answered was sent.
    pub renewed: Mark,
    pub end: TermEnd,
    /// The keys in front that went before it began, at which revisions, and when it was told.
    pub gone: Vec<(Vec<u8>, i64, Mark)>,
    /// How long calls to the store had no answer, the last time before it began.
    pub silent: Option<(Mark, Mark)>,
    /// Its renewals failed when it ended.
    pub is_failing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermEnd {
    /// The recording ends before the term.
    Unknown,
    Over(Reason),
}

/// One instance, as far as its recording tells.
#[derive(Debug, Default)]
pub struct Story {
    pub head: Head,
    pub sentences: Vec<Sentence>,
    pub spans: Vec<Span>,
    pub terms: Vec<Term>,
    /// When it learned of which revision.
    pub revisions: BTreeMap<i64, Mark>,
    /// The keys that it had.
    pub keys: Vec<Vec<u8>>,
    pub first: Option<Mark>,
    pub last: Mark,
    /// Marks, and the nanoseconds since 1970 at those moments.
    clocks: Vec<(Mark, i128)>,
    electors: BTreeMap<u32, Elector>,
}

/// What is known of an elector.
#[derive(Debug)]
struct Elector {
    calls: BTreeMap<u64, Sent>,
    wake: Option<Mark>,
    candidates: BTreeMap<u32, Candidate>,
    /// Renewals that had no answer in time, until one has.
    failing: Option<Failing>,
    renewed: Mark,
    valid_until: Mark,
    /// A renewal found the lease gone.
    lease_gone: Option<Mark>,
    /// From when to when calls of all kinds had no answer, and whether one has had since.
    silent: Option<(Mark, Mark)>,
    is_answered: bool,
}

#[derive(Debug)]
struct Sent {
    at: Mark,
    give_up: Mark,
    is_renewal: bool,
    is_given_up: bool,
}

#[derive(Debug)]
struct Failing {
    first: Mark,
    until: Mark,
    many: usize,
    why: Option<String>,
    deadline: Mark,
}

#[derive(Debug, Default)]
struct Candidate {
    name: String,
    key: Vec<u8>,
    /// The keys in front of it that it follows, by their watches.
    front: BTreeMap<u64, Vec<u8>>,
    gone: Vec<(Vec<u8>, i64, Mark)>,
    /// Its own key was deleted.
    deleted: Option<i64>,
    since: Mark,
    /// What stood in front of it may have been told before this recording begins.
    is_partial: bool,
    /// Its present term, in the story's list.
    term: Option<usize>,
    endangered: Option<Mark>,
    asked: Option<&'static str>,
}

impl Story {
    pub fn new(head: Head) -> Self {
        Self { head, ..Self::default() }
    }

    /// The name of the instance.
    pub fn identity(&self) -> String {
        let Head { identity, name, .. } = &self.head;
        shown_bytes(if identity.is_empty() { name } else { identity }.as_bytes())
    }

    /// The nanoseconds since 1970, or since the clock's origin if the recording has no times.
    pub fn time(&self, mark: Mark) -> i128 {
        let before = self.clocks.partition_point(|(at, _)| *at <= mark).saturating_sub(1);
        let (at, time) = self.clocks.get(before).copied().unwrap_or_default();
        time + i128::from(mark) - i128::from(at)
    }

    pub fn has_times(&self) -> bool {
        !self.clocks.is_empty()
    }

    /// A mark, for people.
    pub fn clock(&self, mark: Mark) -> String {
        if self.has_times() {
            let text = rfc3339(self.time(mark));
            text.get(11..23).unwrap_or(&text).to_owned()
        } else {
            format!("{:.3} s", Duration::from_nanos(mark).as_secs_f64())
        }
    }

    fn tell(
        &mut self,
        at: Mark,
        event: &'static str,
        election: &str,
        text: String,
    ) -> &mut Sentence {
        let index = self.sentences.len();
        self.sentences.push(Sentence::new(at, event, election, text));
        #[expect(clippy::indexing_slicing, reason = "it was pushed right before")]
        &mut self.sentences[index]
    }

    /// Lines are missing here, so nothing can be said of the time since the last one.
    pub fn is_interrupted(&mut self) {
        self.electors.values_mut().for_each(|elector| elector.wake = None);
    }

    /// Whether it tells more than can be held.
    pub fn is_too_long(&self) -> bool {
        self.sentences.len() + self.spans.len() + self.terms.len() > MOST
    }

    pub fn line(&mut self, line: &Line) {
        match line {
            Line::Head(_) => {}
            Line::Open { elector, now, error, .. } => {
                self.moves_to(*now);
                if let Some(error) = error {
                    self.tell(*now, "refused", "", format!("the elector was refused: {error:?}"));
                }
                let again = self.electors.insert(*elector, Elector::new(*now));
                if again.is_some() {
                    self.tell(*now, "reopened", "", "another elector was opened".into());
                }
            }
            Line::Step { elector, now, events, step } => {
                self.moves_to(*now);
                let unknown = || Elector::new(*now);
                let mut state = self.electors.remove(elector).unwrap_or_else(unknown);
                self.step(&mut state, *now, events, step.as_ref());
                self.electors.insert(*elector, state);
            }
            Line::Host { elector, now, action } => self.host(*elector, *now, action),
        }
    }

    fn moves_to(&mut self, now: Mark) {
        if self.first.is_none() && self.head.segment > 0 {
            let text = "what happened before is not in this recording any more: who led then is \
                        told at the next change";
            self.tell(now, "begins", "", text.into());
        }
        self.first.get_or_insert(now);
        self.last = self.last.max(now);
    }

    fn host(&mut self, elector: u32, now: Mark, action: &HostAction) {
        match action {
            HostAction::Clock(time) => {
                let Some(time) = parsed(time) else { return };
                let moved = if self.has_times() { time - self.time(now) } else { 0 };
                if moved.abs() > STEP {
                    let direction = if moved > 0 { "ahead" } else { "back" };
                    let moved =
                        Duration::from_nanos(u64::try_from(moved.abs()).unwrap_or(Mark::MAX));
                    let text = format!(
                        "the wall clock was set {direction} by {:.3} s, after {}",
                        moved.as_secs_f64(),
                        self.clock(now)
                    );
                    self.tell(now, "clock-set", "", text);
                }
                if self.clocks.last().is_none_or(|(last, _)| *last < now) {
                    self.clocks.push((now, time));
                }
            }
            HostAction::Broke(error) => {
                let text = format!("the elector broke, and is replaced: {}", shown(error));
                self.tell(now, "broke", "", text);
            }
            HostAction::Yielded(term) => {
                let text = format!(
                    "the work of epoch {} of {} has stopped, after its elector broke",
                    term.epoch,
                    shown_bytes(term.name.as_bytes())
                );
                self.tell(now, "yielded", &term.name, text).epoch = Some(term.epoch);
            }
            HostAction::GaveBack(lease) => {
                let text =
                    format!("gives back the lease {lease:x}, which an elector that broke left");
                self.tell(now, "gave-back", "", text);
            }
            HostAction::Expired(term) => {
                let text = format!(
                    "the thread that keeps deadlines ended epoch {} of {}, before the elector did",
                    term.epoch,
                    shown_bytes(term.name.as_bytes())
                );
                self.tell(now, "expired", &term.name, text).epoch = Some(term.epoch);
            }
            HostAction::Gap(lines) => {
                let text = format!(
                    "steps are missing here, which were too long or not written in time: {lines}"
                );
                self.tell(now, "gap", "", text);
                self.is_interrupted();
            }
            HostAction::Elections(known) => {
                let unknown = || Elector::new(now);
                let state = self.electors.entry(elector).or_insert_with(unknown);
                for known in known {
                    self.keys.push(known.key.clone());
                    state.candidates.entry(known.election).or_insert_with(|| Candidate {
                        name: bounded(&known.name),
                        key: known.key.clone(),
                        since: now,
                        is_partial: true,
                        ..Candidate::default()
                    });
                }
            }
            HostAction::Closed => {
                self.electors.remove(&elector);
                self.tell(now, "closed", "", "the session was closed".into());
            }
            _ => {}
        }
    }

    fn step(&mut self, state: &mut Elector, now: Mark, events: &[Event], step: Option<&Step>) {
        if let Some(wake) = state.wake
            && now > wake.saturating_add(PAUSE)
        {
            let text = format!(
                "nothing ran from {} to {}, for {}: the process, or the machine, stood still",
                self.clock(wake),
                self.clock(now),
                span(wake, now)
            );
            self.tell(now, "paused", "", text);
            for name in state.names() {
                self.draw(&name, Kind::Paused, wake, now, None);
            }
        }
        for event in events {
            self.event(state, now, event);
        }
        let given_up: Vec<_> = state.given_up(now).collect();
        for sent in given_up {
            state.no_answer(sent.0, sent.1, None, sent.2);
        }
        let Some(step) = step else { return };
        state.wake = step.deadline;
        for command in &step.commands {
            match command {
                Command::Call(call) => {
                    let is_renewal = matches!(call.operation, Operation::KeepAlive(_));
                    let sent =
                        Sent { at: now, give_up: call.give_up, is_renewal, is_given_up: false };
                    state.calls.insert(call.id, sent);
                    if state.calls.len() > CALLS {
                        state.calls.pop_first();
                    }
                }
                Command::Watch(watch) if !watch.prefix => {
                    if let Some(candidate) = state.in_line_behind(&watch.key) {
                        candidate.front.insert(watch.id, watch.key.clone());
                    }
                }
                Command::Unwatch(id) => {
                    state.candidates.values_mut().for_each(|it| drop(it.front.remove(id)));
                }
                Command::Watch(_) => {}
                Command::Notify(notice) => self.notice(state, now, notice),
            }
        }
    }

    fn event(&mut self, state: &mut Elector, now: Mark, event: &Event) {
        let asked = |state: &mut Elector, election: u32, why| {
            if let Some(candidate) = state.candidates.get_mut(&election) {
                candidate.asked.get_or_insert(why);
            }
        };
        match event {
            Event::Campaign(candidacy) => {
                state.begin(candidacy.election, &candidacy.name, now);
            }
            Event::Observe(observation) => {
                state.begin(observation.election, &observation.name, now)
            }
            Event::Resign(term) => asked(state, term.election, "its holder resigned"),
            Event::Yielded(term) => {
                asked(state, term.election, "its holder gave it back, because the work had ended")
            }
            Event::Leave(election) => asked(state, *election, "its holder left the election"),
            Event::Limit(Some(limit)) if limit.at_most == 0 => {
                let all: Vec<_> = state.candidates.keys().copied().collect();
                all.into_iter().for_each(|id| asked(state, id, "the session was drained"));
            }
            Event::Close => {
                let all: Vec<_> = state.candidates.keys().copied().collect();
                all.into_iter().for_each(|id| asked(state, id, "the session was closed"));
            }
            Event::Reply(reply) => self.reply(state, now, reply),
            Event::Watched(watched) => self.watched(state, now, watched),
            Event::Wake
            | Event::Inspect(_)
            | Event::Proclaim(_)
            | Event::Write(_)
            | Event::Limit(_) => {}
        }
    }

    fn reply(&mut self, state: &mut Elector, now: Mark, reply: &Reply) {
        let Some(sent) = state.calls.remove(&reply.id) else { return };
        match &reply.outcome {
            Ok(response) => {
                state.is_answered |= state.silent.is_some_and(|(_, until)| until <= sent.at);
                if let Response::Claimed(claimed) = response {
                    self.learn(claimed.entry.created, now);
                }
                if let Response::Renewed(_) = response {
                    state.renewed = state.renewed.max(sent.at);
                    if let Some(failing) = state.failing.take() {
                        let mut text = self.failed(&failing);
                        let (sent, answered) = (self.clock(sent.at), self.clock(now));
                        text += &format!("; the one sent at {sent} was answered at {answered}");
                        // There is none if it does not lead.
                        if failing.deadline > failing.first {
                            let deadline = self.clock(failing.deadline);
                            text += &format!(", and the deadline was {deadline}");
                        }
                        self.tell(now, "renewed", "", text);
                    }
                }
                if let (true, Response::Expired) = (sent.is_renewal, response) {
                    state.lease_gone = Some(sent.at);
                }
            }
            Err(failure) => {
                let counts = sent.is_renewal && !sent.is_given_up;
                state.no_answer(sent.at, now, Some(shown(&failure.to_string())), counts);
            }
        }
    }

    fn watched(&mut self, state: &mut Elector, now: Mark, watched: &Watched) {
        if let Change::Put(entry) = &watched.change {
            self.learn(entry.modified, now);
        }
        let Change::Deleted(deletion) = &watched.change else { return };
        self.learn(deletion.at, now);
        for candidate in state.candidates.values_mut() {
            if candidate.front.get(&watched.id) == Some(&deletion.key) {
                candidate.gone.push((deletion.key.clone(), deletion.at, now));
                if candidate.gone.len() > GONE {
                    candidate.gone.remove(0);
                }
            }
            if candidate.key == deletion.key {
                candidate.deleted = Some(deletion.at);
            }
        }
    }

    fn learn(&mut self, revision: i64, now: Mark) {
        self.revisions.entry(revision).or_insert(now);
    }

    fn notice(&mut self, state: &mut Elector, now: Mark, notice: &Notice) {
        match notice {
            Notice::Joined(joined) => {
                let Some(candidate) = state.candidates.get_mut(&joined.election) else { return };
                candidate.key.clone_from(&joined.key);
                candidate.since = now;
                let name = candidate.name.clone();
                self.keys.push(joined.key.clone());
                if joined.created > 0 {
                    self.learn(joined.created, now);
                }
                let text = format!(
                    "joined {} as {}",
                    shown_bytes(name.as_bytes()),
                    shown_bytes(&joined.key)
                );
                let told = self.tell(now, "joined", &name, text);
                told.revision = Some(joined.created).filter(|created| *created > 0);
            }
            Notice::Elected(leadership) => {
                let id = leadership.term.election;
                let (silent, renewed) = (state.silent, state.renewed);
                state.valid_until = state.valid_until.max(leadership.valid_until);
                let Some(candidate) = state.candidates.get_mut(&id) else { return };
                let gone = std::mem::take(&mut candidate.gone);
                let is_partial = std::mem::take(&mut candidate.is_partial);
                let (name, since) = (candidate.name.clone(), candidate.since);
                candidate.term = Some(self.terms.len());
                candidate.asked = None;
                candidate.key.clone_from(&leadership.key);
                self.terms.push(Term {
                    election: name.clone(),
                    epoch: leadership.term.epoch,
                    key: leadership.key.clone(),
                    from: now,
                    to: leadership.valid_until,
                    renewed,
                    end: TermEnd::Unknown,
                    gone: gone.clone(),
                    silent,
                    is_failing: false,
                });
                self.draw(&name, Kind::Waiting, since, now, None);
                let epoch = leadership.term.epoch;
                let leads = format!("leads {} in epoch {epoch}", shown_bytes(name.as_bytes()));
                let (why, key, revision) = match gone.last() {
                    Some((key, at, seen)) => {
                        let seen = self.clock(*seen);
                        let why = format!(
                            ", because the key of {KEY}, which was in front, was deleted at revision \
                             {at} (told at {seen})"
                        );
                        (why, key.clone(), Some(*at))
                    }
                    None if is_partial => (String::new(), Vec::new(), Some(epoch)),
                    None => (": nobody was in front".to_owned(), Vec::new(), Some(epoch)),
                };
                let told = self.tell(now, "elected", &name, leads + &why);
                (told.epoch, told.key, told.revision) = (Some(epoch), key, revision);
            }
            Notice::Extended(extension) => state.valid_until = extension.valid_until,
            Notice::Endangered(leadership) => {
                let Some(candidate) = state.candidates.get_mut(&leadership.term.election) else {
                    return;
                };
                candidate.endangered = Some(now);
                let name = candidate.name.clone();
                let text = format!(
                    "renewals fail, and epoch {} of {} ends at {}",
                    leadership.term.epoch,
                    shown_bytes(name.as_bytes()),
                    self.clock(leadership.valid_until)
                );
                let told = self.tell(now, "endangered", &name, text);
                told.epoch = Some(leadership.term.epoch);
            }
            Notice::HandOver(term) => {
                let Some(candidate) = state.candidates.get(&term.election) else { return };
                let name = candidate.name.clone();
                let text = format!(
                    "is asked to hand over epoch {} of {}",
                    term.epoch,
                    shown_bytes(name.as_bytes())
                );
                self.tell(now, "hand-over", &name, text).epoch = Some(term.epoch);
            }
            Notice::Demoted(demotion) => self.demoted(state, now, demotion.term, &demotion.reason),
            Notice::Leader(sighting) => {
                let Some(candidate) = state.candidates.get(&sighting.election) else { return };
                let name = candidate.name.clone();
                let election = shown_bytes(name.as_bytes());
                let told = match &sighting.leader {
                    Some(leader) => {
                        let text =
                            format!("sees that {KEY} leads {election} in epoch {}", leader.created);
                        let told = self.tell(now, "leader", &name, text);
                        (told.epoch, told.key) = (Some(leader.created), leader.key.clone());
                        return;
                    }
                    None => format!("sees that nobody leads {election}"),
                };
                self.tell(now, "leader", &name, told);
            }
            Notice::Withdrawn(withdrawal) => {
                let Some(candidate) = state.candidates.remove(&withdrawal.election) else { return };
                let cause = withdrawal.cause.as_ref().map(|cause| shown(&format!(": {cause}")));
                let text = format!(
                    "is out of {}{}",
                    shown_bytes(candidate.name.as_bytes()),
                    cause.unwrap_or_default()
                );
                self.tell(now, "withdrawn", &candidate.name, text);
            }
            Notice::Trouble(trouble) => {
                let name = trouble.election.and_then(|id| state.candidates.get(&id));
                let name = name.map(|candidate| candidate.name.clone()).unwrap_or_default();
                let text = shown(&format!("trouble: {}", trouble.failure));
                self.tell(now, "trouble", &name, text);
            }
            Notice::Listed(_) | Notice::Written(_) | Notice::Closed => {}
        }
    }

    fn demoted(
        &mut self,
        state: &mut Elector,
        now: Mark,
        term: incumbent::types::Term,
        reason: &Reason,
    ) {
        let Some(candidate) = state.candidates.get_mut(&term.election) else { return };
        let (name, asked) = (candidate.name.clone(), candidate.asked.take());
        let (deleted, endangered) = (candidate.deleted.take(), candidate.endangered.take());
        candidate.since = now;
        let index = candidate.term.take();
        let mut from = None;
        // At its deadline the thread has ended it, if nobody else has before.
        let end = now.min(state.valid_until.max(1));
        if let Some(known) = index.and_then(|index| self.terms.get_mut(index)) {
            (known.to, known.end, known.renewed) =
                (end, TermEnd::Over(reason.clone()), known.renewed.max(state.renewed));
            known.is_failing = state.failing.is_some();
            from = Some(known.from);
        }
        self.draw(&name, Kind::Leading, from.unwrap_or(now), end, Some(term.epoch));
        if let Some(endangered) = endangered {
            self.draw(&name, Kind::Endangered, endangered, end, None);
        }
        let deadline = self.clock(state.valid_until);
        let why = match reason {
            Reason::Resigned => {
                let why = asked.unwrap_or("it was asked to").to_owned();
                match &state.failing {
                    Some(failing) => {
                        format!("{why}; its deadline was {deadline}, and {}", self.failed(failing))
                    }
                    None => why,
                }
            }
            Reason::Expired => match &state.failing {
                Some(failing) => {
                    format!(
                        "no renewal came before its deadline, {deadline}: {}",
                        self.failed(failing)
                    )
                }
                None => format!("no renewal came before its deadline, {deadline}"),
            },
            Reason::LeaseLost => match state.lease_gone.take() {
                Some(sent) => format!(
                    "the store said that the lease was gone, to the renewal sent at {} (the last one \
                     that came in time was sent at {})",
                    self.clock(sent),
                    self.clock(state.renewed)
                ),
                None => "the store said that the lease was gone".into(),
            },
            Reason::Deposed => match deleted {
                Some(at) => format!("somebody deleted or took its key, at revision {at}"),
                None => "somebody deleted or took its key".into(),
            },
            Reason::Fenced | Reason::Other(_) => shown(&reason.to_string()),
        };
        let election = shown_bytes(name.as_bytes());
        let text = format!("leads {election} no longer; epoch {} is over: {why}", term.epoch);
        let told = self.tell(now, "demoted", &name, text);
        let deposed = deleted.filter(|_| matches!(reason, Reason::Deposed));
        (told.epoch, told.revision) = (Some(term.epoch), deposed);
    }

    /// Renewals without an answer, as a part of a sentence.
    fn failed(&self, failing: &Failing) -> String {
        let (first, until) = (self.clock(failing.first), self.clock(failing.until));
        let renewals = match failing.many {
            1 => format!("the renewal sent at {first}"),
            many => format!("{many} renewals, the first sent at {first},"),
        };
        let why = failing.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{renewals} got no answer until {until}{why}")
    }

    fn draw(&mut self, election: &str, kind: Kind, from: Mark, to: Mark, epoch: Option<i64>) {
        self.spans.push(Span {
            election: election.to_owned(),
            kind,
            from,
            to: to.max(from),
            epoch,
        });
    }

    /// The recording is read. What goes on is drawn up to its end.
    pub fn finish(&mut self) {
        let electors = std::mem::take(&mut self.electors);
        for state in electors.values() {
            for candidate in state.candidates.values() {
                let Some(term) = candidate.term.and_then(|term| self.terms.get_mut(term)) else {
                    self.draw(&candidate.name, Kind::Waiting, candidate.since, self.last, None);
                    continue;
                };
                (term.to, term.renewed) = (state.valid_until, term.renewed.max(state.renewed));
                let (from, epoch) = (term.from, term.epoch);
                self.draw(&candidate.name, Kind::Leading, from, self.last, Some(epoch));
            }
        }
        let is_leading = |candidate: &Candidate| candidate.term.is_some();
        let leads = electors.values().any(|state| state.candidates.values().any(is_leading));
        if let Some(state) = electors.values().next()
            && !self.head.recording.is_empty()
        {
            let mut text =
                "the recording ends here, and nothing was closed: it goes on, the process \
                            died, or nothing more could be written"
                    .to_owned();
            if leads {
                text += &format!(" (its terms had until {})", self.clock(state.valid_until));
            }
            self.tell(self.last, "ends", "", text);
        }
    }
}

impl Elector {
    fn new(now: Mark) -> Self {
        Self {
            calls: BTreeMap::new(),
            wake: None,
            candidates: BTreeMap::new(),
            failing: None,
            renewed: now,
            valid_until: 0,
            lease_gone: None,
            silent: None,
            is_answered: false,
        }
    }

    fn begin(&mut self, election: u32, name: &str, now: Mark) {
        let candidate = Candidate { name: bounded(name), since: now, ..Candidate::default() };
        self.candidates.insert(election, candidate);
    }

    fn names(&self) -> Vec<String> {
        self.candidates.values().map(|candidate| candidate.name.clone()).collect()
    }

    /// The candidate behind this key: that of the longest name before it.
    fn in_line_behind(&mut self, key: &[u8]) -> Option<&mut Candidate> {
        let before = |candidate: &&mut Candidate| {
            let rest = key.strip_prefix(candidate.name.as_bytes());
            candidate.key != key
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.candidates.values_mut().filter(before).max_by_key(|candidate| candidate.name.len())
    }

    /// The calls that the elector stops waiting for: when they were sent, until when it waited,
    /// and whether they count as renewals.
    fn given_up(&mut self, now: Mark) -> impl Iterator<Item = (Mark, Mark, bool)> {
        self.calls.values_mut().filter(move |sent| sent.give_up <= now && !sent.is_given_up).map(
            |sent| {
                sent.is_given_up = true;
                (sent.at, sent.give_up, sent.is_renewal)
            },
        )
    }

    fn no_answer(&mut self, sent: Mark, until: Mark, why: Option<String>, is_renewal: bool) {
        if std::mem::take(&mut self.is_answered) {
            self.silent = None;
        }
        let (first, last) = self.silent.unwrap_or((sent, until));
        self.silent = Some((first.min(sent), last.max(until)));
        if !is_renewal {
            return;
        }
        let deadline = self.valid_until;
        let new = Failing { first: sent, until, many: 0, why, deadline };
        let failing = self.failing.get_or_insert(new);
        failing.many += 1;
        failing.until = failing.until.max(until);
    }
}

/// A name, or its beginning.
fn bounded(name: &str) -> String {
    name.get(..name.floor_char_boundary(NAME)).unwrap_or_default().to_owned()
}

/// The nanoseconds since 1970.
fn parsed(time: &str) -> Option<i128> {
    let time = humantime::parse_rfc3339(time).ok()?;
    i128::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// A time of day, of nanoseconds since 1970.
pub fn rfc3339(time: i128) -> String {
    // Up to the year 9999, as the format.
    let time = u64::try_from(time.clamp(0, 253_402_300_799 * 1_000_000_000)).unwrap_or(u64::MAX);
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(time)).to_string()
}

/// How long it was.
pub fn span(from: Mark, to: Mark) -> String {
    in_seconds(Duration::from_nanos(to.saturating_sub(from)))
}
