//! Several instances' stories as one, in the order of the store's revisions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use incumbent::Reason;

use super::story::{KEY, Sentence, Story, Term, TermEnd};
use crate::text::{in_seconds, shown_bytes};

/// By how much clocks may seem to disagree, because answers take their time.
const DISAGREEMENT: i128 = 500_000_000;

/// The stories of all instances.
pub struct Merged<'a> {
    pub stories: &'a [Story],
    /// How far the clock of each is ahead of the first one's.
    ahead: Vec<i128>,
    /// None for a key that several instances had, as in a race.
    names: BTreeMap<&'a [u8], Option<String>>,
}

/// A sentence, when it happened, and to which instance; none if it is about several.
pub struct Told {
    pub time: i128,
    pub instance: Option<usize>,
    pub sentence: Sentence,
}

impl Told {
    /// The revision at which a key came or went. What follows from that may come later.
    fn revision(&self) -> Option<i64> {
        let is_change = matches!(self.sentence.event, "joined" | "demoted");
        self.sentence.revision.filter(|_| is_change)
    }
}

/// What one instance is still to tell.
struct Pending {
    told: VecDeque<Told>,
    /// The least revision from each of them on.
    least: VecDeque<Option<i64>>,
}

impl Pending {
    fn new(mut told: Vec<Told>) -> Self {
        told.sort_by_key(|told| told.time);
        let mut least = VecDeque::new();
        for told in told.iter().rev() {
            let after = least.front().copied().flatten();
            least.push_front(told.revision().into_iter().chain(after).min());
        }
        Self { told: told.into(), least }
    }

    fn pop(&mut self) -> Option<Told> {
        self.least.pop_front();
        self.told.pop_front()
    }
}

impl<'a> Merged<'a> {
    pub fn new(stories: &'a [Story]) -> Self {
        let mut ahead: Vec<i128> = Vec::new();
        for story in stories {
            let before = stories.iter().zip(&ahead).flat_map(|(other, theirs)| {
                let common = story.revisions.iter().filter_map(|(revision, mark)| {
                    let other_mark = other.revisions.get(revision)?;
                    Some(story.time(*mark) - (other.time(*other_mark) - theirs))
                });
                common.collect::<Vec<_>>()
            });
            // One of them may have learned of a revision late.
            let least = before.min_by_key(|ahead| ahead.abs()).unwrap_or_default();
            ahead.push(if least.abs() > DISAGREEMENT { least } else { 0 });
        }
        let mut names: BTreeMap<&[u8], Option<String>> = BTreeMap::new();
        for story in stories {
            for key in &story.keys {
                let name = story.identity();
                let known = names.entry(key).or_insert_with(|| Some(name.clone()));
                if known.as_ref() != Some(&name) {
                    *known = None;
                }
            }
        }
        Self { stories, ahead, names }
    }

    /// The time by the clock of the first instance.
    pub fn time(&self, instance: usize, mark: u64) -> i128 {
        let story = self.stories.get(instance);
        let ahead = self.ahead.get(instance).copied().unwrap_or_default();
        story.map_or(0, |story| story.time(mark) - ahead)
    }

    /// All that happened: by time, but keys come and go in the order of the revisions. What one
    /// instance tells stays in its own order.
    pub fn told(&self) -> Vec<Told> {
        let of_all = self.clocks().chain(self.leaderless()).collect();
        let stories = self.stories.iter().enumerate().map(|(instance, story)| {
            let told = story.sentences.iter().map(|sentence| {
                let mut sentence = sentence.clone();
                sentence.text = sentence.text.replace(KEY, &self.name(&sentence.key));
                Told { time: self.time(instance, sentence.at), instance: Some(instance), sentence }
            });
            told.collect()
        });
        let queues = std::iter::once(of_all).chain(stories);
        let mut queues: Vec<Pending> = queues.map(Pending::new).collect();
        let mut told = Vec::new();
        loop {
            let first = queues.iter().enumerate().filter_map(|(nth, queue)| {
                let first = queue.told.front()?;
                Some((first.time, nth, first.revision()))
            });
            let Some((_, mut next, revision)) = first.min() else { return told };
            // Somebody tells later of what was earlier.
            let others = queues.iter().enumerate().filter(|(nth, _)| *nth != next);
            let earlier = others.filter_map(|(nth, queue)| Some(((*queue.least.front()?)?, nth)));
            if let (Some(revision), Some((least, of))) = (revision, earlier.min())
                && least < revision
            {
                next = of;
            }
            told.extend(queues.get_mut(next).and_then(Pending::pop));
        }
    }

    /// The instance whose key it is, or the key.
    pub fn name(&self, key: &[u8]) -> String {
        let shown = shown_bytes(key);
        match self.names.get(key) {
            Some(Some(name)) => format!("{name} ({shown})"),
            Some(None) | None => shown,
        }
    }

    fn has_term(&self, key: &[u8]) -> bool {
        self.stories.iter().flat_map(|story| &story.terms).any(|term| term.key == key)
    }

