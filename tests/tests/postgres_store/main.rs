//! The store in PostgreSQL: what is a database's own about it.

use std::sync::Arc;
use std::time::Duration;

use incumbent::types::*;
use incumbent::{Credentials, Failure, ManualClock, PostgresStore, Store};
use incumbent_tests::operations::{SECOND, all, claim, grant};
use incumbent_tests::postgres::Postgres;
use incumbent_tests::stores::{next, watch};
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon, until};

mod access;
mod broken;
mod eras;
mod faults;
mod fence;
mod model;
mod time;

async fn open(url: &str) -> PostgresStore {
    let (url, credentials) = (url.parse().unwrap(), Credentials::default());
    let opened = PostgresStore::connect(&url, &credentials, LIMIT);
    opened.expect_soon("a store").await
}

/// As on another machine, or since another start of this one, by another clock.
async fn open_at(url: &str, clock: &ManualClock, boot: &str) -> PostgresStore {
    let url = url.parse().unwrap();
    let opened = PostgresStore::open_at(&url, Arc::new(clock.clone()), boot);
    opened.expect_soon("a store").await
}

/// Asks again while the store gives no answer.
async fn ask(store: &PostgresStore, operation: Operation) -> Response {
    loop {
        match soon("an answer", store.call(operation.clone(), LIMIT)).await {
            Ok(response) => return response,
            answer if is_later(&answer) => {}
            Err(Failure::Unavailable | Failure::Timeout) => {}
            Err(failure) => panic!("{operation:?}: {failure:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Nobody gets in line yet, because leases may be lost.
fn is_later(answer: &Answer) -> bool {
    matches!(answer, Err(Failure::Other(said)) if said.contains("nobody new gets in line"))
}

/// Grants a lease, and claims a key with it. The revision of the key.
async fn campaign(store: &PostgresStore, key: &str, lease: i64, ttl: u64) -> i64 {
    assert_eq!(ask(store, grant(lease, ttl)).await, Response::Granted(ttl));
    match ask(store, claim(key, lease)).await {
        Response::Claimed(claimed) => claimed.at,
        // An answer was lost.
        Response::Taken(claimed) if claimed.entry.lease == lease => claimed.entry.created,
        other => panic!("{other:?}"),
    }
}

/// The keys that begin so, and the revision.
async fn read(store: &PostgresStore, prefix: &str) -> (i64, Vec<String>) {
    let Response::Snapshot(snapshot) = ask(store, Operation::Read(vec![all(prefix)])).await else {
        panic!("no snapshot");
    };
    let keys = snapshot.found.concat().into_iter().map(|entry| entry.key);
    (snapshot.at, keys.map(|key| String::from_utf8(key).unwrap()).collect())
}

async fn renew(store: &PostgresStore, lease: i64) -> Response {
    ask(store, Operation::KeepAlive(lease)).await
}

/// Waits until this store has seen the last renewals: it looks for them before it starts a watch.
async fn has_looked(store: &PostgresStore) {
    assert!(matches!(next(&mut watch(store, None)).await, Change::Started(_)));
}
