//! What this instance has seen of the election over time, for the status page: the candidates'
//! lives as spans, the last changes as sentences, and how near each renewal was to the deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{Epoch, Event, Mark, Participant, TermInfo};
use parking_lot::Mutex;

use super::own::Own;
use super::queue::Reading;
use crate::text::shown_bytes;

/// How many of each are kept.
const SPANS: usize = 1_000;
const CHANGES: usize = 30;
const RENEWALS: usize = 120;

/// Of how many candidates it is kept that they wait.
const WAITING: usize = 20;

/// How often a process says that it runs, and how late that may be before it counts as paused.
pub const TICK: Duration = Duration::from_millis(500);
const PAUSE: Mark = 1_500_000_000;

/// After that, observers have heard what the store had to tell.
const SETTLED: Mark = 1_000_000_000;

/// What was seen. Its marks are those of `BootClock`.
#[derive(Debug, Default)]
pub struct History(Mutex<Seen>);

#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// In the order in which they began.
    pub spans: VecDeque<Span>,
    pub changes: VecDeque<Change>,
    pub renewals: VecDeque<Renewal>,
    pub leader: Option<Leader>,
    /// The store has told who leads.
    pub is_observed: bool,
    /// When it told of another leader last.
    leader_seen: Mark,
    /// What began before that was forgotten.
    pub forgotten: Mark,
    /// Our last term's, and how long it had when it was extended last.
    valid_until: Mark,
    pub term_length: Mark,
    last_tick: Option<Mark>,
}

/// Whose lane of the timeline it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// This instance's.
    Own,
    /// Another candidate's, by its name.
    Other(Arc<str>),
}

/// What a candidate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Waits,
    Leads(Epoch),
    /// It leads, and renewals fail.
    Endangered(Epoch),
    /// The process did not run.
    Paused,
}

/// A candidate did one thing, from then to then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub lane: Lane,
    pub kind: Kind,
    pub from: Mark,
    /// None while it goes on.
    pub to: Option<Mark>,
    /// Why a term ended, if this instance knows.
    pub reason: Option<String>,
}

/// A sentence about an event.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: Mark,
    pub sentence: String,
}

/// What was left of a term when it was extended, and how long it was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub left: Mark,
    pub of: Mark,
}

/// The leader, as the store has it.
#[derive(Clone, Debug)]
pub struct Leader {
    pub name: String,
    pub lane: Lane,
    pub epoch: Epoch,
    key: Vec<u8>,
    pub since: Mark,
    /// It led before this instance looked.
    pub led_before: bool,
}

impl History {
    pub fn seen(&self) -> Seen {
        self.0.lock().clone()
    }

    /// An event of this instance.
    pub fn event(&self, event: &Event, sentence: Option<String>, now: Mark) {
        let mut seen = self.0.lock();
        // The leader is followed apart from events.
        if let Some(sentence) = sentence.filter(|_| !matches!(event, Event::Leader(_))) {
            seen.changed(sentence, now);
        }
        match event {
            Event::Joined { .. } => seen.begin(Lane::Own, Kind::Waits, now),
            Event::Elected(term) => {
                // The store may have told of it first, when this key was not known as ours yet.
                let kind = Kind::Leads(term.epoch);
                seen.spans.retain(|span| span.lane == Lane::Own || span.kind != kind);
                if let Some(leader) = seen.leader.as_mut().filter(|one| one.epoch == term.epoch) {
                    leader.led_before = false;
                    leader.lane = Lane::Own;
                }
                seen.valid_until = term.valid_until;
                seen.term_length = term.valid_until.saturating_sub(now);
                seen.begin(Lane::Own, kind, now);
            }
            Event::Extended(term) => seen.extended(term, now),
            Event::Endangered(term) => seen.begin(Lane::Own, Kind::Endangered(term.epoch), now),
            Event::Demoted { reason, .. } => {
                // A process that was paused learns of it later.
                let end = now.min(seen.valid_until);
                seen.end(&Lane::Own, end, Some(&reason.to_string()));
            }
            Event::Withdrawn(_) => seen.end(&Lane::Own, now, None),
            Event::Leader(_) | Event::Trouble(_) | _ => {}
        }
    }

