//! The demonstration: as a story, and in a terminal.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

use std::fs;
use std::process::Command;

use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::program::{
    Running, Terminal, children, end, eventually, is_alive, kill, path_of, until, without_variables,
};
use rustix::process::Signal;
use tempfile::TempDir;

fn demo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    without_variables(Command::new(path_of("incumbent-demo")), arguments)
}

fn on<'a>(etcd: &Etcd, arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = demo(arguments);
    command.env("INCUMBENT_STORE", etcd.url());
    command
}

#[test]
fn the_story_is_told_and_true() {
    let etcd = Etcd::start(Version::V3_5);
    let directory = TempDir::new().unwrap();
    let picture = directory.path().join("story.svg");
    let mut command = on(&etcd, ["--script", "--ttl", "3s", "--svg"]);
    command.arg(&picture);
    let told = end(command).expect(0).stdout;
    is_the_story(&told);
    // Nothing is left of it.
    assert_eq!(keys(&etcd), "");
    assert_eq!(etcd.etcdctl(&["lease", "list"]).trim(), "found 0 leases");

    let drawing = fs::read_to_string(&picture).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"), "{drawing}");
    for part in [
        ">ada is stopped: ben leads ",
        ">ben is killed: cleo leads ",
        ">cleo is paused: ada leads ",
    ] {
        assert!(drawing.contains(part), "{part}: {drawing}");
    }
    assert!(drawing.contains(">write refused<"), "{drawing}");
}

#[test]
fn without_a_store_it_is_played_on_this_machine() {
    let directory = TempDir::new().unwrap();
    let mut command = demo(["--script"]);
    command.env("XDG_STATE_HOME", directory.path());
    let told = end(command).expect(0).stdout;
    is_the_story(&told);
    let file = directory.path().join("incumbent/local.db");
    assert!(told.contains(&format!("for this machine only, in {}", file.display())), "{told}");
}

/// In this order.
#[track_caller]
fn is_the_story(told: &str) {
    let mut rest = told;
    for part in [
        "ada leads in epoch ",
        "ada is asked to stop (SIGTERM), leading",
        "ben leads in epoch ",
        " ms after ada was asked to stop",
        "ben is killed (SIGKILL), leading",
        "cleo leads in epoch ",
        " ms after ben was killed",
        "cleo is paused (SIGSTOP), leading",
        "ada leads in epoch ",
        " ms after cleo was paused",
        "cleo wakes up (SIGCONT)",
        "The store refuses cleo's write in epoch ",
        "What was observed is as promised:",
        "4 terms, and each epoch above the one before",
        "never two at once",
        "no write in a dead epoch was made",
        "the counter in the store says ",
    ] {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("no {part:?} in {told}"));
        rest = after;
    }
    // At about the same time as something else.
    for part in ["ada has ended", "cleo knows that epoch ", "cleo is back in line"] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    assert!(!told.contains('\x1b'), "{told}");
}

#[test]
fn bad_usage_is_told_in_a_sentence() {
    for (arguments, parts) in [
        (&[][..], ["needs a terminal", "`just demo --script`"]),
        (&["--svg", "/nowhere.svg"], ["--svg", "add --script"]),
        (&["--script", "--svg", "/no/where.svg"], ["/no/where.svg cannot be written", "give"]),
        (&["--script", "--store", "memory:"], ["--store memory:", "leave it out"]),
        (&["--script", "--store", "localhost:2379"], ["--store", "etcd://127.0.0.1:2379"]),
        (&["--script", "--store", "etcd://u:secret@h"], ["--store", "etcd://…@h"]),
        (&["--script", "--contest", "race"], ["--contest", "--help"]),
        (&["--ttl", "-1s"], ["'-1s' for '--ttl", "leave out the minus"]),
        (&["--ttl", "0"], ["--ttl", "2s or more"]),
        (&["--ttl", "3"], ["--ttl", "unit"]),
        (&["candidate"], ["'candidate'", "--help"]),
    ] {
        let refused = end(demo(arguments.iter().copied())).expect(2);
        assert_eq!(refused.stdout, "", "{refused:?}");
        assert!(refused.stderr.starts_with("incumbent-demo: "), "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        for part in parts {
            assert!(refused.stderr.contains(part), "no {part:?} in {refused:?}");
        }
        assert!(!refused.stderr.contains("secret"), "{refused:?}");
    }
    let unreachable = ["--script", "--store", "etcd://127.0.0.1:1"];
    let refused = end(demo(unreachable)).expect(4);
    assert!(refused.stderr.contains("no etcd answers at 127.0.0.1:1"), "{refused:?}");
    let help = end(demo(["--help"])).expect(0).stdout;
    assert!(help.contains("--svg") && !help.contains("candidate "), "{help}");
}

