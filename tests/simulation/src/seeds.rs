//! Many runs, one a seed, and what they came to.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::laws::Broken;
use super::plan::Plan;
use super::{Run, SECOND, shrink, tell};

/// The seeds that `just test` runs: enough to find each law that is broken on purpose
/// (`tests/breaks.rs`).
pub const QUICK_SEEDS: Range<u64> = 0..1_000;
/// Some breaks show only with many elections: with 1,000, a thousand seeds miss an elector that looks at
/// all of them for what concerns a few; with so many, one seed in eight finds it.
pub const MANY_ELECTIONS: u32 = 3_000;
/// The seed that `just test` runs in that many elections: the first that finds that elector. Where seeds
/// draw something else, it may be another one.
pub const QUICK_SEEDS_OF_MANY: Range<u64> = 7..8;

/// What many runs came to.
#[derive(Debug)]
pub struct Summary {
    runs: Vec<Run>,
    elapsed: Duration,
}

/// A seed whose run broke a law.
#[derive(Debug)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// Which law, and how.
    pub broken: Broken,
}

/// Runs a plan for each seed, on all processors. The error is the lowest seed that was
/// found to break a law before the others stopped.
pub fn run_all(
    seeds: Range<u64>,
    plan: impl Fn(u64) -> Plan + Sync,
    run: fn(&Plan) -> Result<Run, Broken>,
) -> Result<Summary, Found> {
    run_within(Duration::MAX, seeds, plan, run)
}

/// The same, but no seed begins after this time.
pub fn run_within(
    time: Duration,
    seeds: Range<u64>,
    plan: impl Fn(u64) -> Plan + Sync,
    run: fn(&Plan) -> Result<Run, Broken>,
) -> Result<Summary, Found> {
    let began = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let runs = Mutex::new(Vec::new());
    let found: Mutex<Option<Found>> = Mutex::new(None);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || began.elapsed() >= time {
                return;
            }
            match run(&plan(seed)) {
                Ok(run) => runs.lock().push(run),
                Err(broken) => {
                    next.store(seeds.end, Ordering::Relaxed);
                    let mut found = found.lock();
                    if found.as_ref().is_none_or(|found| seed < found.seed) {
                        *found = Some(Found { seed, broken });
                    }
                    return;
                }
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    match found.into_inner() {
        Some(found) => Err(found),
        None => Ok(Summary { runs: runs.into_inner(), elapsed: began.elapsed() }),
    }
}

impl Summary {
    /// All runs together.
    pub fn total(&self) -> Run {
        let mut total = Run::default();
        self.runs.iter().for_each(|run| total.add(run));
        total
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let elapsed = self.elapsed.as_secs_f64();
        let simulated = total.time as f64 / SECOND as f64;
        writeln!(
            f,
            "{} seeds in {elapsed:.1} s: {:.0} simulated seconds and {:.0} steps a second",
            self.runs.len(),
            simulated / elapsed,
            total.steps as f64 / elapsed
        )?;
        writeln!(
            f,
            "{:>12} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "a seed", "mean", "p10", "p50", "p90", "all"
        )?;
        let mut row = |name: &str, of: &dyn Fn(&Run) -> u64| {
            let mut values: Vec<u64> = self.runs.iter().map(of).collect();
            values.sort_unstable();
            let sum: u64 = values.iter().sum();
            let at =
                |percent: usize| values.get(values.len() * percent / 100).copied().unwrap_or(0);
            let mean = sum as f64 / values.len().max(1) as f64;
            writeln!(f, "{name:>12} {mean:>8.1} {:>8} {:>8} {:>8} {sum:>8}", at(10), at(50), at(90))
        };
        row("seconds", &|run| run.time / SECOND)?;
        row("faults", &|run| run.faults)?;
        row("terms", &|run| run.terms)?;
        row("increments", &|run| run.increments)?;
        row("steps", &|run| run.steps)?;
        let ended: Vec<String> =
            total.ended.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        write!(f, "terms ended: {}", ended.join(", "))
    }
}

impl Found {
    /// What happened, as short as it can be told.
    pub fn story(&self, plan: &Plan) -> String {
        let least = shrink(plan, &self.broken);
        let (result, told) = tell(&least, None);
        let broken = result.err().map_or_else(|| "nothing".into(), |broken| broken.to_string());
        format!("{told}\nWith {} of {} faults, {broken}", least.faults.len(), plan.faults.len())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}\n`just sim --seed {}` tells the story, and with `--record DIR` writes it for `incumbent replay`",
            self.seed, self.broken, self.seed
        )
    }
}