    /// The leader, as the store has it now, in a sentence as well; `own` is our candidate.
    pub fn leader(&self, leader: Option<&Participant>, own: &Own, sentence: String, now: Mark) {
        let mut seen = self.0.lock();
        // In a pause, others may have begun to lead.
        let led_before = !seen.is_observed || seen.was_paused(now);
        seen.is_observed = true;
        let before = seen.leader.take();
        let known = before.as_ref().filter(|before| before.is(leader));
        let is_own = leader.is_some_and(|leader| own.is(leader));
        if known.is_none() {
            seen.leader_seen = now;
            // Our own terms are known from their events.
            if !is_own {
                seen.changed(sentence, now);
            }
        }
        let next = leader.map(|leader| Leader {
            name: name(leader),
            lane: if is_own { Lane::Own } else { lane(leader) },
            epoch: leader.epoch,
            key: leader.key.clone(),
            since: known.map_or(now, |known| known.since),
            led_before: known.map_or(led_before && !is_own, |known| known.led_before),
        });
        if let Some(before) = before.filter(|before| before.lane != Lane::Own)
            && next.as_ref().is_none_or(|next| next.lane != before.lane)
        {
            seen.end(&before.lane, now, None);
        }
        if let Some(next) = next.as_ref().filter(|next| next.lane != Lane::Own) {
            seen.begin(next.lane.clone(), Kind::Leads(next.epoch), now);
        }
        seen.leader = next;
    }

    /// Whether a reading of this age says that somebody else leads than was told before it.
    pub fn is_contradicted(&self, first: Option<&Participant>, age: Duration, now: Mark) -> bool {
        let seen = self.0.lock();
        let asked = now.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(Mark::MAX));
        let is_later = asked > seen.leader_seen.saturating_add(SETTLED);
        let is_same = match &seen.leader {
            Some(leader) => leader.is(first),
            None => first.is_none(),
        };
        seen.is_observed && is_later && !is_same
    }

    /// The candidates, as the store has them now.
    pub fn candidates(&self, reading: &Reading, own: &Own, now: Mark) {
        let mut seen = self.0.lock();
        let waiting = reading.shown.iter().skip(1).take(WAITING);
        let waiting: Vec<Lane> = waiting.filter(|one| !own.is(one)).map(lane).collect();
        let gone: Vec<Lane> = seen
            .open()
            .filter(|span| span.lane != Lane::Own && span.kind == Kind::Waits)
            .filter(|span| !waiting.contains(&span.lane))
            .map(|span| span.lane.clone())
            .collect();
        gone.iter().for_each(|lane| seen.end(lane, now, None));
        for lane in waiting {
            // A leader ends when the store says so, and not by an older reading.
            if !seen.open().any(|span| span.lane == lane) {
                seen.begin(lane, Kind::Waits, now);
            }
        }
    }

    /// Notes that this process runs. Call it every [`TICK`].
    pub fn runs(&self, now: Mark) {
        let mut seen = self.0.lock();
        if let Some(last) = seen.last_tick.replace(now)
            && now.saturating_sub(last) > PAUSE
        {
            let (lane, kind) = (Lane::Own, Kind::Paused);
            seen.push(Span { lane, kind, from: last, to: Some(now), reason: None });
        }
    }
}

impl Leader {
    fn is(&self, leader: Option<&Participant>) -> bool {
        leader.is_some_and(|leader| leader.epoch == self.epoch && leader.key == self.key)
    }
}

/// What people call a candidate: its value, or its key if it has none.
pub fn name(candidate: &Participant) -> String {
    let bytes = if candidate.value.is_empty() { &candidate.key } else { &candidate.value };
    shown_bytes(bytes)
}

fn lane(candidate: &Participant) -> Lane {
    Lane::Other(name(candidate).into())
}

impl Seen {
    fn changed(&mut self, sentence: String, now: Mark) {
        self.changes.push_back(Change { at: now, sentence });
        bound(&mut self.changes, CHANGES);
    }

    /// Whether this process runs again only since a moment ago.
    fn was_paused(&self, now: Mark) -> bool {
        let is_late = |then: Mark, span| then.saturating_add(span) < now;
        let pause = self.spans.iter().rev().find(|span| span.kind == Kind::Paused);
        self.last_tick.is_some_and(|tick| is_late(tick, PAUSE))
            || pause.and_then(|pause| pause.to).is_some_and(|to| !is_late(to, SETTLED))
    }

