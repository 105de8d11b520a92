//! `incumbent transfer`: the candidate that an operator names leads next, or the answer says why not.

use super::*;

incumbent_tests::on_each_version!(
    a_named_candidate_leads_next,
    a_candidate_of_another_client_stays_in_front,
);
incumbent_tests::on_an_etcd!(
    a_leader_of_another_client_hears_nothing,
    a_target_that_gets_back_in_line_leads_all_the_same,
    a_target_that_stands_still_is_silent,
    the_leader_leads_on_for_as_long_as_a_dead_candidate_would_follow,
    the_work_stops_before_the_handover,
    without_the_right_to_hear_wishes_a_candidate_leads_all_the_same,
);

/// `incumbent transfer` in my-service.
fn transfer(etcd: &Etcd, arguments: &[&str]) -> Command {
    let all = ["transfer", "my-service"].iter().chain(arguments);
    on(etcd, all.copied())
}

/// Starts a candidate of this name, and waits until it is in line.
fn in_line(etcd: &Etcd, id: &str) -> Running {
    Running::campaign(etcd, "my-service", &["--id", id]).once("joined")
}

/// The values in line.
fn line(etcd: &Etcd) -> Vec<String> {
    let listed = end(on(etcd, ["candidates", "my-service", "-o", "json"])).expect(0).stdout;
    let object = |line| serde_json::from_str::<Value>(line).unwrap();
    listed.lines().map(|line| object(line)["value"].as_str().unwrap().to_owned()).collect()
}

fn wishes(etcd: &Etcd) -> String {
    etcd.etcdctl(&["get", "--prefix", "incumbent-wishes/"])
}

fn a_named_candidate_leads_next(etcd: Etcd) {
    let one = in_line(&etcd, "one").once("elected");
    let others = ["two", "three", "four"].map(|id| in_line(&etcd, id));
    let told = end(transfer(&etcd, &["--to", "four"])).expect(0).stdout;
    let elected = others[2].event("elected");
    let key = elected["key"].as_str().unwrap();
    let leads =
        format!("four leads my-service in epoch {} ({key}); nobody led for ", elected["epoch"]);
    assert!(told.starts_with(&leads) && told.ends_with(" ms\n"), "{told}");
    one.event("hand-over");
    assert_eq!(one.event("demoted")["reason"], "resigned");
    one.event("joined");
    // All of them are in line again, behind it.
    until("all are in line", || line(&etcd).len() == 4);
    assert_eq!(line(&etcd)[0], "four");
    assert_eq!(wishes(&etcd), "");

    let told = end(transfer(&etcd, &["--to", "four", "-o", "json"])).expect(0).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["result"], &told["leader"]["value"]), (&"leads".into(), &"four".into()));
    let epoch = elected["epoch"].as_i64().unwrap();
    let stale = (epoch - 1).to_string();
    let refused = end(transfer(&etcd, &["--to", "one", "--from", &stale])).expect(3).stderr;
    assert!(refused.contains("nothing was changed"), "{refused}");
    let refused = end(transfer(&etcd, &["--to", "five"])).expect(1).stderr;
    assert!(refused.contains("no candidate of my-service in line is called five"), "{refused}");
    let from = epoch.to_string();
    let back = ["--to", "one", "--from", &from, "-o", "json"];
    let told: Value = serde_json::from_str(&end(transfer(&etcd, &back)).expect(0).stdout).unwrap();
    assert_eq!((&told["result"], &told["leader"]["value"]), (&"done".into(), &"one".into()));
    assert!(told["leaderless_ms"].as_f64().unwrap() < 2_000.0, "{told}");
    one.stop();
    for other in others {
        other.stop();
    }
    let told = end(transfer(&etcd, &["--to", "one"])).expect(1).stderr;
    assert!(told.contains("nobody leads my-service"), "{told}");
}

fn a_candidate_of_another_client_stays_in_front(etcd: Etcd) {
    let one = in_line(&etcd, "one").once("elected");
    let mut etcdctl = etcd.etcdctl_command(&["elect", "my-service", "theirs"]);
    etcdctl.stdin(Stdio::null());
    let etcdctl = Running::start(etcdctl);
    until("etcdctl is in line", || candidates(&etcd) == 2);
    let [two, three] = ["two", "three"].map(|id| in_line(&etcd, id));
    let told = end(transfer(&etcd, &["--to", "three", "--wait", "2s"])).expect(1).stderr;
    assert!(told.contains("theirs leads my-service in epoch "), "{told}");
    assert!(told.contains("it stood in front of three. It belongs to another client"), "{told}");
    etcdctl.stdout.line_with("theirs");
    // Two has made room.
    etcdctl.signal(Signal::INT);
    three.event("elected");
    for candidate in [one, two, three] {
        candidate.stop();
    }
}

fn a_leader_of_another_client_hears_nothing(etcd: Etcd) {
    let mut etcdctl = etcd.etcdctl_command(&["elect", "my-service", "theirs"]);
    etcdctl.stdin(Stdio::null());
    let etcdctl = Running::start(etcdctl);
    etcdctl.stdout.line_with("theirs");
    let two = in_line(&etcd, "two");
    let told = end(transfer(&etcd, &["--to", "two", "--wait", "300ms"])).expect(1).stderr;
    assert!(told.contains("theirs leads my-service in epoch "), "{told}");
    assert!(told.contains("still, after --wait 300ms"), "{told}");
    assert_eq!(wishes(&etcd), "", "nothing waits for it");
    etcdctl.signal(Signal::INT);
    two.event("elected");
    two.stop();
}

