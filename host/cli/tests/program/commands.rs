//! Every command, its output and its exit status, on a real etcd.

use std::ffi::OsStr;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::thread;

use incumbent_tests::certificates::Certificates;

use super::*;

incumbent_tests::on_each_version!(
    three_candidates_take_turns,
    a_store_that_is_away_ends_no_campaign,
    whatever_takes_the_leadership_is_told,
    wait_gives_up,
    a_write_is_refused_when_its_epoch_is_over,
    a_race_has_one_key,
    hostile_values_stay_on_their_line,
);

incumbent_tests::on_an_etcd!(
    with_a_prefix_all_keys_begin_with_it,
    a_second_signal_ends_at_once,
    what_nobody_confirms_is_not_waited_for_without_end,
    a_reader_that_goes_away_is_no_fault,
    every_flag_can_be_a_variable,
    candidates_of_etcdctl_stand_in_the_same_queue,
);

fn three_candidates_take_turns(etcd: Etcd) {
    end(on(&etcd, ["leader", "my-service"])).expect(1);
    end(on(&etcd, ["candidates", "my-service"])).expect(1);
    let observer = Running::start(on(&etcd, ["watch", "my-service", "-o", "json"]));
    assert_eq!(observer.event("leader")["leader"], Value::Null);

    let mut first = Running::campaign(&etcd, "my-service", &["--id", "one"]);
    let joined = first.event("joined");
    let elected = first.event("elected");
    assert_eq!(elected["election"], "my-service");
    assert_eq!(elected["id"], "one");
    assert_eq!(elected["key"], joined["key"]);
    let key = elected["key"].as_str().unwrap();
    assert_eq!(key, format!("my-service/{}", elected["lease"].as_str().unwrap()));
    let epoch = elected["epoch"].as_i64().unwrap();
    let time = elected["time"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    assert!(elected["remaining_ms"].as_i64().unwrap() <= 1980);
    assert_eq!(first.event("extended")["epoch"], epoch);

    let second = Running::campaign(&etcd, "my-service", &["--id", "two", "--value", "deux"]);
    second.event("joined");

    let sighted = observer.event("leader");
    assert_eq!(sighted["leader"]["key"], key);
    assert_eq!(sighted["leader"]["value"], "one");
    assert_eq!(sighted["leader"]["epoch"], epoch);
    let line = end(on(&etcd, ["leader", "my-service"])).expect(0).stdout;
    assert_eq!(line, format!("one leads my-service in epoch {epoch} ({key})\n"));
    let asked = end(on(&etcd, ["leader", "my-service", "-o", "json"])).expect(0).json();
    assert_eq!(asked["leader"], sighted["leader"]);
    let queue = end(on(&etcd, ["candidates", "my-service", "-o", "json"])).expect(0).stdout;
    let queue: Vec<Value> = queue.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(queue.len(), 2);
    assert_eq!((&queue[0]["value"], &queue[1]["value"]), (&"one".into(), &"deux".into()));
    let lines = end(on(&etcd, ["candidates", "my-service"])).expect(0).stdout;
    assert!(lines.starts_with("1  one  epoch "), "{lines}");

    first.signal(Signal::TERM);
    let demoted = first.event("demoted");
    assert_eq!(demoted["reason"], "resigned");
    assert_eq!((&demoted["epoch"], &demoted["key"]), (&epoch.into(), &key.into()));
    first.event("withdrawn");
    assert_eq!(first.wait(), 0, "{:?}", first.stderr);

    let later = second.event("elected")["epoch"].as_i64().unwrap();
    assert!(later > epoch);
    let sighted = observer.stdout.find("the second", |line| {
        let event: Value = serde_json::from_str(line).ok()?;
        (event["leader"]["value"] == "deux").then_some(event)
    });
    assert_eq!(sighted["leader"]["epoch"], later);

    second.interrupt();
    assert_eq!(observer.event("leader")["leader"], Value::Null);
    observer.stop();
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
    assert_eq!(etcd.etcdctl(&["lease", "list"]).trim(), "found 0 leases");
}

fn a_store_that_is_away_ends_no_campaign(etcd: Etcd) {
    let candidate = Running::campaign(&etcd, "my-service", &[]);
    let observer = Running::start(on(&etcd, ["observe", "my-service", "-o", "json"]));
    let epoch = candidate.event("elected")["epoch"].as_i64().unwrap();
    etcd.pause();
    assert_eq!(candidate.event("endangered")["epoch"], epoch);
    let demoted = candidate.event("demoted");
    assert_eq!((&demoted["reason"], &demoted["epoch"]), (&"expired".into(), &epoch.into()));
    etcd.resume();
    let later = candidate.event("elected")["epoch"].as_i64().unwrap();
    assert!(later > epoch);
    observer.stdout.find("the later epoch", |line| {
        let event: Value = serde_json::from_str(line).ok()?;
        (event["leader"]["epoch"] == later).then_some(())
    });
    candidate.stop();
    observer.stop();
}

fn whatever_takes_the_leadership_is_told(etcd: Etcd) {
    let candidate = Running::campaign(&etcd, "my-service", &[]);
    let elected = candidate.event("elected");
    etcd.etcdctl(&["lease", "revoke", elected["lease"].as_str().unwrap()]);
    let demoted = candidate.event("demoted");
    // The key and its lease go at once: either may be heard of first.
    assert!(["lease-lost", "deposed"].contains(&demoted["reason"].as_str().unwrap()));

    let elected = candidate.event("elected");
    etcd.etcdctl(&["del", elected["key"].as_str().unwrap()]);
    assert_eq!(candidate.event("demoted")["reason"], "deposed");

    let epoch = candidate.event("elected")["epoch"].as_i64().unwrap();
    let wrong = end(on(&etcd, ["depose", &format!("my-service:{}", epoch + 1000)])).expect(3);
    assert!(wrong.stderr.contains(&epoch.to_string()), "{wrong:?}");
    let deposed =
        end(on(&etcd, ["depose", &format!("my-service:{epoch}"), "-o", "json"])).expect(0);
    assert_eq!(deposed.json()["epoch"], epoch);
    let demoted = candidate.event("demoted");
    assert_eq!((&demoted["reason"], &demoted["epoch"]), (&"deposed".into(), &epoch.into()));

    candidate.event("elected");
    let line = end(on(&etcd, ["depose", "my-service"])).expect(0).stdout;
    assert!(line.starts_with("deposed "), "{line}");
    assert_eq!(candidate.event("demoted")["reason"], "deposed");
    candidate.stop();
    for target in ["my-service", "my-service:5"] {
        let nobody = end(on(&etcd, ["depose", target])).expect(1);
        assert_eq!(nobody.stderr, "incumbent: nobody leads my-service\n");
    }
}

fn wait_gives_up(etcd: Etcd) {
    let alone = Running::campaign(&etcd, "my-service", &["--wait", "0"]).once("elected");
    for wait in ["0", "100ms"] {
        let gave_up = end(on(&etcd, ["campaign", "my-service", "--wait", wait])).expect(1);
        assert!(gave_up.stderr.contains("--wait"), "{gave_up:?}");
        assert!(!gave_up.stdout.contains("elected"), "{gave_up:?}");
        let left = end(on(&etcd, ["candidates", "my-service"])).expect(0).stdout;
        assert_eq!(left.lines().count(), 1, "{left}");
    }
    let race = ["campaign", "sprint", "--contest", "race"];
    let racer = Running::start(on(&etcd, [&race[..], &["--wait", "0", "-o", "json"]].concat()));
    racer.event("elected");
    end(on(&etcd, [&race[..], &["--wait", "0"]].concat())).expect(1);
    // Who has been elected is not given up.
    alone.stop();
    racer.stop();
}

fn a_write_is_refused_when_its_epoch_is_over(etcd: Etcd) {
    let name = "a:b";
    let candidate = Running::campaign(&etcd, name, &[]);
    let epoch = candidate.event("elected")["epoch"].as_i64().unwrap();
    let fence = format!("{name}:{epoch}");

    let written = end(on(&etcd, ["put", "/k", "v1", "--fence", &fence, "-o", "json"])).expect(0);
    let revision = written.json()["revision"].as_i64().unwrap();
    assert_eq!(end(on(&etcd, ["get", "/k"])).expect(0).stdout, "v1\n");
    assert_eq!(end(on(&etcd, ["get", "/k", "--consistency", "s"])).expect(0).stdout, "v1\n");
    let entry = end(on(&etcd, ["get", "/k", "-o", "json"])).expect(0).json();
    assert_eq!((&entry["value"], &entry["modified"]), (&"v1".into(), &revision.into()));
    end(on(&etcd, ["get", "/none"])).expect(1);

    let inside = |election: &str, epoch: i64, fence: &str| {
        let mut command = on(&etcd, ["put", "/k", "v2", "--fence", fence]);
        command.env("INCUMBENT_ELECTION", election).env("INCUMBENT_EPOCH", epoch.to_string());
        end(command)
    };
    inside(name, epoch, name).expect(0);
    inside("other", epoch, name).expect(2).says(&["another election"]);
    end(on(&etcd, ["put", "/k", "v", "--fence", name])).expect(2);

    let binary = OsStr::from_bytes(b"\xff\n");
    let mut command = on(&etcd, ["put", "--fence", &fence, "--", "/k"]);
    command.arg(binary);
    end(command).expect(0);
    let entry = end(on(&etcd, ["get", "/k", "-o", "json"])).expect(0).json();
    assert_eq!((&entry["value_base64"], &entry["value"]), (&"/wo=".into(), &Value::Null));

    let leader = end(on(&etcd, ["leader", name, "-o", "json"])).expect(0).json();
    let own = leader["leader"]["key"].as_str().unwrap();
    end(on(&etcd, ["put", own, "v", "--fence", &fence])).expect(2).says(&["election itself"]);

    end(on(&etcd, ["depose", &fence])).expect(0);
    let stale = end(on(&etcd, ["put", "/k", "late", "--fence", &fence])).expect(3);
    assert_eq!(
        stale.stderr,
        format!("incumbent: epoch {epoch} does not lead {name}: nothing was written\n")
    );
    assert!(!etcd.etcdctl(&["get", "/k"]).contains("late"));
    candidate.stop();
    end(on(&etcd, ["put", "/k", "late", "--fence", &fence])).expect(3);
}

fn a_race_has_one_key(etcd: Etcd) {
    let race = ["--contest", "race"];
    let first = Running::campaign(&etcd, "sprint", &[&race[..], &["--id", "one"]].concat());
    let elected = first.event("elected");
    assert_eq!(elected["key"], "sprint");
    let epoch = elected["epoch"].as_i64().unwrap();
    let second = Running::campaign(&etcd, "sprint", &[&race[..], &["--id", "two"]].concat());
    assert_eq!(second.event("leader")["leader"]["value"], "one");

    let fence = format!("sprint:{epoch}");
    end(on(&etcd, ["put", "/k", "v", "--fence", &fence, "--contest", "race"])).expect(0);
    let line = end(on(&etcd, ["leader", "sprint", "--contest", "race"])).expect(0).stdout;
    assert_eq!(line, format!("one leads sprint in epoch {epoch} (sprint)\n"));
    first.stop();
    assert!(second.event("elected")["epoch"].as_i64().unwrap() > epoch);
    let mut stale = on(&etcd, ["put", "/k", "late", "--fence", &fence]);
    stale.env("INCUMBENT_CONTEST", "race");
    end(stale).expect(3);
    second.stop();
}

fn hostile_values_stay_on_their_line(etcd: Etcd) {
    let lease = etcd.etcdctl(&["lease", "grant", "60"]);
    let lease = lease.split_whitespace().nth(1).unwrap();
    let put = |value: &[u8]| {
        let mut etcdctl = etcd
            .etcdctl_command(&["put", &format!("my-service/{lease}"), "--lease", lease])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        etcdctl.stdin.take().unwrap().write_all(value).unwrap();
        assert!(etcdctl.wait().unwrap().success());
    };
    put(b"\x1b[2J\0one\ntwo\xff");
    let line = end(on(&etcd, ["leader", "my-service"])).expect(0).stdout;
    assert!(line.starts_with("\\u{1b}[2J\\0one\\ntwo\\xff leads my-service"), "{line:?}");
    assert_eq!(line.lines().count(), 1);
    let object = end(on(&etcd, ["leader", "my-service", "-o", "json"])).expect(0).json();
    assert_eq!(object["leader"]["value_base64"], "G1sySgBvbmUKdHdv/w==");

    // What a terminal obeys beyond ASCII is whole, and escaped.
    let hostile = "\u{9b}31m\u{85}\u{202e}x\u{2028}\u{7f}";
    put(hostile.as_bytes());
    let key = format!("my-service/{lease}");
    let observer = Running::start(on(&etcd, ["observe", "my-service", "-o", "json"]));
    let sighted = observer.stdout.line_with("leader");
    observer.stop();
    let ask = |arguments: &[&str]| end(on(&etcd, arguments)).expect(0).stdout;
    for (line, path) in [
        (sighted, "/leader/value"),
        (ask(&["leader", "my-service", "-o", "json"]), "/leader/value"),
        (ask(&["candidates", "my-service", "-o", "json"]), "/value"),
        (ask(&["get", &key, "-o", "json"]), "/value"),
    ] {
        assert!(line.trim_end().is_ascii(), "{line:?}");
        assert!(!line.trim_end().contains(|one: char| one.is_control()), "{line:?}");
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object.pointer(path).unwrap(), hostile, "{line:?}");
    }

    put(&vec![b'x'; 1_000_000]);
    let line = end(on(&etcd, ["candidates", "my-service"])).expect(0).stdout;
    assert!(line.len() < 400 && line.contains("(1000000 bytes)"), "{line:?}");
    let object = end(on(&etcd, ["leader", "my-service", "-o", "json"])).expect(0).json();
    assert_eq!(object["leader"]["value"].as_str().unwrap().len(), 1_000_000);
}

