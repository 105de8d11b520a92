//! What the logs show of the counters: each history has an order, and no increment was made by a term
//! that another had followed.
//!
//! Where another PostgreSQL takes over, what was counted last may be lost with the one before, without
//! a fault of the elections. Each counter then begins a new history, with the value that was left.

use std::collections::BTreeMap;

use incumbent::Mark;
use incumbent_simulation::history::{History, Outcome};

use super::Report;
use crate::soak::log::{Event, Line};

/// Every line of an increment.
struct Increment<'a> {
    election: &'a str,
    began: Mark,
    /// Of the term that guards it.
    epoch: i64,
    /// When the counter was read, its value, and the timeline that it was read on.
    read: Option<(Mark, u64, u32)>,
    returned: Option<(Mark, Outcome)>,
}

/// From one PostgreSQL to the next; on etcd, all of it.
#[derive(Default)]
struct Era<'a> {
    /// 0 until it is known.
    timeline: u32,
    /// What was acknowledged since this mark may be lost at the era's end.
    lost_since: Mark,
    /// What the counters had come to at its end, as far as is known.
    came_to: BTreeMap<&'a str, u64>,
}

pub(super) fn judge(lines: &[Line], report: &mut Report) {
    let (increments, eras) = read(lines);
    for increment in &increments {
        if let Some((_, outcome)) = increment.returned {
            report.increments[outcome as usize] += 1;
        }
    }
    let mut elections: BTreeMap<&str, Vec<&Increment<'_>>> = BTreeMap::new();
    for increment in &increments {
        elections.entry(increment.election).or_default().push(increment);
    }
    for election in eras.last().iter().flat_map(|era| era.came_to.keys()) {
        elections.entry(election).or_default();
    }
    for (election, increments) in elections {
        let mut first = 0;
        let mut epoch = i64::MIN;
        for era in &eras {
            let of_era = |one: &&&Increment<'_>| {
                one.read.is_none_or(|(_, _, timeline)| timeline == era.timeline)
            };
            let increments: Vec<_> = increments.iter().filter(of_era).copied().collect();
            let came_to = era.came_to.get(election).copied();
            one_era(election, &increments, era, (first, came_to), &mut epoch, report);
            let Some(value) = came_to else { break };
            first = value;
        }
    }
}

fn read(lines: &[Line]) -> (Vec<Increment<'_>>, Vec<Era<'_>>) {
    let mut increments = Vec::new();
    // By the process and the number that it has there.
    let mut under_way: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    let mut eras = Vec::new();
    // Without timelines there is one era.
    let mut era = Era { lost_since: Mark::MAX, ..Era::default() };
    for Line { process, mark, event } in lines {
        let process = process.as_str();
        match event {
            Event::Invoke { election, increment, epoch, .. } => {
                under_way.insert((process, *increment), increments.len());
                let (began, epoch) = (*mark, *epoch);
                increments.push(Increment { election, began, epoch, read: None, returned: None });
            }
            Event::Read { increment, value, timeline } => {
                if let Some(at) = under_way.get(&(process, *increment)) {
                    let timeline = timeline.unwrap_or_default();
                    increments[*at].read = Some((*mark, *value, timeline));
                    // The next one's are read before its line is written.
                    if eras.is_empty() && era.timeline == 0 {
                        era.timeline = timeline;
                    }
                }
            }
            Event::Return { increment, outcome } => {
                if let Some(at) = under_way.remove(&(process, *increment)) {
                    increments[at].returned = Some((*mark, *outcome));
                }
            }
            Event::TakenOver { since, timeline, counters } => {
                era.lost_since = *since;
                era.came_to =
                    counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
                let (timeline, lost_since) = (*timeline, Mark::MAX);
                let next = Era { timeline, lost_since, ..Era::default() };
                eras.push(std::mem::replace(&mut era, next));
            }
            Event::Counted { election, value } => {
                era.came_to.insert(election, *value);
            }
            _ => {}
        }
    }
    eras.push(era);
    (increments, eras)
}

/// What became of one counter, from its first value to its last one, if that is known.
fn one_era(
    election: &str,
    increments: &[&Increment<'_>],
    era: &Era<'_>,
    (first, last): (u64, Option<u64>),
    epoch: &mut i64,
    report: &mut Report,
) {
    let mut history = History::default();
    // Which epoch counted from each value on, where that was acknowledged.
    let mut epochs = BTreeMap::new();
    let mut applied = 0_u64;
    for increment in increments {
        let Some((read, value, _)) = increment.read else { continue };
        // What was lost when the next server took over: it had counted beyond what was left.
        let may_be_lost = increment.returned.is_none_or(|(returned, _)| returned >= era.lost_since);
        if may_be_lost && last.is_some_and(|last| value >= last) {
            continue;
        }
        let Some(value) = value.checked_sub(first) else {
            report.violations.push(format!(
                "a leader of {election} read {value}, after {first} had been reached"
            ));
            continue;
        };
        let begun = history.begin(0, 0, increment.began);
        history.read(begun, read, value);
        if let Some((returned, outcome)) = increment.returned {
            history.end(begun, returned, outcome);
            if outcome == Outcome::Applied {
                applied += 1;
                epochs.insert(value, increment.epoch);
            }
        }
    }
    for (value, later) in epochs {
        if later < *epoch {
            let value = first + value;
            report.violations.push(format!(
                "epoch {later} of {election} counted from {value} on, \
                 after epoch {epoch} had counted"
            ));
        }
        *epoch = later;
    }
    if let Some(last) = last {
        let counted = last.saturating_sub(first);
        report.lost += applied.saturating_sub(counted);
        if last < first || !history.is_linearizable(0, counted) {
            report.violations.push(format!(
                "no order of all increments by leaders of {election} leads to {last}"
            ));
        }
    }
}
