//! `incumbent doctor`: what it says of stores that serve, and of each that does not.

use std::thread;

use incumbent_tests::cluster::{Cluster, Failure};
use incumbent_tests::program::End;

use super::*;

incumbent_tests::on_each_version!(
    a_store_that_serves_is_told_so_and_nothing_is_left,
    the_rights_for_an_election_are_checked_without_disturbing_it,
);
incumbent_tests::on_an_etcd!(
    an_alarm_is_a_fault,
    members_of_two_clusters_are_a_fault,
    members_that_are_away_or_unnamed_are_told,
    an_etcd_that_lets_nobody_in_says_why,
);

const PASSWORD: &str = "secret-of-ann";

fn a_store_that_serves_is_told_so_and_nothing_is_left(etcd: Etcd) {
    let examined = examine(on(&etcd, ["doctor", "-o", "json"])).expect(0);
    let address = etcd.address().to_string();
    let member = examined.one("member");
    assert_eq!((&member["result"], &member["address"]), (&"ok".into(), &address.as_str().into()));
    // Both versions that we test with have faults.
    let version = examined.one("version");
    assert_eq!((&version["result"], &version["version"]), (&"warning".into(), &member["version"]));
    assert!(version["text"].as_str().unwrap().contains("update it to 3.5.33"), "{version}");
    assert!(examined.text("rights").starts_with("an election can be held"), "{examined:?}");
    for kind in ["reads_ms", "writes_ms", "renewals_ms"] {
        let times = &examined.one("round-trips")[kind];
        let [min, median, worst] = ["min", "median", "worst"].map(|at| times[at].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= worst, "{kind}: {times}");
    }
    // Both clocks are one, or the machine was too busy to tell.
    let clock = examined.one("clock");
    let [least, most] = ["least_rate", "most_rate"].map(|bound| clock[bound].as_f64().unwrap());
    assert!(0.5 < least && least <= 1.0 && 1.0 <= most, "{clock}");
    assert_eq!(examined.one("lease")["granted_s"], 10.0);
    assert_eq!(examined.one("all")["faults"], 0);
    // No key, and no lease.
    assert_eq!(etcd.etcdctl(&["get", "--prefix", ""]), "");
    assert!(etcd.etcdctl(&["lease", "list"]).starts_with("found 0 leases"));
}

fn the_rights_for_an_election_are_checked_without_disturbing_it(version: Version) {
    // Logins are quick.
    let etcd = Etcd::start_with(version, &["--bcrypt-cost", "4"]);
    let leader = Running::campaign(&etcd, "mine", &[]).once("elected");
    etcd.enable_users("ann", PASSWORD, "mine/");
    let of_the_name = ["role", "grant-permission", "of-the-prefix", "read", "mine"];
    etcd.as_root(&of_the_name);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("password");
    write_secret(&file, PASSWORD);
    let doctor = |arguments: &[&str]| {
        let mut command = on(&etcd, [&["doctor", "-o", "json"], arguments].concat());
        command.args(["--user", "ann", "--password-file"]).arg(&file);
        examine(command)
    };
    let revision = || {
        let answer = etcd.as_root(&["get", "x", "-w", "json"]);
        serde_json::from_str::<Value>(&answer).unwrap()["header"]["revision"].clone()
    };
    let before = revision();
    let asked: [&[&str]; 4] = [&["mine"], &["mine", "--contest", "race"], &["theirs"], &[]];
    let [mine, race, theirs, any] = thread::scope(|scope| {
        let running = asked.map(|arguments| scope.spawn(|| doctor(arguments)));
        running.map(|doctor| doctor.join().unwrap())
    });
    assert!(mine.expect(0).text("rights").contains("the election mine are there"));
    for (examined, says) in [
        (race, "--prefix=true read mine/` and `etcdctl role grant-permission ROLE readwrite mine`"),
        (theirs, "etcdctl role grant-permission ROLE --prefix=true readwrite theirs/`"),
        (any, "`incumbent doctor my-service`"),
    ] {
        let examined = examined.expect(4);
        assert!(examined.text("rights").contains(says), "{examined:?}");
    }
    // May read, and not write.
    etcd.as_root(&["role", "revoke-permission", "of-the-prefix", "--prefix=true", "mine/"]);
    let reading = ["role", "grant-permission", "--prefix=true", "of-the-prefix", "read", "mine/"];
    etcd.as_root(&reading);
    let reader = doctor(&["mine"]).expect(4);
    assert!(reader.text("rights").contains("to claim in the election mine"), "{reader:?}");
    assert_eq!(revision(), before);
    drop(leader);
}

fn an_alarm_is_a_fault(version: Version) {
    let etcd = Etcd::start_with(version, &["--quota-backend-bytes", "100000"]);
    let big = "x".repeat(90_000);
    let full = || end(etcd.etcdctl_command(&["put", "big", &big])).status != 0;
    until("etcd is full", full);
    let examined = examine(on(&etcd, ["doctor", "-o", "json"])).expect(4);
    assert!(examined.text("alarm").contains("NOSPACE"), "{examined:?}");
    assert!(examined.text("alarm").contains("etcdctl alarm disarm"), "{examined:?}");
    assert!(examined.text("rights").contains("database space exceeded"), "{examined:?}");
}