fn the_leader_leads_on_for_as_long_as_a_dead_candidate_would_follow(etcd: Etcd) {
    let one = in_line(&etcd, "one").once("elected");
    let mut two = in_line(&etcd, "two");
    let three = in_line(&etcd, "three");
    kill(two.pid(), Signal::STOP);
    let told = end(transfer(&etcd, &["--to", "three", "--wait", "100ms"])).expect(1).stderr;
    assert!(told.contains("two stands in front of three"), "{told}");
    assert!(told.contains("The leader was not asked."), "{told}");
    kill(two.pid(), Signal::KILL);
    two.wait();
    // Until its lease has run out.
    let told = end(transfer(&etcd, &["--to", "three", "-o", "json"])).expect(0).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["result"], "done", "{told}");
    assert!(told["leaderless_ms"].as_f64().unwrap() < 1_000.0, "{told}");
    one.event("hand-over");
    one.event("demoted");
    one.stop();
    three.stop();
}

/// As one does that makes room for preferred candidates, and has not heard of the transfer yet.
fn a_target_that_gets_back_in_line_leads_all_the_same(etcd: Etcd) {
    let one = in_line(&etcd, "one").once("elected");
    etcd.etcdctl(&["put", "my-service/1", "two"]);
    // Where that one comes back, behind the other one.
    let [three, two] = ["three", "two"].map(|id| in_line(&etcd, id));
    let mut watch = etcd.etcdctl_command(&["watch", "--prefix", "incumbent-wishes/"]);
    watch.stdin(Stdio::null());
    let watch = Running::start(watch);
    let transfer = Running::start(transfer(&etcd, &["--to", "two"]));
    watch.stdout.line_with("now");
    etcd.etcdctl(&["del", "my-service/1"]);
    transfer.stdout.line_with("two leads my-service");
    two.event("elected");
    for candidate in [one, two, three] {
        candidate.stop();
    }
}

/// It cannot say that it leads. The next lease time ends that, as ever.
fn a_target_that_stands_still_is_silent(etcd: Etcd) {
    let one = in_line(&etcd, "one").once("elected");
    // Its lease outlives the transfer.
    let two = ["campaign", "my-service", "-o", "json", "--id", "two", "--ttl", "4s"];
    let two = Running::start(on(&etcd, two)).once("joined");
    kill(two.pid(), Signal::STOP);
    let told = end(transfer(&etcd, &["--to", "two"])).expect(1).stderr;
    assert!(told.contains("two leads my-service in epoch "), "{told}");
    assert!(told.contains("has not said so: it stands still"), "{told}");
    one.event("demoted");
    one.event("elected");
    kill(two.pid(), Signal::CONT);
    two.stop();
    one.stop();
}

/// While it stops, its writes are accepted: that is what a transfer is better in than `depose`.
fn the_work_stops_before_the_handover(etcd: Etcd) {
    let work = Work::new(&format!(
        "trap 'sleep 0.2; {} put last words --fence my-service && touch written; exit' TERM; \
         echo $$ > child; while :; do sleep 0.01; done",
        incumbent_tests::program::path().display()
    ));
    let (running, _) = work.start(&etcd, &["--id", "one", "--ttl", "8s"]);
    let two = in_line(&etcd, "two");
    end(transfer(&etcd, &["--to", "two"])).expect(0);
    assert!(work.path("written").exists(), "it has had its last words");
    two.event("elected");
    running.stop();
    two.stop();
}

fn without_the_right_to_hear_wishes_a_candidate_leads_all_the_same(etcd: Etcd) {
    etcd.enable_users("ann", "password", "my-service");
    let directory = TempDir::new().unwrap();
    let password = directory.path().join("password");
    write_secret(&password, "password");
    let login = ["--user", "ann", "--password-file", password.to_str().unwrap()];
    let campaign = |id| {
        let mut command = on(&etcd, ["campaign", "my-service", "-o", "json", "--id", id]);
        command.args(login);
        Running::start(command)
    };
    let one = campaign("one").once("elected");
    let mut two = campaign("two").once("joined");
    let mut command = transfer(&etcd, &["--to", "two"]);
    command.args(login);
    let told = end(command).expect(4).stderr;
    assert!(told.contains("permission denied"), "{told}");
    assert!(told.contains("--prefix=true readwrite incumbent-wishes/`"), "{told}");
    one.stop();
    two.event("elected");
    two.signal(Signal::TERM);
    assert_eq!(two.wait(), 0);
    let said = two.stdout.all();
    assert!(!said.iter().any(|line| line.contains("trouble")), "{said:?}");
}

#[test]
fn it_works_in_a_file() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}/its.db", directory.path().display());
    let of = |arguments: &[&str]| {
        let mut command = incumbent(arguments);
        command.env("INCUMBENT_STORE", &store);
        command
    };
    let campaign =
        |id| Running::start(of(&["campaign", "jobs", "-o", "json", "--id", id])).once("joined");
    let [one, two, three] = ["one", "two", "three"].map(campaign);
    one.event("elected");
    let told = end(of(&["transfer", "jobs", "--to", "three"])).expect(0).stdout;
    assert!(told.starts_with("three leads jobs in epoch "), "{told}");
    three.event("elected");
    for candidate in [one, two, three] {
        candidate.stop();
    }
}
