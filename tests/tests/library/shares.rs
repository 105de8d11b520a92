//! Sessions that share many elections.

use std::future::pending;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{BootClock, Leadership, Limit, MemoryStore, Options, Session, SqliteStore, Store};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, LIMIT};
use tokio::time::{sleep, timeout};

use super::{options, store};

on_each_store! {
    those_who_come_have_their_part_and_leave_it_to_the_others,
    what_is_too_much_is_left_to_those_who_wait,
}

const SHARDS: usize = 120;

async fn those_who_come_have_their_part_and_leave_it_to_the_others(store: impl Store + Clone) {
    let mut sessions = Vec::new();
    for identity in ["one", "two", "three", "four"] {
        sessions.push(leads(&store, identity, Some(Limit::fair().at_once(8))).await);
        until(&sessions, |terms| {
            let (least, most) =
                (terms.iter().min().unwrap_or(&0), terms.iter().max().unwrap_or(&0));
            10 * (most - least) <= SHARDS / terms.len()
        })
        .await;
    }
    while let Some(session) = sessions.pop() {
        session.close().expect_soon("closes").await;
        until(&sessions, |_| true).await;
    }
}

async fn what_is_too_much_is_left_to_those_who_wait(store: impl Store + Clone) {
    let one = leads(&store, "one", Some(Limit::at_most(5))).await;
    // Nobody else is there.
    until(slice::from_ref(&one), |_| true).await;
    let sessions = [one, leads(&store, "two", None).await];
    until(&sessions, |terms| terms.first() == Some(&5)).await;
}

/// A session that is in line for all shards.
async fn leads(store: &(impl Store + Clone), identity: &str, limit: Option<Limit>) -> Session {
    // Whoever lost its lease on a busy machine would not get its terms back.
    let options = Options { ttl: Duration::from_secs(30), ..options(identity) };
    let session = Session::open(store.clone(), options).expect_soon("opens").await;
    if let Some(limit) = limit {
        session.limit(limit);
    }
    for shard in 0..SHARDS {
        let election = session.election(format!("shards/{shard}"));
        tokio::spawn(async move { election.lead(holds).await });
    }
    session
}

async fn holds(_term: Leadership) {
    pending().await
}

/// Waits until they lead all shards, in parts like these.
async fn until(sessions: &[Session], parts: impl Fn(&[usize]) -> bool) {
    let mut terms = Vec::new();
    let has_come = async {
        loop {
            terms.clear();
            for session in sessions {
                terms.push(session.terms().await.expect("is open"));
            }
            let all = if sessions.is_empty() { 0 } else { SHARDS };
            if terms.iter().sum::<usize>() == all && parts(&terms) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let has_come = timeout(LIMIT, has_come).await;
    has_come.unwrap_or_else(|_| panic!("in vain for {LIMIT:?}: they lead {terms:?}"));
}
