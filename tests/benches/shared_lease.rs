//! What one more claim, a renewal and the revocation take on a lease that holds that many keys,
//! for a user that is root and for one that is not, on both versions of etcd. A put looks at all
//! keys of its lease (etcd#15993), a put in a transaction, which our claim is, at none.
//!
//! `cargo bench -p incumbent-tests --features etcd --bench shared_lease`

use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use incumbent_tests::etcd::{Etcd, SYNCED, Version};

const HELD: [usize; 4] = [10, 100, 1_000, 10_000];
/// How often each of them is measured: the median is told.
const ROUNDS: usize = 51;
/// Operations of one transaction of etcd's.
const BATCH: usize = 100;

#[tokio::main]
async fn main() {
    for version in Version::ALL {
        let etcd = Etcd::start_with(version, SYNCED);
        etcd.enable_users("app", "secret", "shared/");
        for user in ["root", "app"] {
            let options = ConnectOptions::new().with_user(user, "secret");
            let address = etcd.address().to_string();
            let mut client = Client::connect([address], Some(options)).await.expect("connects");
            for held in HELD {
                let [claim, put, renewal, revocation] = measure(&mut client, held).await;
                println!(
                    "etcd {version}, {user:>4}, {held:>6} keys: a claim {claim:>4.1} ms, by a put \
                     {put:>4.1} ms, a renewal {renewal:.1} ms, the revocation {revocation:>4.1} ms"
                );
            }
        }
    }
}

/// In milliseconds.
async fn measure(client: &mut Client, held: usize) -> [f64; 4] {
    let lease = held as i64 * 2 + 1;
    let granted = client.lease_grant(600, Some(LeaseGrantOptions::new().with_id(lease))).await;
    granted.expect("is granted");
    let key = |number: usize| format!("shared/election-{number:05}/{lease:x}");
    let under_lease = || Some(PutOptions::new().with_lease(lease));
    let put = |number| TxnOp::put(key(number), "one", under_lease());
    for first in (0..held).step_by(BATCH) {
        let puts: Vec<_> = (first..held.min(first + BATCH)).map(put).collect();
        client.txn(Txn::new().and_then(puts)).await.expect("is written");
    }
    let (mut claims, mut puts, mut renewals) = (Vec::new(), Vec::new(), Vec::new());
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.expect("is kept");
    for round in 0..ROUNDS {
        // As many keys as before.
        let place = round % held;
        let since = Instant::now();
        client.txn(Txn::new().and_then([put(place)])).await.expect("is written");
        claims.push(since.elapsed());
        let since = Instant::now();
        client.put(key(place), "one", under_lease()).await.expect("is written");
        puts.push(since.elapsed());
        let since = Instant::now();
        keeper.keep_alive().await.expect("is asked");
        answers.message().await.expect("is answered");
        renewals.push(since.elapsed());
    }
    let since = Instant::now();
    client.lease_revoke(lease).await.expect("is revoked");
    [median(claims), median(puts), median(renewals), median(vec![since.elapsed()])]
}

fn median(mut measured: Vec<Duration>) -> f64 {
    measured.sort();
    measured[measured.len() / 2].as_secs_f64() * 1e3
}
