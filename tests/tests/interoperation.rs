//! Incumbent in elections with others: `etcdctl elect` in a queue, and the plain
//! put-if-absent scheme in a race.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use incumbent::{Contest, Election, Options, Session};
use incumbent_tests::etcd::Etcd;
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, until};
use rustix::process::{Pid, Signal, kill_process};

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
struct Etcdctl {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Etcdctl {
    fn elect(etcd: &Etcd, name: &str, value: &str) -> Etcdctl {
        let mut process = etcd
            .etcdctl_command(&["elect", name, value])
            .stdout(Stdio::piped())
            .spawn()
            .expect("etcdctl starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Etcdctl { process, output }
    }

    /// Waits until it leads: the key and the value that it prints.
    fn leads(&mut self) -> (String, String) {
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            self.output.read_line(line).expect("prints");
            line.truncate(line.trim_end().len());
        }
        lines.into()
    }

    /// Interrupts it, upon which it resigns.
    fn resign(mut self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::INT).expect("runs");
        self.process.wait().expect("ends");
    }
}

impl Drop for Etcdctl {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn one_queue_with_etcdctl(etcd: Etcd) {
    let (first, last) = (session(&etcd, "first").await, session(&etcd, "last").await);
    let election = first.election("office");

    let leadership = election.campaign().expect_soon("leads").await;
    let lease = leadership.lease();
    assert_eq!(leadership.key(), format!("office/{lease:x}").as_bytes(), "etcd's own layout");

    // etcdctl waits for us, and we wait for it.
    let mut other = Etcdctl::elect(&etcd, "office", "other");
    until_in_line(&election, 2).await;
    let waiting = last.election("office");
    let campaign = tokio::spawn(async move { waiting.campaign().await });
    until_in_line(&election, 3).await;
    let line = election.candidates().expect_soon("lists").await;
    let values: Vec<&[u8]> = line.iter().map(|leader| leader.value.as_slice()).collect();
    assert_eq!(values, [b"first".as_slice(), b"other", b"last"]);

    // It takes over from us.
    leadership.resign().expect_soon("resigns").await;
    let (key, value) = tokio::task::block_in_place(|| other.leads());
    assert_eq!(value, "other");
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!(leader.key, key.as_bytes());
    assert_eq!(leader.key, format!("office/{:x}", leader.lease).as_bytes());
    assert!(!campaign.is_finished(), "the last one waits for etcdctl");

    // And we take over from it.
    tokio::task::block_in_place(|| other.resign());
    let leadership = campaign.expect_soon("runs").await.expect("leads");
    assert!(leadership.epoch() > leader.epoch || leadership.epoch() > 0);
    assert!(leadership.is_valid());
    leadership.resign().expect_soon("resigns").await;
    assert_eq!(election.leader().expect_soon("reads").await, None);
}

async fn each_reads_the_others_leader(etcd: Etcd) {
    let session = session(&etcd, "ours").await;
    let election = session.election("office");
    let leadership = election.campaign().expect_soon("leads").await;

    // `etcdctl elect -l` prints the leader, and goes on to follow it.
    let mut listener = etcd
        .etcdctl_command(&["elect", "-l", "office"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("etcdctl starts");
    let mut output = BufReader::new(listener.stdout.take().expect("piped"));
    let mut lines = [String::new(), String::new()];
    tokio::task::block_in_place(|| {
        for line in &mut lines {
            output.read_line(line).expect("prints");
        }
    });
    listener.kill().expect("runs");
    listener.wait().expect("ends");
    assert_eq!(lines[0].trim_end().as_bytes(), leadership.key());
    assert_eq!(lines[1].trim_end(), "ours");
    leadership.resign().expect_soon("resigns").await;

    let mut other = Etcdctl::elect(&etcd, "office", "theirs");
    let (key, _) = tokio::task::block_in_place(|| other.leads());
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!((leader.key, leader.value), (key.into_bytes(), b"theirs".to_vec()));
}

/// etcd gives some clients lease ids with the sign bit set.
async fn a_candidate_whose_lease_is_negative_counts(etcd: Etcd) {
    let mut client =
        Client::connect([etcd.address().to_string()], None).expect_soon("connects").await;
    let lease = i64::MIN + 0x1f;
    let options = etcd_client::LeaseGrantOptions::new().with_id(lease);
    client.lease_grant(60, Some(options)).expect_soon("grants").await;
    let key = format!("office/-{:x}", lease.unsigned_abs());
    client
        .put(key.as_str(), "negative", Some(PutOptions::new().with_lease(lease)))
        .expect_soon("puts")
        .await;

    let session = session(&etcd, "ours").await;
    let election = session.election("office");
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!((leader.lease, leader.value), (lease, b"negative".to_vec()));

    let waiting = election.clone();
    let campaign = tokio::spawn(async move { waiting.campaign().await });
    until_in_line(&election, 2).await;
    assert!(!campaign.is_finished(), "it is in front of us");
    client.lease_revoke(lease).expect_soon("revokes").await;
    campaign.expect_soon("runs").await.expect("leads").resign().expect_soon("resigns").await;
}

/// As small scripts in other languages do it.
async fn put_if_absent(client: &mut Client, lease: i64) -> bool {
    let absent = Compare::create_revision("office", CompareOp::Equal, 0);
    let put = TxnOp::put("office", "script", Some(PutOptions::new().with_lease(lease)));
    let answer = client.txn(Txn::new().when([absent]).and_then([put])).await;
    answer.expect("answers").succeeded()
}

async fn one_race_with_put_if_absent(etcd: Etcd) {
    let mut script =
        Client::connect([etcd.address().to_string()], None).expect_soon("connects").await;
    let lease = script.lease_grant(60, None).expect_soon("grants").await.id();
    assert!(put_if_absent(&mut script, lease).await, "the script leads");

    let session = session(&etcd, "ours").await;
    let election = session.election("office").contest(Contest::Race);
    let leader = election.leader().expect_soon("reads").await.expect("there is a leader");
    assert_eq!(leader.value, b"script");
    // Joined, and not elected, as long as the script's key is there.
    let mut candidate = election.join().expect_soon("joins").await;
    script.delete("office", None).expect_soon("deletes").await;
    let leadership = candidate.elected().expect_soon("leads").await;
    assert!(leadership.epoch() > leader.epoch);
    assert!(!put_if_absent(&mut script, lease).await, "the script has to wait");

    leadership.resign().expect_soon("resigns").await;
    candidate.leave().expect_soon("leaves").await;
    assert!(put_if_absent(&mut script, lease).await, "the script leads again");
}
