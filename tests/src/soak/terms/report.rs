//! What the logs of a soak came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::soak::log::Settings;

/// How many lines of a list are printed.
const LISTED: usize = 20;

/// What the logs of a soak came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How it was set up.
    pub settings: Option<Settings>,
    /// From when all was ready until the end.
    pub lasted: Duration,
    /// How often each fault was made.
    pub faults: BTreeMap<String, u64>,
    /// How many packets were lost, in a run that looks for false alarms.
    pub packets_lost: Option<u64>,
    /// How many terms began.
    pub terms: usize,
    /// How long there was a leader, all elections together.
    pub led: Duration,
    /// How many terms ended, by reason: `resigned` if the host gave it back.
    pub demotions: BTreeMap<String, u64>,
    /// Losses that no fault explains.
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
    /// How many of those that were acknowledged are missing in the counters.
    pub lost: u64,
    /// Claims that proved false.
    pub violations: Vec<String>,
}

impl Report {
    /// Whether every claim has held.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.without_cause.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(settings @ Settings { seed, store, ttl, .. }) = &self.settings {
            let ttl = Duration::from_nanos(*ttl);
            let etcd = if settings.is_postgres() { "" } else { "etcd " };
            writeln!(f, "{etcd}{store}, seed {seed}, leases of {ttl:?}, {:.0?}", self.lasted)?;
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
            "increments: {applied} made, {unknown} of unknown outcome, {nothing} not made, {} lost",
            self.lost
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
