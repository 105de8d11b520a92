//! The hosts in other languages, which hand an election over when they are told to.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// A process that ends with its input.
pub struct Host {
    pub name: &'static str,
    process: Child,
    turns: Option<ChildStdin>,
    times: Lines<BufReader<ChildStdout>>,
}

impl Host {
    /// Those that are set up.
    pub fn all(url: &str) -> Result<Vec<Host>> {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let (node, python) = (examples.join("node"), examples.join("python"));
        let mut hosts = Vec::new();
        if node.join("component").exists() {
            let mut command = Command::new("node");
            hosts.push(Host::start("Node.js", command.arg(node.join("bench.mjs")).arg(url))?);
        }
        let interpreter = python.join(".venv/bin/python");
        if interpreter.exists() {
            let mut command = Command::new(interpreter);
            hosts.push(Host::start("Python", command.arg(python.join("bench.py")).arg(url))?);
        }
        Ok(hosts)
    }

    fn start(name: &'static str, command: &mut Command) -> Result<Host> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name} does not start"))?;
        let turns = process.stdin.take();
        let times = BufReader::new(process.stdout.take().context("piped")?).lines();
        Ok(Host { name, process, turns, times })
    }

    /// From a resignation to the successor's election.
    pub fn hand_over(&mut self) -> Result<Duration> {
        writeln!(self.turns.as_ref().context("it goes on")?)?;
        let time = self.times.next().with_context(|| format!("{} has ended", self.name))??;
        Ok(Duration::from_secs_f64(time.parse::<f64>()? / 1_000.0))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.turns.take());
        let _ = self.process.wait();
    }
}