fn with_a_prefix_all_keys_begin_with_it(etcd: Etcd) {
    let store = format!("{}/team", etcd.url());
    let mut command = incumbent(["campaign", "my-service", "--ttl", "2s", "-o", "json"]);
    command.args(["--store", &store]);
    let candidate = Running::start(command);
    let elected = candidate.event("elected");
    let key = elected["key"].as_str().unwrap();
    assert!(key.starts_with("my-service/"), "{key}");
    let keys = etcd.etcdctl(&["get", "--prefix", "--keys-only", "team/"]);
    assert_eq!(keys.trim(), format!("team/{key}"));
    let fence = format!("my-service:{}", elected["epoch"]);
    end(incumbent(["--store", &store, "put", "k", "v", "--fence", &fence])).expect(0);
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "team/k"]).trim(), "v");
    end(on(&etcd, ["leader", "my-service"])).expect(1);
    candidate.stop();
}

fn a_second_signal_ends_at_once(etcd: Etcd) {
    let mut candidate = Running::campaign(&etcd, "my-service", &["--command-timeout", "1m"]);
    candidate.event("elected");
    etcd.pause();
    candidate.signal(Signal::TERM);
    // Its work has stopped, but its key cannot be given back now.
    candidate.event("demoted");
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait(), 128 + 15);
    etcd.resume();
}

