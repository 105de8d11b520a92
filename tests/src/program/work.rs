//! `incumbent run`, the work that it is given, and what that leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use super::{Running, on, path, pid_in};
use crate::etcd::Etcd;

/// How far beyond its leadership work may be found, on a machine that is busy. Printed is
/// what it was; the promise is that there is nothing.
pub const BUSY: Duration = Duration::from_secs(1);

/// `incumbent run ELECTION` with a lease of two seconds, unless `more` says
/// otherwise.
pub fn run(etcd: &Etcd, election: &str, more: &[&str]) -> Command {
    let mut command = on(etcd, ["run", election]);
    if !more.contains(&"--ttl") {
        command.args(["--ttl", "2s"]);
    }
    command.args(more);
    command
}

/// A script that works, and a directory where it leaves its traces.
#[derive(Debug)]
pub struct Work {
    pub script: String,
    directory: TempDir,
}

impl Work {
    pub fn new(script: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let script = format!("cd '{}'; {script}", directory.path().display());
        Self { script, directory }
    }

    pub fn command(&self, etcd: &Etcd, more: &[&str]) -> Command {
        let mut command = run(etcd, "my-service", more);
        command.arg("--events").arg(self.path("events"));
        command.args(["--", "sh", "-c", &self.script]);
        command
    }

    /// Starts it, and waits until it has written its process id into `child`.
    #[track_caller]
    pub fn start(&self, etcd: &Etcd, more: &[&str]) -> (Running, i32) {
        let running = Running::start(self.command(etcd, more));
        (running, self.pid("child"))
    }

    /// For a shell.
    pub fn line(&self, more: &[&str]) -> String {
        let script = self.path("script");
        fs::write(&script, &self.script).unwrap();
        let ttl = if more.contains(&"--ttl") { "" } else { "--ttl 2s" };
        format!(
            "{} run my-service {ttl} {} -- sh {}",
            path().display(),
            more.join(" "),
            script.display()
        )
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    #[track_caller]
    pub fn pid(&self, name: &str) -> i32 {
        pid_in(&self.path(name))
    }

    /// Of work that goes on writing `beat`, and is dead.
    #[track_caller]
    pub fn expect_an_end_in_time(&self) {
        let last = fs::metadata(self.path("beat")).unwrap().modified().unwrap();
        let limit = last_valid(&self.events());
        println!("{:?} late", last.duration_since(limit).unwrap_or_default());
        assert!(last <= limit + BUSY, "{:?} late", last.duration_since(limit));
    }

    pub fn events(&self) -> Vec<Value> {
        events_in(&self.path("events"))
    }

    /// Its events of this name.
    pub fn events_of(&self, name: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == name).collect()
    }
}

pub fn events_in(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// When the last leadership among these events ended at the latest, by the wall
/// clock.
pub fn last_valid(events: &[Value]) -> SystemTime {
    let until = |event: &Value| {
        let remaining = event["remaining_ms"].as_u64()?;
        // Both are cut to a millisecond.
        Some(time(event) + Duration::from_millis(remaining + 2))
    };
    events.iter().filter_map(until).max().unwrap()
}

pub fn time(event: &Value) -> SystemTime {
    humantime::parse_rfc3339(event["time"].as_str().unwrap()).unwrap()
}
