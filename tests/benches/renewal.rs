//! What a renewal costs in the component, against a call of a stub of the same
//! WIT that does nothing.
//!
//! `cargo bench -p incumbent-tests --features component --bench renewal`

use criterion::{Criterion, criterion_group, criterion_main};
use incumbent::types::{Call, Command, Config, Event, Operation, Reply, Response};
use incumbent::{Component, Elector};
use incumbent_tests::load::leader;
use incumbent_tests::text_component::of_elector;

/// Answers every call with an empty step.
const STUB: &str = include_str!("stub.wat");
const SECOND: u64 = 1_000_000_000;
/// Short, so that next to no wake is for anything but a renewal.
const TTL: u64 = SECOND;

fn open(component: &Component) -> Elector {
    let config =
        Config { lease_ttl: TTL, safety_margin: 0, request_timeout: 5 * SECOND, seed: (1, 2) };
    Elector::open(component, config, 0).expect("opens")
}

fn renewal(criterion: &mut Criterion) {
    let component = Component::embedded().expect("loads");
    let stub = Component::from_bytes(&of_elector(STUB, "")).expect("loads");

    let mut group = criterion.benchmark_group("elector");
    let mut idle = open(&stub);
    group.bench_function("stub: handle(now, [])", |bencher| {
        bencher.iter(|| idle.handle(0, &[]).expect("handles"));
    });
    let mut idle = open(&component);
    group.bench_function("elector: handle(now, [])", |bencher| {
        bencher.iter(|| idle.handle(0, &[]).expect("handles"));
    });
    // Two calls, so the figure is twice that of one.
    let (mut elector, mut now) = leader(TTL);
    group.bench_function("renewal: wake and its reply, both", |bencher| {
        bencher.iter(|| {
            let mut step = elector.handle(now, &[Event::Wake]).expect("handles");
            let renewal = step.commands.iter().find_map(|command| match command {
                Command::Call(Call { id, operation: Operation::KeepAlive(_), .. }) => Some(*id),
                Command::Call(_) | Command::Watch(_) | Command::Unwatch(_) | Command::Notify(_) => {
                    None
                }
            });
            if let Some(id) = renewal {
                now += 1_000;
                let renewed = Event::Reply(Reply { id, outcome: Ok(Response::Renewed(TTL)) });
                step = elector.handle(now, &[renewed]).expect("handles");
            }
            now = step.deadline.expect("something is due");
        });
    });
    group.finish();
}

criterion_group!(benches, renewal);
criterion_main!(benches);
