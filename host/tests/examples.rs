//! The examples, run as their first lines say.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

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
