//! The judge of a soak: its logs show when each host led, and whether that was right.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use incumbent::Mark;

use super::faults::{self, InForce};
use super::log::{Event, Line, Settings, TermState, nanoseconds};
use crate::cluster::Failure;
use incumbent_terms::Fault;

mod counters;
mod report;

pub use report::Report;

/// How long it may take until a host hears of its loss when nothing is wrong with it, and what a
/// busy machine may add.
const DELAY: Duration = Duration::from_secs(1);

/// One term, as its host saw it.
#[derive(Clone, Debug)]
struct Term {
    process: String,
    /// With the last deadline.
    state: TermState,
    began: Mark,
    demoted: Option<(Mark, String)>,
    /// The last mark at which the host is known to have regarded itself as leader.
    believed: Mark,
    /// When the host was killed.
    killed: Mark,
}

impl Term {
    /// When the host regarded itself as leader no more; one that was killed, when it
    /// would have done so.
    fn ended(&self) -> Mark {
        self.was_to_end().max(self.believed).max(self.began)
    }

    /// When it heard that it was demoted, or its deadline came.
    fn was_to_end(&self) -> Mark {
        let demoted = self.demoted.as_ref().map_or(Mark::MAX, |(mark, _)| *mark);
        self.state.valid_until.min(demoted)
    }

    /// When no process was left that regarded itself as leader.
    fn left(&self) -> Mark {
        self.ended().min(self.killed)
    }

    /// Whether it was taken away before its deadline: not resigned, and not run out.
    fn was_taken(&self) -> bool {
        self.demoted.as_ref().is_some_and(|(mark, reason)| {
            *mark < self.state.valid_until && !matches!(reason.as_str(), "resigned" | "expired")
        })
    }

    fn host(&self) -> &str {
        host(&self.process)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, state: TermState { election, epoch, .. }, began, .. } = self;
        write!(f, "{process} in epoch {epoch} of {election} ({began} to {})", self.ended())
    }
}

/// `worker-1` of `worker-1.3`, its third process.
fn host(process: &str) -> &str {
    process.rsplit_once('.').map_or(process, |(host, _)| host)
}

/// Judges the lines of a soak, by their marks.
pub fn judge(lines: &[Line]) -> Report {
    let mut report = Report::default();
    let (mut began, mut ended) = (None, None);
    for line in lines {
        match &line.event {
            Event::Began(settings) => report.settings = Some(settings.clone()),
            Event::Ready => began = Some(line.mark),
            Event::Ended => ended = Some(line.mark),
            Event::Lost { packets } => report.packets_lost = Some(*packets),
            _ => {}
        }
    }
    let Some(settings) = report.settings.clone() else {
        report.violations.push("no line says how the soak was set up".into());
        return report;
    };
    let last = lines.last().map_or(0, |line| line.mark);
    // What was cut short is judged as far as it came.
    let ended = ended.unwrap_or(last);
    let began = began.unwrap_or(ended);
    report.lasted = span(began, ended);
    // They are sorted by their marks.
    let judged = &lines[..lines.partition_point(|line| line.mark <= ended)];

    let faults = in_force(judged, last);
    for one in &faults {
        *report.faults.entry(one.fault.name()).or_default() += 1;
    }
    let mut elections: BTreeMap<String, Vec<Term>> = BTreeMap::new();
    for term in terms(judged, &faults, &mut report.violations) {
        elections.entry(term.state.election.clone()).or_default().push(term);
    }
    if elections.is_empty() {
        report.violations.push("nobody ever led".into());
    }
    for terms in elections.values_mut() {
        terms.sort_by_key(|term| term.began);
        report.terms += terms.len();
        one_at_a_time(terms, &faults, &mut report);
        losses(terms, &faults, &settings, (began, ended), &mut report);
        gaps(terms, &faults, (began, ended), &mut report);
    }
    if report.longest_calm_gap > Duration::from_nanos(settings.bound) {
        report.violations.push(format!(
            "nobody led for {:?} although nothing was wrong: the bound is {:?}",
            report.longest_calm_gap,
            Duration::from_nanos(settings.bound)
        ));
    }
    counters::judge(lines, &mut report);
    report
}

fn span(since: Mark, until: Mark) -> Duration {
    Duration::from_nanos(until.saturating_sub(since))
}

/// The faults of a log, each with the marks that it was between.
fn in_force(lines: &[Line], last: Mark) -> Vec<InForce> {
    let mut faults: BTreeMap<u64, InForce> = BTreeMap::new();
    for line in lines {
        match &line.event {
            Event::Fault { id, fault } => {
                let fault = fault.clone();
                faults.insert(*id, InForce { id: *id, fault, since: line.mark, until: last });
            }
            Event::Healed { id } => {
                if let Some(fault) = faults.get_mut(id) {
                    fault.until = line.mark;
                }
            }
            _ => {}
        }
    }
    faults.into_values().collect()
}

