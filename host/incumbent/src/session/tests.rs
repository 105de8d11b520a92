//! Electors of ten places: nine for names, and one for a candidate whose name is there already.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::candidate::Candidate;
use crate::clock::{BootClock, Clock};
use crate::leadership::Leadership;
use crate::store::memory::MemoryStore;

#[tokio::test]
async fn elections_that_one_lease_does_not_take_go_to_further_ones() {
    let (session, _) = small(MemoryStore::default()).await;
    let led = campaigns(&session, 0..20).await;
    let mut leases = BTreeMap::new();
    led.iter().for_each(|leadership| *leases.entry(leadership.lease()).or_insert(0) += 1);
    let mut sizes: Vec<_> = leases.into_values().collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 9, 9]);

    // What is left makes room again.
    drop(led);
    becomes(|| session.pool.places() == (vec![0, 0, 0], 0)).await;
    let led = campaigns(&session, 20..40).await;
    assert_eq!(session.pool.places(), (vec![9, 9, 2], 20));
    drop(led);
}

#[tokio::test]
async fn observers_and_lists_have_places_as_well() {
    let (session, _) = small(MemoryStore::default()).await;
    let observed: Vec<_> = names(&session, 0..10).map(|election| election.observe()).collect();
    assert_eq!(session.pool.places(), (vec![9, 1], 0));
    let listed = session.election("jobs-0").candidates().await.expect("are listed");
    assert!(listed.is_empty());
    drop(observed);
    becomes(|| session.pool.places() == (vec![0, 0], 0)).await;
}

#[tokio::test]
async fn a_second_candidate_is_refused_whichever_lease_has_the_first() {
    let (session, _) = small(MemoryStore::default()).await;
    let mut first: Vec<_> = names(&session, 0..12).map(|election| election.join()).collect();
    soon(join_all(first.iter_mut().map(Candidate::joined))).await;
    for number in [0, 11] {
        let second = soon(session.election(format!("jobs-{number}")).campaign()).await;
        assert!(matches!(second, Err(Error::Withdrawn(_))), "{number}: {second:?}");
    }
}

#[tokio::test]
async fn all_may_leave_and_campaign_again_at_once() {
    let (session, _) = small(MemoryStore::default()).await;
    let led = campaigns(&session, 0..9).await;
    drop(led);
    let mut again: Vec<_> = names(&session, 0..9).map(|election| election.join()).collect();
    assert_eq!(session.pool.places(), (vec![10, 8], 9), "no lease has more than its places");
    let led = soon(try_join_all(again.iter_mut().map(Candidate::elected))).await.expect("all lead");
    assert!(led.iter().all(Leadership::is_valid));
}

#[tokio::test]
async fn closing_ends_the_terms_on_all_leases_and_drops_the_store() {
    let (session, store) = small(MemoryStore::default()).await;
    let led = campaigns(&session, 0..20).await;
    let closing = tokio::spawn({
        let session = session.clone();
        async move { session.close().await }
    });
    soon(join_all(led.iter().map(Leadership::lost))).await;
    drop(led);
    soon(closing).await.expect("closes").expect("closes");
    for number in [0, 30] {
        let late = soon(session.election(format!("jobs-{number}")).campaign()).await;
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    }
    assert!(matches!(session.with_own_lease(), Err(Error::Closed)));
    becomes(|| store.strong_count() == 0).await;
}

#[tokio::test]
async fn a_term_on_a_further_lease_outlives_its_session() {
    let (session, _) = small(MemoryStore::default()).await;
    let mut led = campaigns(&session, 0..10).await;
    let last = led.pop().expect("is there");
    drop((session, led));
    last.fence().put("/result", "42").await.expect("the term stands");
}

#[tokio::test]
async fn an_elector_that_cannot_be_started_is_told_of() {
    let (mut session, _) = small(MemoryStore::default()).await;
    session.pool.starts_no_more();
    // The place that is kept for a name that is there already is better than none.
    let _led = campaigns(&session, 0..10).await;
    let refused = soon(session.election("one-more").campaign()).await;
    let sentence = refused.expect_err("there is no place").to_string();
    assert!(sentence.contains("electors are full"), "{sentence}");
}

#[tokio::test]
async fn a_lease_of_its_own_stands_when_the_others_is_lost() {
    let store = MemoryStore::default();
    let (session, _) = small(store.clone()).await;
    let own = session.with_own_lease().expect("starts");
    let lost = soon(session.election("jobs").campaign()).await.expect("leads");
    let kept = soon(own.election("other-jobs").campaign()).await.expect("leads");
    assert_eq!(own.election("jobs").identity(), session.election("jobs").identity());
    assert_ne!(lost.lease(), kept.lease());
    store.revoke(lost.lease());
    soon(lost.lost()).await;
    drop(lost);
    soon(session.close()).await.expect("closes");
    kept.fence().put("/result", "42").await.expect("the term stands");
    drop(kept);
    soon(own.close()).await.expect("closes");
}

#[tokio::test]
async fn all_drivers_come_round_until_the_session_is_closed() {
    let (session, _) = small(MemoryStore::default()).await;
    soon(session.ping()).await.expect("one driver");
    assert_eq!(session.store_answered(), None, "the store was not asked yet");
    let led = campaigns(&session, 0..20).await;
    soon(session.ping()).await.expect("three drivers");
    let answered = session.store_answered().expect("has answered");
    assert!(answered <= BootClock.now());
    let fence = led[0].fence();
    assert_eq!(fence.valid_until(), led[0].valid_until());
    drop(led);
    soon(session.close()).await.expect("closes");
    assert!(matches!(soon(session.ping()).await, Err(Error::Closed)));
}

/// A session whose electors have ten places, and its store.
async fn small(store: MemoryStore) -> (Session, Weak<dyn Store>) {
    let options = Options::default();
    let component = compiled(&options).await.expect("compiles");
    let store: Arc<dyn Store> = Arc::new(store);
    let weak = Arc::downgrade(&store);
    let parts = Parts { capacity: 10, ..parts(store, component, options).expect("are parts") };
    (Session::start(parts).expect("starts"), weak)
}

fn names(session: &Session, numbers: std::ops::Range<u32>) -> impl Iterator<Item = Election> {
    numbers.map(|number| session.election(format!("jobs-{number}")))
}

async fn campaigns(session: &Session, numbers: std::ops::Range<u32>) -> Vec<Leadership> {
    let campaign = async |election: Election| election.campaign().await;
    soon(try_join_all(names(session, numbers).map(campaign))).await.expect("all lead")
}

/// Waits for a condition.
async fn becomes(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            yield_now().await;
        }
    };
    soon(waiting).await;
}

/// Waits for what is sure to come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("takes less than 20 s")
}
