//! The hosts in other languages, which hand an election over when they are told to.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use incumbent_tests::line_process::LineProcess;

/// Those that are set up.
pub fn all(url: &str) -> Result<Vec<LineProcess>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let (node, python) = (examples.join("node"), examples.join("python"));
    let mut hosts = Vec::new();
    if node.join("component").exists() {
        let mut command = Command::new("node");
        hosts.push(LineProcess::start("Node.js", command.arg(node.join("bench.mjs")).arg(url))?);
    }
    let interpreter = python.join(".venv/bin/python");
    if interpreter.exists() {
        let mut command = Command::new(interpreter);
        hosts.push(LineProcess::start("Python", command.arg(python.join("bench.py")).arg(url))?);
    }
    Ok(hosts)
}

/// From a resignation to the successor's election.
pub fn hand_over(host: &mut LineProcess) -> Result<Duration> {
    Ok(Duration::from_secs_f64(host.ask("")?.parse::<f64>()? / 1_000.0))
}
