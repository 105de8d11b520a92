//! `incumbent drain`, its signals and its routes: an instance gives up what it leads, and leads no
//! more until that is undone.

use super::http::Endpoint;
use super::*;

incumbent_tests::on_each_version!(a_signal_has_the_next_one_lead);
incumbent_tests::on_an_etcd!(
    an_operator_drains_an_instance_by_its_name,
    an_election_called_drain_is_one_like_all_others,
    it_is_drained_over_http,
    the_right_to_drain_may_be_missing,
    the_work_stops_before_the_handover,
);

/// `incumbent drain` of an instance.
fn drain(etcd: &Etcd, id: &str, arguments: &[&str]) -> Command {
    on(etcd, ["drain", "--id", id].iter().chain(arguments).copied())
}

/// Starts a candidate of this name, and waits until it is in line.
fn in_line(etcd: &Etcd, id: &str) -> Running {
    Running::campaign(etcd, "my-service", &["--id", id]).once("joined")
}

/// Without a successor it leads on, and drained it comes back into line only when that is undone.
fn a_signal_has_the_next_one_lead(etcd: Etcd) {
    let one = in_line(&etcd, "one").once("elected");
    kill(one.pid(), Signal::USR1);
    one.stderr.line_with("drained: it gives up its term once somebody else is in line");
    let mut etcdctl = etcd.etcdctl_command(&["elect", "my-service", "theirs"]);
    etcdctl.stdin(Stdio::null());
    let etcdctl = Running::start(etcdctl);
    etcdctl.stdout.line_with("theirs");
    one.event("hand-over");
    assert_eq!(one.event("demoted")["reason"], "resigned");
    etcdctl.signal(Signal::INT);
    until("nobody is in line", || candidates(&etcd) == 0);
    // It waits in a line that it has to leave.
    let two = in_line(&etcd, "two").once("elected");
    kill(one.pid(), Signal::USR2);
    one.stderr.line_with("drained no more: it takes part again");
    one.event("joined");
    kill(one.pid(), Signal::USR1);
    until("it has left the line", || candidates(&etcd) == 1);
    kill(one.pid(), Signal::USR2);
    until("it is in line again", || candidates(&etcd) == 2);
    two.stop();
    one.event("elected");
    one.stop();
}

fn an_operator_drains_an_instance_by_its_name(etcd: Etcd) {
    let one = in_line(&etcd, "one").once("elected");
    let told = end(drain(&etcd, "one", &["--wait", "300ms"])).expect(1).stderr;
    assert!(told.contains("one still holds one term after --wait 300ms, and goes on"), "{told}");
    let two = in_line(&etcd, "two");
    two.event("elected");
    let told = end(drain(&etcd, "one", &[])).expect(0).stdout;
    assert_eq!(told, "one leads nothing, and stands in no line\n");
    one.event("demoted");
    let told = end(drain(&etcd, "one", &["--undo", "-o", "json"])).expect(0).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["id"], &told["result"]), (&"one".into(), &"undone".into()));
    one.event("joined");
    let told = end(drain(&etcd, "two", &["--at-most", "1"])).expect(0).stdout;
    assert_eq!(told, "two leads nothing, and stands in no line\n");
    one.event("elected");

    let told = end(drain(&etcd, "three", &["--wait", "200ms"])).expect(1).stderr;
    assert!(told.contains("no instance called three has said that it heard"), "{told}");
    etcd.etcdctl(&["put", "incumbent-wishes/one/drain", "drain 1"]);
    let told = end(drain(&etcd, "one", &["-o", "json"])).expect(1).stdout;
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["result"], "under-way");
    etcd.etcdctl(&["del", "incumbent-wishes/one/drain"]);
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "incumbent-wishes/"]), "");
    one.stop();
    two.stop();
}

/// A transfer in an election called `drain` had the key of the drain of an instance called `transfer`.
fn an_election_called_drain_is_one_like_all_others(etcd: Etcd) {
    let one = Running::campaign(&etcd, "drain", &["--id", "transfer"]).once("elected");
    etcd.etcdctl(&["put", "incumbent-wishes/drain/transfer", "1 2"]);
    let two = Running::campaign(&etcd, "drain", &["--id", "two"]).once("joined");
    let told = end(drain(&etcd, "transfer", &[])).expect(0).stdout;
    assert_eq!(told, "transfer leads nothing, and stands in no line\n");
    one.stop();
    two.stop();
}

fn it_is_drained_over_http(etcd: Etcd) {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let one = Running::campaign(&etcd, "my-service", &["--id", "one", "--listen", &listen]);
    let one = one.once("elected");
    let two = in_line(&etcd, "two");
    let endpoint = Endpoint::on(&socket);
    let asked = |method| endpoint.asked("/drain", &["--request", method]);
    let told = |path| endpoint.asked(path, &[]);
    let is_drained = || told("/status").json()["drained"].clone();
    assert_eq!(is_drained(), false);
    assert_eq!(asked("POST").json(), serde_json::json!({ "drained": true }));
    two.event("elected");
    assert_eq!(is_drained(), true);
    until("it is out of line", || told("/readyz").body.contains("it is drained"));
    let refused = asked("GET");
    assert!(refused.status == 405 && refused.body.contains("DELETE /drain"), "{}", refused.body);
    assert_eq!(asked("DELETE").json(), serde_json::json!({ "drained": false }));
    two.stop();
    one.event("demoted");
    one.event("elected");
    one.stop();
}

/// Its elections are the same.
fn the_right_to_drain_may_be_missing(etcd: Etcd) {
    etcd.enable_users("ann", "password", "my-service");
    let directory = TempDir::new().unwrap();
    let password = directory.path().join("password");
    write_secret(&password, "password");
    let login = ["--user", "ann", "--password-file", password.to_str().unwrap()];
    let mut command = on(&etcd, ["campaign", "my-service", "-o", "json", "--id", "one"]);
    command.args(login);
    let one = Running::start(command).once("elected");
    let mut command = drain(&etcd, "one", &[]);
    command.args(login);
    let told = end(command).expect(4).stderr;
    assert!(told.contains("permission denied"), "{told}");
    assert!(told.contains("--prefix=true readwrite incumbent-wishes/`"), "{told}");
    one.stop();
}

fn the_work_stops_before_the_handover(etcd: Etcd) {
    let work = Work::new(&format!(
        "trap 'sleep 0.2; {} put last words --fence my-service && touch written; exit' TERM; \
         echo $$ > child; while :; do sleep 0.01; done",
        incumbent_tests::program::path().display()
    ));
    let (running, _) = work.start(&etcd, &["--id", "one", "--ttl", "8s"]);
    let two = in_line(&etcd, "two");
    end(drain(&etcd, "one", &[])).expect(0);
    assert!(work.path("written").exists(), "it has had its last words");
    two.event("elected");
    two.stop();
    running.stop();
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
    let [one, two] = ["one", "two"].map(campaign);
    one.event("elected");
    end(of(&["drain", "--id", "one"])).expect(0);
    two.event("elected");
    end(of(&["drain", "--id", "one", "--undo"])).expect(0);
    one.event("demoted");
    one.event("joined");
    two.stop();
    one.event("elected");
    one.stop();
}
