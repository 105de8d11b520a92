//! What the steps of a test with `incumbent::testing` cost.
//!
//! `cargo bench -p incumbent-tests --features component --bench testing_kit`

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use incumbent::Leadership;
use incumbent::testing::{Process, World};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_secs(10);

async fn scene() -> (World, Process, Leadership) {
    let world = World::new();
    let process = world.process("worker").await.expect("starts");
    let leadership = process.session().election("my-service").campaign().await.expect("leads");
    (world, process, leadership)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("starts")
}

/// The time of one step, the first of a fresh scene.
fn step(
    criterion: &mut Criterion,
    name: &str,
    step: impl AsyncFn(&World, &Process, &Leadership) + Copy,
) {
    criterion.bench_function(name, |bencher| {
        let runtime = runtime();
        bencher.iter_custom(|times| {
            runtime.block_on(async {
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    let (world, process, leadership) = scene().await;
                    let start = Instant::now();
                    step(&world, &process, &leadership).await;
                    spent += start.elapsed();
                }
                spent
            })
        });
    });
}

fn steps(criterion: &mut Criterion) {
    step(criterion, "process: open a session", async |world, _, _| {
        world.process("another").await.expect("starts");
    });
    step(criterion, "campaign: until elected", async |_, process, _| {
        process.session().election("another").campaign().await.expect("leads");
    });
    step(criterion, "put: a guarded write", async |_, _, leadership| {
        leadership.fence().put("/data", "").await.expect("leads");
    });
    step(criterion, "settle: nothing to do", async |world, _, _| world.settle().await);
    step(criterion, "pass: 10 s, with renewals", async |world, _, leadership| {
        world.pass(LEASE).await;
        assert!(leadership.is_valid());
    });
    step(criterion, "depose: until lost", async |world, _, leadership| {
        world.depose("my-service").await;
        leadership.lost().await;
    });
    step(criterion, "cut and pass: until the deadline", async |world, process, leadership| {
        process.cut().await;
        world.pass(LEASE).await;
        leadership.lost().await;
    });
}

criterion_group!(benches, steps);
criterion_main!(benches);
