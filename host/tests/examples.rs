//! The examples, run as their first lines say.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

#[cfg(all(feature = "plugin", feature = "wasi"))]
use incumbent_tests::application;
use incumbent_tests::etcd::{Etcd, Version};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running example, and what it prints.
struct Example {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Example {
    fn start(etcd: &Etcd, name: &str, arguments: &[&str]) -> Example {
        // Cargo builds the examples of a package with its tests, beside the program.
        let programs = Path::new(env!("CARGO_BIN_EXE_incumbent")).parent().expect("a directory");
        let mut process = Command::new(programs.join("examples").join(name))
            .args(arguments)
            .env("INCUMBENT_STORE", etcd.url())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Example { process, output }
    }

    /// Reads on until a line begins like this, and returns it.
    fn prints(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("readable");
            assert!(read > 0, "it ended before it printed `{beginning}`");
            if line.starts_with(beginning) {
                return line.trim_end().to_owned();
            }
        }
    }

    fn interrupt(&mut self) {
        let pid = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("runs");
        assert!(self.process.wait().expect("ends").success());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn leader_works_until_interrupted_and_the_next_one_goes_on() {
    let etcd = Etcd::start(Version::V3_5);
    let mut observer = Example::start(&etcd, "observe", &["office"]);
    observer.prints("nobody leads");

    let mut first = Example::start(&etcd, "leader", &["office", "first"]);
    first.prints("step 1 of epoch");
    observer.prints("first leads in epoch");
    let mut second = Example::start(&etcd, "leader", &["office", "second"]);
    second.prints("waiting to lead office");

    first.interrupt();
    second.prints("step 1 of epoch");
    observer.prints("second leads in epoch");
    second.interrupt();
    observer.prints("nobody leads");
}

#[test]
fn a_paused_leaders_late_write_is_refused() {
    let etcd = Etcd::start(Version::V3_4);
    let mut example = Example::start(&etcd, "fenced_write", &[]);
    for line in [
        "sleeper leads in epoch",
        "sleeper wrote the result, and falls asleep",
        "successor leads in epoch",
        "successor wrote the result",
        "sleeper wakes up: is_valid() is false",
        "the fence refuses the sleeper's late write: stale",
        "the store refuses it as well, by its guard: stale",
        "sleeper was demoted: the deadline came before a renewal",
    ] {
        example.prints(line);
    }
    assert!(example.process.wait().expect("ends").success());
    let result = etcd.etcdctl(&["get", "--print-value-only", "fenced-write-example-result"]);
    assert_eq!(result.trim_end(), "by the successor");
}

#[cfg(all(feature = "plugin", feature = "wasi"))]
#[test]
fn a_platform_runs_each_component_only_where_it_leads() {
    let etcd = Etcd::start(Version::V3_5);
    let directory = tempfile::tempdir().expect("a directory");
    let mut arguments = vec!["".to_owned()];
    for (name, component) in [
        ("tally", application::tally()),
        ("spin", application::spin()),
        ("sprawl", application::sprawl()),
    ] {
        let file = directory.path().join(name).with_extension("wasm");
        std::fs::write(&file, component).expect("is written");
        arguments.push(format!("{name}={}", file.display()));
    }
    let platform = |identity: &str| {
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments[0] = identity;
        Example::start(&etcd, "platform", &arguments)
    };
    let get = |key: &str| etcd.etcdctl(&["get", "--print-value-only", key]).trim_end().to_owned();
    let strokes = || get("data/tally/count").len();
    let leader = |name: &str| {
        let all = ["get", "--prefix", name, "--sort-by=CREATE", "--limit=1", "--keys-only"];
        etcd.etcdctl(&all).trim_end().to_owned()
    };

    let mut first = platform("platform-1");
    first.prints("sprawl failed in epoch");
    eventually("both are at work", || strokes() > 3 && !get("data/spin/begun").is_empty());
    let second = platform("platform-2");
    eventually("both platforms are in line", || {
        ["tally/", "spin/"].iter().all(|name| {
            etcd.etcdctl(&["get", "--prefix", name, "--keys-only"]).split_whitespace().count() == 2
        })
    });

    // What computes without end is stopped as well, and runs where it leads next.
    etcd.etcdctl(&["del", "data/spin/begun"]);
    etcd.etcdctl(&["del", &leader("spin/")]);
    eventually("the other one spins", || !get("data/spin/begun").is_empty());

    // A platform that ends leaves its work to the other.
    let before = strokes();
    first.interrupt();
    eventually("the other one counts", || strokes() > before + 3);
    let mut second = second;
    second.interrupt();
    // Nothing was lost and nothing done twice: each write has added one stroke.
    let count = etcd.etcdctl(&["get", "data/tally/count", "--write-out=fields"]);
    let version = format!("\"Version\" : {}", strokes());
    assert!(count.lines().any(|line| line == version), "{version}: {count}");
}

#[cfg(all(feature = "plugin", feature = "wasi"))]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "not in time: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
