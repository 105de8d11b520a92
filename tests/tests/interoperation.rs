//! Incumbent in elections with others: `etcdctl elect` in a queue, and the plain
//! put-if-absent scheme in a race.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use incumbent::{Contest, Election, Options, Session};
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
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
    Session::connect(&etcd.url(), options).await.expect("connects")
}

async fn until_in_line(election: &Election, count: usize) {
    while election.candidates().await.expect("lists").len() != count {}
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

async fn one_queue_with_etcdctl(version: Version) {
    let etcd = Etcd::start(version);
    let (first, last) = (session(&etcd, "first").await, session(&etcd, "last").await);
    let election = first.election("office");

    let leadership = election.campaign().await.expect("leads");
    let lease = leadership.lease();
    assert_eq!(leadership.key(), format!("office/{lease:x}").as_bytes(), "etcd's own layout");

    // etcdctl waits for us, and we wait for it.
    let mut other = Etcdctl::elect(&etcd, "office", "other");
    until_in_line(&election, 2).await;
    let waiting = last.election("office");
    let campaign = tokio::spawn(async move { waiting.campaign().await });
    until_in_line(&election, 3).await;
    let line = election.candidates().await.expect("lists");
    let values: Vec<&[u8]> = line.iter().map(|leader| leader.value.as_slice()).collect();
    assert_eq!(values, [b"first".as_slice(), b"other", b"last"]);

    // It takes over from us.
    leadership.resign().await.expect("resigns");
    let (key, value) = tokio::task::block_in_place(|| other.leads());
    assert_eq!(value, "other");
    let leader = election.leader().await.expect("reads").expect("there is a leader");
    assert_eq!(leader.key, key.as_bytes());
    assert_eq!(leader.key, format!("office/{:x}", leader.lease).as_bytes());
    assert!(!campaign.is_finished(), "the last one waits for etcdctl");

    // And we take over from it.
    tokio::task::block_in_place(|| other.resign());
    let leadership = campaign.await.expect("runs").expect("leads");
    assert!(leadership.epoch() > leader.epoch || leadership.epoch() > 0);
    assert!(leadership.is_valid());
    leadership.resign().await.expect("resigns");
    assert_eq!(election.leader().await.expect("reads"), None);
}

async fn each_reads_the_others_leader(version: Version) {
    let etcd = Etcd::start(version);
    let session = session(&etcd, "ours").await;
    let election = session.election("office");
    let leadership = election.campaign().await.expect("leads");

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
    leadership.resign().await.expect("resigns");

    let mut other = Etcdctl::elect(&etcd, "office", "theirs");
    let (key, _) = tokio::task::block_in_place(|| other.leads());
    let leader = election.leader().await.expect("reads").expect("there is a leader");
    assert_eq!((leader.key, leader.value), (key.into_bytes(), b"theirs".to_vec()));
}

/// etcd gives some clients lease ids with the sign bit set.
async fn a_candidate_whose_lease_is_negative_counts(version: Version) {
    let etcd = Etcd::start(version);
    let mut client = Client::connect([etcd.address().to_string()], None).await.expect("connects");
    let lease = i64::MIN + 0x1f;
    let options = etcd_client::LeaseGrantOptions::new().with_id(lease);
    client.lease_grant(60, Some(options)).await.expect("grants");
    let key = format!("office/-{:x}", lease.unsigned_abs());
    client
        .put(key.as_str(), "negative", Some(PutOptions::new().with_lease(lease)))
        .await
        .expect("puts");

    let session = session(&etcd, "ours").await;
    let election = session.election("office");
    let leader = election.leader().await.expect("reads").expect("there is a leader");
    assert_eq!((leader.lease, leader.value), (lease, b"negative".to_vec()));

    let waiting = election.clone();
    let campaign = tokio::spawn(async move { waiting.campaign().await });
    until_in_line(&election, 2).await;
    assert!(!campaign.is_finished(), "it is in front of us");
    client.lease_revoke(lease).await.expect("revokes");
    campaign.await.expect("runs").expect("leads").resign().await.expect("resigns");
}

/// As small scripts in other languages do it.
async fn put_if_absent(client: &mut Client, lease: i64) -> bool {
    let absent = Compare::create_revision("office", CompareOp::Equal, 0);
    let put = TxnOp::put("office", "script", Some(PutOptions::new().with_lease(lease)));
    let answer = client.txn(Txn::new().when([absent]).and_then([put])).await;
    answer.expect("answers").succeeded()
}

async fn one_race_with_put_if_absent(version: Version) {
    let etcd = Etcd::start(version);
    let mut script = Client::connect([etcd.address().to_string()], None).await.expect("connects");
    let lease = script.lease_grant(60, None).await.expect("grants").id();
    assert!(put_if_absent(&mut script, lease).await, "the script leads");

    let session = session(&etcd, "ours").await;
    let election = session.election("office").contest(Contest::Race);
    let leader = election.leader().await.expect("reads").expect("there is a leader");
    assert_eq!(leader.value, b"script");
    // Joined, and not elected, as long as the script's key is there.
    let mut candidate = election.join().await.expect("joins");
    script.delete("office", None).await.expect("deletes");
    let leadership = candidate.elected().await.expect("leads");
    assert!(leadership.epoch() > leader.epoch);
    assert!(!put_if_absent(&mut script, lease).await, "the script has to wait");

    leadership.resign().await.expect("resigns");
    candidate.leave().await.expect("leaves");
    assert!(put_if_absent(&mut script, lease).await, "the script leads again");
}
