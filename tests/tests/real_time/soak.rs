//! Some of what `just soak` does for hours, on etcd 3.4 and 3.5 and on PostgreSQL.

use std::path::Path;
use std::time::Duration;

use incumbent_tests::etcd::Version;
use incumbent_tests::soak::host::RECORDINGS;
use incumbent_tests::soak::run::{Options, run};
use incumbent_tests::soak::{log, recordings, terms};
use tempfile::TempDir;

/// For so many seconds, in so many elections.
#[derive(Clone, Copy)]
struct Size(u64, u32);

/// The first faults of a shuffled deck. The long form comes closer to all.
const QUICK: Size = Size(20, 3);
/// Enough that terms of several elections are lost and taken over together.
const LONG: Size = Size(60, 10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terms_do_not_overlap_and_every_loss_has_a_cause_on_v3_4() {
    carry_through(Version::V3_4, false, QUICK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terms_do_not_overlap_and_every_loss_has_a_cause_on_v3_5() {
    carry_through(Version::V3_5_16, false, QUICK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_in_a_postgres_that_fails() {
    carry_through(Version::V3_5_16, true, QUICK).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: `just test-all` runs it"]
    async fn terms_do_not_overlap_and_every_loss_has_a_cause_on_v3_4() {
        carry_through(Version::V3_4, false, LONG).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: `just test-all` runs it"]
    async fn terms_do_not_overlap_and_every_loss_has_a_cause_on_v3_5() {
        carry_through(Version::V3_5_16, false, LONG).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: `just test-all` runs it"]
    async fn no_increment_is_lost_in_a_postgres_with_promotions_and_clock_steps() {
        carry_through(Version::V3_5_16, true, LONG).await;
    }
}

async fn carry_through(version: Version, postgres: bool, Size(seconds, elections): Size) {
    let logs = TempDir::with_prefix("incumbent-soak-").expect("a directory");
    let options = Options {
        length: Duration::from_secs(seconds),
        version,
        postgres,
        seed: None,
        ttl: None,
        elections,
        operator: false,
        false_alarms: false,
    };
    let result = run(&options, logs.path(), Path::new(env!("CARGO_BIN_EXE_counter"))).await;
    let report = terms::judge(&log::read(logs.path()).expect("logs"));
    let recorded = recordings::judge(&logs.path().join(RECORDINGS));
    print!("{report}\n{recorded:?}");
    if result.is_err() || !report.is_good() || recorded.is_err() {
        panic!("{result:?}; the logs are in {}", logs.keep().display());
    }
}
