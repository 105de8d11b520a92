//! A minute of what `just soak` does for hours, on etcd 3.4 and 3.5 and on PostgreSQL.

use std::path::Path;
use std::time::Duration;

use incumbent_tests::etcd::Version;
use incumbent_tests::on_each_version;
use incumbent_tests::soak::run::{Options, run};
use incumbent_tests::soak::{log, terms};
use tempfile::TempDir;

/// Enough that terms of several elections are lost and taken over together.
const ELECTIONS: u32 = 10;

on_each_version! { @ v3_4, V3_4, terms_do_not_overlap_and_every_loss_has_a_cause }
on_each_version! { @ v3_5, V3_5_16, terms_do_not_overlap_and_every_loss_has_a_cause }

async fn terms_do_not_overlap_and_every_loss_has_a_cause(version: Version) {
    carry_through(version, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_in_a_postgres_with_promotions_and_clock_steps() {
    carry_through(Version::V3_5_16, true).await;
}

async fn carry_through(version: Version, postgres: bool) {
    let logs = TempDir::with_prefix("incumbent-soak-").expect("a directory");
    let length = Duration::from_secs(60);
    let options = Options {
        length,
        version,
        postgres,
        seed: None,
        ttl: None,
        elections: ELECTIONS,
        operator: false,
        false_alarms: false,
    };
    let result = run(&options, logs.path(), Path::new(env!("CARGO_BIN_EXE_counter"))).await;
    let report = terms::judge(&log::read(logs.path()).expect("logs"));
    print!("{report}");
    if result.is_err() || !report.is_good() {
        panic!("{result:?}; the logs are in {}", logs.keep().display());
    }
}
