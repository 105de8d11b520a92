//! The program on a cluster whose packets are dropped, in a network of their own.

use incumbent_tests::cluster::Cluster;
use incumbent_tests::netns;

use super::*;

incumbent_tests::on_each_version!(lost_packets_cost_no_leadership);

/// Rows 7, 21 and 23.
async fn lost_packets_cost_no_leadership(version: Version) {
    if netns::is_inside() {
        return lose_packets(version).await;
    }
    match netns::this_program_inside() {
        Ok(mut program) => {
            let test = format!("lost_packets::{version:?}::lost_packets_cost_no_leadership");
            program.args([&test.to_lowercase(), "--exact"]);
            let ended = end(program).expect(0);
            assert!(ended.stdout.contains("1 passed"), "{ended:?}");
        }
        Err(reason) if std::env::var_os("CI").is_none() => eprintln!("skipped: {reason}"),
        Err(reason) => panic!("{reason}"),
    }
}

async fn lose_packets(version: Version) {
    let cluster = Cluster::start(version, 3).await;
    let [first, second, third] = [0, 1, 2].map(|member| cluster.address(member).port());
    let leader = candidate(&cluster, "one").once("elected");
    let _waiter = candidate(&cluster, "two");
    let lossy = "numgen random mod 100 < 1";
    for faults in [
        &[lossy][..],
        // The member that it is connected to, and that nobody can connect to.
        &[lossy, &format!("tcp dport {first}")],
        &[],
        &[&format!("tcp sport {second}")],
        &[lossy, &format!("tcp dport {third}"), &format!("tcp sport {third}")],
    ] {
        netns::lose_packets(faults);
        // Two renewals may have been under way.
        let renewals = leader.stdout.count("extended");
        until("it is renewed", || leader.stdout.count("extended") >= renewals + 3);
        assert_eq!(leader.stdout.count("demoted"), 0, "{faults:?}");
    }
    // What these rules can do.
    netns::lose_packets(&[&format!("tcp dport {{ {first}, {second}, {third} }}")]);
    leader.event("demoted");
}

fn candidate(cluster: &Cluster, id: &str) -> Running {
    let arguments = ["campaign", "jobs", "--id", id, "--ttl", "3s", "-o", "json", "--store"];
    Running::start(incumbent(arguments.into_iter().chain([cluster.url().as_str()])))
}
