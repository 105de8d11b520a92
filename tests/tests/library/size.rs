//! One session with as much as people run: hundreds of elections, thousands of writes, and
//! other programs' data beside them. Each of these histories once broke the elector.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use incumbent::admin::Admin;
use incumbent::types::{Operation, Response};
use incumbent::{
    BootClock, Candidate, Contest, Failure, Leadership, MemoryStore, Options, Session, SqliteStore,
    Store, Write, WriteError,
};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, soon};
use tokio::time::{sleep, timeout};

use super::{NAME, WITHIN, options, store};

on_each_store! {
    hundreds_of_terms_end_at_once,
    others_data_are_as_if_they_were_not_there,
}

on_each_version! {
    hundreds_of_terms_are_lost_while_etcd_pauses,
    forty_thousand_writes_under_way_are_not_in_the_way_of_a_renewal,
}

/// 160 of 161 terms are dropped in one moment. Then 600 races wait for another session, and its
/// lease is revoked. The term that nobody touched stands through both.
async fn hundreds_of_terms_end_at_once(store: impl Store + Clone) {
    let options = |identity| Options { ttl: Duration::from_secs(30), ..options(identity) };
    let session = Session::open(store.clone(), options("one")).expect_soon("opens").await;
    let mut troubles = session.troubles();
    let name = |number| format!("an-election-with-a-name-of-42-bytes-{number:06}");
    let mut candidates: Vec<_> =
        (0..161).map(|number| session.election(name(number)).join()).collect();
    let mut terms = all_elected(&mut candidates).await;
    let untouched = terms.pop().expect("there are 161");
    let _its_candidate = candidates.pop();
    let epochs: Vec<_> = terms.iter().map(Leadership::epoch).collect();
    drop(terms);
    let again = all_elected(&mut candidates).await;
    assert!(again.iter().zip(epochs).all(|(term, before)| term.epoch() > before));
    assert!(untouched.is_valid());

    let other = Session::open(store.clone(), options("two")).expect_soon("opens").await;
    let race = |session: &Session, number| {
        session.election(format!("race-{number}")).contest(Contest::Race)
    };
    let mut leading: Vec<_> = (0..600).map(|number| race(&other, number).join()).collect();
    let held = all_elected(&mut leading).await;
    let mut waiting: Vec<_> = (0..600).map(|number| race(&session, number).join()).collect();
    try_join_all(waiting.iter_mut().map(Candidate::joined)).expect_soon("all wait").await;
    let revoked = store.call(Operation::Revoke(held[0].lease().into()), WITHIN);
    assert_eq!(soon("the lease is revoked", revoked).await, Ok(Response::Revoked));
    let won = all_elected(&mut waiting).await;
    assert!(won.iter().zip(&held).all(|(term, before)| term.epoch() > before.epoch()));
    assert!(untouched.is_valid());
    // A busy machine's etcd may answer late, and the request is made again. Nothing else happens.
    while let Some(trouble) = troubles.next().now_or_never() {
        assert_eq!(trouble, Some(Failure::Timeout));
    }
}

/// 300 terms expire, are dropped and won again, all within one session.
async fn hundreds_of_terms_are_lost_while_etcd_pauses(etcd: Etcd) {
    let options = Options { ttl: Duration::from_secs(5), ..options("one") };
    let session = Session::connect(&etcd.url(), options).expect_soon("connects").await;
    let mut troubles = session.troubles();
    let mut candidates: Vec<_> =
        (0..300).map(|number| session.election(format!("{NAME}-{number}")).join()).collect();
    let terms = all_elected(&mut candidates).await;
    etcd.pause();
    join_all(terms.iter().map(Leadership::lost)).await;
    assert!(terms.iter().all(|term| !term.is_valid()));
    drop(terms);
    sleep(Duration::from_secs(4)).await;
    etcd.resume();
    let again = all_elected(&mut candidates).await;
    assert!(again.iter().all(Leadership::is_valid));
    while let Some(trouble) = troubles.next().now_or_never() {
        let trouble = trouble.expect("the session is open").to_string();
        assert!(!trouble.contains("replaced"), "{trouble}");
    }
}

