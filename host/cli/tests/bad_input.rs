//! Bad input: one clear sentence each, with its mend, and status 2. Nothing of it
//! needs a store.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use incumbent_tests::program::{end, incumbent, write_secret};
use incumbent_tests::properties::command_line;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;

/// What is written, and what the sentence has to hold.
const TABLE: &[(&[&str], &[&str])] = &[
    (&[], &["requires a subcommand"]),
    (&["campain", "e"], &["campain", "campaign"]),
    (&["campaign", "e", "--tll", "3s"], &["--tll", "--ttl"]),
    (&["campaign"], &["ELECTION"]),
    (&["campaign", ""], &["ELECTION", "1 to 1024 bytes"]),
    (&["campaign", "a\nb"], &["ELECTION", "control character"]),
    (&["observe", "a\u{7f}"], &["ELECTION", "control character"]),
    (&["campaign", "e", "--ttl", "0"], &["--ttl", "2s or more"]),
    (&["campaign", "e", "--ttl", "0s"], &["--ttl", "2s or more"]),
    (&["campaign", "e", "--ttl", "10"], &["--ttl", "unit"]),
    (&["campaign", "e", "--ttl", "1ns"], &["--ttl", "2s or more"]),
    (&["campaign", "e", "--ttl", "999ms"], &["--ttl", "2s or more"]),
    (&["campaign", "e", "--ttl", "-3s"], &["'-3s' for '--ttl", "leave out the minus"]),
    (&["campaign", "e", "--ttl=-3s"], &["'-3s' for '--ttl", "leave out the minus"]),
    (&["campaign", "e", "--ttl", "-5"], &["'-5' for '--ttl", "leave out the minus"]),
    (&["campaign", "e", "--ttl", "--margin"], &["'--margin' for '--ttl", "unit"]),
    (&["campaign", "e", "--ttl"], &["--ttl", "value is required"]),
    (&["campaign", "e", "--margin", "-1s"], &["'-1s' for '--margin", "leave out the minus"]),
    (&["campaign", "e", "--wait", "-1s"], &["'-1s' for '--wait", "leave out the minus"]),
    (&["leader", "e", "--dial-timeout", "-1s"], &["'-1s' for '--dial-timeout", "minus"]),
    (&["leader", "e", "--command-timeout", "-1s"], &["'-1s' for '--command-timeout", "minus"]),
    (&["campaign", "e", "--ttl", "-1s"], &["'-1s' for '--ttl", "leave out the minus"]),
    (&["campaign", "e", "--ttl", "99999999999999999999s"], &["--ttl", "9000000000 s or less"]),
    (&["campaign", "e", "--wait", "999999999999999years"], &["--wait", "9000000000 s or less"]),
    (&["campaign", "e", "--ttl", "9000000001s"], &["--ttl", "9000000000 s"]),
    (&["run", "e", "--ttl", "300years", "--", "true"], &["--ttl", "9000000000 s"]),
    (&["campaign", "e", "--margin", "10s"], &["--margin 10s", "--ttl 10s"]),
    (&["campaign", "e", "--margin", "nonsense"], &["--margin", "unit"]),
    (&["campaign", "e", "--contest", "duel"], &["--contest", "queue, race"]),
    (&["campaign", "e", "-o", "xml"], &["--output", "json"]),
    (&["campaign", "e", "--id", ""], &["--id", "HOST-PID"]),
    (&["leader", "e", "--dial-timeout", "0"], &["--dial-timeout", "1s"]),
    (&["leader", "e", "--command-timeout", "0"], &["--command-timeout", "1s"]),
    (&["leader", "e", "--store", "localhost:2379"], &["--store", "etcd://127.0.0.1:2379"]),
    (&["leader", "e", "--store", "etcd://u:secret@h"], &["--store", "--user"]),
    (&["leader", "e", "--store", "locale"], &["--store", "or to be local"]),
    (&["leader", "e", "--store", "sqlite:"], &["--store", "sqlite:PATH"]),
    (
        &["leader", "e", "--store", "local", "--user", "ann"],
        &["--user (INCUMBENT_USER) is for etcd", "leave"],
    ),
    (
        &["leader", "e", "--store", "memory:", "--cacert", "/x"],
        &["--cacert", "is for etcd", "leave"],
    ),
    (&["run", "e", "--store", "memory:", "--", "true"], &["--store memory:", "--store local"]),
    (&["leader", "e", "--user", "ann"], &["--user", "--password-file FILE"]),
    (&["leader", "e", "--password-file", "x"], &["--password-file", "--user NAME"]),
    (&["leader", "e", "--user", "a", "--password-file", "/nowhere"], &["--password-file /nowhere"]),
    (&["leader", "e", "--store", "etcds://h", "--cacert", "/nowhere"], &["--cacert /nowhere"]),
    (&["leader", "e", "--store", "etcds://h", "--cert", "/nowhere"], &["--cert /nowhere"]),
    (&["leader", "e", "--store", "etcds://h", "--key", "/nowhere"], &["--key /nowhere"]),
    (&["leader", "e", "--cacert", "/etc/hostname"], &["--cacert", "etcds://127.0.0.1:2379"]),
    (
        &["leader", "e", "--store", "etcds://h", "--cacert", "/etc/hostname"],
        &["--cacert", "/etc/hostname"],
    ),
    (
        &["leader", "e", "--store", "etcds://h", "--cert", "/etc/hostname"],
        &["--cert", "--key FILE"],
    ),
    (&["leader", "e", "--store", "etcds://h", "--key", "/etc/hostname"], &["--key", "--cert FILE"]),
    (&["put", "k", "v"], &["--fence"]),
    (&["put", "k", "v", "--fence", "e"], &["--fence e:EPOCH", "INCUMBENT_EPOCH"]),
    (&["put", "k", "v", "--fence", "e:0"], &["--fence", "not an epoch"]),
    (&["put", "k", "v", "--fence", "e:99999999999999999999"], &["--fence", "not an epoch"]),
    (&["put", "k", "v", "--fence", ":5"], &["--fence", "1 to 1024 bytes"]),
    (&["put", "", "v", "--fence", "e:5"], &["KEY"]),
    (&["get", ""], &["KEY"]),
    (&["get", "k", "--consistency", "x"], &["--consistency", "l, s"]),
    (&["depose", "e:0"], &["EPOCH", "not an epoch"]),
    (&["run", "e"], &["CMD"]),
    (&["run", "e", "--"], &["CMD"]),
    (&["run", "e", "--", ""], &["CMD"]),
    (&["run", "e", "--stop-timeout", "6s", "--", "true"], &["--stop-timeout 6s", "--ttl 10s"]),
    (&["run", "e", "--margin", "4s", "--", "true"], &["--margin 4s", "--ttl 10s"]),
    (&["run", "e", "--stop-timeout", "-1s", "--", "true"], &["'-1s' for '--stop-timeout", "minus"]),
    (
        &["run", "e", "--restart-delay", "-1s", "--", "true"],
        &["'-1s' for '--restart-delay", "minus"],
    ),
    (&["run", "e", "--max-memory", "-5", "--", "true"], &["'-5' for '--max-memory", "1.."]),
    (&["run", "e", "--restart-delay", "soon", "--", "true"], &["--restart-delay", "unit"]),
    (&["run", "e", "--events", "/nowhere/x", "--", "true"], &["--events /nowhere/x"]),
    (
        &["run", "e", "--events", "/dev/full", "--", "true"],
        &["--events /dev/full cannot be written (No space left on device"],
    ),
    (
        &["run", "e", "--events", "/", "--", "true"],
        &["--events / cannot be written (Is a directory"],
    ),
    (&["run", "e", "--component"], &["--component"]),
    (&["run", "e", "--component", "/nowhere"], &["--component /nowhere cannot be read", "give"]),
    (&["run", "e", "--component", "/etc/hostname"], &["is not WebAssembly", "wasm32-wasip2"]),
    (&["run", "e", "--component", "/nowhere", "--isolate"], &["--component", "--isolate"]),
    (&["run", "e", "--dir", ".", "--", "true"], &["--dir", "--component FILE"]),
    (&["run", "e", "--allow-network", "--", "true"], &["--allow-network", "--component FILE"]),
    (&["run", "e", "--component", "x", "--dir", "/nowhere"], &["--dir /nowhere cannot be opened"]),
    (&["run", "e", "--component", "x", "--dir", "::/data"], &["--dir", "HOST::GUEST"]),
    (&["run", "e", "--component", "x", "--dir", "/data::"], &["--dir", "HOST::GUEST"]),
    (&["run", "e", "--component", "x", "--env", "=x"], &["--env", "NAME=VALUE"]),
    (&["run", "e", "--component", "x", "--env", "NOT_SET"], &["--env", "NOT_SET=VALUE"]),
    (&["run", "e", "--component", "x", "--env", "INCUMBENT_EPOCH=1"], &["--env", "another name"]),
    (&["run", "e", "--component", "x", "--allow-keys", ""], &["--allow-keys", "every key"]),
    (&["run", "e", "--component", "x", "--allow-keys", "e"], &["--allow-keys e ", "e-data/"]),
    (&["run", "e", "--component", "x", "--allow-keys", "e/"], &["--allow-keys e/", "e-data/"]),
    (&["run", "e", "--component", "x", "--allow-keys", "e/data/"], &["--allow-keys e/data/"]),
    (&["run", "a/b", "--component", "x", "--allow-keys", "a/"], &["--allow-keys a/", "a/b-data/"]),
    (
        &["run", "e", "--component", "x", "--allow-keys", "ok/", "--allow-keys", "e/"],
        &["--allow-keys e/", "beside"],
    ),
];

