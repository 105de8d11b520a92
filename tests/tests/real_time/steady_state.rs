//! What one leader and one waiter ask of etcd while nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent::{Options, Session};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, joins};

on_each_version!(nothing_but_keep_alives_and_a_check);

const WINDOW: Duration = Duration::from_secs(70);

/// Messages that etcd has received, by method.
pub fn received(etcd: &Etcd) -> BTreeMap<String, u64> {
    let mut received = BTreeMap::new();
    for line in etcd.metrics().lines() {
        let Some(labels) = line.strip_prefix("grpc_server_msg_received_total{") else {
            continue;
        };
        let method = labels.split("grpc_method=\"").nth(1).and_then(|rest| rest.split('"').next());
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        if let (Some(method), Some(count)) = (method, count) {
            *received.entry(method.to_owned()).or_insert(0) += count as u64;
        }
    }
    received
}

async fn nothing_but_keep_alives_and_a_check(version: Version) {
    let etcd = Etcd::start(version);
    let options = Options { ttl: Duration::from_secs(10), ..Options::default() };
    let leader = Session::connect(&etcd.url(), options.clone()).expect_soon("connects").await;
    let waiter = Session::connect(&etcd.url(), options).expect_soon("connects").await;
    let leadership = leader.election("jobs").campaign().expect_soon("leads").await;
    let candidate = joins(&waiter.election("jobs")).await;
    // The waiter checks its predecessor and opens its watches after it has joined. All is quiet
    // once etcd has received nothing for a second.
    let mut before = received(&etcd);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = received(&etcd);
        if std::mem::replace(&mut before, now.clone()) == now {
            break;
        }
    }

    // The span of time is what is measured here.
    tokio::time::sleep(WINDOW).await;
    let mut asked = received(&etcd);
    for (method, count) in before {
        *asked.entry(method).or_default() -= count;
    }
    asked.retain(|_, count| *count > 0);
    println!("{version:?}: {asked:?} in {WINDOW:?}");

    // Two leases of 10 s at a third each: 42 in 70 s; two sets of watches every 30 s.
    let renewals = asked.remove("LeaseKeepAlive").unwrap_or_default();
    assert!((40..=44).contains(&renewals), "{renewals} keep-alives");
    // The leader looks at its own key, the waiter at two, and each of them at all wishes.
    let checks = asked.remove("Range").unwrap_or_default();
    assert!((10..=15).contains(&checks), "{checks} reads to check the watches");
    assert!(asked.is_empty(), "and nothing else: {asked:?}");

    drop(candidate);
    leadership.resign().expect_soon("resigns").await;
}
