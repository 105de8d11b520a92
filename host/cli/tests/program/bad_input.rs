//! Bad input: one clear sentence each, with its mend, and status 2. Nothing of it
//! needs a store.

use incumbent_tests::properties::command_line;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Where no store is: a command that asked one would have status 4.
const NOWHERE: &str = "etcd://127.0.0.1:1";

/// What is written, where two quotes are a word without letters; and what the sentence has to
/// hold.
const TABLE: &[(&str, &[&str])] = &[
    ("", &["requires a subcommand"]),
    ("campain e", &["campain", "campaign"]),
    ("campaign e --tll 3s", &["--tll", "--ttl"]),
    ("campaign", &["ELECTION"]),
    ("campaign ''", &["ELECTION", "1 to 1024 bytes"]),
    ("campaign a\nb", &["ELECTION", "control character"]),
    ("observe a\u{7f}", &["ELECTION", "control character"]),
    ("campaign e --ttl 0", &["--ttl", "2s or more"]),
    ("campaign e --ttl 0s", &["--ttl", "2s or more"]),
    ("campaign e --ttl 10", &["--ttl", "unit"]),
    ("campaign e --ttl 1ns", &["--ttl", "2s or more"]),
    ("campaign e --ttl 999ms", &["--ttl", "2s or more"]),
    ("campaign e --ttl -3s", &["'-3s' for '--ttl", "leave out the minus"]),
    ("campaign e --ttl=-3s", &["'-3s' for '--ttl", "leave out the minus"]),
    ("campaign e --ttl -5", &["'-5' for '--ttl", "leave out the minus"]),
    ("campaign e --ttl --margin", &["'--margin' for '--ttl", "unit"]),
    ("campaign e --ttl", &["--ttl", "value is required"]),
    ("campaign e --margin -1s", &["'-1s' for '--margin", "leave out the minus"]),
    ("campaign e --wait -1s", &["'-1s' for '--wait", "leave out the minus"]),
    ("leader e --dial-timeout -1s", &["'-1s' for '--dial-timeout", "minus"]),
    ("leader e --command-timeout -1s", &["'-1s' for '--command-timeout", "minus"]),
    ("campaign e --ttl -1s", &["'-1s' for '--ttl", "leave out the minus"]),
    ("campaign e --ttl 99999999999999999999s", &["--ttl", "9000000000 s or less"]),
    ("campaign e --wait 999999999999999years", &["--wait", "9000000000 s or less"]),
    ("campaign e --ttl 9000000001s", &["--ttl", "9000000000 s"]),
    ("run e --ttl 300years -- true", &["--ttl", "9000000000 s"]),
    ("campaign e --margin 10s", &["--margin 10s", "--ttl 10s"]),
    ("campaign e --margin nonsense", &["--margin", "unit"]),
    ("campaign e --contest duel", &["--contest", "queue, race"]),
    ("campaign e -o xml", &["--output", "json"]),
    ("campaign e --id ''", &["--id", "HOST-PID"]),
    ("leader e --dial-timeout 0", &["--dial-timeout", "1s"]),
    ("leader e --command-timeout 0", &["--command-timeout", "1s"]),
    ("leader e --store localhost:2379", &["--store", "etcd://127.0.0.1:2379"]),
    ("leader e --store etcd://u:secret@h", &["--store", "--user"]),
    ("leader e --store locale", &["--store", "or to be local"]),
    ("leader e --store sqlite:", &["--store", "sqlite:PATH"]),
    ("leader e --store local --user ann", &["--user (INCUMBENT_USER) is for etcd", "leave"]),
    ("leader e --store memory: --cacert /x", &["--cacert", "is for etcd", "leave"]),
    ("run e --store memory: -- true", &["--store memory:", "--store local"]),
    ("campaign e --record x --record-limit 64", &["--record-limit", "64KiB at least"]),
    ("run e --record-limit 64MB -- true", &["--record-limit", "64MiB"]),
    ("campaign e --store memory: --record /dev/null/x", &["recorded in /dev/null/x", "directory"]),
    ("replay", &["DIR"]),
    ("replay /nowhere", &["/nowhere cannot be read", "give a recording"]),
    ("replay /proc/sys/kernel/random", &["no recording in /proc/sys", "--record"]),
    ("replay /etc/passwd", &["/etc/passwd is no recording", "line 1: this is no JSON"]),
    ("leader e --user ann", &["--user", "--password-file FILE"]),
    ("leader e --password-file x", &["--password-file", "--user NAME"]),
    ("leader e --user a --password-file /nowhere", &["--password-file /nowhere"]),
    ("leader e --store etcds://h --cacert /nowhere", &["--cacert /nowhere"]),
    ("leader e --store etcds://h --cert /nowhere", &["--cert /nowhere"]),
    ("leader e --store etcds://h --key /nowhere", &["--key /nowhere"]),
    ("leader e --cacert /etc/hostname", &["--cacert", "etcds://127.0.0.1:2379"]),
    ("leader e --store etcds://h --cacert /etc/hostname", &["--cacert", "/etc/hostname"]),
    ("leader e --store etcds://h --cert /etc/hostname", &["--cert", "--key FILE"]),
    ("leader e --store etcds://h --key /etc/hostname", &["--key", "--cert FILE"]),
    ("campaign e --listen 8080", &["--listen", "HOST:PORT", "unix:PATH"]),
    ("campaign e --listen :8080", &["--listen", "0.0.0.0:8080"]),
    ("campaign e --listen ::1:8080", &["--listen", "[::]:8080"]),
    (
        "campaign e --listen 192.0.2.1:8080",
        &["--listen 192.0.2.1:8080", "an address of this machine"],
    ),
    ("campaign e --listen unix:", &["--listen", "unix:/run/my-service.sock"]),
    ("campaign e --listen unix:/nowhere/s", &["--listen unix:/nowhere/s", "directory"]),
    ("campaign e --ready-when never", &["--ready-when", "candidate, leader"]),
    ("campaign e --http-host a:1", &["--http-host", "a host's name alone"]),
    ("campaign e --http-host *.x", &["--http-host", "a host's name alone"]),
    ("observe e --http-host a", &["--http-host", "--listen ADDRESS"]),
    ("campaign e --ready-when leader", &["--ready-when", "--listen ADDRESS"]),
    ("run e --http-token-file /etc/hostname -- true", &["--http-token-file", "--listen ADDRESS"]),
    ("observe e --record-values", &["--record-values", "--record DIR"]),
    ("campaign e --record-limit 1MiB", &["--record-limit", "--record DIR"]),
    ("run e --record-values -- true", &["--record-values", "--record DIR"]),
    (
        "run e --listen 127.0.0.1:0 --http-token-file /nowhere -- true",
        &["--http-token-file /nowhere"],
    ),
    ("put k v", &["--fence"]),
    ("put k v --fence e", &["--fence e:EPOCH", "INCUMBENT_EPOCH"]),
    ("put k v --fence e:0", &["--fence", "not an epoch"]),
    ("put k v --fence e:99999999999999999999", &["--fence", "not an epoch"]),
    ("put k v --fence :5", &["--fence", "1 to 1024 bytes"]),
    ("put '' v --fence e:5", &["KEY"]),
    ("get ''", &["KEY"]),
    ("get k --consistency x", &["--consistency", "l, s"]),
    ("depose e:0", &["EPOCH", "not an epoch"]),
    ("run e", &["CMD"]),
    ("run e --", &["CMD"]),
    ("run e -- ''", &["CMD"]),
    ("run e --stop-timeout 6s -- true", &["--stop-timeout 6s", "--ttl 10s"]),
    ("run e --margin 4s -- true", &["--margin 4s", "--ttl 10s"]),
    ("run e --stop-timeout -1s -- true", &["'-1s' for '--stop-timeout", "minus"]),
    ("run e --restart-delay -1s -- true", &["'-1s' for '--restart-delay", "minus"]),
    ("run e --max-memory -5 -- true", &["'-5' for '--max-memory", "1.."]),
    ("run e --restart-delay soon -- true", &["--restart-delay", "unit"]),
    ("run e --priority high -- true", &["'high' for '--priority"]),
    ("run e --preempt -- true", &["--preempt", "--priority is 0", "--priority 1"]),
    ("campaign e --preempt --priority -2", &["--preempt", "--priority is -2"]),
    ("campaign e --min-term 1m", &["--min-term", "--preempt"]),
    ("campaign e --priority 1 --contest race", &["--priority", "--contest race"]),
    ("drain", &["which instance?", "incumbent drain --id worker-1"]),
    ("drain e --id one", &["unexpected argument 'e'"]),
    ("drain --id one --at-most 0", &["'0' for '--at-most", "1.."]),
    ("drain --id one --undo --at-most 2", &["--undo", "--at-most"]),
    ("drain --id one --wait soon", &["--wait", "unit"]),
    ("run e --events /nowhere/x -- true", &["--events /nowhere/x"]),
    (
        "run e --events /dev/full -- true",
        &["--events /dev/full cannot be written (No space left on device"],
    ),
    ("run e --events / -- true", &["--events / cannot be written (Is a directory"]),
    ("run e --component", &["--component"]),
    ("run e --component /nowhere", &["--component /nowhere cannot be read", "give"]),
    ("run e --component /etc/hostname", &["is not WebAssembly", "wasm32-wasip2"]),
    ("run e --component /nowhere --isolate", &["--component", "--isolate"]),
    ("run e --dir . -- true", &["--dir", "--component FILE"]),
    ("run e --allow-network -- true", &["--allow-network", "--component FILE"]),
    ("run e --component x --dir /nowhere", &["--dir /nowhere cannot be opened"]),
    ("run e --component x --dir ::/data", &["--dir", "HOST::GUEST"]),
    ("run e --component x --dir /data::", &["--dir", "HOST::GUEST"]),
    ("run e --component x --env =x", &["--env", "NAME=VALUE"]),
    ("run e --component x --env NOT_SET", &["--env", "NOT_SET=VALUE"]),
    ("run e --component x --env INCUMBENT_EPOCH=1", &["--env", "another name"]),
    ("run e --component x --allow-keys ''", &["--allow-keys", "every key"]),
    ("run e --component x --allow-keys e", &["--allow-keys e ", "e-data/"]),
    ("run e --component x --allow-keys e/", &["--allow-keys e/", "e-data/"]),
    ("run e --component x --allow-keys e/data/", &["--allow-keys e/data/"]),
    ("run a/b --component x --allow-keys a/", &["--allow-keys a/", "a/b-data/"]),
    ("run e --component x --allow-keys ok/ --allow-keys e/", &["--allow-keys e/", "beside"]),
];

