//! The suite for stores finds schemas that break their word.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use incumbent_conformance::Place;

use super::*;

/// What is replaced in the schema by what, and a check that finds it.
const BREAKS: [(&str, &str, &str); 7] = [
    // No lock: two transactions give out the same revision, or claim the same key.
    (
        "FROM incumbent.meta FOR UPDATE;",
        "FROM incumbent.meta;",
        "expectations_count_without_a_loss",
    ),
    ("IF l <> 0 AND NOT FOUND THEN", "IF false THEN", "a_lease_that_is_not_there_is_expired"),
    (
        "present.created <> (it->>'epoch')::bigint",
        "false",
        "a_guarded_write_is_applied_or_stale_or_conflict",
    ),
    (
        "WHERE coalesce(k.modified, 0) <> (expected->>1)::bigint",
        "WHERE false",
        "a_guarded_write_is_applied_or_stale_or_conflict",
    ),
    (
        "INSERT INTO incumbent.history VALUES (revision, part, incumbent.now(), k, NULL, 0, 0);",
        "",
        "a_watch_starts_and_tells_each_change",
    ),
    (
        "FOR k IN SELECT key FROM incumbent.keys WHERE lease = l",
        "FOR k IN SELECT key FROM incumbent.keys WHERE false AND lease = l",
        "a_revoked_lease_takes_its_keys_along",
    ),
    // The database's clock is trusted, which runs by another unit here.
    (
        "PERFORM incumbent.wait_for_disks();\n    SELECT * INTO STRICT head",
        "DELETE FROM incumbent.leases WHERE at + ttl / 4 < incumbent.now() AND id <> 0;\n    \
         PERFORM incumbent.wait_for_disks();\n    SELECT * INTO STRICT head",
        "a_lease_lives_as_long_as_granted_and_ends",
    ),
];

/// A race: on a busy machine, transactions that nothing keeps apart may all the same follow one another.
const RACE: &str = "expectations_count_without_a_loss";
const TRIES: usize = 20;

struct Schema {
    postgres: Arc<Postgres>,
    name: String,
}

impl Place for Schema {
    async fn open(&self) -> Arc<dyn Store> {
        let url = format!("{}?schema={}", self.postgres.url(), self.name);
        Arc::new(open(&url).await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_broken_schema_is_found() {
    let postgres = Arc::new(Postgres::start_with(&["max_connections=2000"]));
    let places = AtomicU32::new(0);
    let missed = join_all(BREAKS.map(async |(from, to, check)| {
        for _ in 0..if check == RACE { TRIES } else { 1 } {
            let report = incumbent_conformance::check_one(check, || {
                let name = format!("place_{}", places.fetch_add(1, Ordering::Relaxed));
                let schema = PostgresStore::schema(&name, None);
                let from = from.replace("incumbent.", &format!("{name}."));
                assert_eq!(schema.matches(&from).count(), 1, "{from}");
                let to = to.replace("incumbent.", &format!("{name}."));
                postgres.sql(&schema.replace(&from, &to));
                let postgres = Arc::clone(&postgres);
                async move { Schema { postgres, name } }
            });
            if report.await.failed().any(|(_, why)| !why.contains("panicked")) {
                return None;
            }
        }
        Some(format!("{from}: not found by {check}"))
    }));
    let missed: Vec<_> = missed.await.into_iter().flatten().collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
