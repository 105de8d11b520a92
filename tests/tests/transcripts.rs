//! The transcripts of `tests/transcripts`, played natively and, with the feature
//! `component`, through wasm: the same steps, to the letter. And the same as data, in
//! `steps/` beside them. With all features, simulated runs are recorded in that form too, and held to the
//! model that is proved.
//!
//! `TRANSCRIPTS=rewrite cargo test -p incumbent-tests --test transcripts` writes the stories
//! anew, within a second: read the difference, and commit it only when you understand it.
//! With `--workspace --all-features` it writes the data as well.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use incumbent_tests::transcript::{Native, Subject, all, replay};

/// The story of answers to nothing.
const STRANGERS: &str = "duplicates_and_strangers";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

fn rewrites() -> bool {
    std::env::var_os("TRANSCRIPTS").is_some_and(|mode| mode == "rewrite")
}

fn says_what_was_said(subject: &mut dyn Subject) {
    let mut differ = Vec::new();
    let transcripts = all(&folder(), "txt");
    assert!(!transcripts.is_empty(), "there are transcripts");
    for (name, expected) in transcripts {
        let said = match replay(&expected, subject) {
            Ok(said) => said,
            Err(error) => {
                differ.push(format!("{name}.txt, {error}"));
                continue;
            }
        };
        if said != expected {
            if rewrites() {
                write(&folder().join(format!("{name}.txt")), &said);
            }
            differ.push(format!("{name}.txt, {}", first_difference(&expected, &said)));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

fn first_difference(expected: &str, said: &str) -> String {
    let (number, line) = said
        .lines()
        .enumerate()
        .find(|(number, line)| expected.lines().nth(*number) != Some(line))
        .unwrap_or((said.lines().count(), ""));
    format!("line {}: now `{line}`", number + 1)
}

/// Whole or not at all: another test may be reading.
fn write(path: &Path, text: &str) {
    let new = path.with_extension(format!("new-{:?}", std::thread::current().id()));
    std::fs::write(&new, text).expect("writable");
    std::fs::rename(&new, path).expect("writable");
}

/// Or else an event means nothing, and the story shows less than it says.
#[test]
fn each_answer_and_report_is_of_a_request() {
    for (name, story) in all(&folder(), "txt") {
        let mut asked = BTreeSet::new();
        for line in story.lines() {
            let call = line.strip_prefix("> call #").or(line.strip_prefix("> watch ~"));
            asked.extend(call.and_then(|rest| rest.split(' ').next()));
            let told = line.strip_prefix('#').or(line.strip_prefix('~'));
            let told = told.filter(|rest| rest.starts_with(|it: char| it.is_ascii_digit()));
            if let Some(id) = told.and_then(|rest| rest.split(' ').next())
                && name != STRANGERS
            {
                assert!(asked.contains(id), "{name}.txt answers what nobody has asked: {line}");
            }
        }
    }
}

#[test]
fn the_native_elector_says_what_it_said() {
    says_what_was_said(&mut Native::default());
}

#[test]
#[cfg(feature = "component")]
fn the_component_says_the_same() {
    let mut wasm = incumbent_tests::transcript::Wasm::embedded().expect("the component loads");
    says_what_was_said(&mut wasm);
}

/// One file of data for each story, as the component makes it now, and no other.
#[test]
#[cfg(feature = "component")]
fn the_data_tells_the_stories() {
    use std::collections::BTreeMap;

    let folder = folder().join("steps");
    let mut found: BTreeMap<_, _> = all(&folder, "jsonl").into_iter().collect();
    let mut differ = Vec::new();
    for (name, story) in all(&self::folder(), "txt") {
        let file = format!("{name}.jsonl");
        let recorded = match incumbent_tests::steps::recorded(&name, &story) {
            Ok(recorded) => recorded,
            Err(error) => {
                differ.push(format!("{name}.txt, {error}"));
                continue;
            }
        };
        match found.remove(&name) {
            Some(data) if data == recorded => continue,
            Some(data) => differ.push(format!("{file}, {}", first_difference(&data, &recorded))),
            None => differ.push(format!("{file} is missing")),
        }
        if rewrites() {
            write(&folder.join(file), &recorded);
        }
    }
    for name in found.keys() {
        differ.push(format!("{name}.jsonl belongs to no story"));
        if rewrites() {
            std::fs::remove_file(folder.join(format!("{name}.jsonl"))).expect("removable");
        }
    }
    let told = differ.join("\n");
    assert!(differ.is_empty(), "{told}\nTRANSCRIPTS=rewrite makes them from the stories");
}

/// As a host does that has nothing but the data and the component.
#[test]
#[cfg(feature = "component")]
fn the_data_is_enough_to_prove_a_host() {
    let mut elector = incumbent_tests::steps::Dynamic::embedded().expect("the component loads");
    let recorded = all(&folder().join("steps"), "jsonl");
    let reported = all(&folder().join("recorded"), "jsonl");
    assert!(!reported.is_empty(), "there are recordings");
    let all = recorded.iter().map(|(_, steps)| steps.as_str()).collect::<String>();
    let mut missing = elector.cases();
    missing.retain(|case| !all.contains(&format!("\"{case}\"")));
    assert!(missing.is_empty(), "no story has {missing:?}");
    let differ: Vec<_> = recorded
        .into_iter()
        .chain(reported)
        .filter_map(|(name, steps)| {
            let error = incumbent_tests::steps::replayed(&steps, &mut elector).err()?;
            Some(format!("{name}.jsonl, {error}"))
        })
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// What a simulation leaves for `incumbent replay`.
#[test]
#[cfg(feature = "component")]
fn a_simulation_leaves_recordings() {
    let plan = incumbent_simulation::plan::Plan::draw(7);
    let recorded = incumbent_simulation::record(&plan).expect("the component loads");
    assert_eq!(recorded.len(), plan.processes, "one for each process");
    let mut elector = incumbent_tests::steps::Dynamic::embedded().expect("the component loads");
    for (process, text) in recorded {
        assert!(text.lines().count() > 100, "process {process} takes part");
        incumbent_tests::steps::replayed(&text, &mut elector).expect("the same steps");
    }
}

/// What `tests/transcripts/README.md` explains.
#[test]
fn the_page_shows_a_whole_file() {
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).expect("readable");
    let (page, file) = (read("README.md"), read("steps/leaves_before_it_has_a_lease.jsonl"));
    let shown: Vec<_> = page.lines().filter(|line| line.starts_with("{\"")).collect();
    assert_eq!(shown, file.lines().collect::<Vec<_>>());
}

/// Hosts compare the number of files that they replay with these pages.
#[test]
fn every_page_gives_the_right_count() {
    let data = all(&folder().join("steps"), "jsonl").len();
    assert_eq!(data, all(&folder(), "txt").len(), "each story has one file of data");
    for page in ["README.md", "../../wit/README.md"] {
        let text = std::fs::read_to_string(folder().join(page)).expect("readable");
        let words: Vec<_> = text.split_whitespace().collect();
        let counts: Vec<_> = words
            .windows(2)
            .filter(|pair| pair[1].trim_end_matches(['.', ',', ':']) == "files")
            .filter_map(|pair| pair[0].parse::<usize>().ok())
            .collect();
        assert_eq!(counts, [data], "the number of files in tests/transcripts/{page}");
    }
}

/// Each run is judged by `tests/proof/judge.py`.
#[cfg(feature = "etcd")]
fn keep_to_the_model(seeds: u64) {
    use incumbent_simulation::plan::Plan;
    use incumbent_simulation::write_recordings;
    use incumbent_tests::soak::recordings::judge;

    let folder = tempfile::TempDir::with_prefix("incumbent-simulated-").expect("a folder");
    for seed in 0..seeds {
        let dir = folder.path().join(seed.to_string());
        write_recordings(&Plan::draw(seed), &dir).expect("is recorded");
    }
    println!("{}", judge(folder.path()).unwrap_or_else(|faults| panic!("{faults}")));
}

#[test]
#[cfg(feature = "etcd")]
fn simulated_runs_keep_to_the_model() {
    keep_to_the_model(10);
}

#[cfg(feature = "etcd")]
mod long {
    #[test]
    #[ignore = "long: `just test-all` runs it"]
    fn simulated_runs_keep_to_the_model() {
        super::keep_to_the_model(300);
    }
}