/// The terms of a log.
fn terms(lines: &[Line], faults: &[InForce], violations: &mut Vec<String>) -> Vec<Term> {
    // Several elections' keys may have been created in one revision.
    let mut terms: BTreeMap<(String, String, i64), Term> = BTreeMap::new();
    let mut beliefs = Vec::new();
    for line in lines {
        let process = &line.process;
        match &line.event {
            Event::Elected(state) => {
                let term = Term {
                    process: process.clone(),
                    state: state.clone(),
                    began: line.mark,
                    demoted: None,
                    believed: 0,
                    killed: killed(process, line.mark, faults),
                };
                let TermState { election, epoch, .. } = state;
                if terms.insert((process.clone(), election.clone(), *epoch), term).is_some() {
                    violations.push(format!("{process} was elected twice in epoch {epoch}"));
                }
            }
            Event::Extended(state) | Event::Demoted { term: state, .. } => {
                let id = (process.clone(), state.election.clone(), state.epoch);
                if let Some(term) = terms.get_mut(&id) {
                    term.state.valid_until = term.state.valid_until.max(state.valid_until);
                    if let Event::Demoted { reason, .. } = &line.event {
                        term.demoted = Some((line.mark, reason.clone()));
                    }
                }
            }
            Event::Invoke { election, epoch, leads: true, .. } => {
                beliefs.push(((process.clone(), election.clone(), *epoch), line.mark));
            }
            _ => {}
        }
    }
    for (id, mark) in beliefs {
        if let Some(term) = terms.get_mut(&id) {
            term.believed = term.believed.max(mark);
        }
    }
    for term in terms.values() {
        if term.believed > term.began && term.believed >= term.was_to_end() {
            violations.push(format!("{term} believed to lead after {}", term.was_to_end()));
        }
    }
    terms.into_values().collect()
}

/// When this process was killed, as it was there at `mark`.
fn killed(process: &str, mark: Mark, faults: &[InForce]) -> Mark {
    let kills = faults.iter().filter(
        |one| matches!(&one.fault, faults::Fault::KillHost { host: other } if other == host(process)),
    );
    kills.map(|one| one.since).filter(|since| *since >= mark).min().unwrap_or(Mark::MAX)
}

/// No two terms overlap, and epochs rise.
fn one_at_a_time(terms: &[Term], faults: &[InForce], report: &mut Report) {
    let judged = terms.iter().map(|term| incumbent_terms::Term {
        id: term,
        epoch: term.state.epoch,
        from: term.began,
        until: term.ended(),
    });
    for fault in incumbent_terms::judge(judged) {
        let (earlier, later) = match fault {
            Fault::Overlap { earlier, later } => (earlier.id, later.id),
            Fault::Epoch { earlier, later } => {
                let (earlier, later) = (earlier.epoch, later.id);
                report.violations.push(format!("the epoch does not rise with {later}: {earlier}"));
                continue;
            }
        };
        let told = format!("{earlier} and {later} overlap");
        // An operator's order makes two hosts believe that they lead: no elector can prevent it.
        if is_deposed(earlier, later.began, faults) {
        } else if earlier.was_taken() && leader_was_stuck(faults, later.began) {
            report.broken_words.push(told);
        } else {
            report.violations.push(told);
        }
    }
}

/// Whether an operator had removed this leader by then.
fn is_deposed(term: &Term, by: Mark, faults: &[InForce]) -> bool {
    faults.iter().any(|one| {
        matches!(one.fault, faults::Fault::Depose { epoch, .. } if epoch == term.state.epoch)
            && one.since <= by
    })
}

/// Whether etcd's leader woke from a pause shortly before.
fn leader_was_stuck(faults: &[InForce], mark: Mark) -> bool {
    faults.iter().any(|one| {
        matches!(
            one.fault,
            faults::Fault::FailMembers { failure: Failure::Paused, leader: true, .. }
        ) && one.since <= mark
            && mark <= after(one.until, DELAY)
    })
}

fn after(mark: Mark, span: Duration) -> Mark {
    mark.saturating_add(nanoseconds(span))
}

/// Every term that was lost, was lost for something that was wrong.
fn losses(
    terms: &[Term],
    faults: &[InForce],
    settings: &Settings,
    (began, ended): (Mark, Mark),
    report: &mut Report,
) {
    for term in terms {
        let Some((mark, reason)) = &term.demoted else { continue };
        if !(began..=ended).contains(mark) {
            continue;
        }
        *report.demotions.entry(reason.clone()).or_default() += 1;
        // Its last renewal was sent a lease time before its end.
        let since = term.ended().saturating_sub(after(settings.ttl, DELAY));
        let is_explained = reason == "resigned"
            || is_deposed(term, Mark::MAX, faults)
            || faults::explain(faults, term.host(), (since, *mark), settings);
        if !is_explained {
            report.without_cause.push(format!("{term}: {reason}, at {mark}"));
        }
    }
}

/// How long nobody led.
fn gaps(terms: &[Term], faults: &[InForce], (began, ended): (Mark, Mark), report: &mut Report) {
    let mut led_until = began;
    let mut resigned = None;
    for (start, end, reason) in terms
        .iter()
        .map(|term| (term.began, term.left(), term.demoted.as_ref().map(|(_, why)| why.as_str())))
        .chain([(ended, ended, None)])
    {
        let (start, end) = (start.clamp(began, ended), end.clamp(began, ended));
        if led_until < start {
            let calm = longest_calm(faults, led_until, start);
            report.longest_gap = report.longest_gap.max(span(led_until, start));
            report.longest_calm_gap = report.longest_calm_gap.max(calm);
            if resigned == Some(led_until) && calm == span(led_until, start) && start < ended {
                report.handovers.push(calm);
            }
        }
        if led_until < end {
            report.led += span(start.max(led_until), end);
            led_until = end;
            resigned = (reason == Some("resigned")).then_some(end);
        }
    }
}

/// The longest time between two marks in which nothing was wrong.
fn longest_calm(faults: &[InForce], since: Mark, until: Mark) -> Duration {
    let mut faults: Vec<_> = faults.iter().map(|one| (one.since, one.until)).collect();
    faults.sort_unstable();
    let mut longest = Duration::ZERO;
    let mut calm_since = since;
    for (begins, ends) in faults {
        longest = longest.max(span(calm_since, begins.min(until)));
        calm_since = calm_since.max(ends);
    }
    longest.max(span(calm_since, until))
}

#[cfg(test)]
mod tests;