fn what_nobody_confirms_is_not_waited_for_without_end(etcd: Etcd) {
    let mut candidate = Running::campaign(&etcd, "my-service", &["--command-timeout", "200ms"]);
    candidate.event("elected");
    etcd.pause();
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait(), 0);
    candidate.stderr.line_with("what is left goes with the lease");
    etcd.resume();
}

fn a_reader_that_goes_away_is_no_fault(etcd: Etcd) {
    let closed = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = on(&etcd, arguments);
        command.stdout(writer);
        let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    };
    closed(&["campaign", "my-service", "--ttl", "2s"]);
    assert_eq!(etcd.etcdctl(&["get", "--prefix", "my-service"]), "");
    closed(&["observe", "my-service"]);
    let candidate = Running::campaign(&etcd, "my-service", &[]).once("elected");
    closed(&["leader", "my-service"]);
    closed(&["candidates", "my-service"]);
    closed(&["--help"]);
    candidate.stop();
}

#[test]
fn with_tls() {
    let certificates = Certificates::make();
    let etcd = Etcd::start_tls(Version::V3_5, &certificates);
    let with = |arguments: &[&str]| {
        let mut command = on(&etcd, arguments);
        command.arg("--cacert").arg(&certificates.ca);
        command.arg("--cert").arg(&certificates.client_cert);
        command.arg("--key").arg(&certificates.client_key);
        command
    };
    let candidate = Running::start(with(&["campaign", "my-service", "--ttl", "2s", "-o", "json"]));
    candidate.once("elected").stop();

    // The command inside finds the same store.
    let program = env!("CARGO_BIN_EXE_incumbent");
    let mut command = with(&["run", "my-service", "--once", "--ttl", "2s"]);
    command.args(["--", program, "leader", "my-service"]);
    let inside = end(command).expect(0);
    assert!(inside.stdout.contains("leads my-service"), "{inside:?}");
}

