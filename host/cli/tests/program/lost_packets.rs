//! The program on a cluster whose packets are dropped, in a network of their own.

use std::path::Path;

use incumbent_tests::netns::Network;

use super::*;

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
    let leader = candidate(&network, "one");
    leader.event("elected");
    let _waiter = candidate(&network, "two");
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
        let renewals = leader.stdout.count("extended");
        until("it is renewed", || leader.stdout.count("extended") >= renewals + 3);
        assert_eq!(leader.stdout.count("demoted"), 0, "{faults:?}");
    }
    // What these rules can do.
    network.drop_packets(&["tcp dport { 2379, 2389, 2399 }"]);
    leader.event("demoted");
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
        Running::start(etcd)
    });
    let members = members.collect();
    let endpoints = STORE.trim_start_matches("etcd://");
    let health = || {
        let mut etcdctl = network.command(programs.join("etcdctl"));
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", endpoints, "endpoint", "health"]);
        etcdctl.output().unwrap()
    };
    until("all members are healthy", || health().status.success());
    members
}

fn candidate(network: &Network, id: &str) -> Running {
    let mut program = network.command(env!("CARGO_BIN_EXE_incumbent"));
    program.args(["campaign", "office", "--id", id, "--ttl", "3s", "-o", "json"]);
    program.args(["--store", STORE]).stdin(Stdio::null());
    Running::start(program)
}
