use incumbent_tests::model::compare;

use super::*;

#[tokio::test]
async fn the_file_means_what_memory_means() {
    let place = Place::new();
    let clock = ManualClock::default();
    let store = place.open_at(&clock, "boot").await;
    compare(store, &clock, "INCUMBENT_SQLITE_SEED", 3_000).await;
}
