//! The transcripts of `tests/transcripts`, played natively and, with the feature
//! `component`, through wasm: the same steps, to the letter.
//!
//! `TRANSCRIPTS=rewrite cargo test -p incumbent-tests --test transcripts` writes
//! them anew: read the difference, and commit it only when you understand it.

use std::path::{Path, PathBuf};

use incumbent_tests::transcript::{Native, Subject, all, replay};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

fn play(subject: &mut dyn Subject) -> Vec<String> {
    let mut differ = Vec::new();
    let transcripts = all(&folder());
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
            if std::env::var_os("TRANSCRIPTS").is_some_and(|mode| mode == "rewrite") {
                std::fs::write(folder().join(format!("{name}.txt")), &said).expect("writable");
            }
            let (number, line) = said
                .lines()
                .enumerate()
                .find(|(number, line)| expected.lines().nth(*number) != Some(line))
                .unwrap_or((said.lines().count(), ""));
            differ.push(format!("{name}.txt, line {}: now `{line}`", number + 1));
        }
    }
    differ
}

#[test]
fn the_native_elector_says_what_it_said() {
    let differ = play(&mut Native::default());
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
#[cfg(feature = "component")]
fn the_component_says_the_same() {
    let mut wasm = incumbent_tests::transcript::Wasm::embedded().expect("the component loads");
    let differ = play(&mut wasm);
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