    fn clocks(&self) -> impl Iterator<Item = Told> {
        let ahead = self.ahead.iter().enumerate().filter(|(_, ahead)| **ahead != 0);
        ahead.filter_map(|(instance, ahead)| {
            let story = self.stories.get(instance)?;
            let text = format!(
                "the clock of {} is {} {} that of {}, by the store's revisions; its times are told \
                 as its clock shows them",
                story.identity(),
                seconds(ahead.abs()),
                if *ahead > 0 { "ahead of" } else { "behind" },
                self.stories.first()?.identity(),
            );
            Some(self.of_all(self.time(instance, story.first?), "clock-differs", "", text))
        })
    }

    fn of_all(&self, time: i128, event: &'static str, election: &str, text: String) -> Told {
        Told { time, instance: None, sentence: Sentence::new(0, event, election, text) }
    }

    /// For how long nobody led, and why the next one did not sooner.
    fn leaderless(&self) -> impl Iterator<Item = Told> {
        let mut terms: BTreeMap<&str, Vec<(usize, &Term)>> = BTreeMap::new();
        for (instance, story) in self.stories.iter().enumerate() {
            for term in &story.terms {
                terms.entry(&term.election).or_default().push((instance, term));
            }
        }
        terms.into_iter().flat_map(|(election, mut terms)| {
            terms.sort_by_key(|(_, term)| term.epoch);
            let pairs: Vec<_> = terms.iter().zip(terms.iter().skip(1)).collect();
            let told = pairs.into_iter().filter_map(|((former, before), (next, after))| {
                let from = self.time(*former, before.to);
                let to = self.time(*next, after.from);
                let why = self.why_not_sooner((*former, before), (*next, after));
                let mut lasted = seconds(to - from);
                // A process that died may have led until its deadline, or died right away.
                if let (TermEnd::Unknown, Some(story)) = (&before.end, self.stories.get(*former)) {
                    lasted += &format!(" to {}", seconds(to - self.time(*former, story.last)));
                }
                let text = format!(
                    "none of these instances led {} for {lasted}, from epoch {} to epoch {}: {why}",
                    shown_bytes(election.as_bytes()),
                    before.epoch,
                    after.epoch
                );
                // At the moment at which it ended, right before the next one leads.
                (to > from).then(|| self.of_all(to - 1, "leaderless", election, text))
            });
            told.collect::<Vec<_>>()
        })
    }

    fn why_not_sooner(&self, former: (usize, &Term), next: (usize, &Term)) -> String {
        let ((of_former, before), (of_next, after)) = (former, next);
        let identity = |of: usize| self.stories.get(of).map(Story::identity).unwrap_or_default();
        let clock = |of: usize, mark| self.stories.get(of).map(|story| story.clock(mark));
        let (one, other) = (identity(of_former), identity(of_next));
        let renewed = clock(of_former, before.renewed).unwrap_or_default();
        let learns = if of_former == of_next {
            "it had to get back in line".to_owned()
        } else {
            format!("{other} had to learn of it")
        };
        let mut why = match &before.end {
            TermEnd::Over(Reason::Resigned) if before.is_failing => {
                format!("{one} gave up its term while its renewals got no answer, and {learns}")
            }
            TermEnd::Over(Reason::Resigned) => format!("{one} resigned, and {learns}"),
            TermEnd::Over(Reason::Expired) => format!(
                "{one} stopped in time, and its key stayed until the store let its lease run out \
                 (the last renewal that was answered was sent at {renewed})"
            ),
            TermEnd::Over(reason) => format!("{one}'s term ended early ({reason}), and {learns}"),
            TermEnd::Unknown => format!(
                "the recording of {one} ends while it led, and its key stayed until its lease ran out \
                 or was given back (the last renewal that was answered was sent at {renewed})"
            ),
        };
        // Who went while somebody led has nothing to do with it.
        let ended = match (&before.end, self.stories.get(of_former)) {
            (TermEnd::Unknown, Some(story)) => story.last.min(before.to),
            _ => before.to,
        };
        let in_gap = |told: u64| self.time(of_next, told) > self.time(of_former, ended);
        let gone = after.gone.iter().filter(|(key, _, told)| *key == before.key || in_gap(*told));
        for (key, revision, told) in gone {
            let told = clock(of_next, *told).unwrap_or_default();
            why += &if *key == before.key {
                format!("; {other} was told at {told} that the key was gone (revision {revision})")
            } else {
                let of =
                    if self.has_term(key) { "" } else { ", of which no term is recorded here," };
                format!(
                    "; {}{of} was in front of {other} until {told} (revision {revision})",
                    self.name(key)
                )
            };
        }
        let is_between = |(from, until): &(u64, u64)| {
            self.time(of_next, *until) > self.time(of_former, before.to)
                && self.time(of_next, *from) < self.time(of_next, after.from)
        };
        if let Some((from, until)) = after.silent.filter(is_between) {
            let (from, until) = (clock(of_next, from), clock(of_next, until));
            why += &format!(
                "; the store gave {other} no answer from {} to {}",
                from.unwrap_or_default(),
                until.unwrap_or_default()
            );
        }
        why
    }
}

fn seconds(nanoseconds: i128) -> String {
    let span = Duration::from_nanos(u64::try_from(nanoseconds.max(0)).unwrap_or(u64::MAX));
    if span < Duration::from_secs(1) {
        format!("{} ms", span.as_millis())
    } else {
        in_seconds(span)
    }
}