#[test]
fn each_is_one_sentence_with_its_mend() {
    for (line, says) in TABLE {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let arguments: Vec<_> = words.map(|word| if word == "''" { "" } else { word }).collect();
        assert_sentence(&arguments, says);
    }
}

#[test]
fn what_is_too_long() {
    assert_sentence(&["campaign", &"n".repeat(1025)], &["1025 bytes", "at most 1024"]);
    let value = "v".repeat(4097);
    assert_sentence(&["campaign", "e", "--value", &value], &["--value", "4096"]);
    assert_sentence(&["campaign", "e", "--id", &value], &["--id", "4096"]);
}

/// Such a file is read again and again: the first look would take all that is in a pipe, or
/// wait for a writer. Nor may a pipe hold up a program that has work to look after.
#[test]
fn files_that_do_not_serve() {
    let directory = TempDir::new().unwrap();
    let [pipe, empty] = ["pipe", "empty"].map(|name| directory.path().join(name));
    mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
    fs::write(&empty, "\n").unwrap();
    let [pipe, empty] = [&pipe, &empty].map(|path| path.to_str().unwrap());
    for flag in ["--cacert", "--cert", "--key"] {
        let arguments = ["leader", "e", "--store", "etcds://h", flag, pipe];
        assert_sentence(&arguments, &[flag, pipe, "is a pipe", "give a regular file"]);
    }
    for (file, says) in [
        (pipe, "is a pipe"),
        ("/dev/zero", "is not a regular file"),
        (empty, "first line is empty"),
    ] {
        let arguments = ["leader", "e", "--user", "a", "--password-file", file];
        assert_sentence(&arguments, &["--password-file", file, says]);
    }
    let arguments = ["run", "e", "--events", pipe, "--", "true"];
    assert_sentence(&arguments, &["--events", pipe, "nobody reads", "start its reader"]);
}

