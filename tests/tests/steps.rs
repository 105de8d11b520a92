//! What a step of the component costs does not grow with what it holds.

use std::thread;

use incumbent_tests::load::{Cost, NAMES, leads_at_most, measure};

/// In instructions, for a step of its own: whatever its events ask for beyond that is a
/// share for each.
const STEP: u64 = 20_000_000;
const EVENT: u64 = 40_000;
/// For each byte of the name that an event is about.
const BYTE: u64 = 40;

/// A term that goes over costs so many events: it ends, and its candidate gets in line again.
const SPREAD: u64 = 2;

/// These concern one election, or one thing of all.
const SINGLE: [&str; 5] = ["campaign", "renewal", "write", "deletion", "one left"];

#[test]
fn a_step_costs_what_it_changes() {
    costs_what_it_changes(1_000);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: `just test-all` runs it"]
    fn a_step_costs_what_it_changes() {
        costs_what_it_changes(10_000);
    }
}

fn costs_what_it_changes(elections: u32) {
    thread::scope(|scope| {
        for name in NAMES {
            scope.spawn(move || with_names_of(name, elections));
        }
    });
}

fn with_names_of(name: usize, elections: u32) {
    let few = measure(10, name);
    for ((kind, few), (_, many)) in few.into_iter().zip(measure(elections, name)) {
        println!("{name} bytes, {kind}: {few:?}, {many:?}");
        let Cost { fuel, events, .. } = many;
        let events = events as u64 * if kind == "spread" { SPREAD } else { 1 };
        assert!(
            fuel < STEP + (EVENT + BYTE * name as u64) * events,
            "{kind} takes {fuel} with {events} events"
        );
        if SINGLE.contains(&kind) {
            assert!(fuel < 2 * few.fuel, "{kind} took {} with ten elections, now {fuel}", few.fuel);
        }
    }
}

#[test]
fn what_is_permitted_has_room() {
    assert_eq!(leads_at_most(), 10_000);
}
