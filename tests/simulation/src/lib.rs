//! Elections without etcd, without sleep and without luck: a store of several
//! members, a network, processes with electors and applications in them, and faults.
//! Everything follows from a seed; every law is judged all the time.
//!
//! A run has three parts. In the unrest, [faults](plan::Kind) come and go, and what
//! must never happen is watched for. Then all is well, and within its bound
//! every election has a leader. Then everybody leaves, and nothing stays behind.
//!
//! | file | what is there |
//! | --- | --- |
//! | `plan` | what a seed draws before the run |
//! | `store`, `cluster` | what etcd holds and does, and its members |
//! | `world` | the order of all that happens: hosts and network; `faults`, `watches`, `verdict` |
//! | `application` | those who campaign, work and stop |
//! | `machine` | the elector in a process: native, or the component |
//! | `client` | what everyone keeps who drives an elector |
//! | `laws`, `evidence`, `history` | what is judged |
//! | `story` | what happened, as a transcript |
//! | `seeds` | many runs, and what they came to |
//!
//! Beside it, and as free of wasmtime and etcd: `transcript`, the elector's steps as text, and
//! `properties`, what must hold for any events at all.

use std::collections::BTreeMap;
#[cfg(feature = "component")]
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use incumbent_guest::types::{Duration, Mark, Reason, Step};

mod application;
pub mod client;
mod clock;
mod cluster;
pub mod evidence;
pub mod history;
pub mod laws;
mod machine;
pub mod plan;
pub mod properties;
pub mod seeds;
pub mod store;
mod story;
pub mod transcript;
mod world;

/// The boundary's types as wasmtime's bindgen makes them, in one module.
#[cfg(feature = "component")]
mod component_types {
    pub use incumbent::types::*;
    pub use incumbent::{Contest, Failure, Reason};
}

use laws::{Broken, Law};
use machine::{Open, native};
use plan::Plan;
use story::Story;
use world::World;

const MILLISECOND: Duration = 1_000_000;
const SECOND: Duration = 1_000 * MILLISECOND;

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// How much time passed.
    pub time: Mark,
    /// How often an elector was asked.
    pub steps: u64,
    /// How many faults there were.
    pub faults: u64,
    /// How many messages were lost.
    pub lost: u64,
    /// How many reads electors asked for.
    pub reads: u64,
    /// How many places in line there were.
    pub joined: u64,
    /// How many terms began.
    pub terms: u64,
    /// How many ended, by reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// How often a leader was told to hand over.
    pub hand_overs: u64,
    /// How many elections those processes led that led least and most, when all faults were over.
    pub led: (usize, usize),
    /// The longest time for which nobody led the first election, between two terms.
    pub vacancy: Duration,
    /// How many increments of counters were acknowledged.
    pub increments: u64,
    /// How often a component trapped.
    pub traps: u64,
    /// How many candidacies were dropped while they waited, or as they were elected.
    pub drops: u64,
    /// How many events were never delivered to a watch that went on.
    pub lost_news: u64,
    /// Whether watches went silent without an end.
    pub silent: bool,
    digest: DefaultHasher,
}

impl Run {
    fn ended(&mut self, reason: &Reason) {
        let reason = match reason {
            Reason::Resigned => "resigned",
            Reason::Expired => "expired",
            Reason::LeaseLost => "lease-lost",
            Reason::Deposed => "deposed",
            Reason::Fenced => "fenced",
            Reason::Other(_) => "other",
        };
        *self.ended.entry(reason).or_default() += 1;
    }

    fn digest(&mut self, process: usize, now: Mark, step: &Step) {
        (process, now, step).hash(&mut self.digest);
    }

    /// A number that is the same for two runs if every step of every elector was.
    pub fn fingerprint(&self) -> u64 {
        self.digest.finish()
    }

    /// Adds another run to this one.
    pub fn add(&mut self, other: &Run) {
        self.time += other.time;
        self.steps += other.steps;
        self.faults += other.faults;
        self.lost += other.lost;
        self.reads += other.reads;
        self.joined += other.joined;
        self.terms += other.terms;
        self.increments += other.increments;
        self.traps += other.traps;
        self.hand_overs += other.hand_overs;
        self.vacancy = self.vacancy.max(other.vacancy);
        self.drops += other.drops;
        self.lost_news += other.lost_news;
        for (reason, count) in &other.ended {
            *self.ended.entry(reason).or_default() += count;
        }
    }
}

/// Runs a plan to its end. The error is the first law that was broken.
pub fn run(plan: &Plan) -> Result<Run, Broken> {
    run_with(plan, &native)
}