    fn open(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| span.to.is_none())
    }

    /// A candidate does this from now on, and nothing else.
    fn begin(&mut self, lane: Lane, kind: Kind, now: Mark) {
        if self.open().any(|span| span.lane == lane && span.kind == kind) {
            return;
        }
        self.end(&lane, now, None);
        self.push(Span { lane, kind, from: now, to: None, reason: None });
    }

    fn end(&mut self, lane: &Lane, now: Mark, reason: Option<&str>) {
        for span in &mut self.spans {
            if span.to.is_none() && span.lane == *lane {
                span.to = Some(now);
                span.reason = reason.map(ToOwned::to_owned);
            }
        }
    }

    /// Forgets the oldest one that is over, if there are too many.
    fn push(&mut self, span: Span) {
        self.spans.push_back(span);
        if self.spans.len() > SPANS {
            let over = self.spans.iter().position(|span| span.to.is_some());
            let gone = self.spans.remove(over.unwrap_or_default());
            self.forgotten = self.forgotten.max(gone.and_then(|gone| gone.to).unwrap_or_default());
        }
    }

    fn extended(&mut self, term: &TermInfo, now: Mark) {
        let left = self.valid_until.saturating_sub(now);
        self.valid_until = term.valid_until;
        self.term_length = term.valid_until.saturating_sub(now);
        self.renewals.push_back(Renewal { left, of: self.term_length });
        bound(&mut self.renewals, RENEWALS);
        self.begin(Lane::Own, Kind::Leads(term.epoch), now);
    }
}

