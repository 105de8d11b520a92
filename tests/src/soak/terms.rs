//! What the logs of a soak show: who led when, and whether that was right.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use incumbent::Mark;

use super::faults::{self, Fault, InForce};
use super::log::{Event, Line, Settings};
use incumbent_simulation::history::{History, Outcome};

/// The time that news take to a host when nothing is wrong with it, and that a busy
/// machine may add.
const NEWS: Duration = Duration::from_secs(1);

/// How many of a kind are told.
const LISTED: usize = 20;

/// What the logs of a soak came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How it was set up.
    pub settings: Option<Settings>,
    /// From when all was ready until the end.
    pub lasted: Duration,
    /// How often each fault was made.
    pub faults: BTreeMap<&'static str, u64>,
    /// How many packets were lost, where they were to be lost.
    pub packets_lost: Option<u64>,
    /// How many terms began.
    pub terms: usize,
    /// How long there was a leader, all elections together.
    pub led: Duration,
    /// How many terms were lost, by reason. Those that were given up as the host
    /// pleased are `resigned`.
    pub demotions: BTreeMap<String, u64>,
    /// Those that no fault explains.
    pub without_cause: Vec<String>,
    /// Where etcd took a leader's key away before its time, and a second one led before
    /// the first one heard of it. etcd before 3.5.13 does that when its own leader was
    /// stuck.
    pub broken_words: Vec<String>,
    /// The longest time without a leader, whatever was wrong.
    pub longest_gap: Duration,
    /// The longest one within a time in which nothing was wrong.
    pub longest_calm_gap: Duration,
    /// From a resignation to the next term, in a time in which nothing was wrong.
    pub handovers: Vec<Duration>,
    /// Increments of the counter: acknowledged, of unknown outcome, and not made.
    pub increments: [u64; 3],
    /// What must not be.
    pub violations: Vec<String>,
}

