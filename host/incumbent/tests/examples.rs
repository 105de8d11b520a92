//! The examples, run as their first lines say.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::program::example;

#[test]
fn leader_works_until_interrupted_and_the_next_one_goes_on() {
    let etcd = Etcd::start(Version::V3_5);
    let observer = example(&etcd, "observe", &["my-service"]);
    observer.prints("nobody leads");

    let first = example(&etcd, "leader", &["my-service", "first"]);
    first.prints("step 1 of epoch");
    observer.prints("first leads in epoch");
    let second = example(&etcd, "leader", &["my-service", "second"]);
    second.prints("waiting to lead my-service");

    first.interrupt();
    second.prints("step 1 of epoch");
    observer.prints("second leads in epoch");
    second.interrupt();
    observer.prints("nobody leads");
}

#[test]
fn shards_are_shared_and_taken_over() {
    let etcd = Etcd::start(Version::V3_5);
    let first = example(&etcd, "shards", &["20"]);
    first.prints("leading 20 of 20");
    let second = example(&etcd, "shards", &["20"]);
    second.prints("leading 10 of 20");
    first.prints("leading 10 of 20");
    let third = example(&etcd, "shards", &["20", "--at-most-lead", "5"]);
    third.prints("leading 5 of 20");
    third.interrupt();
    first.interrupt();
    second.prints("leading 20 of 20");
    second.interrupt();
}

#[test]
fn a_paused_leaders_late_write_is_refused() {
    let etcd = Etcd::start(Version::V3_4);
    let mut writer = example(&etcd, "fenced_write", &[]);
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
        writer.prints(line);
    }
    assert_eq!(writer.wait(), 0);
    let result = etcd.etcdctl(&["get", "--print-value-only", "fenced-write-example-result"]);
    assert_eq!(result.trim_end(), "by the successor");
}