fn bound<T>(kept: &mut VecDeque<T>, many: usize) {
    if kept.len() > many {
        kept.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use incumbent::{Options, Reason, Session};

    use super::*;

    /// A term that ends at this mark, and two candidates, the first one its leader.
    async fn election(store: &str) -> (TermInfo, Vec<Participant>) {
        let session = Session::connect(store, Options::default()).await.unwrap();
        let election = session.election("my-service");
        let first = election.join();
        let mut events = first.events();
        let term = loop {
            if let Event::Elected(term) = events.next().await.unwrap() {
                break term;
            }
        };
        let other = Session::connect(store, Options::default()).await.unwrap();
        let mut second = other.election("my-service").value("two").join();
        second.joined().await.unwrap();
        (term, election.candidates().await.unwrap())
    }

    fn lives(history: &History) -> Vec<(bool, Kind, Mark, Option<Mark>)> {
        let of = |span: &Span| (span.lane == Lane::Own, span.kind, span.from, span.to);
        history.seen().spans.iter().map(of).collect()
    }

    #[tokio::test]
    async fn our_own_life_is_told_by_our_events() {
        let (mut term, candidates) = election("memory:own").await;
        let (key, epoch) = (term.key.clone(), term.epoch);
        let history = History::default();
        let tell = |event: &Event, now| history.event(event, Some(format!("{event:?}")), now);
        // The store tells of our term before our key is known.
        history.leader(candidates.first(), &Own::default(), "I lead".into(), 5);
        tell(&Event::Joined { key: key.clone(), epoch }, 10);
        term.valid_until = 120;
        tell(&Event::Elected(term.clone()), 20);
        assert!(!history.seen().leader.unwrap().led_before);
        tell(&Event::Endangered(term.clone()), 70);
        term.valid_until = 190;
        tell(&Event::Extended(term.clone()), 90);
        // It was paused, and learns late that it has not led any more.
        tell(&Event::Demoted { epoch, reason: Reason::Expired }, 300);
        let (leads, endangered) = (Kind::Leads(epoch), Kind::Endangered(epoch));
        let expected = [
            (true, Kind::Waits, 10, Some(20)),
            (true, leads, 20, Some(70)),
            (true, endangered, 70, Some(90)),
            (true, leads, 90, Some(190)),
        ];
        assert_eq!(lives(&history), expected);
        let seen = history.seen();
        assert_eq!(seen.renewals, [Renewal { left: 30, of: 100 }]);
        assert!(seen.spans.back().unwrap().reason.as_ref().unwrap().contains("deadline"));
        assert_eq!(seen.changes.len(), 6);
        // The store tells of our term, and not of another candidate's.
        let own = Own { key, epoch };
        history.leader(candidates.first(), &own, "I lead".into(), 310);
        assert_eq!((lives(&history).len(), history.seen().changes.len()), (4, 6));
    }

    #[tokio::test]
    async fn the_others_lives_are_told_by_the_store() {
        let (_, candidates) = election("memory:others").await;
        let [first, second] = &*candidates else { panic!("{candidates:?}") };
        let history = History::default();
        let told = |leader, now| history.leader(leader, &Own::default(), format!("{now}"), now);
        let list = |all: Vec<Participant>, now| {
            history.candidates(&Reading::of(all), &Own::default(), now);
        };
        told(Some(first), 10);
        assert!(history.seen().leader.unwrap().led_before);
        list(candidates.clone(), 20);
        told(None, 30);
        assert!(history.seen().leader.is_none());
        // An old answer does not end what is newer.
        told(Some(second), 40);
        list(candidates.clone(), 45);
        list(vec![second.clone()], 50);
        assert_eq!(history.seen().leader.unwrap().since, 40);
        told(Some(second), 60);
        assert_eq!(history.seen().leader.unwrap().since, 40, "the same");
        let expected = [
            (false, Kind::Leads(first.epoch), 10, Some(30)),
            (false, Kind::Waits, 20, Some(40)),
            (false, Kind::Leads(second.epoch), 40, None),
        ];
        assert_eq!(lives(&history), expected);
        assert_eq!(history.seen().changes.len(), 3);
    }

    #[tokio::test]
    async fn in_a_race_others_with_our_key_are_not_taken_for_us() {
        let (_, candidates) = election("memory:race").await;
        let leader = &candidates[0];
        let history = History::default();
        let own = Own { key: leader.key.clone(), epoch: Epoch::default() };
        history.leader(Some(leader), &own, "another one leads".into(), 10);
        assert_eq!(lives(&history), [(false, Kind::Leads(leader.epoch), 10, None)]);
        assert_eq!(history.seen().changes.len(), 1);
    }

    #[tokio::test]
    async fn a_store_that_went_back_is_believed_after_a_moment() {
        let (_, candidates) = election("memory:back").await;
        let history = History::default();
        let [first, second] = [0, 1].map(|nth| candidates.get(nth));
        let moment = Duration::from_nanos(SETTLED);
        assert!(!history.is_contradicted(first, Duration::ZERO, 5 * SETTLED), "nothing is known");
        history.leader(second, &Own::default(), "second".into(), 10);
        let later = 2 * SETTLED;
        assert!(history.is_contradicted(first, Duration::ZERO, later));
        assert!(history.is_contradicted(None, Duration::ZERO, later));
        assert!(!history.is_contradicted(second, Duration::ZERO, later));
        assert!(!history.is_contradicted(first, moment, later), "it was read before");
    }

    #[tokio::test]
    async fn after_a_pause_nobody_knows_since_when_another_one_leads() {
        let (_, candidates) = election("memory:pause").await;
        let history = History::default();
        let told = |nth, now| {
            history.leader(candidates.get(nth), &Own::default(), "x".into(), now);
            history.seen().leader.unwrap().led_before
        };
        assert!(told(0, 0), "at first");
        history.runs(SETTLED);
        assert!(!told(1, SETTLED));
        assert!(told(0, 9 * SETTLED), "it has not run since");
        history.runs(9 * SETTLED);
        assert!(told(1, 9 * SETTLED));
        history.runs(10 * SETTLED + 1);
        assert!(!told(0, 10 * SETTLED + 2));
    }

    #[test]
    fn a_process_that_did_not_run_is_told_of() {
        let history = History::default();
        for second in [0, 1, 2, 9, 10] {
            history.runs(second * 1_000_000_000);
        }
        let expected = [(true, Kind::Paused, 2_000_000_000, Some(9_000_000_000))];
        assert_eq!(lives(&history), expected);
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_what_goes_on_is_kept() {
        let (term, candidates) = election("memory:bounds").await;
        let history = History::default();
        let now = |nth: usize| u64::try_from(nth).unwrap();
        history.event(&Event::Joined { key: term.key.clone(), epoch: term.epoch }, None, 0);
        for nth in 0..2 * SPANS {
            history.leader(candidates.get(nth % 2), &Own::default(), "x".into(), now(nth));
            history.event(&Event::Trouble(incumbent::Failure::Timeout), Some("x".into()), now(nth));
        }
        let seen = history.seen();
        assert_eq!((seen.spans.len(), seen.changes.len()), (SPANS, CHANGES));
        assert_eq!(lives(&history).first().unwrap(), &(true, Kind::Waits, 0, None));
        for nth in 0..2 * RENEWALS {
            history.event(&Event::Extended(term.clone()), None, now(nth));
        }
        assert_eq!(history.seen().renewals.len(), RENEWALS);
    }
}