fn members_of_two_clusters_are_a_fault(etcd: Etcd) {
    let other = Etcd::start(Version::V3_4);
    let both = format!("etcd://{},{}", etcd.address(), other.address());
    let examined = examine(incumbent(["doctor", "-o", "json", "--store", &both])).expect(2);
    assert!(examined.text("cluster").contains("members of 2 clusters"), "{examined:?}");
    assert!(examined.text("cluster").contains("name the members of one"), "{examined:?}");
    assert_eq!(examined.texts("rights"), [""; 0]);
}

async fn members_that_are_away_or_unnamed_are_told(version: Version) {
    let mut cluster = Cluster::start(version, 3).await;
    let leader = cluster.leader();
    let [away, unnamed] = [1, 2].map(|next| (leader + next) % 3);
    cluster.fail(away, Failure::Killed);
    let [address, away_at, unnamed_at] =
        [leader, away, unnamed].map(|at| cluster.address(at).to_string());
    let twice = format!("localhost:{}", cluster.address(leader).port());
    let store = format!("etcd://{address},{twice},{away_at}");
    let examined = examine(incumbent(["doctor", "-o", "json", "--store", &store])).expect(0);
    let of_it = |line: &&Value| line["check"] == "member" && line["address"] == *away_at;
    let of_it = examined.lines.iter().find(of_it).unwrap();
    assert_eq!(of_it["result"], "warning");
    assert!(of_it["text"].as_str().unwrap().contains("no etcd answers"), "{of_it}");
    let texts = examined.texts("cluster");
    let [is_twice, is_unnamed] = &texts[..] else { panic!("{texts:?}") };
    assert!(is_twice.contains(&format!("{address} and {twice} are one member")), "{is_twice}");
    assert!(is_unnamed.contains(&unnamed_at) && is_unnamed.contains("add it"), "{is_unnamed}");
    assert_eq!(examined.texts("round-trips").len(), 2);
}

fn an_etcd_that_lets_nobody_in_says_why(etcd: Etcd) {
    let scheme = format!("etcds://{}", etcd.address());
    for (store, says) in [
        (&*scheme, "does not speak TLS: write etcd://"),
        ("etcd://127.0.0.1:1", "is it running, and is the URL (--store) right?"),
    ] {
        let end = end(incumbent(["doctor", "--store", store])).expect(4);
        let lines: Vec<_> = end.stdout.lines().collect();
        assert!(lines[1].starts_with("fault: ") && lines[1].contains(says), "{end:?}");
        assert_eq!(lines[2..], ["1 fault, 0 warnings: mend the faults, and run this again"]);
    }
    etcd.enable_users("ann", PASSWORD, "mine");
    let end = end(on(&etcd, ["doctor"])).expect(4);
    assert!(end.stdout.contains("fault: ") && end.stdout.contains("it wants a user"), "{end:?}");
}

#[test]
fn a_file_is_examined_as_well() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("elections.db");
    let store = format!("sqlite:{}", file.display());
    let doctor = |store: &str| examine(incumbent(["doctor", "-o", "json", "--store", store]));
    let examined = doctor(&store).expect(0);
    assert_eq!(examined.one("file")["file"], file.canonicalize().unwrap().to_str().unwrap());
    assert!(examined.text("rights").starts_with("an election can be held"), "{examined:?}");
    assert!(examined.text("clock").contains("the clock of this machine"), "{examined:?}");
    assert_eq!(examined.texts("lease").len(), 1);
    let others = |mode| {
        // An examination that was slow to end has left them, with the file's mode of that time.
        for beside in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{beside}", file.display()));
        }
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        doctor(&store).expect(0).texts("file").iter().any(|text| text.contains("may lock it"))
    };
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!([others(0o644), others(0o600)], [true, false]);

    let nowhere = doctor("sqlite:/nowhere/elections.db").expect(2);
    assert!(nowhere.text("file").contains("has no directory to be in: make it"), "{nowhere:?}");
    let memory = end(incumbent(["doctor", "--store", "memory:"])).expect(2);
    memory.only_says(&["--store memory:", "--store local"]);
}

/// What it has printed as JSON.
#[derive(Debug)]
struct Examined {
    status: i32,
    lines: Vec<Value>,
}

fn examine(command: Command) -> Examined {
    let End { status, stdout, stderr } = end(command);
    assert_eq!(stderr, "", "{stdout}");
    let lines = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    Examined { status, lines }
}

impl Examined {
    #[track_caller]
    fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{:#?}", self.lines);
        self
    }

    /// The only line of this check.
    #[track_caller]
    fn one(&self, check: &str) -> &Value {
        let mut lines = self.lines.iter().filter(|line| line["check"] == check);
        let line = lines.next().unwrap_or_else(|| panic!("no {check} in {:#?}", self.lines));
        assert!(lines.next().is_none(), "more than one {check} in {:#?}", self.lines);
        line
    }

    #[track_caller]
    fn text(&self, check: &str) -> &str {
        self.one(check)["text"].as_str().unwrap()
    }

    fn texts(&self, check: &str) -> Vec<String> {
        let lines = self.lines.iter().filter(|line| line["check"] == check);
        lines.map(|line| line["text"].as_str().unwrap().to_owned()).collect()
    }
}
