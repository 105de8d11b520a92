use incumbent_tests::model::compare;

use super::*;

#[tokio::test]
async fn the_database_means_what_memory_means() {
    let postgres = Postgres::start();
    let clock = ManualClock::default();
    let store = open_at(&postgres.url(), &clock, "boot").await;
    compare(store, &clock, "INCUMBENT_POSTGRES_SEED", 1_000).await;
}