/// One term, as its host saw it.
#[derive(Clone, Debug)]
struct Term {
    process: String,
    election: String,
    epoch: i64,
    began: Mark,
    valid_until: Mark,
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
        self.valid_until.min(demoted)
    }

    /// When nobody was left who regarded itself as leader.
    fn left(&self) -> Mark {
        self.ended().min(self.killed)
    }

    /// Whether it was taken away before its deadline: not resigned, and not run out.
    fn was_taken(&self) -> bool {
        self.demoted.as_ref().is_some_and(|(mark, reason)| {
            *mark < self.valid_until && !matches!(reason.as_str(), "resigned" | "expired")
        })
    }

    fn host(&self) -> &str {
        host(&self.process)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, election, epoch, began, .. } = self;
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
    let judged: Vec<_> = lines.iter().filter(|line| line.mark <= ended).cloned().collect();

    let faults = in_force(&judged, last);
    for one in &faults {
        *report.faults.entry(one.fault.name()).or_default() += 1;
    }
    let mut elections: BTreeMap<String, Vec<Term>> = BTreeMap::new();
    for term in terms(&judged, &faults, &mut report.violations) {
        elections.entry(term.election.clone()).or_default().push(term);
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
    counted(lines, &mut report);
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
    let mut terms: BTreeMap<(String, i64), Term> = BTreeMap::new();
    let mut beliefs = Vec::new();
    for line in lines {
        let process = &line.process;
        match &line.event {
            Event::Elected { election, epoch, valid_until } => {
                let term = Term {
                    process: process.clone(),
                    election: election.clone(),
                    epoch: *epoch,
                    began: line.mark,
                    valid_until: *valid_until,
                    demoted: None,
                    believed: 0,
                    killed: killed(process, line.mark, faults),
                };
                if terms.insert((process.clone(), *epoch), term).is_some() {
                    violations.push(format!("{process} was elected twice in epoch {epoch}"));
                }
            }
            Event::Extended { epoch, valid_until, .. } => {
                if let Some(term) = terms.get_mut(&(process.clone(), *epoch)) {
                    term.valid_until = term.valid_until.max(*valid_until);
                }
            }
            Event::Demoted { epoch, valid_until, reason, .. } => {
                if let Some(term) = terms.get_mut(&(process.clone(), *epoch)) {
                    term.valid_until = term.valid_until.max(*valid_until);
                    term.demoted = Some((line.mark, reason.clone()));
                }
            }
            Event::Invoke { epoch, leads: true, .. } => {
                beliefs.push((process.clone(), *epoch, line.mark));
            }
            _ => {}
        }
    }
    for (process, epoch, mark) in beliefs {
        if let Some(term) = terms.get_mut(&(process, epoch)) {
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
        |one| matches!(&one.fault, Fault::KillHost { host: other } if other == host(process)),
    );
    kills.map(|one| one.since).filter(|since| *since >= mark).min().unwrap_or(Mark::MAX)
}

/// No two terms overlap, and epochs rise.
fn one_at_a_time(terms: &[Term], faults: &[InForce], report: &mut Report) {
    let Some((mut longest, rest)) = terms.split_first() else { return };
    let mut newest = longest.epoch;
    for term in rest {
        if term.epoch <= newest {
            report.violations.push(format!("the epoch does not rise with {term}: {newest}"));
        }
        newest = newest.max(term.epoch);
        if term.began < longest.ended() {
            let told = format!("{longest} and {term} overlap");
            let is_deposed = faults.iter().any(|one| {
                matches!(one.fault, Fault::Depose { epoch, .. } if epoch == longest.epoch)
                    && one.since <= term.began
            });
            // An order of the operator's makes two who believe, which law 1 says.
            if is_deposed {
            } else if longest.was_taken() && leader_was_stuck(faults, term.began) {
                report.broken_words.push(told);
            } else {
                report.violations.push(told);
            }
        }
        if term.ended() > longest.ended() {
            longest = term;
        }
    }
}

/// Whether etcd's leader woke from a pause shortly before.
fn leader_was_stuck(faults: &[InForce], mark: Mark) -> bool {
    faults.iter().any(|one| {
        matches!(one.fault, Fault::PauseMembers { leader: true, .. })
            && one.since <= mark
            && mark <= after(one.until, NEWS)
    })
}

fn after(mark: Mark, span: Duration) -> Mark {
    mark.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
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
        let since = term.ended().saturating_sub(after(settings.ttl, NEWS));
        let is_deposed = faults
            .iter()
            .any(|one| matches!(one.fault, Fault::Depose { epoch, .. } if epoch == term.epoch));
        let is_explained = reason == "resigned"
            || is_deposed
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

/// Each counter's history has an order, and no increment was made by a term that another
/// had followed.
fn counted(lines: &[Line], report: &mut Report) {
    let mut counters: BTreeMap<&str, Counter> = BTreeMap::new();
    // Whose each increment is, by the process and its number.
    let mut increments: BTreeMap<(&str, u64), (&str, usize)> = BTreeMap::new();
    for line in lines {
        let process = line.process.as_str();
        match &line.event {
            Event::Invoke { election, increment, epoch, .. } => {
                let counter = counters.entry(election).or_default();
                let begun = counter.history.begin(0, 0, line.mark);
                counter.begun.insert(begun, (*epoch, 0));
                increments.insert((process, *increment), (election, begun));
            }
            Event::Read { increment, value } => {
                let Some((election, begun)) = increments.get(&(process, *increment)) else {
                    continue;
                };
                let counter = counters.entry(election).or_default();
                counter.history.read(*begun, line.mark, *value);
                counter.begun.entry(*begun).and_modify(|(_, read)| *read = *value);
            }
            Event::Return { increment, outcome } => {
                let Some((election, begun)) = increments.remove(&(process, *increment)) else {
                    continue;
                };
                let counter = counters.entry(election).or_default();
                counter.history.end(begun, line.mark, *outcome);
                report.increments[*outcome as usize] += 1;
                if let Some((epoch, value)) = counter.begun.remove(&begun)
                    && *outcome == Outcome::Applied
                {
                    counter.epochs.insert(value, epoch);
                }
            }
            Event::Counted { election, value } => {
                counters.entry(election).or_default().came_to = Some(*value);
            }
            _ => {}
        }
    }
    for (election, counter) in counters {
        let epochs: Vec<_> = counter.epochs.into_iter().collect();
        for pair in epochs.windows(2) {
            if let [(_, earlier), (value, later)] = pair
                && later < earlier
            {
                report.violations.push(format!(
                    "epoch {later} of {election} counted from {value} on, \
                     after epoch {earlier} had counted"
                ));
            }
        }
        if let Some(value) = counter.came_to
            && !counter.history.is_linearizable(0, value)
        {
            report.violations.push(format!(
                "no order of all increments by leaders of {election} leads to {value}"
            ));
        }
    }
}

/// What is known of a counter.
#[derive(Debug, Default)]
struct Counter {
    history: History,
    /// The increments under way: the epoch that guards each, and what it has read.
    begun: BTreeMap<usize, (i64, u64)>,
    /// Which epoch counted from each value on, where that was acknowledged.
    epochs: BTreeMap<u64, i64>,
    came_to: Option<u64>,
}

impl Report {
    /// Whether all that has to hold did hold.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.without_cause.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Settings { seed, etcd, ttl, .. }) = &self.settings {
            let ttl = Duration::from_nanos(*ttl);
            writeln!(f, "etcd {etcd}, seed {seed}, leases of {ttl:?}, {:.0?}", self.lasted)?;
        }
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "faults: {faults}")?;
        for (name, count) in &self.faults {
            writeln!(f, "  {count:>5} {name}")?;
        }
        if let Some(packets) = self.packets_lost {
            writeln!(f, "packets lost between hosts and members: {packets}")?;
        }
        writeln!(f, "terms: {}, led for {:.1?}", self.terms, self.led)?;
        let mut handovers = self.handovers.clone();
        handovers.sort_unstable();
        if let (Some(median), Some(longest)) =
            (handovers.get(handovers.len() / 2), handovers.last())
        {
            writeln!(
                f,
                "handovers while nothing was wrong: {}, median {median:.1?}, longest {longest:.1?}",
                handovers.len()
            )?;
        }
        let bound = self.settings.as_ref().map_or(0, |settings| settings.bound);
        writeln!(
            f,
            "longest time without a leader: {:.1?}; while nothing was wrong {:.1?}, of {:.1?} allowed",
            self.longest_gap,
            self.longest_calm_gap,
            Duration::from_nanos(bound)
        )?;
        writeln!(f, "demotions:")?;
        for (reason, count) in &self.demotions {
            writeln!(f, "  {count:>5} {reason}")?;
        }
        list(f, "demotions without a cause", &self.without_cause)?;
        let [applied, unknown, nothing] = self.increments;
        writeln!(
            f,
            "increments: {applied} made, {unknown} of unknown outcome, {nothing} not made"
        )?;
        if !self.broken_words.is_empty() {
            list(f, "keys that etcd took away before their time", &self.broken_words)?;
        }
        list(f, "violations", &self.violations)
    }
}

