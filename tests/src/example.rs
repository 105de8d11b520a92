//! The examples, as users run them.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Signal;

use crate::etcd::Etcd;
use crate::program::kill;

/// A running example, and what it prints. Killed at the end of the test.
#[derive(Debug)]
pub struct Example {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Example {
    /// Starts the example of this name, on this etcd.
    ///
    /// # Panics
    ///
    /// Where cargo has not built it.
    pub fn start(etcd: &Etcd, name: &str, arguments: &[&str]) -> Self {
        // Cargo builds the examples of a package with its tests, in `examples` beside `deps`.
        let test = env::current_exe().expect("a test");
        let built = test.ancestors().nth(2).expect("two directories");
        let mut process = Command::new(built.join("examples").join(name))
            .args(arguments)
            .env("INCUMBENT_STORE", etcd.url())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, output }
    }

    /// Reads on until a line begins like this, and returns it.
    ///
    /// # Panics
    ///
    /// If the example ends before.
    pub fn prints(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("readable");
            assert!(read > 0, "it ended before it printed `{beginning}`");
            if line.starts_with(beginning) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Sends SIGINT, and expects an orderly end.
    ///
    /// # Panics
    ///
    /// If its end is another one.
    pub fn interrupt(&mut self) {
        kill(i32::try_from(self.process.id()).expect("a process id"), Signal::INT);
        self.succeeds();
    }

    /// Waits for its end by itself.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn succeeds(&mut self) {
        assert!(self.process.wait().expect("ends").success());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