#[test]
fn an_interrupted_story_is_none_and_leaves_nothing() {
    let etcd = Etcd::start(Version::V3_5);
    let mut demo = Running::start(on(&etcd, ["--script"]));
    let candidate = candidate(&demo);
    demo.signal(Signal::TERM);
    assert_eq!(demo.wait(), 128 + 15);
    assert!(!is_alive(candidate));
    assert_eq!(keys(&etcd), "");
}

#[test]
fn candidates_do_not_outlive_the_demonstration() {
    let etcd = Etcd::start(Version::V3_5);
    let demo = Running::start(on(&etcd, ["--script"]));
    let candidate = candidate(&demo);
    let others = children(demo.pid());
    assert!(others.iter().any(|(pid, _)| *pid == candidate), "{others:?}");
    demo.signal(Signal::KILL);
    until("all of them end", || !others.iter().any(|(pid, _)| is_alive(*pid)));
}

/// The process of the first candidate.
#[track_caller]
fn candidate(demo: &Running) -> i32 {
    demo.stdout.find("a candidate in line", |line| {
        line.split_once("is in line (process ")?.1.strip_suffix(')')?.parse().ok()
    })
}

#[test]
fn keys_act_and_the_terminal_is_given_back() {
    let etcd = Etcd::start(Version::V3_5);
    let mut terminal = in_terminal(&etcd);
    until("three are in line", || candidates(&etcd) == 3);
    // A waiting one is stopped, a leader killed, and two are brought back in.
    terminal.type_in("3s");
    until("two are left", || candidates(&etcd) == 2);
    terminal.type_in("a");
    until("three are there again", || candidates(&etcd) == 3);
    terminal.type_in("1k");
    until("its lease has run out", || candidates(&etcd) == 2);
    // The lease of one that is killed at the end is not waited for.
    terminal.type_in("2kq");
    let modes = terminal.line_with("before: ");
    terminal.line_with("What was observed is as promised:");
    let after = terminal.line_with("after 0: ");
    assert_eq!(modes.replace("before: ", ""), after.replace("after 0: ", ""));
    assert_eq!(terminal.wait(), 0);
    assert_eq!(keys(&etcd), "");
}

#[test]
fn a_signal_gives_the_terminal_back_as_well() {
    let etcd = Etcd::start(Version::V3_5);
    let mut terminal = in_terminal(&etcd);
    until("three are in line", || candidates(&etcd) == 3);
    let demo = eventually("the demonstration is found", || demonstration(terminal.pid()));
    kill(demo, Signal::TERM);
    let modes = terminal.line_with("before: ");
    let after = terminal.line_with("after 0: ");
    assert_eq!(modes.replace("before: ", ""), after.replace("after 0: ", ""));
    assert_eq!(terminal.wait(), 0);
    assert_eq!(keys(&etcd), "");
}

/// The demonstration on a terminal, whose modes are told before and after it.
fn in_terminal(etcd: &Etcd) -> Terminal {
    let program = env!("CARGO_BIN_EXE_incumbent-demo");
    let line = format!(
        "stty rows 24 cols 80; echo before: $(stty -g); {program}; status=$?; \
         echo; echo after $status: $(stty -g)"
    );
    Terminal::start(etcd, &line)
}

/// Who is in line in the only election.
fn candidates(etcd: &Etcd) -> usize {
    keys(etcd).lines().filter(|key| key.starts_with("demo-") && key.contains('/')).count()
}

fn keys(etcd: &Etcd) -> String {
    etcd.etcdctl(&["get", "--prefix", "--keys-only", ""])
}

/// The process that has started candidates, below this one.
fn demonstration(above: i32) -> Option<i32> {
    let below = children(above);
    let is_it = |pid: i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.ends_with(b"/incumbent-demo\0")
    };
    below.iter().find_map(|(pid, _)| if is_it(*pid) { Some(*pid) } else { demonstration(*pid) })
}
