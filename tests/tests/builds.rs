//! wasmtime is a compiler, and most of what a build takes: the tests, the program and the demonstration
//! share one. `tests/workspace-hack` sees to that.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// What `just test`, `just run` and `just demo` build.
const BUILDS: [&str; 3] = [
    "test --workspace --all-features --no-run",
    "build --package incumbent-cli --package workspace-hack",
    "build --package incumbent-demo --package workspace-hack",
];

#[test]
fn wasmtime_is_compiled_once() {
    let mut ways = BTreeMap::<String, BTreeSet<String>>::new();
    for build in BUILDS {
        let units = units(build);
        let mut below: BTreeSet<usize> = BTreeSet::new();
        let mut next: Vec<usize> =
            (0..units.len()).filter(|unit| name(&units[*unit]) == "wasmtime build").collect();
        assert!(!next.is_empty(), "cargo {build} builds wasmtime");
        while let Some(unit) = next.pop() {
            if below.insert(unit) {
                let needs = units[unit]["dependencies"].as_array().expect("units");
                next.extend(
                    needs.iter().filter_map(|unit| unit["index"].as_u64()).map(|at| at as usize),
                );
            }
        }
        for unit in below.into_iter().map(|unit| &units[unit]) {
            let mut profile = unit["profile"].clone();
            profile["name"].take();
            let version = format!("{} {}", unit["pkg_id"], name(unit));
            ways.entry(version).or_default().insert(format!("{} {profile}", unit["features"]));
        }
    }
    ways.retain(|_, ways| ways.len() > 1);
    assert!(
        ways.is_empty(),
        "wasmtime is compiled more than once, because these crates below it are built with more than \
         one set of features or profile: name all features in tests/workspace-hack/Cargo.toml\n{ways:#?}"
    );
}

/// The units of a build. Cargo prints them only with an unstable option.
fn units(build: &str) -> Vec<Value> {
    let cargo = Command::new(env!("CARGO"))
        .args(build.split(' '))
        .args(["--offline", "--locked", "--unit-graph", "-Zunstable-options"])
        .env("RUSTC_BOOTSTRAP", "1")
        .output()
        .expect("cargo runs");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let mut graph: Value = serde_json::from_slice(&cargo.stdout).expect("a graph");
    serde_json::from_value(graph["units"].take()).expect("units")
}

fn name(unit: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&unit["target"]["name"]), text(&unit["mode"]))
}
