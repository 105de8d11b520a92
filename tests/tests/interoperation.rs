//! Incumbent in elections with others: `etcdctl elect` in a queue, and the plain
//! put-if-absent scheme in a race.

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use incumbent::{Contest, Election, Epoch, Options, Session};
use incumbent_tests::etcd::Etcd;
use incumbent_tests::on_each_version;
use incumbent_tests::program::Running;
use incumbent_tests::wait::{ExpectSoon, joins, until};
use rustix::process::Signal;

on_each_version!(
    one_queue_with_etcdctl,
    each_reads_the_others_leader,
    a_candidate_whose_lease_is_negative_counts,
    one_race_with_put_if_absent,
);

async fn session(etcd: &Etcd, identity: &str) -> Session {
    let options =
        Options { identity: identity.into(), ttl: Duration::from_secs(5), ..Options::default() };
    Session::connect(&etcd.url(), options).expect_soon("connects").await
}

async fn until_in_line(election: &Election, count: usize) {
    let all = async || election.candidates().await.expect("lists").len() == count;
    until(&format!("{count} are in line"), all).await;
}

/// `etcdctl elect NAME VALUE`, which campaigns, and prints its key when it leads.
fn elect(etcd: &Etcd, name: &str, value: &str) -> Running {
    Running::start(etcd.etcdctl_command(&["elect", name, value]))
}

/// Waits until etcdctl names a leader: the key and the value that it prints.
fn leader_of(etcdctl: &Running) -> (String, String) {
    tokio::task::block_in_place(|| {
        let line = || etcdctl.stdout.find("leader", |line| Some(line.to_owned()));
        (line(), line())
    })
}

async fn one_queue_with_etcdctl(etcd: Etcd) {
    let (first, last) = (session(&etcd, "first").await, session(&etcd, "last").await);
    let election = first.election("jobs");

    let leadership = election.campaign().expect_soon("leads").await;
    let lease = leadership.lease();
    assert_eq!(leadership.key(), format!("jobs/{lease}").as_bytes(), "etcd's own layout");

    // etcdctl waits for us, and we wait for it.
    let mut other = elect(&etcd, "jobs", "other");
    until_in_line(&election, 2).await;
    let waiting = last.election("jobs");
    let campaign = tokio::spawn(async move { waiting.campaign().await });
    until_in_line(&election, 3).await;
    let line = election.candidates().expect_soon("lists").await;
    let values: Vec<&[u8]> = line.iter().map(|leader| leader.value.as_slice()).collect();
    assert_eq!(values, [b"first".as_slice(), b"other", b"last"]);

    // It takes over from us.
    leadership.resign().expect_soon("resigns").await;
    let (key, value) = leader_of(&other);
    assert_eq!(value, "other");
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!(leader.key, key.as_bytes());
    assert_eq!(leader.key, format!("jobs/{}", leader.lease).as_bytes());
    assert!(!campaign.is_finished(), "the last one waits for etcdctl");

    // And we take over from it.
    // It resigns when it is interrupted.
    other.signal(Signal::INT);
    tokio::task::block_in_place(|| other.wait());
    let leadership = campaign.expect_soon("runs").await.expect("leads");
    assert!(leadership.epoch() > leader.epoch || leadership.epoch() > Epoch::default());
    assert!(leadership.is_valid());
    leadership.resign().expect_soon("resigns").await;
    assert_eq!(election.leader().expect_soon("reads").await, None);
}

async fn each_reads_the_others_leader(etcd: Etcd) {
    let session = session(&etcd, "ours").await;
    let election = session.election("jobs");
    let leadership = election.campaign().expect_soon("leads").await;

    // `etcdctl elect -l` prints the leader, and goes on to follow it.
    let listener = Running::start(etcd.etcdctl_command(&["elect", "-l", "jobs"]));
    let (key, value) = leader_of(&listener);
    assert_eq!(key.as_bytes(), leadership.key());
    assert_eq!(value, "ours");
    leadership.resign().expect_soon("resigns").await;

    let other = elect(&etcd, "jobs", "theirs");
    let (key, _) = leader_of(&other);
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!((leader.key, leader.value), (key.into_bytes(), b"theirs".to_vec()));
}

/// etcd gives some clients lease ids with the sign bit set.
async fn a_candidate_whose_lease_is_negative_counts(etcd: Etcd) {
    let mut client = etcd.client().await;
    let lease = i64::MIN + 0x1f;
    let options = etcd_client::LeaseGrantOptions::new().with_id(lease);
    client.lease_grant(60, Some(options)).expect_soon("grants").await;
    let key = format!("jobs/-{:x}", lease.unsigned_abs());
    client
        .put(key.as_str(), "negative", Some(PutOptions::new().with_lease(lease)))
        .expect_soon("puts")
        .await;

    let session = session(&etcd, "ours").await;
    let election = session.election("jobs");
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!((leader.lease, leader.value), (lease.into(), b"negative".to_vec()));

    let waiting = election.clone();
    let campaign = tokio::spawn(async move { waiting.campaign().await });
    until_in_line(&election, 2).await;
    assert!(!campaign.is_finished(), "it is in front of us");
    client.lease_revoke(lease).expect_soon("revokes").await;
    campaign.expect_soon("runs").await.expect("leads").resign().expect_soon("resigns").await;
}

/// As small scripts in other languages do it.
async fn put_if_absent(client: &mut Client, lease: i64) -> bool {
    let absent = Compare::create_revision("jobs", CompareOp::Equal, 0);
    let put = TxnOp::put("jobs", "script", Some(PutOptions::new().with_lease(lease)));
    let answer = client.txn(Txn::new().when([absent]).and_then([put])).await;
    answer.expect("answers").succeeded()
}

async fn one_race_with_put_if_absent(etcd: Etcd) {
    let mut script = etcd.client().await;
    let lease = script.lease_grant(60, None).expect_soon("grants").await.id();
    assert!(put_if_absent(&mut script, lease).await, "the script leads");

    let session = session(&etcd, "ours").await;
    let election = session.election("jobs").contest(Contest::Race);
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!(leader.value, b"script");
    // Joined, and not elected, as long as the script's key is there.
    let mut candidate = joins(&election).await;
    script.delete("jobs", None).expect_soon("deletes").await;
    let leadership = candidate.elected().expect_soon("leads").await;
    assert!(leadership.epoch() > leader.epoch);
    assert!(!put_if_absent(&mut script, lease).await, "the script has to wait");

    leadership.resign().expect_soon("resigns").await;
    candidate.leave().expect_soon("leaves").await;
    assert!(put_if_absent(&mut script, lease).await, "the script leads again");
}
