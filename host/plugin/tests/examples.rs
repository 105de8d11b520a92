//! The examples, run as their first lines say.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use incumbent_tests::application;
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::program::{example, until as eventually};

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
        example(&etcd, "platform", &arguments)
    };
    let get = |key: &str| etcd.etcdctl(&["get", "--print-value-only", key]).trim_end().to_owned();
    let strokes = || get("data/tally/count").len();
    let leader = |name: &str| {
        let all = ["get", "--prefix", name, "--sort-by=CREATE", "--limit=1", "--keys-only"];
        etcd.etcdctl(&all).trim_end().to_owned()
    };

    let first = platform("platform-1");
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
    second.interrupt();
    // Nothing was lost and nothing done twice: each write has added one stroke.
    let count = etcd.etcdctl(&["get", "data/tally/count", "--write-out=fields"]);
    let version = format!("\"Version\" : {}", strokes());
    assert!(count.lines().any(|line| line == version), "{version}: {count}");
}