/// Edge case 49: small and large, in front of a candidate and behind it, with and without keys
/// that look like a candidate's.
async fn others_data_are_as_if_they_were_not_there(store: impl Store + Clone) {
    let options = Options { ttl: Duration::from_secs(5), ..options("one") };
    let session = Session::open(store.clone(), options).expect_soon("opens").await;
    let elsewhere = session.election("elsewhere").campaign().expect_soon("leads").await;
    let begun = Instant::now();
    drop(session.election("calm").campaign().expect_soon("leads").await);
    let calm = begun.elapsed();
    let many = 20_000;
    let fence = elsewhere.fence();
    for first in (0..many).step_by(100) {
        let all = (first..many.min(first + 100)).fold(Write::new(), |write, number| {
            let key = match number % 2 {
                0 => format!("{NAME}/data/{number}"),
                // As the hash of something, which begins as a lease id does.
                _ => format!("{NAME}/{:032x}", number * 0x9e37_79b9_7f4a_7c15_u128),
            };
            write.put(key, vec![b'x'; 1_000])
        });
        fence.write(all).expect_soon("is written").await;
    }
    for number in 0..20 {
        let large = fence.put(format!("{NAME}/large/{number}"), vec![b'x'; 1 << 20]);
        large.expect_soon("is written").await;
    }

    let election = session.election(NAME);
    let begun = Instant::now();
    let leadership = election.campaign().expect_soon("leads").await;
    let took = begun.elapsed();
    println!("{many} keys of others: {took:?}, {calm:?} without");
    let candidates = election.candidates().expect_soon("are listed").await;
    assert_eq!(candidates.len(), 1);
    assert_eq!((candidates[0].epoch, &*candidates[0].value), (leadership.epoch(), &b"one"[..]));
    let leader = election.leader().expect_soon("is found").await.expect("leads");
    assert_eq!(leader.epoch, leadership.epoch());
    let leader = Admin::new(&store, NAME).timeout(WITHIN).leader();
    let leader = leader.expect_soon("is found").await;
    assert_eq!(leader.expect("leads").epoch, leadership.epoch());
    let mut leaders = election.observe();
    let seen = leaders.next().expect_soon("is told").await.expect("is followed");
    assert_eq!(seen.expect("leads").epoch, leadership.epoch());
    assert!(elsewhere.is_valid(), "a leader notices nothing");
    leadership.resign().expect_soon("resigns").await;
    assert_eq!(leaders.next().expect_soon("is told").await.expect("is followed"), None);
}

/// Users may ask for more than the store can do: they wait, and the lease is renewed.
async fn forty_thousand_writes_under_way_are_not_in_the_way_of_a_renewal(etcd: Etcd) {
    let options = Options { ttl: Duration::from_secs(5), ..options("one") };
    let session = Session::connect(&etcd.url(), options).expect_soon("connects").await;
    let leadership = session.election(NAME).campaign().expect_soon("leads").await;
    let fence = leadership.fence();
    let writes = (0..40_000).map(|number| fence.put(format!("/data/{}", number % 100), "x"));
    let writes: FuturesUnordered<_> = writes.collect();
    let outcomes: Vec<_> = timeout(Duration::from_secs(120), writes.collect()).await.expect("ends");
    // A disk that is slow for a moment leaves some in the dark.
    let (unknown, failed): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .filter_map(Result::err)
        .partition(|error| matches!(error, WriteError::Unknown));
    assert!(failed.is_empty() && unknown.len() < 400, "{failed:?}, {}", unknown.len());
    assert!(leadership.is_valid());
}

async fn all_elected(candidates: &mut [Candidate]) -> Vec<Leadership> {
    try_join_all(candidates.iter_mut().map(Candidate::elected)).expect_soon("all lead").await
}

/// An elector takes 10,000 elections: the session has another one, and another lease, for more.
#[tokio::test]
async fn a_session_takes_another_lease_beyond_ten_thousand_elections() {
    // Longer than a busy machine takes for all of them.
    let ttl = Duration::from_secs(60);
    let store = MemoryStore::new(Arc::new(BootClock));
    let session = Session::open(store, Options { ttl, ..options("one") }).await;
    let session = session.expect("opens");
    let start = Instant::now();
    let join = |number| session.election(format!("many-{number:05}")).join();
    let mut candidates: Vec<_> = (0..10_001).map(join).collect();
    let mut leases = Vec::new();
    for candidate in [0, 8_999, 9_000, 10_000] {
        let elected = candidates[candidate].elected();
        let led = timeout(Duration::from_secs(60), elected).await.expect("in time");
        leases.push(led.expect("leads").lease());
    }
    println!("10,001 elections are led after {:?}", start.elapsed());
    assert_eq!(leases[0], leases[1]);
    assert_ne!(leases[1], leases[2]);
    assert_eq!(leases[2], leases[3]);
}