#[test]
fn each_is_one_sentence_with_its_mend() {
    for (arguments, says) in TABLE {
        assert_sentence(arguments, says);
    }
}

#[test]
fn what_is_too_long() {
    assert_sentence(&["campaign", &"n".repeat(1025)], &["1025 bytes", "at most 1024"]);
    let value = "v".repeat(4097);
    assert_sentence(&["campaign", "e", "--value", &value], &["--value", "4096"]);
    assert_sentence(&["campaign", "e", "--id", &value], &["--id", "4096"]);
}

#[test]
fn a_password_file_without_a_password() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("empty");
    fs::write(&file, "\n").unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["leader", "e", "--user", "a", "--password-file", file];
    assert_sentence(&arguments, &["--password-file", "first line is empty"]);
}

/// Such a file is read again and again: the first look would take all that is in a pipe, or
/// wait for whoever fills it.
#[test]
fn a_pipe_is_no_credential() {
    let directory = TempDir::new().unwrap();
    let pipe = directory.path().join("pipe");
    mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
    let pipe = pipe.to_str().unwrap();
    for flag in ["--cacert", "--cert", "--key"] {
        let arguments = ["leader", "e", "--store", "etcds://h", flag, pipe];
        assert_sentence(&arguments, &[flag, pipe, "is a pipe", "give a regular file"]);
    }
    let login = ["leader", "e", "--user", "a", "--password-file"];
    assert_sentence(&[&login[..], &[pipe]].concat(), &["--password-file", pipe, "is a pipe"]);
    let device = "/dev/zero";
    assert_sentence(&[&login[..], &[device]].concat(), &[device, "is not a regular file"]);
}

