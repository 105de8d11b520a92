//! Every order in which things can happen to a few candidates, with a number of
//! faults: the elector keeps its laws in all of them.
//!
//! Each scope is explored to its end: there are no more worlds to be met in it. A law
//! that is broken is shown with a short way there. `just test-all` explores more, and
//! `just test --test model_checking --run-ignored only nights` goes on for nights.

mod recovery;
mod view;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use incumbent_guest::types::{Contest, Duration};
use incumbent_simulation::laws::Law;
use incumbent_simulation::store::EXPIRY_TICK;
use mimalloc::MiMalloc;
use parking_lot::Mutex;
use stateright::{Checker, HasDiscoveries, Model, Property};

use recovery::Recovery;
use world::{Action, Budget, REQUEST_TIMEOUT, STEP, Scope, World};

/// What is explored consists of small things that come and go.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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

    fn keeps(&self, law: Law) -> bool {
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

/// The longest pause between two tries.
const CAP: Duration = STEP;

struct Elections {
    scope: Scope,
    /// How long the worlds that were met on the way take to have a leader.
    known: Mutex<HashMap<u64, Duration>>,
    longest: AtomicU64,
}

impl Elections {
    /// Law 10: a call that nobody answers, the store's look for leases that are over, a
    /// pause, and a few steps of time. The key of a process that died stays for a lease time, and
    /// so may one of a process that departed, whose grant and claim land late.
    fn bound(&self, world: &World) -> Duration {
        let departed = world.candidates.iter().any(|it| it.withdrawn || it.dead);
        let lease = if departed { self.scope.ttl } else { 0 };
        REQUEST_TIMEOUT + EXPIRY_TICK + CAP + 3 * STEP + lease
    }

    fn recovers(&self, world: &World) -> bool {
        if world.is_led() || !world.broken.is_empty() {
            return true;
        }
        let recovery = world.clone().recovers(
            self.bound(world),
            |print| self.known.lock().get(&print).copied(),
            |print, after| {
                self.known.lock().insert(print, after);
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
            law("1: one leads", |_, state| state.keeps(Law::OneLeader)),
            law("2: as long as was granted", |_, state| state.keeps(Law::ValidUntil)),
            law("3: elected by a read", |_, state| state.keeps(Law::ElectedWhenShown)),
            law("4: by the clock", |_, state| state.keeps(Law::ByTheClock)),
            law("5: guarded writes", |_, state| state.keeps(Law::Guarded)),
            law("6: epochs rise", |_, state| state.keeps(Law::EpochsRise)),
            law("7: released when work is over", |_, state| state.keeps(Law::ReleasedAfterWork)),
            law("8: back after yielded", |_, state| state.keeps(Law::YieldedFirst)),
            law("10: a leader in time", |model, state| model.recovers(&state.world)),
            law("13: nothing spins", |_, state| state.keeps(Law::NothingSpins)),
            Property::sometimes("somebody leads", |_, state: &State| state.world.is_led()),
        ]
    }
}

/// Explores all of a scope.
fn check(scope: Scope) {
    let Scope { contest, candidates, ttl, budget } = scope;
    let begun = Instant::now();
    let model = Elections { scope, known: Mutex::default(), longest: AtomicU64::new(0) };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "{contest:?} of {candidates}, leases of {} s, {budget:?}: {} states, {} steps between \
         them, {} deep, in {:.1} s; a leader {} s after all faults at the latest",
        ttl / STEP,
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64(),
        checker.model().longest.load(Ordering::Relaxed) / STEP,
    );
    for (law, path) in BTreeMap::from_iter(checker.discoveries()) {
        if checker.model().property(law).expectation.discovery_is_failure() {
            println!("{law}: {:?}", path.last_state());
            path.into_actions().iter().for_each(|action| println!("  {action:?}"));
        }
    }
    checker.assert_properties();
}

fn check_all(contest: Contest, scopes: &[(usize, u64, Budget)]) {
    for &(candidates, seconds, budget) in scopes {
        check(Scope { contest, candidates, ttl: seconds * STEP, budget });
    }
}

const NONE: Budget = Budget::NONE;

// With leases of 90 s a renewal and the check of silent watches fall together, and
// there are fewer worlds; with 30 s there are three renewals to a check.

#[test]
fn a_queue() {
    check_all(
        Contest::Queue,
        &[
            (2, 90, Budget { faults: 1, ..NONE }),
            (2, 90, Budget { delays: 1, ..NONE }),
            (2, 90, Budget { resignations: 1, writes: 1, ..NONE }),
            (2, 90, Budget { removals: 1, ..NONE }),
            (3, 90, NONE),
        ],
    );
}

/// A transfer. Each candidate may hear of the wish or not.
#[test]
fn a_queue_with_wishes() {
    check_all(Contest::Queue, &[(2, 90, Budget { wishes: 1, ..NONE })]);
}

#[test]
fn a_race() {
    check_all(
        Contest::Race,
        &[
            (2, 30, Budget { faults: 1, resignations: 1, ..NONE }),
            (2, 90, Budget { delays: 1, departures: 1, ..NONE }),
            (2, 30, Budget { pauses: 1, ..NONE }),
            (2, 90, Budget { removals: 1, writes: 1, ..NONE }),
            (3, 90, Budget { faults: 1, ..NONE }),
        ],
    );
}

/// The same with more that may happen: `just test-all`.
mod long {
    use super::*;

    #[test]
    #[ignore = "long: `just test-all` runs it"]
    fn a_queue() {
        check_all(
            Contest::Queue,
            &[
                (2, 30, Budget { faults: 1, resignations: 1, ..NONE }),
                (2, 90, Budget { delays: 1, departures: 1, ..NONE }),
                (2, 30, Budget { pauses: 1, ..NONE }),
                (2, 90, Budget { cuts: 1, ..NONE }),
            ],
        );
    }

    /// A transfer, with a death at each point.
    #[test]
    #[ignore = "long: `just test-all` runs it"]
    fn a_queue_with_wishes() {
        check_all(
            Contest::Queue,
            &[
                (2, 90, Budget { wishes: 2, ..NONE }),
                (2, 90, Budget { wishes: 1, deaths: 1, ..NONE }),
            ],
        );
    }

    #[test]
    #[ignore = "long: `just test-all` runs it"]
    fn a_race() {
        check_all(
            Contest::Race,
            &[
                (2, 90, Budget { faults: 1, delays: 1, ..NONE }),
                (2, 30, Budget { cuts: 1, ..NONE }),
                (2, 90, Budget { resignations: 2, writes: 1, ..NONE }),
            ],
        );
    }
}

/// Hours, and gigabytes of memory.
mod nights {
    use super::*;

    #[test]
    #[ignore = "for nights"]
    fn more_wishes() {
        check_all(
            Contest::Queue,
            &[
                (2, 90, Budget { wishes: 2, deaths: 1, ..NONE }),
                (2, 90, Budget { wishes: 2, departures: 1, ..NONE }),
                (2, 90, Budget { wishes: 2, removals: 1, ..NONE }),
                (2, 90, Budget { wishes: 1, pauses: 1, ..NONE }),
                (2, 90, Budget { wishes: 1, faults: 1, ..NONE }),
                (3, 90, Budget { wishes: 1, ..NONE }),
            ],
        );
    }

    #[test]
    #[ignore = "for nights"]
    fn more_of_each() {
        for contest in [Contest::Queue, Contest::Race] {
            check_all(
                contest,
                &[
                    (2, 30, Budget { faults: 2, resignations: 1, ..NONE }),
                    (2, 30, Budget { faults: 1, pauses: 1, ..NONE }),
                    (2, 30, Budget { faults: 1, cuts: 1, ..NONE }),
                    (2, 90, Budget { pauses: 1, resignations: 1, writes: 1, ..NONE }),
                    (2, 90, Budget { faults: 1, delays: 1, resignations: 1, ..NONE }),
                    (2, 90, Budget { faults: 1, delays: 1, departures: 1, ..NONE }),
                    (2, 90, Budget { removals: 1, resignations: 1, writes: 1, ..NONE }),
                    (3, 90, Budget { faults: 1, ..NONE }),
                    (3, 90, Budget { pauses: 1, ..NONE }),
                    (3, 90, Budget { resignations: 1, departures: 1, ..NONE }),
                ],
            );
        }
    }
}
