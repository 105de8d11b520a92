//! Compares what is public in the published libraries with `tests/public-api`, or keeps it there:
//! `just api`, `just api --keep`.

use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};

/// As rustdoc names its files.
const LIBRARIES: [&str; 5] = [
    "incumbent",
    "incumbent_component",
    "incumbent_conformance",
    "incumbent_guest",
    "incumbent_plugin",
];

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (directory, keep) = match &arguments[..] {
        [directory] => (directory, false),
        [directory, flag] if flag == "--keep" => (directory, true),
        _ => bail!("give the directory of rustdoc's JSON, and perhaps --keep"),
    };
    let mut changed = false;
    for library in LIBRARIES {
        let json = Path::new(directory).join(format!("{library}.json"));
        let api = public_api::Builder::from_rustdoc_json(&json)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .with_context(|| format!("{} is not of the form that is known here", json.display()))?;
        let now: Vec<String> = api.items().map(ToString::to_string).collect();
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("public-api/{library}.txt"));
        if keep {
            fs::write(&kept, now.join("\n") + "\n").with_context(|| kept.display().to_string())?;
            continue;
        }
        let before = fs::read_to_string(&kept).with_context(|| kept.display().to_string())?;
        let before: Vec<&str> = before.lines().collect();
        for gone in before.iter().filter(|item| !now.iter().any(|other| other == *item)) {
            println!("- {gone}");
            changed = true;
        }
        for new in now.iter().filter(|item| !before.contains(&item.as_str())) {
            println!("+ {new}");
            changed = true;
        }
    }
    if changed {
        println!("The public API has changed. If that was intended, keep it: just api --keep");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
