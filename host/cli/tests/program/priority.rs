//! `--priority`: preferred candidates are next in line, and lead at once only if that is asked for.

use super::*;

incumbent_tests::on_each_version!(a_preferred_candidate_is_next_in_line);
incumbent_tests::on_an_etcd!(
    a_candidate_below_zero_leads_only_if_nobody_else_is_there,
    a_leader_hands_over_after_its_least_term,
    a_named_candidate_leads_before_preferred_ones,
    a_preferred_candidate_takes_the_lead_past_others,
    the_right_to_tell_of_a_priority_may_be_missing,
);

fn in_line(etcd: &Etcd, id: &str, flags: &[&str]) -> Running {
    Running::campaign(etcd, "my-service", &[&["--id", id], flags].concat()).once("joined")
}

fn line(etcd: &Etcd) -> Vec<String> {
    values(on(etcd, ["candidates", "my-service", "-o", "json"]))
}

/// The values in line.
fn values(candidates: Command) -> Vec<String> {
    let listed = end(candidates).expect(0).stdout;
    let object = |line| serde_json::from_str::<Value>(line).unwrap();
    listed.lines().map(|line| object(line)["value"].as_str().unwrap().to_owned()).collect()
}

/// Also in front of candidates that were there before, as far as they know of priorities.
fn a_preferred_candidate_is_next_in_line(etcd: Etcd) {
    let one = in_line(&etcd, "one", &[]).once("elected");
    let two = in_line(&etcd, "two", &[]);
    let mut etcdctl = etcd.etcdctl_command(&["elect", "my-service", "theirs"]);
    etcdctl.stdin(Stdio::null());
    let etcdctl = Running::start(etcdctl);
    until("etcdctl is in line", || line(&etcd) == ["one", "two", "theirs"]);
    let three = in_line(&etcd, "three", &["--priority", "2"]);
    until("two has made room", || line(&etcd) == ["one", "theirs", "three", "two"]);
    let four = in_line(&etcd, "four", &["--priority", "1"]);
    let sorted = ["one", "theirs", "three", "four", "two"];
    until("two has made room again, and three has not", || line(&etcd) == sorted);
    one.stop();
    etcdctl.stdout.line_with("theirs");
    etcdctl.signal(Signal::INT);
    three.event("elected");
    three.stop();
    four.event("elected");
    four.stop();
    two.event("elected");
    two.stop();
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "incumbent-wishes/"]), "");
}

fn a_candidate_below_zero_leads_only_if_nobody_else_is_there(etcd: Etcd) {
    let one = in_line(&etcd, "one", &["--priority", "-1"]).once("elected");
    let two = in_line(&etcd, "two", &["--priority=-1"]);
    let three = in_line(&etcd, "three", &[]);
    one.stop();
    three.event("elected");
    three.stop();
    two.event("elected");
    two.stop();
}

fn a_leader_hands_over_after_its_least_term(etcd: Etcd) {
    let one = in_line(&etcd, "one", &["--priority", "1"]).once("elected");
    let now = ["--preempt", "--min-term", "300ms"];
    let two = in_line(&etcd, "two", &[&["--priority", "2"][..], &now].concat());
    one.event("hand-over");
    assert_eq!(one.event("demoted")["reason"], "resigned");
    two.event("elected");
    // It does not take the lead back, once it has lost it.
    end(on(&etcd, ["transfer", "my-service", "--to", "one"])).expect(0);
    two.event("demoted");
    let three = in_line(&etcd, "three", &[&["--priority", "1"][..], &now].concat());
    let four = in_line(&etcd, "four", &[&["--priority", "3"][..], &now].concat());
    four.event("elected");
    assert_eq!(two.stdout.count("elected"), 1);
    assert_eq!(three.stdout.count("elected"), 0, "one has the same priority");
    for candidate in [one, two, three, four] {
        candidate.stop();
    }
}

/// One that makes room does not use up a preemption.
fn a_preferred_candidate_takes_the_lead_past_others(etcd: Etcd) {
    let one = in_line(&etcd, "one", &[]).once("elected");
    let two = in_line(&etcd, "two", &[]);
    let now = ["--priority", "5", "--preempt", "--min-term", "0s"];
    let three = in_line(&etcd, "three", &now);
    three.event("elected");
    for candidate in [one, two, three] {
        candidate.stop();
    }
}

/// An operator's word counts more than priorities.
fn a_named_candidate_leads_before_preferred_ones(etcd: Etcd) {
    let one = in_line(&etcd, "one", &[]).once("elected");
    let two = in_line(&etcd, "two", &[]);
    let [nine, five] = [("nine", "9"), ("five", "5")]
        .map(|(id, priority)| in_line(&etcd, id, &["--priority", priority]));
    until("two has made room", || line(&etcd) == ["one", "nine", "five", "two"]);
    let least = in_line(&etcd, "least", &["--priority", "-1"]);
    assert_eq!(line(&etcd), ["one", "nine", "five", "two", "least"]);
    end(on(&etcd, ["transfer", "my-service", "--to", "two"])).expect(0);
    two.event("elected");
    end(on(&etcd, ["transfer", "my-service", "--to", "least"])).expect(0);
    least.event("elected");
    for candidate in [one, two, nine, five, least] {
        candidate.stop();
    }
}

fn the_right_to_tell_of_a_priority_may_be_missing(etcd: Etcd) {
    etcd.enable_users("ann", "password", "my-service");
    let directory = TempDir::new().unwrap();
    let password = directory.path().join("password");
    write_secret(&password, "password");
    let campaign = |id, priority| {
        let mut command = on(&etcd, ["campaign", "my-service", "-o", "json", "--id", id]);
        command.args(["--user", "ann", "--password-file", password.to_str().unwrap()]);
        command.args(["--priority", priority]);
        Running::start(command)
    };
    let one = campaign("one", "0").once("elected");
    let two = campaign("two", "1").once("joined");
    let trouble = two.event("trouble").to_string();
    assert!(trouble.contains("permission denied"), "{trouble}");
    one.stop();
    two.event("elected");
    two.stop();
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
    let campaign = |id, priority| {
        let all = ["campaign", "jobs", "-o", "json", "--id", id, "--priority", priority];
        Running::start(of(&all)).once("joined")
    };
    let candidates = [("one", "0"), ("two", "0"), ("three", "1")];
    let [one, two, three] = candidates.map(|(id, priority)| campaign(id, priority));
    one.event("elected");
    let line = || values(of(&["candidates", "jobs", "-o", "json"]));
    until("two has made room", || line() == ["one", "three", "two"]);
    one.stop();
    three.event("elected");
    three.stop();
    two.stop();
}
