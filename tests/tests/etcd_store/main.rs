//! The store on a real etcd, beyond what is asked of every store (`conformance.rs`):
//! etcd's limits, the prefix, late renewals, the repair of watches, users, TLS, and what
//! is said where there is no etcd.

mod access;
mod batches;
mod calls;
mod members;
mod renewals;
mod watches;

use std::future::poll_fn;
use std::time::{Duration, Instant};

use incumbent::types::*;
use incumbent::{ConnectError, Credentials, EtcdStore, Failure, Store, Watches};
use incumbent_tests::etcd::{Etcd, Version, user};
use incumbent_tests::on_each_version;
use incumbent_tests::operations::{self, SECOND, all, one, watch};
use incumbent_tests::relay::Relay;
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon, until};
use tokio::time::timeout;

/// How often a watch stream was opened, in etcd's figures.
const WATCH_STREAMS: &str = "grpc_server_started_total{grpc_method=\"Watch\",\
     grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"}";

async fn started(version: Version) -> (Etcd, EtcdStore) {
    let etcd = Etcd::start(version);
    let store = connect(&etcd.url()).await;
    (etcd, store)
}

/// A store that reaches this etcd through a relay.
async fn relayed(etcd: &Etcd) -> (Relay, EtcdStore) {
    let relay = Relay::start(etcd.address()).await;
    let store = connect(&relay.url()).await;
    (relay, store)
}

async fn connect(url: &str) -> EtcdStore {
    try_connect(url, &Credentials::default()).await.unwrap()
}

async fn connect_as(url: &str, name: &str, password: &str) -> Result<EtcdStore, ConnectError> {
    try_connect(url, &user(name, password)).await
}

async fn try_connect(url: &str, credentials: &Credentials) -> Result<EtcdStore, ConnectError> {
    EtcdStore::connect(&url.parse().unwrap(), credentials, LIMIT).await
}

async fn call(store: &EtcdStore, operation: Operation) -> Answer {
    store.call(operation, LIMIT).await
}

/// The same, again and again while there is no connection.
async fn call_again(store: &EtcdStore, operation: Operation) -> Answer {
    loop {
        match call(store, operation.clone()).await {
            Err(Failure::Unavailable) => {}
            answer => return answer,
        }
    }
}

async fn is_up(store: &EtcdStore) -> bool {
    call(store, Operation::Read(vec![one("k")])).await.is_ok()
}

async fn grant(store: &EtcdStore, lease: i64, seconds: u64) -> Answer {
    call(store, operations::grant(lease, seconds * SECOND)).await
}

async fn claim(store: &EtcdStore, key: &str, lease: i64) -> Answer {
    call(store, operations::claim(key, lease)).await
}

/// Claims the key under a new lease, and gives its create revision.
async fn leader(store: &EtcdStore, key: &str, lease: i64) -> i64 {
    grant(store, lease, 30).await.unwrap();
    match claim(store, key, lease).await {
        Ok(Response::Claimed(claimed)) => claimed.entry.created,
        other => panic!("{other:?}"),
    }
}

/// Puts `v` past the store, and gives the revision.
async fn put(etcd: &Etcd, key: &str) -> i64 {
    let put = etcd.client().await.put(key, "v", None).await.unwrap();
    put.header().unwrap().revision()
}

async fn snapshot(store: &EtcdStore, selections: Vec<Selection>) -> Snapshot {
    match call(store, Operation::Read(selections)).await {
        Ok(Response::Snapshot(snapshot)) => snapshot,
        other => panic!("{other:?}"),
    }
}

/// The keys that each selection found.
fn names(snapshot: &Snapshot) -> Vec<String> {
    let name = |entry: &Entry| String::from_utf8(entry.key.clone()).unwrap();
    let names = |found: &Vec<Entry>| found.iter().map(name).collect::<Vec<_>>().join(" ");
    snapshot.found.iter().map(names).collect()
}

/// A set with one watch, which has started.
async fn watching(store: &EtcdStore, key: &str) -> Box<dyn Watches> {
    let mut watches = store.watches();
    watches.open(watch(1, key));
    started_at(&mut watches, 1).await;
    watches
}

async fn next_watched(watches: &mut Box<dyn Watches>) -> Watched {
    soon("a watch tells something", poll_fn(|context| watches.poll_next(context))).await
}

async fn next(watches: &mut Box<dyn Watches>) -> Change {
    next_watched(watches).await.change
}

async fn next_put(watches: &mut Box<dyn Watches>) -> Entry {
    match next(watches).await {
        Change::Put(entry) => entry,
        other => panic!("{other:?}"),
    }
}

async fn started_at(watches: &mut Box<dyn Watches>, id: u64) -> i64 {
    let watched = next_watched(watches).await;
    match watched.change {
        Change::Started(revision) if watched.id == id => revision,
        _ => panic!("{watched:?}"),
    }
}

/// How many streams of renewals etcd has `started`, or `handled` to their end.
fn renewal_streams(etcd: &Etcd, what: &str) -> u64 {
    let metrics = etcd.metrics();
    let name = format!("grpc_server_{what}_total");
    let figures = metrics.lines().filter(|line| line.starts_with(&name));
    let streams = figures.filter(|line| line.contains("\"LeaseKeepAlive\""));
    streams.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// A figure of etcd's, as a whole number.
fn metric(metrics: &str, name: &str) -> u64 {
    let line = metrics
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")))
        .unwrap_or_else(|| panic!("{name} is no figure of etcd's"));
    line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64
}

/// That the sentence holds all of these parts, and is one.
fn says(error: &ConnectError, parts: &[&str]) {
    let sentence = error.to_string();
    for part in parts {
        assert!(sentence.contains(part), "{part:?} is not in: {sentence}");
    }
    assert!(!sentence.contains('\n'), "{sentence}");
}