#[test]
fn a_password_that_everybody_may_read_is_said_once() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("password");
    write_secret(&file, "secret\n");
    let path = file.to_str().unwrap();
    let login = ["--store", NOWHERE, "--user", "a", "--password-file", path];
    let said = |arguments: &[&str], after: &[&str]| {
        let end = end(incumbent([arguments, &login, after].concat())).expect(4);
        assert!(!end.stderr.contains("secret"), "{end:?}");
        end.stderr.matches(&format!("chmod 600 {path}")).count()
    };
    for (mode, warnings) in [(0o600, 0), (0o440, 0), (0o604, 1), (0o644, 1)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        assert_eq!(said(&["leader", "e"], &[]), warnings, "{mode:o}");
        assert_eq!(said(&["run", "e"], &["--", "true"]), warnings, "{mode:o}");
    }
}

#[test]
fn an_answer_needs_a_standard_output() {
    let with = |redirection: &str, arguments: &[&str]| {
        let program = incumbent([arguments, &["--store", "memory:"]].concat());
        end(limited(&format!("exec {redirection}"), &program))
    };
    for arguments in [
        &["leader", "e"][..],
        &["candidates", "e"],
        &["observe", "e"],
        &["campaign", "e"],
        &["get", "k"],
        &["put", "k", "v", "--fence", "e:5"],
        &["depose", "e"],
    ] {
        with(">&-", arguments).expect(2).says(&["standard output is closed"]);
    }
    let full = with(">/dev/full", &["observe", "e"]).expect(2);
    assert!(full.stderr.contains("standard output cannot be written"), "{full:?}");
    // As Python's DEVNULL is.
    with("1<>/dev/null", &["leader", "e"]).expect(1);
}