/// Runs a plan with the component in every process. The native elector runs beside it, and
/// has to say the same, step by step. The error is the first law that was broken.
#[cfg(feature = "component")]
pub fn run_component(plan: &Plan) -> Result<Run, Broken> {
    run_with(plan, &machine::component)
}

fn run_with(plan: &Plan, open: Open<'_>) -> Result<Run, Broken> {
    let mut world = World::new(plan, open, Story::default());
    play(&mut world)?;
    Ok(world.run)
}

/// Runs a plan, and tells what happened: all of it, or one process's part.
pub fn tell(plan: &Plan, process: Option<usize>) -> (Result<Run, Broken>, String) {
    let mut world = World::new(plan, &native, Story::told_later());
    let result = play(&mut world);
    let told = world.story.tell(process);
    (result.map(|()| world.run), told)
}

/// Runs a plan, and returns a recording of each process, for `incumbent replay`: what the native
/// electors were told, and what the component says to that.
#[cfg(feature = "component")]
pub fn record(plan: &Plan) -> Result<BTreeMap<usize, String>, String> {
    let mut world = World::new(plan, &native, Story::told_later());
    // A broken law is told of by `tell`.
    let _ = play(&mut world);
    let mut recorders: BTreeMap<usize, transcript::Recorder> = BTreeMap::new();
    for story::Input { process, mark, given } in world.story.inputs() {
        let name = format!("process-{process}");
        let recorder = match recorders.entry(*process) {
            Entry::Occupied(recorder) => recorder.into_mut(),
            Entry::Vacant(entry) => entry.insert(transcript::Recorder::begin(&name, "simulated")?),
        };
        match given {
            Ok(config) => recorder.opened(&transcript::opened(*config), *mark)?,
            Err(events) => recorder.told(*mark, events)?,
        }
    }
    Ok(recorders.into_iter().map(|(process, recorder)| (process, recorder.text())).collect())
}

/// Writes these recordings to a directory, which is made, a file for each process.
#[cfg(feature = "component")]
pub fn write_recordings(plan: &Plan, dir: &std::path::Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
    for (process, text) in record(plan)? {
        let file = dir.join(format!("process-{process}.jsonl"));
        std::fs::write(file, text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The least plan, in faults, that still breaks the same law.
pub fn shrink(plan: &Plan, broken: &Broken) -> Plan {
    let mut least = plan.clone();
    let breaks = |plan: &Plan| run(plan).is_err_and(|other| other.law == broken.law);
    let mut fault = least.faults.len();
    while fault > 0 {
        fault -= 1;
        let less = least.without(fault);
        if breaks(&less) {
            least = less;
            fault = least.faults.len();
        }
    }
    least
}

fn play(world: &mut World<'_>) -> Result<(), Broken> {
    // In unrest.
    world.pass(world.plan.unrest + SECOND)?;
    world.run.led = world.led();

    // All is well.
    world.heal();
    let bound = world.recovery_bound();
    world.pass(world.now + bound)?;
    for election in 0..world.plan.elections.len() {
        let leaders = world.leaders(election);
        if leaders > 1 {
            return Err(Law::OneLeader.broken(format!(
                "{leaders} still lead `{}`, {} s after the last fault",
                world.plan.elections[election].name,
                bound / SECOND
            )));
        }
        // A backup may bring back a key that nobody removes as long as its lease is needed.
        let blocked =
            world.is_blocked(election) || world.laws.lost_data && world.stray(election).is_some();
        if !world.laws.went_back && leaders == 0 && !blocked {
            return Err(Law::LeaderReturns.broken(format!(
                "`{}` has no leader {} s after the last fault",
                world.plan.elections[election].name,
                bound / SECOND
            )));
        }
        // Who has seen newer epochs than there are now is told of no older ones.
        if !world.laws.lost_data {
            world.check_sights(election)?;
        }
    }

    world.check_no_strays()?;
    world.check_answers()?;

    let bound = world.preference_bound();
    if bound > 0 {
        let elections = 0..world.plan.elections.len();
        let first: Vec<_> = elections.map(|election| world.first_two(election)).collect();
        world.pass(world.now + bound)?;
        for (election, first) in first.iter().enumerate() {
            world.check_preferences(election, first)?;
        }
    }

    // Everybody leaves.
    world.dismiss();
    world.pass(world.now + 5 * SECOND)?;
    world.check_nobody_stays()?;
    let longest = world.plan.lease_ttl.max(store::SHORTEST_LEASE) + 2 * SECOND;
    world.pass(world.now + longest)?;
    world.check_nothing_stays()?;
    world.check_counters()?;
    world.run.time = world.now;
    world.run.increments = world.history.applied() as u64;
    Ok(())
}
