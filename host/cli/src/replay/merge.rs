//! Several instances' stories as one, in the order of the store's revisions.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent::Reason;

use super::story::{KEY, Sentence, Story, Term, TermEnd};
use crate::event::in_seconds;
use crate::text::shown_bytes;

/// By how much clocks may seem to disagree, because answers take their time.
const DISAGREEMENT: i128 = 500_000_000;

/// The stories of all instances.
pub struct Merged<'a> {
    pub stories: &'a [Story],
    /// How far the clock of each is ahead of the first one's.
    ahead: Vec<i128>,
    names: BTreeMap<&'a [u8], String>,
}

/// A sentence, when it happened, and to which instance; none if it is about several.
pub struct Told {
    pub time: i128,
    pub instance: Option<usize>,
    pub sentence: Sentence,
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
        let keys = stories.iter().flat_map(|story| {
            let name = story.identity();
            story.keys.iter().map(move |key| (key.as_slice(), name.clone()))
        });
        Self { stories, ahead, names: keys.collect() }
    }

    /// The time by the clock of the first instance.
    pub fn time(&self, instance: usize, mark: u64) -> i128 {
        let story = self.stories.get(instance);
        let ahead = self.ahead.get(instance).copied().unwrap_or_default();
        story.map_or(0, |story| story.time(mark) - ahead)
    }

    /// All that happened, in order.
    pub fn told(&self) -> Vec<Told> {
        let mut all: Vec<Told> = self.clocks().chain(self.leaderless()).collect();
        for (instance, story) in self.stories.iter().enumerate() {
            all.extend(story.sentences.iter().map(|sentence| {
                let mut sentence = sentence.clone();
                sentence.text = sentence.text.replace(KEY, &self.name(&sentence.key));
                Told { time: self.time(instance, sentence.at), instance: Some(instance), sentence }
            }));
        }
        all.sort_by_key(|told| told.time);
        // Keys come and go in the order of the revisions. What follows from that may come later.
        let placed = |told: &Told| {
            let is_change = matches!(told.sentence.event, "joined" | "demoted");
            told.sentence.revision.filter(|_| is_change)
        };
        let places: Vec<usize> =
            (0..all.len()).filter(|at| all.get(*at).and_then(placed).is_some()).collect();
        let mut by_revision = places.clone();
        by_revision.sort_by_key(|at| all.get(*at).and_then(placed));
        let mut order: Vec<usize> = (0..all.len()).collect();
        for (place, from) in places.into_iter().zip(by_revision) {
            if let Some(order) = order.get_mut(place) {
                *order = from;
            }
        }
        let mut all: Vec<Option<Told>> = all.into_iter().map(Some).collect();
        order.into_iter().filter_map(|from| all.get_mut(from)?.take()).collect()
    }

    /// The instance whose key it is, or the key.
    fn name(&self, key: &[u8]) -> String {
        let shown = shown_bytes(key);
        self.names.get(key).map_or_else(|| shown.clone(), |name| format!("{name} ({shown})"))
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
        let sentence = Sentence {
            at: 0,
            event,
            election: election.to_owned(),
            epoch: None,
            revision: None,
            text,
            key: Vec::new(),
        };
        Told { time, instance: None, sentence }
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
                let text = format!(
                    "nobody led {} for {}, from epoch {} to epoch {}: {why}",
                    shown_bytes(election.as_bytes()),
                    seconds(to - from),
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
            TermEnd::Over(Reason::Resigned) => format!("{one} resigned, and {learns}"),
            TermEnd::Over(Reason::Expired) => format!(
                "{one} stopped in time, and its key stayed until the store let its lease run out \
                 (the last renewal that was answered was sent at {renewed})"
            ),
            TermEnd::Over(reason) => format!("{one}'s term ended early ({reason}), and {learns}"),
            TermEnd::Unknown => format!(
                "the recording of {one} ends while it led, and its lease had to run out (the last \
                 renewal that was answered was sent at {renewed})"
            ),
        };
        for (key, revision, told) in &after.gone {
            let told = clock(of_next, *told).unwrap_or_default();
            why += &if *key == before.key {
                format!("; {other} was told at {told} that the key was gone (revision {revision})")
            } else {
                format!(
                    "; {}, which did not lead, was in front of {other} until {told} (revision \
                     {revision})",
                    self.name(key)
                )
            };
        }
        if let Some((from, until)) = after.silent {
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