#[test]
fn where_no_etcd_is() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let store = format!("etcd://{address}");
    let commands: [&[&str]; 4] = [
        &["campaign", "my-service"],
        &["leader", "my-service"],
        &["get", "k"],
        &["run", "my-service", "--", "true"],
    ];
    let ask = |dial_timeout: &str, command: &[&str]| {
        end(incumbent([&["--store", &store, "--dial-timeout", dial_timeout], command].concat()))
    };
    // One that takes connections, and says nothing.
    ask("300ms", commands[0]).expect(4).says(&[]);
    // One that is something else.
    let other = thread::spawn(move || {
        for stream in listener.incoming().take(1) {
            let _ = stream.unwrap().write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
    });
    ask("1s", commands[1]).expect(4).says(&[]);
    other.join().unwrap();
    // None at all.
    for command in commands {
        ask("300ms", command).expect(4).only_says(&["--store"]);
    }
}

fn every_flag_can_be_a_variable(etcd: Etcd) {
    let mut command = incumbent(["campaign", "my-service"]);
    command.envs([
        ("INCUMBENT_STORE", etcd.url().as_str()),
        ("INCUMBENT_ID", "me"),
        ("INCUMBENT_VALUE", "mine"),
        ("INCUMBENT_TTL", "3s"),
        ("INCUMBENT_MARGIN", "1s"),
        ("INCUMBENT_CONTEST", "race"),
        ("INCUMBENT_OUTPUT", "json"),
        ("INCUMBENT_WAIT", "0"),
        ("INCUMBENT_DIAL_TIMEOUT", "4s"),
        ("INCUMBENT_COMMAND_TIMEOUT", "4s"),
        ("INCUMBENT_VERBOSE", "2"),
    ]);
    let candidate = Running::start(command);
    let elected = candidate.event("elected");
    assert_eq!((&elected["id"], &elected["key"]), (&"me".into(), &"my-service".into()));
    let remaining = elected["remaining_ms"].as_i64().unwrap();
    assert!((1000..=2000).contains(&remaining), "{remaining}");
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "my-service"]).trim(), "mine");
    candidate.stop();
}