#[test]
fn no_hidden_command_is_told() {
    for arguments in [&[][..], &["run-gard"], &["--help"]] {
        let end = end(incumbent(arguments));
        let told = end.stdout + &end.stderr;
        for hidden in ["run-guard", "run-init", "run-probe", "run-clean-up"] {
            assert!(!told.contains(hidden), "{arguments:?}: {told}");
        }
    }
}

/// It would kill everything that runs beside it.
#[test]
fn no_clean_up_without_a_service() {
    let mut clean_up = incumbent(["run-clean-up"]);
    clean_up.env("SERVICE_RESULT", "success").env_remove("INVOCATION_ID");
    end(clean_up).expect(2).says(&["systemd did not start it"]);
}

#[test]
fn a_variable_is_as_bad_as_its_flag() {
    let mut command = incumbent(["campaign", "e"]);
    command.env("INCUMBENT_TTL", "0");
    end(command).expect(2).says(&["--ttl"]);
}

#[test]
fn a_command_that_cannot_be_run_is_found_before_joining() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    fs::write(&data, "x").unwrap();
    let folder = directory.path().to_str().unwrap();
    let inside = data.join("x");
    for (command, status, says) in [
        ("no-such-command-anywhere", 127, "does not exist"),
        ("./no/such/path", 127, "does not exist"),
        (inside.to_str().unwrap(), 127, "does not exist"),
        (data.to_str().unwrap(), 126, "cannot be executed"),
        (folder, 126, "cannot be executed"),
    ] {
        let end = end(incumbent(["run", "e", "--store", NOWHERE, "--", command]));
        end.expect(status).says(&[says, command]);
    }
    let mut in_path = incumbent(["run", "e", "--store", NOWHERE, "--", "data"]);
    in_path.env("PATH", directory.path());
    end(in_path).expect(126);
}

/// As somebody else than root, whom no limit binds.
#[test]
fn where_there_can_be_no_thread_a_sentence_says_so() {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let program = directory.path().join("incumbent");
    // Another process copies it. If we did, a child that another test starts at that moment would
    // inherit the file, and the kernel runs no file that is open for writing.
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_incumbent")).arg(&program);
    end(copy).expect(0);
    let file = format!("sqlite:{}", directory.path().join("store.db").display());
    let tries = (1..=12).map(|threads| (threads, "memory:"));
    for (threads, store) in tries.chain([(1, &*file), (2, &file)]) {
        let mut command = Command::new(&program);
        command.args(["leader", "e", "--store", store]);
        let mut command = limited(&format!("ulimit -u {threads}"), &command);
        if rustix::process::geteuid().is_root() {
            command = started_by(&["setpriv", "--reuid", "65534", "--clear-groups"], &command);
        }
        let end = end(command);
        println!("{threads} threads: {}", end.status);
        if threads > 2 && end.status == 1 {
            continue;
        }
        end.expect(2).says(&["ulimit -u"]);
    }
}

#[test]
fn where_few_files_can_be_opened_a_sentence_says_so() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("store.db");
    let leader = |store: &str, files: u32| {
        let command = incumbent(["leader", "e", "--store", store]);
        println!("{files} files, {store}");
        end(limited(&format!("ulimit -n {files}"), &command))
    };
    for files in [4, 5, 8, 12, 16, 20, 30] {
        leader("memory:", files).expect(2).says(&["ulimit -n"]);
    }
    let store = format!("sqlite:{}", file.display());
    for files in [12, 16, 20] {
        leader(&store, files).expect(2).says(&["too few files", "ulimit -n"]);
    }
    assert!(!file.exists(), "nothing is left behind");
    // With enough of them nobody leads.
    for (store, files) in [("memory:", 40), ("memory:", 60), (&store, 64)] {
        leader(store, files).expect(1);
    }
}

/// No instant is that far away.
#[test]
fn the_longest_time_out_is_none_too_long() {
    let store = ["--store", NOWHERE, "--dial-timeout", "18446744073709551615s"];
    end(incumbent(["leader", "e"].iter().chain(&store))).expect(4);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn anything_at_all(bytes in vec(any::<u8>(), 0..200)) {
        command_line::check(&bytes, env!("CARGO_BIN_EXE_incumbent").as_ref());
    }
}

#[track_caller]
fn assert_sentence(arguments: &[&str], says: &[&str]) {
    println!("{arguments:?}");
    let end = end(incumbent(arguments)).expect(2).only_says(says);
    assert!(!end.stderr.contains("secret"), "{end:?}");
}
