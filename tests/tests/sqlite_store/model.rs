//! The store in a file and the model of etcd's, side by side: whatever they are asked, and
//! however time goes on, they answer alike, and tell their watches alike.

use std::hash::BuildHasher as _;
use std::time::Duration;

use fastrand::Rng;
use incumbent::ManualClock;
use incumbent::types as host;
use incumbent::types::{Change, Failure, LeaseId};
use incumbent::{Clock as _, Store as _};
use incumbent_guest::types as guest;
use incumbent_tests::simulation::store::Store as Model;

use super::{PATIENCE, Place, SECOND, next, watch};

const STEPS: usize = 3_000;
/// Few, so that they collide, with all that prefixes can be wrong about.
const KEYS: [&[u8]; 7] = [b"a", b"a/", b"a/b", b"a0", b"a\xff", b"\xff", b"\xff\xff"];
const VALUES: [&[u8]; 3] = [b"", b"one", b"two"];

#[tokio::test]
async fn the_file_means_what_the_model_means() {
    let seed = std::env::var("INCUMBENT_SQLITE_SEED").map_or_else(
        |_| std::hash::RandomState::new().hash_one(()),
        |seed| seed.parse().expect("a number"),
    );
    // Shown where the test fails.
    println!("INCUMBENT_SQLITE_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let clock = ManualClock::default();
    let place = Place::new();
    let store = place.open_at(&clock, "boot").await;
    let mut model = Model::default();
    let mut watches = watch(&store, None);
    assert_eq!(format!("{:?}", next(&mut watches).await), "Change::Started(1)");
    let mut told = 0;
    for _ in 0..STEPS {
        if random.usize(..20) == 0 {
            clock.advance(Duration::from_millis(random.u64(..1_500)));
        }
        model.tick(clock.now());
        let operation = operation(&mut random, &model);
        let ours = store.call(for_host(&operation), PATIENCE).await;
        let theirs = model.perform(clock.now(), &operation);
        match (&ours, &theirs) {
            (Err(Failure::Invalid(_)), Err(guest::Failure::Invalid(_))) => {}
            _ => assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{operation:?}"),
        }
        // A watch that begins in the past tells all from there on.
        if random.usize(..50) == 0 && told > 0 {
            let from = random.usize(..told);
            let (since, _) = model.changes_after(0)[from];
            let from = model.changes_before(since).expect("it is known");
            let mut later = watch(&store, Some(since));
            assert_eq!(next(&mut later).await, Change::Started(since - 1));
            for (_, change) in &model.changes_after(from)[..told - from] {
                assert_eq!(format!("{:?}", next(&mut later).await), format!("{change:?}"));
            }
        }
        for (_, change) in model.changes_after(told) {
            assert_eq!(format!("{:?}", next(&mut watches).await), format!("{change:?}"));
        }
        told = model.changes();
    }
    println!("{told} changes up to revision {}", model.revision());
}

/// What a client could ask, more often to the point than not.
fn operation(random: &mut Rng, model: &Model) -> guest::Operation {
    use incumbent_guest::types::*;

    match random.usize(..16) {
        0..2 => {
            // What the model's shortest lease does not touch.
            let ttl = random.u64(2..9) * SECOND;
            Operation::Grant(Grant { lease: lease(random), ttl })
        }
        2..4 => Operation::KeepAlive(lease(random)),
        4 => Operation::Revoke(lease(random)),
        5..9 => {
            Operation::Claim(Claim { key: key(random), value: value(random), lease: lease(random) })
        }
        9..11 => Operation::Read(
            (0..random.usize(..4))
                .map(|_| Selection {
                    prefix: random.bool(),
                    key: if random.usize(..6) == 0 { Vec::new() } else { key(random) },
                    created_before: random.bool().then(|| model.revision() + 2 - random.i64(..30)),
                    order: if random.bool() { Order::OldestFirst } else { Order::NewestFirst },
                    limit: [0, 0, 1, 2, 3, 100][random.usize(..6)],
                })
                .collect(),
        ),
        _ => guarded(random, model),
    }
}

fn guarded(random: &mut Rng, model: &Model) -> guest::Operation {
    use incumbent_guest::types::*;

    let key_there = {
        let there: Vec<_> = model.keys().map(|entry| entry.key.clone()).collect();
        random.choice(there)
    };
    let key_of_guard = key_there.unwrap_or_else(|| key(random));
    let entry = model.key(&key_of_guard);
    let lease_there = entry.map(|entry| entry.lease).filter(|lease| *lease != 0);
    Operation::Guarded(Guarded {
        guard: Guard {
            epoch: match entry {
                Some(entry) if random.usize(..6) > 0 => entry.created,
                _ => random.i64(1..model.revision() + 2),
            },
            lease: match random.usize(..6) {
                0 => Some(lease(random)),
                1..4 => lease_there,
                _ => None,
            },
            key: key_of_guard,
        },
        expect: (0..random.usize(..3))
            .map(|_| {
                let key = key(random);
                let modified = model.key(&key).map_or(0, |entry| entry.modified);
                let wrong = random.usize(..5) == 0;
                Expectation { key, modified: if wrong { random.i64(..9) } else { modified } }
            })
            .collect(),
        mutations: (0..random.usize(..4))
            .map(|_| match random.usize(..5) {
                0..2 => Mutation::Put(Put { key: key(random), value: value(random) }),
                2 => Mutation::Proclaim(value(random)),
                _ => Mutation::Delete(key(random)),
            })
            .collect(),
    })
}

fn lease(random: &mut Rng) -> LeaseId {
    [1, 2, 3, -4, LeaseId::MAX][random.usize(..5)]
}

/// A key, or once in a while none, which is not taken.
fn key(random: &mut Rng) -> Vec<u8> {
    if random.usize(..200) == 0 { Vec::new() } else { KEYS[random.usize(..KEYS.len())].into() }
}

fn value(random: &mut Rng) -> Vec<u8> {
    VALUES[random.usize(..VALUES.len())].into()
}

/// An operation in the host's types.
fn for_host(operation: &guest::Operation) -> host::Operation {
    use incumbent_guest::types::*;

    match operation.clone() {
        Operation::Grant(Grant { lease, ttl }) => {
            host::Operation::Grant(host::Grant { lease, ttl })
        }
        Operation::KeepAlive(lease) => host::Operation::KeepAlive(lease),
        Operation::Revoke(lease) => host::Operation::Revoke(lease),
        Operation::Claim(Claim { key, value, lease }) => {
            host::Operation::Claim(host::Claim { key, value, lease })
        }
        Operation::Read(selections) => {
            let selection = |Selection { key, prefix, created_before, order, limit }| {
                let order = match order {
                    Order::OldestFirst => host::Order::OldestFirst,
                    Order::NewestFirst => host::Order::NewestFirst,
                };
                host::Selection { key, prefix, created_before, order, limit }
            };
            host::Operation::Read(selections.into_iter().map(selection).collect())
        }
        Operation::Guarded(Guarded { guard, expect, mutations }) => {
            let Guard { key, epoch, lease } = guard;
            let expectation = |Expectation { key, modified }| host::Expectation { key, modified };
            let mutation = |mutation| match mutation {
                Mutation::Put(Put { key, value }) => host::Mutation::Put(host::Put { key, value }),
                Mutation::Proclaim(value) => host::Mutation::Proclaim(value),
                Mutation::Delete(key) => host::Mutation::Delete(key),
            };
            host::Operation::Guarded(host::Guarded {
                guard: host::Guard { key, epoch, lease },
                expect: expect.into_iter().map(expectation).collect(),
                mutations: mutations.into_iter().map(mutation).collect(),
            })
        }
    }
}