#[test]
fn a_password_that_everybody_may_read_is_said_once() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("password");
    write_secret(&file, "secret\n");
    let path = file.to_str().unwrap();
    let login = ["--store", "etcd://127.0.0.1:1", "--user", "a", "--password-file", path];
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

/// Nor may it hold up whoever has work to look after.
#[test]
fn events_for_a_pipe_that_nobody_reads() {
    let directory = TempDir::new().unwrap();
    let pipe = directory.path().join("pipe");
    mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
    let pipe = pipe.to_str().unwrap();
    let arguments = ["run", "e", "--events", pipe, "--", "true"];
    assert_sentence(&arguments, &["--events", pipe, "nobody reads", "start its reader"]);
}

#[test]
fn an_answer_needs_a_standard_output() {
    let shell = |line: &str, arguments: &[&str]| {
        let program = incumbent(arguments);
        let mut command = Command::new("sh");
        command.args(["-c", line]).arg(program.get_program()).args(program.get_args());
        command.args(["--store", "memory:"]);
        end(command)
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
        let closed = shell("exec \"$0\" \"$@\" >&-", arguments).expect(2);
        assert!(closed.stderr.contains("standard output is closed"), "{closed:?}");
        assert_eq!(closed.stderr.lines().count(), 1, "{closed:?}");
    }
    let full = shell("exec \"$0\" \"$@\" >/dev/full", &["observe", "e"]).expect(2);
    assert!(full.stderr.contains("standard output cannot be written"), "{full:?}");
    // As Python's DEVNULL is.
    shell("exec \"$0\" \"$@\" 1<>/dev/null", &["leader", "e"]).expect(1);
}

