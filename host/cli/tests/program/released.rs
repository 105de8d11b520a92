//! The program of the last release and this one, in the same elections: `just released`.

use super::*;

incumbent_tests::on_an_etcd!(both_stand_in_one_queue_on_etcd);

/// The program of the last release, if there is one.
fn released() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("INCUMBENT_RELEASED").map(Into::into);
    if path.is_none() {
        eprintln!("skipped: INCUMBENT_RELEASED names no program of an earlier release");
    }
    path
}

fn both_stand_in_one_queue_on_etcd(etcd: Etcd) {
    take_turns(&etcd.url());
}

#[test]
fn both_stand_in_one_queue_in_a_file() {
    let directory = TempDir::new().unwrap();
    take_turns(&format!("sqlite:{}/elections", directory.path().display()));
}

/// Old and new wait for each other, and each understands what the other has left in the store.
fn take_turns(store: &str) {
    let Some(released) = released() else { return };
    let old = |arguments: &[&str]| {
        let mut command = Command::new(&released);
        command.args(arguments).args(["--store", store, "-o", "json"]);
        command
    };
    let new = |arguments: &[&str]| {
        let mut command = incumbent(arguments);
        command.args(["--store", store, "-o", "json"]);
        command
    };
    let campaign = ["campaign", "my-service", "--ttl", "3s"];
    let first = Running::start(old(&campaign));
    let epoch = first.event("elected")["epoch"].as_i64().unwrap();
    let second = Running::start(new(&campaign)).once("joined");
    let third = Running::start(old(&campaign)).once("joined");
    for program in [old(&["candidates", "my-service"]), new(&["candidates", "my-service"])] {
        assert_eq!(end(program).expect(0).stdout.lines().count(), 3);
    }
    let fence = format!("my-service:{epoch}");
    end(new(&["put", "data/by-new", "1", "--fence", &fence])).expect(0);
    first.stop();

    let elected = second.event("elected")["epoch"].as_i64().unwrap();
    assert!(elected > epoch, "{elected} after {epoch}");
    end(old(&["put", "data/by-old", "2", "--fence", &fence])).expect(3);
    let fence = format!("my-service:{elected}");
    end(old(&["put", "data/by-old", "2", "--fence", &fence])).expect(0);
    // Its lease runs out.
    second.signal(Signal::KILL);
    let last = third.event("elected")["epoch"].as_i64().unwrap();
    assert!(last > elected, "{last} after {elected}");
    third.stop();
    end(new(&["get", "data/by-old"])).expect(0);
    end(new(&["candidates", "my-service"])).expect(1);
}
