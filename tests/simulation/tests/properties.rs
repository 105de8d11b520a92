//! The properties, with what happens drawn at random, the same in each run unless `PROPTEST_RNG_SEED`
//! says otherwise; `just fuzz` looks further.

use incumbent_simulation::properties::elections::{Honesty, Move, play};
use incumbent_simulation::properties::events;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, RngSeed};

fn moves(honesty: Honesty) -> impl Strategy<Value = Vec<Move>> {
    use Move::*;
    let at = || 0..8usize;
    let common = prop_oneof![
        12 => Just(Handle),
        8 => Just(Round),
        6 => (1..4_000u64).prop_map(Pass),
        2 => (4_000..40_000u64).prop_map(Pass),
        6 => Just(PassToDeadline),
        30 => at().prop_map(Answer),
        4 => at().prop_map(Commit),
        4 => (at(), any::<u8>()).prop_map(|(i, k)| Fail(i, k)),
        3 => at().prop_map(Land),
        8 => at().prop_map(StartWatch),
        10 => at().prop_map(Tell),
        1 => at().prop_map(EndWatch),
        1 => at().prop_map(Repeat),
        3 => (at(), any::<bool>()).prop_map(|(i, again)| Campaign(i, again)),
        1 => at().prop_map(Observe),
        1 => at().prop_map(Inspect),
        2 => at().prop_map(Leave),
        2 => (at(), any::<bool>()).prop_map(|(i, old)| Resign(i, old)),
        5 => (at(), any::<bool>()).prop_map(|(i, old)| Yield(i, old)),
        3 => (at(), any::<bool>()).prop_map(|(i, old)| Write(i, old)),
        2 => at().prop_map(Proclaim),
        3 => at().prop_map(RivalJoins),
        4 => at().prop_map(RivalLeaves),
    ]
    .boxed();
    let close = (1u32, Just(Close).boxed());
    let operator = (18u32, (at(), any::<u8>()).prop_map(|(i, k)| Operator(i, k)).boxed());
    let nonsense =
        (20u32, (at(), any::<[u8; 32]>()).prop_map(|(i, bytes)| Nonsense(i, bytes)).boxed());
    let gossip =
        (8u32, (at(), any::<[u8; 32]>()).prop_map(|(i, bytes)| WatchNonsense(i, bytes)).boxed());
    let mut kinds = vec![(300u32, common), close];
    if honesty != Honesty::Honest {
        kinds.push(operator);
    }
    if honesty == Honesty::Nonsense {
        kinds.extend([nonsense, gossip]);
    }
    vec(proptest::strategy::Union::new_weighted(kinds), 1..160)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..2_000)
}

/// So many cases, unless `PROPTEST_CASES` says otherwise, as mutation testing does.
fn quick(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    let persistence = FileFailurePersistence::Direct("tests/properties.seeds");
    ProptestConfig {
        cases: std::env::var_os("PROPTEST_CASES").map_or(cases, |_| asked.cases),
        failure_persistence: asked.failure_persistence.map(|_| Box::new(persistence) as _),
        // Most of the time went into the other, which is not optimized here.
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: match asked.rng_seed {
            RngSeed::Random => RngSeed::Fixed(1),
            given @ RngSeed::Fixed(_) => given,
        },
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(quick(2_000))]

    #[test]
    fn with_a_store_that_is_true_to_its_word(moves in moves(Honesty::Honest)) {
        play(Honesty::Honest, &moves);
    }

    #[test]
    fn with_an_operator_who_meddles(moves in moves(Honesty::Meddled)) {
        play(Honesty::Meddled, &moves);
    }

    #[test]
    fn with_answers_that_are_nonsense(moves in moves(Honesty::Nonsense)) {
        play(Honesty::Nonsense, &moves);
    }

    #[test]
    fn with_events_that_are_nonsense(bytes in bytes()) {
        events::check(&bytes);
    }
}