#[test]
fn no_hidden_command_is_told() {
    for arguments in [&[][..], &["run-gard"], &["--help"]] {
        let end = end(incumbent(arguments));
        let told = end.stdout + &end.stderr;
        for hidden in ["run-guard", "run-init", "run-probe"] {
            assert!(!told.contains(hidden), "{arguments:?}: {told}");
        }
    }
}

#[test]
fn a_variable_is_as_bad_as_its_flag() {
    let mut command = incumbent(["campaign", "e"]);
    command.env("INCUMBENT_TTL", "0");
    let bad = end(command).expect(2);
    assert!(bad.stderr.contains("--ttl"), "{bad:?}");
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
        // There is no store: it would be 4 if one were asked.
        let end = end(incumbent(["run", "e", "--store", "etcd://127.0.0.1:1", "--", command]));
        let end = end.expect(status);
        assert!(end.stderr.contains(says) && end.stderr.contains(command), "{end:?}");
        assert_eq!(end.stderr.lines().count(), 1, "{end:?}");
    }
    let mut in_path = incumbent(["run", "e", "--store", "etcd://127.0.0.1:1", "--", "data"]);
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
        let line =
            format!("ulimit -u {threads}; exec {} leader e --store {store}", program.display());
        let mut command = Command::new("bash");
        if rustix::process::geteuid().is_root() {
            command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--clear-groups", "bash"]);
        }
        command.args(["-c", &line]);
        let end = end(command);
        println!("{threads} threads: {}", end.status);
        if threads > 2 && end.status == 1 {
            continue;
        }
        let end = end.expect(2);
        assert!(end.stderr.contains("ulimit -u"), "{end:?}");
        assert_eq!(end.stderr.lines().count(), 1, "{end:?}");
    }
}

#[test]
fn where_few_files_can_be_opened_a_sentence_says_so() {
    for files in [4, 5, 8, 12, 16, 20, 30, 40, 60] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" leader e --store memory:")]);
        command.arg(env!("CARGO_BIN_EXE_incumbent"));
        let end = end(command);
        println!("{files} files: {}", end.status);
        if files > 30 {
            end.expect(1);
            continue;
        }
        let end = end.expect(2);
        assert!(end.stderr.contains("ulimit -n"), "{end:?}");
        assert_eq!(end.stderr.lines().count(), 1, "{end:?}");
    }
}

#[test]
fn where_too_few_files_can_be_opened_a_sentence_says_so() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}", directory.path().join("store.db").display());
    let limited = |files: usize| {
        let mut command = Command::new("bash");
        command.args(["-c", "ulimit -n $1; shift; exec \"$@\"", "bash", &files.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_incumbent"));
        command.args(["leader", "e", "--store", &store]);
        end(command)
    };
    for files in [12, 16, 20] {
        let end = limited(files).expect(2);
        assert!(end.stderr.contains("too few files"), "{files}: {end:?}");
        assert!(end.stderr.contains("ulimit -n"), "{files}: {end:?}");
        assert_eq!(end.stderr.lines().count(), 1, "{files}: {end:?}");
    }
    assert!(!directory.path().join("store.db").exists(), "nothing is left behind");
    // With enough of them nobody leads.
    limited(64).expect(1);
}

/// No instant is that far away.
#[test]
fn the_longest_time_out_is_none_too_long() {
    let store = ["--store", "etcd://127.0.0.1:1", "--dial-timeout", "18446744073709551615s"];
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
    let end = end(incumbent(arguments)).expect(2);
    assert_eq!(end.stdout, "", "{arguments:?}");
    assert_eq!(end.stderr.lines().count(), 1, "{arguments:?}: {end:?}");
    assert!(end.stderr.starts_with("incumbent: "), "{arguments:?}: {end:?}");
    assert!(!end.stderr.contains("secret"), "{arguments:?}: {end:?}");
    for part in says {
        assert!(end.stderr.contains(part), "{arguments:?}: no {part:?} in {end:?}");
    }
}