/// How many there are, and the first of them.
fn list(f: &mut fmt::Formatter<'_>, what: &str, all: &[String]) -> fmt::Result {
    writeln!(f, "{what}: {}", all.len())?;
    for one in all.iter().take(LISTED) {
        writeln!(f, "  {one}")?;
    }
    if all.len() > LISTED {
        writeln!(f, "  …")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::faults::Removal;

    const SECOND: Mark = 1_000_000_000;

    /// Leases of 3 s, and 5 s without a leader are allowed. All is ready at 10 s; marks
    /// are given in seconds.
    fn judged(events: &[(&str, u64, Event)]) -> Report {
        let settings = Settings { seed: 0, etcd: "3.5".into(), ttl: 3 * SECOND, bound: 5 * SECOND };
        let began = [("soak", 0, Event::Began(settings)), ("soak", 10, Event::Ready)];
        let ended = [("soak", 100, Event::Ended)];
        let mut lines: Vec<_> = [&began[..], events, &ended]
            .concat()
            .into_iter()
            .map(|(process, seconds, event)| Line {
                process: process.into(),
                mark: seconds * SECOND,
                event,
            })
            .collect();
        lines.sort_by_key(|line| line.mark);
        judge(&lines)
    }

    fn elected(epoch: i64, valid_until: u64) -> Event {
        Event::Elected { election: "office".into(), epoch, valid_until: valid_until * SECOND }
    }

    fn extended(epoch: i64, valid_until: u64) -> Event {
        Event::Extended { election: "office".into(), epoch, valid_until: valid_until * SECOND }
    }

    fn demoted(epoch: i64, valid_until: u64, reason: &str) -> Event {
        let (election, valid_until) = ("office".into(), valid_until * SECOND);
        Event::Demoted { election, epoch, valid_until, reason: reason.into() }
    }

    fn invoke(epoch: i64) -> Event {
        Event::Invoke { election: "office".into(), increment: 0, epoch, leads: true }
    }

    fn counted_to(value: u64) -> Event {
        Event::Counted { election: "office".into(), value }
    }

    fn fault(id: u64, fault: Fault) -> Event {
        Event::Fault { id, fault }
    }

    fn pause(host: &str) -> Fault {
        Fault::PauseHost { host: host.into() }
    }

    fn leader_paused() -> Fault {
        Fault::PauseMembers { members: vec![0], leader: true }
    }

    fn violations(events: &[(&str, u64, Event)]) -> usize {
        judged(events).violations.len()
    }

    #[test]
    fn one_after_the_other() {
        let report = judged(&[
            ("worker-1.1", 10, elected(5, 13)),
            ("worker-1.1", 12, extended(5, 60)),
            ("worker-1.1", 59, demoted(5, 60, "resigned")),
            ("worker-2.1", 59, elected(7, 100)),
        ]);
        assert!(report.is_good(), "{report}");
        assert_eq!((report.terms, report.led), (2, Duration::from_secs(90)));
        assert_eq!(report.longest_gap, Duration::ZERO);
    }

    #[test]
    fn two_at_a_time() {
        let first = ("worker-1.1", 10, elected(5, 60));
        let second = ("worker-2.1", 58, elected(7, 100));
        assert_eq!(violations(&[first.clone(), second.clone()]), 1);
        let demoted = ("worker-1.1", 57, demoted(5, 60, "resigned"));
        assert_eq!(violations(&[first.clone(), second.clone(), demoted]), 0);
        let is_killed = fault(1, Fault::KillHost { host: "worker-1".into() });
        let is_killed = ("soak", 20, is_killed);
        assert_eq!(violations(&[first, second, is_killed]), 1, "its lease was still to be kept");
    }

    #[test]
    fn a_paused_host_led_to_its_deadline() {
        let woken = [
            ("worker-1.1", 10, elected(5, 60)),
            ("soak", 50, fault(1, pause("worker-1"))),
            ("soak", 70, Event::Healed { id: 1 }),
            ("worker-1.1", 70, demoted(5, 60, "expired")),
            ("worker-2.1", 61, elected(7, 100)),
        ];
        assert_eq!(violations(&woken), 0);
        let believed = [&woken[..], &[("worker-1.1", 69, invoke(5))]].concat();
        // That it believed, and that another led meanwhile.
        assert_eq!(violations(&believed), 2);
    }

    #[test]
    fn an_operator_and_a_stuck_leader_of_etcds_excuse() {
        let two = [
            ("worker-1.1", 10, elected(5, 60)),
            ("worker-1.1", 58, demoted(5, 60, "lease-lost")),
            ("worker-2.1", 57, elected(7, 100)),
        ];
        let with = |before: Event| judged(&[&two[..], &[("soak", 56, before)]].concat());
        assert_eq!(violations(&two), 1);
        let deposed = |epoch| with(fault(1, Fault::Depose { epoch, by: Removal::Lease }));
        assert!(deposed(5).is_good());
        assert_eq!(deposed(4).violations.len(), 1);
        let stuck = with(fault(1, leader_paused()));
        assert_eq!((stuck.violations.len(), stuck.broken_words.len()), (0, 1));
    }

    #[test]
    fn epochs_rise() {
        let first = ("worker-1.1", 10, elected(5, 60));
        assert_eq!(violations(&[first.clone(), ("worker-2.1", 60, elected(5, 100))]), 1);
        assert_eq!(violations(&[first.clone(), ("worker-2.1", 60, elected(4, 100))]), 1);
        assert_eq!(violations(&[first, ("worker-2.1", 60, elected(6, 100))]), 0);
    }

    #[test]
    fn a_leader_within_the_bound_of_the_end_of_the_faults() {
        let led = |from| {
            vec![
                ("worker-1.1", 10, elected(5, 40)),
                ("soak", 41, fault(1, leader_paused())),
                ("soak", 50, Event::Healed { id: 1 }),
                ("worker-2.1", from, elected(7, 100)),
            ]
        };
        assert_eq!(violations(&led(55)), 0);
        assert_eq!(judged(&led(55)).longest_gap, Duration::from_secs(15));
        assert_eq!(judged(&led(55)).longest_calm_gap, Duration::from_secs(5));
        assert_eq!(violations(&led(56)), 1);
        assert_eq!(violations(&[]), 1, "nobody ever led");
    }

    #[test]
    fn a_loss_has_a_cause() {
        let lost = |cause: Option<(u64, Fault)>| {
            let mut events = vec![
                ("worker-1.1", 10, elected(5, 60)),
                ("worker-1.1", 60, demoted(5, 60, "expired")),
                ("worker-2.1", 61, elected(7, 100)),
            ];
            if let Some((at, one)) = cause {
                events.push(("soak", at, fault(1, one)));
                events.push(("soak", at + 1, Event::Healed { id: 1 }));
            }
            judged(&events).without_cause.len()
        };
        assert_eq!(lost(None), 1);
        assert_eq!(lost(Some((57, pause("worker-1")))), 0);
        assert_eq!(lost(Some((57, pause("worker-2")))), 1, "it is another one's");
        assert_eq!(lost(Some((50, pause("worker-1")))), 1, "that was long before");
        assert_eq!(lost(Some((57, leader_paused()))), 0);
        let follower = Fault::PauseMembers { members: vec![1], leader: false };
        assert_eq!(lost(Some((57, follower))), 1, "two members are enough");
    }

    #[test]
    fn what_an_earlier_term_counts_late() {
        let counted = |first: i64, second: i64| {
            let mut events = vec![("worker-1.1", 10, elected(9, 100))];
            for (value, epoch) in [(0, first), (1, second)] {
                let increment = value;
                let at = 20 + 3 * value;
                let (election, leads) = ("office".into(), false);
                let invoke = Event::Invoke { election, increment, epoch, leads };
                events.push(("worker-1.1", at, invoke));
                events.push(("worker-1.1", at + 1, Event::Read { increment, value }));
                let outcome = Outcome::Applied;
                events.push(("worker-1.1", at + 2, Event::Return { increment, outcome }));
            }
            events.push(("soak", 101, counted_to(2)));
            violations(&events)
        };
        assert_eq!(counted(8, 9), 0);
        assert_eq!(counted(9, 8), 1);
        let lost = [("worker-1.1", 10, elected(9, 100)), ("soak", 101, counted_to(1))];
        assert_eq!(violations(&lost), 1, "nobody counted to 1");
    }
}
