//! The properties of the host, with what happens drawn at random; `just fuzz` looks further.

#[cfg(feature = "etcd")]
use incumbent_tests::properties::store_answers;
use incumbent_tests::properties::{component, steps};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..2_000)
}

/// So many cases, unless `PROPTEST_CASES` says otherwise, as mutation testing does.
fn quick(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    let persistence = FileFailurePersistence::Direct("tests/nonsense.seeds");
    ProptestConfig {
        cases: std::env::var_os("PROPTEST_CASES").map_or(cases, |_| asked.cases),
        failure_persistence: asked.failure_persistence.map(|_| Box::new(persistence) as _),
        // Most of the time went into the other, which is not optimized here.
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(quick(100))]

    #[test]
    fn with_an_elector_that_is_nonsense(bytes in bytes()) {
        steps::check(&bytes);
    }
}

// Each is compiled, which takes two seconds.
proptest! {
    #![proptest_config(quick(2))]

    #[test]
    fn with_a_component_that_is_nonsense(bytes in vec(any::<u8>(), 0..40)) {
        component::check(&bytes);
    }
}

mod long {
    use super::*;

    proptest! {
        #![proptest_config(quick(50))]

        #[test]
        #[ignore = "long: `just test-all` runs it"]
        fn with_a_component_that_is_nonsense(bytes in vec(any::<u8>(), 0..40)) {
            component::check(&bytes);
        }
    }
}

/// What found something before it was mended.
#[cfg(feature = "etcd")]
#[test]
fn with_an_etcd_that_says_nothing_of_an_operation() {
    store_answers::check(include_bytes!("../corpus/store_answers/an_operation_with_no_answer"));
}

#[cfg(feature = "etcd")]
proptest! {
    #![proptest_config(quick(50))]

    #[test]
    fn with_an_etcd_that_is_nonsense(bytes in bytes()) {
        store_answers::check(&bytes);
    }
}
