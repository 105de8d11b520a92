//! The program on a cluster whose packets are dropped, in a network of their own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "these are tests")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use incumbent_tests::etcd::Version;
use incumbent_tests::netns::Network;
use tempfile::TempDir;

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);
const STORE: &str = "etcd://127.0.0.1:2379,127.0.0.1:2389,127.0.0.1:2399";

incumbent_tests::on_each_version!(lost_packets_cost_no_leadership);

/// Rows 7, 21 and 23.
fn lost_packets_cost_no_leadership(version: Version) {
    let network = match Network::open() {
        Ok(network) => network,
        Err(reason) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: {reason}");
            return;
        }
        Err(reason) => panic!("{reason}"),
    };
    let directory = TempDir::new().unwrap();
    let _members = members(&network, version, directory.path());
    let events = directory.path().join("events");
    let leader = candidate(&network, "one", &events);
    wait_for(&events, "elected", 1);
    let waiter = candidate(&network, "two", &directory.path().join("waits"));
    let lossy = "numgen random mod 100 < 1";
    for faults in [
        &[lossy][..],
        // The member that it is connected to, and that nobody can connect to.
        &[lossy, "tcp dport 2379"],
        &[],
        &["tcp sport 2389"],
        &[lossy, "tcp dport 2399", "tcp sport 2399"],
    ] {
        network.drop_packets(faults);
        // Two renewals may have been under way.
        let renewals = count(&events, "extended");
        wait_for(&events, "extended", renewals + 3);
        assert_eq!(count(&events, "demoted"), 0, "{faults:?}\n{}", said(&events));
    }
    // What these rules can do.
    network.drop_packets(&["tcp dport { 2379, 2389, 2399 }"]);
    wait_for(&events, "demoted", 1);
    drop((leader, waiter));
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three members, once they are healthy.
fn members(network: &Network, version: Version, directory: &Path) -> Vec<Running> {
    let programs = version.programs();
    let local = |port: usize| format!("http://127.0.0.1:{port}");
    let all: Vec<_> = (0..3).map(|at| format!("member-{at}={}", local(2380 + 10 * at))).collect();
    let members = (0..3).map(|at| {
        let (client, peer) = (local(2379 + 10 * at), local(2380 + 10 * at));
        let mut etcd = network.command(programs.join("etcd"));
        etcd.arg("--data-dir")
            .arg(directory.join(format!("member-{at}")))
            .args(["--name", &format!("member-{at}"), "--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(",")]);
        start(&mut etcd, &directory.join("etcd.log"))
    });
    let members = members.collect();
    let since = Instant::now();
    let endpoints = STORE.trim_start_matches("etcd://");
    let health = || {
        let mut etcdctl = network.command(programs.join("etcdctl"));
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", endpoints, "endpoint", "health"]);
        etcdctl.output().unwrap()
    };
    while !health().status.success() {
        assert!(since.elapsed() < PATIENCE, "{}", said(&directory.join("etcd.log")));
        sleep(Duration::from_millis(50));
    }
    members
}

fn candidate(network: &Network, id: &str, events: &Path) -> Running {
    let mut program = network.command(env!("CARGO_BIN_EXE_incumbent"));
    program.args(["campaign", "office", "--id", id, "--ttl", "3s", "-o", "json"]);
    start(program.args(["--store", STORE]), events)
}

fn start(command: &mut Command, output: &Path) -> Running {
    let output = File::options().create(true).append(true).open(output).unwrap();
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
    Running(command.spawn().unwrap())
}

fn said(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn count(events: &Path, event: &str) -> usize {
    said(events).matches(&format!("{{\"event\":\"{event}\"")).count()
}

fn wait_for(events: &Path, event: &str, times: usize) {
    let since = Instant::now();
    while count(events, event) < times {
        assert!(since.elapsed() < PATIENCE, "{event}\n{}", said(events));
        sleep(Duration::from_millis(20));
    }
}
