//! `incumbent demo`: as a story, and in a terminal.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]


use std::fs;

use incumbent_tests::etcd::{Etcd, Version};
use rustix::process::Signal;
use incumbent_tests::program::{Running, Terminal, children, end, eventually, incumbent, is_alive, kill, on, until};
use tempfile::TempDir;

#[test]
fn the_story_is_told_and_true() {
    let etcd = Etcd::start(Version::V3_5);
    let directory = TempDir::new().unwrap();
    let picture = directory.path().join("story.svg");
    let mut command = on(&etcd, ["demo", "--script", "--ttl", "3s", "--svg"]);
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
    let mut command = incumbent(["demo", "--script"]);
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
fn without_a_terminal_there_is_the_script() {
    let refused = end(incumbent(["demo"])).expect(2);
    assert!(refused.stderr.contains("incumbent demo --script"), "{refused:?}");
    let refused = end(incumbent(["demo", "--svg", "/nowhere.svg"])).expect(2);
    assert!(refused.stderr.contains("add --script"), "{refused:?}");
    let refused = end(incumbent(["demo", "--script", "--svg", "/no/where.svg"])).expect(2);
    assert!(refused.stderr.contains("/no/where.svg cannot be written"), "{refused:?}");
    let refused = end(incumbent(["demo", "--script", "--store", "memory:"])).expect(2);
    assert!(refused.stderr.contains("leave it out"), "{refused:?}");
    let refused = end(incumbent(["demo", "--script", "--contest", "race"])).expect(2);
    assert!(refused.stderr.contains("leave it out"), "{refused:?}");
}

#[test]
fn an_interrupted_story_is_none_and_leaves_nothing() {
    let etcd = Etcd::start(Version::V3_5);
    let mut demo = Running::start(on(&etcd, ["demo", "--script"]));
    let candidate = candidate(&demo);
    demo.signal(Signal::TERM);
    assert_eq!(demo.wait(), 128 + 15);
    assert!(!is_alive(candidate));
    assert_eq!(keys(&etcd), "");
}

#[test]
fn candidates_do_not_outlive_the_demonstration() {
    let etcd = Etcd::start(Version::V3_5);
    let demo = Running::start(on(&etcd, ["demo", "--script"]));
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
    let program = env!("CARGO_BIN_EXE_incumbent");
    let line = format!(
        "stty rows 24 cols 80; echo before: $(stty -g); {program} demo; status=$?; \
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
        command.ends_with(b"\0demo\0")
    };
    below.iter().find_map(|(pid, _)| if is_it(*pid) { Some(*pid) } else { demonstration(*pid) })
}
