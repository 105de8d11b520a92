//! What a session with very many elections asks of etcd when it joins them, and when it takes them over.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use incumbent::{Options, Session};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, joins};

use crate::steady_state::received;

on_each_version!(many_elections_share_requests);

const ELECTIONS: usize = 1_000;
/// Without sharing, each election would need at least one request. How many share one depends on how news
/// comes: 35 to 75 requests were counted on a quiet machine, 315 on a busy one.
const MOST: u64 = ELECTIONS as u64 * 3 / 4;

/// Without watches, each of which is a message of its own.
fn reads_and_writes(etcd: &Etcd) -> u64 {
    received(etcd).into_iter().filter(|(method, _)| method != "Watch").map(|(_, count)| count).sum()
}

async fn many_elections_share_requests(version: Version) {
    let etcd = Etcd::start(version);
    let options = Options { ttl: Duration::from_secs(60), ..Options::default() };
    let first = Session::connect(&etcd.url(), options.clone()).expect_soon("connects").await;
    let second = Session::connect(&etcd.url(), options).expect_soon("connects").await;
    let names: Vec<String> = (0..ELECTIONS).map(|number| format!("jobs-{number}")).collect();
    let mut before = reads_and_writes(&etcd);
    let mut asked = || {
        let now = reads_and_writes(&etcd);
        now - std::mem::replace(&mut before, now)
    };

    let leads = names.iter().map(async |name| first.election(name).campaign().await);
    let terms = try_join_all(leads).expect_soon("leads all").await;
    let asked_to_lead = asked();
    let joining = names.iter().map(async |name| joins(&second.election(name)).await);
    let waiters = join_all(joining).await;
    let asked_to_wait = asked();
    // It waits for the work of all terms, and gives back their lease alone.
    let works = async {
        for term in &terms {
            let _reason = term.lost().await;
        }
        drop(terms);
    };
    tokio::join!(first.close(), works).0.expect("closes");
    let takes_over = waiters.into_iter().map(async |mut waiter| waiter.elected().await);
    let _terms = try_join_all(takes_over).expect_soon("takes all over").await;
    let asked_to_take_over = asked();
    println!("{version:?}: {asked_to_lead}, {asked_to_wait}, {asked_to_take_over} requests");
    for asked in [asked_to_lead, asked_to_wait, asked_to_take_over] {
        assert!(asked <= MOST, "{asked} requests for {ELECTIONS} elections");
    }
}