fn candidates_of_etcdctl_stand_in_the_same_queue(etcd: Etcd) {
    let candidate = Running::campaign(&etcd, "my-service", &[]).once("elected");
    let mut etcdctl = etcd.etcdctl_command(&["elect", "my-service", "theirs"]);
    etcdctl.stdin(Stdio::null());
    let etcdctl = Running::start(etcdctl);
    until("both are in line", || candidates(&etcd) == 2);
    candidate.stop();
    etcdctl.stdout.line_with("theirs");
    let line = end(on(&etcd, ["leader", "my-service"])).expect(0).stdout;
    assert!(line.starts_with("theirs leads my-service"), "{line}");
    etcdctl.signal(Signal::INT);
}

#[test]
fn help_teaches() {
    let help = end(incumbent(["--help"])).expect(0).stdout;
    let reading = ["observe", "leader", "candidates", "get"];
    let others = ["run", "campaign", "put", "depose", "transfer", "drain"];
    for command in reading.into_iter().chain(others) {
        assert!(help.contains(command), "{command}");
        let help = end(incumbent([command, "--help"])).expect(0).stdout;
        assert!(help.contains("Example"), "{command}: {help}");
        let flags = help.lines().map(str::trim_start).filter(|line| {
            line.starts_with("--") || line.starts_with("-o") || line.starts_with("-v")
        });
        let flags = flags.filter(|line| !line.contains("--help"));
        let variables = help.matches("[env: INCUMBENT_").count();
        assert_eq!(flags.count(), variables, "{help}");
    }
    end(incumbent(["--version"])).expect(0);
    let mut secret = incumbent(["run", "--help"]);
    secret.env("INCUMBENT_STORE", "etcd://u:secret@h");
    assert!(!end(secret).expect(0).stdout.contains("secret"));
    let depose = end(incumbent(["depose", "--help"])).stdout;
    assert!(depose.contains("believe that they lead"), "{depose}");
}

