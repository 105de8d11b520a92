//! Every order in which things can happen to a few candidates, with a number of
//! faults: the elector keeps its laws in all of them.
//!
//! `MODEL_CHECKING=long` explores more, for nights. A law that is broken is shown as
//! the shortest way there.

mod recovery;
mod view;
mod world;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use incumbent_guest::types::{Contest, Duration};
use incumbent_tests::simulation::store::EXPIRY_TICK;
use stateright::{Checker, HasDiscoveries, Model, Property};

use recovery::Recovery;
use world::{Action, Budget, REQUEST_TIMEOUT, STEP, Scope, World};

/// A world, known by its print.
#[derive(Clone, Debug)]
struct State {
    print: u64,
    world: World,
}

impl State {
    fn of(world: World) -> State {
        State { print: view::print(&world), world }
    }

    fn keeps(&self, law: u8) -> bool {
        self.world.broken.iter().all(|broken| broken.law != law)
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.print == other.print
    }
}

impl std::hash::Hash for State {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.print.hash(state);
    }
}

struct Elections {
    scope: Scope,
    /// How long the worlds that were met on the way take to have a leader.
    known: Mutex<HashMap<u64, Duration>>,
    longest: AtomicU64,
}

impl Elections {
    /// Law 10: a lease time, until the departed's is over and a tick has found it; a
    /// call that nobody answers, and the pause after it; the check of silent watches.
    fn bound(&self) -> Duration {
        if let Ok(b) = std::env::var("BOUND") {
            return b.parse::<u64>().unwrap() * STEP;
        }
        self.scope.ttl + EXPIRY_TICK + REQUEST_TIMEOUT + 2 * STEP
    }

    fn recovers(&self, world: &World) -> bool {
        if world.is_led() || !world.broken.is_empty() {
            return true;
        }
        let recovery = world.clone().recovers(
            self.bound(),
            |print| self.known.lock().expect("no panic").get(&print).copied(),
            |print, after| {
                self.known.lock().expect("no panic").insert(print, after);
            },
        );
        match recovery {
            Recovery::Led(after) => {
                self.longest.fetch_max(after, Ordering::Relaxed);
                true
            }
            Recovery::Deserted => true,
            Recovery::Failed => false,
        }
    }
}

impl Model for Elections {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::of(World::new(&self.scope))]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.world.actions(actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut world = state.world.clone();
        world.make(&action);
        Some(State::of(world))
    }

    fn properties(&self) -> Vec<Property<Elections>> {
        let law = Property::<Elections>::always;
        vec![
            law("1: one leads", |_, state| state.keeps(1)),
            law("2: as long as was granted", |_, state| state.keeps(2)),
            law("3: elected by a read", |_, state| state.keeps(3)),
            law("4: by the clock", |_, state| state.keeps(4)),
            law("5: guarded writes", |_, state| state.keeps(5)),
            law("6: epochs rise", |_, state| state.keeps(6)),
            law("7: released when work is over", |_, state| state.keeps(7)),
            law("8: back after yielded", |_, state| state.keeps(8)),
            law("10: a leader in time", |model, state| model.recovers(&state.world)),
            law("13: nothing spins", |_, state| state.keeps(13)),
        ]
    }
}

fn check(name: &str, scope: Scope) {
    let begun = Instant::now();
    let model = Elections { scope, known: Mutex::default(), longest: AtomicU64::new(0) };
    let threads = std::thread::available_parallelism().map_or(2, |number| number.get());
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .timeout(std::time::Duration::from_secs(120))
        .spawn_bfs()
        .join();
    println!(
        "{name}: {} states, {} steps between them, {} deep, in {:.1} s; a leader after {:.1} s at the latest",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64(),
        checker.model().longest.load(Ordering::Relaxed) as f64 / 1e9,
    );
    for (law, path) in checker.discoveries() {
        println!("{law}: {:?}", path.last_state());
        for action in path.into_actions() {
            println!("  {action:?}");
        }
    }
    checker.assert_properties();
}

#[test]
fn a_queue_of_two() {
    let b = |n: &str, d: u8| std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
    check(
        "queue of two",
        Scope {
            contest: if b("RACE", 0) == 1 { Contest::Race } else { Contest::Queue },
            candidates: b("N", 2) as usize,
            ttl: u64::from(b("TTL", 90)) * STEP,
            budget: Budget {
                faults: b("FAULTS", 0),
                delays: b("DELAYS", 0),
                pauses: b("PAUSES", 0),
                cuts: b("CUTS", 0),
                resignations: b("RESIGN", 0),
                writes: b("WRITES", 0),
                departures: b("LEAVE", 0),
            },
        },
    );
}