#[test]
fn version_names_the_component() {
    let version: Value =
        serde_json::from_str(&end(incumbent(["version", "-o", "json"])).expect(0).stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["component"]["sha256"], incumbent::Component::SHA256);
    assert_eq!(version["machine_code"], true);
    assert_eq!(version["features"], serde_json::json!(["precompiled"]));
    // Not even a bad variable for other commands keeps it from saying so.
    let mut people = incumbent(["version"]);
    people.env("INCUMBENT_STORE", "nonsense://");
    let people = end(people).expect(0).stdout;
    assert!(people.contains(incumbent::Component::SHA256), "{people}");
}

#[test]
fn a_shell_completes_commands_and_flags() {
    // What bash does when the tab key is pressed.
    let complete = |words: &str| {
        let script = format!(
            "source <(\"$PROGRAM\" completions bash); COMP_WORDS=({words}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _incumbent incumbent \"${{COMP_WORDS[-1]}}\" x; echo \"${{COMPREPLY[*]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).env("PROGRAM", incumbent([""]).get_program());
        String::from_utf8(bash.output().unwrap().stdout).unwrap()
    };
    assert_eq!(complete("incumbent cam"), "campaign\n");
    assert_eq!(complete("incumbent campaign --stor"), "--store\n");
    for shell in ["zsh", "fish"] {
        let script = end(incumbent(["completions", shell])).expect(0).stdout;
        assert!(script.contains("campaign"), "{shell}: {script}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = TempDir::new().unwrap();
    let pages = directory.path().join("man1");
    end(incumbent(["man", pages.to_str().unwrap()])).expect(0);
    for page in ["incumbent", "incumbent-run", "incumbent-version"] {
        let page = fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(page.contains("INCUMBENT_STORE"), "{page}");
    }
    let fault = end(incumbent(["man", "/dev/null/man1"])).expect(2).stderr;
    assert!(fault.contains("/dev/null/man1"), "{fault}");
}
