//! Recordings, and what `incumbent replay` tells of them: on the store of one machine.

use std::path::{Path, PathBuf};

use incumbent_tests::steps::{Dynamic, replayed};

use super::*;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn incumbent(&self, line: &str) -> Command {
        let mut command = incumbent(line.split(' '));
        let store = format!("sqlite:{}", self.path("store.db").display());
        command.env("INCUMBENT_STORE", store).current_dir(self.0.path());
        command
    }

    fn start(&self, line: &str) -> Running {
        Running::start(self.incumbent(line))
    }

    /// The one file of a recording.
    fn file(&self, dir: &str) -> PathBuf {
        let mut files = fs::read_dir(self.path(dir)).unwrap();
        let file = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none());
        file
    }
}

/// A leader that is paused, one that is killed, and one that ends in order.
#[test]
fn the_story_has_causes_and_the_component_says_it_again() {
    let folder = Folder::new();
    let campaign =
        |id: &str| folder.start(&format!("campaign jobs --ttl 2s -o json --record {id} --id {id}"));
    let observer = folder.start("observe jobs -o json --record seen --id seer");
    let one = campaign("one").once("elected");
    let two = campaign("two").once("joined");
    one.signal(Signal::STOP);
    let second = two.event("elected");
    one.signal(Signal::CONT);
    let one = one.once("demoted").once("joined");
    two.signal(Signal::KILL);
    one.event("elected");
    one.stop();
    observer.stop();

    let told = end(folder.incumbent("replay one two --svg timeline.svg --transcript told.jsonl"));
    let told = told.expect(0).stdout;
    let epoch = &second["epoch"];
    for part in [
        "one: nothing ran from ",
        "one: leads jobs no longer; epoch 2 is over: no renewal came before its deadline, ",
        &format!("two: leads jobs in epoch {epoch}, because the key of one (jobs/"),
        "which was in front, was deleted at revision ",
        &format!(
            "from epoch 2 to epoch {epoch}: one stopped in time, and its key stayed until the "
        ),
        "two: the recording ends here, and nothing was closed: it goes on, the process died, or",
        "the recording of two ends while it led, and its key stayed until its lease ran out",
        "one: leads jobs no longer; epoch 5 is over: its holder left the election",
        "one: the session was closed",
        " steps were run again, and all of them are the same",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    let took_over = told.find("two: leads").unwrap();
    assert!(took_over < told.find("one: leads jobs in epoch 5").unwrap(), "{told}");

    let drawing = fs::read_to_string(folder.path("timeline.svg")).unwrap();
    for part in ["class=\"paused\"", ">epoch 2</text>", ">one</text>", "class=\"bad\""] {
        assert!(drawing.contains(part), "{part}\n{drawing}");
    }
    let objects = end(folder.incumbent("replay one two seen -o json")).expect(0).stdout;
    let objects: Vec<Value> =
        objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| objects.iter().filter(|one| one["event"] == event).collect::<Vec<_>>();
    assert_eq!(of("elected").len(), 3);
    assert_eq!(of("elected")[1]["instance"], "two");
    assert!(of("leader").iter().all(|one| one["instance"] == "seer"));
    assert!(of("replayed").iter().all(|one| one["differ"] == 0 && one["incomparable"] == 0));

    // A transcript for the tests, and what the tests do with it.
    let transcript = fs::read_to_string(folder.path("told.jsonl")).unwrap();
    replayed(&transcript, &mut Dynamic::embedded().unwrap()).unwrap();
    end(folder.incumbent("replay told.jsonl")).expect(0);

    let file = folder.file("one");
    let recorded = fs::read_to_string(&file).unwrap();
    let changed = |what: &str, by: &str| {
        assert!(recorded.contains(what), "{what}");
        fs::write(&file, recorded.replacen(what, by, 1)).unwrap();
        end(folder.incumbent("replay one"))
    };
    let elsewhere = changed("\"component\":\"", "\"component\":\"00").expect(0).stdout;
    assert!(elsewhere.contains("was made by other bytes of the component (00"), "{elsewhere}");
    let differs = changed("{\"tag\":\"grant\",", "{\"tag\":\"revoke\",\"val\":\"1\",\"was\":");
    assert!(differs.status == 2, "{differs:?}");
    let differs = changed("\"ttl\":\"2000000000\"", "\"ttl\":\"2000000001\"").expect(1).stdout;
    assert!(differs.contains("the first difference: one/"), "{differs}");
    fs::write(&file, recorded.trim_end_matches(['}', '\n'])).unwrap();
    let torn = end(folder.incumbent("replay one")).expect(0);
    assert!(torn.stderr.contains("is torn, and left out"), "{torn:?}");
    changed("\"format\":1", "\"format\":2").expect(2).says(&["is of format 2", "reads 1"]);
    let value = "\"value\":\"~";
    changed(value, "\"value\":\"~00:99999999999\",\"was\":\"").expect(2).says(&["too large"]);
}

/// What `tests/proof/judge.py` refuses, with the guards of the model that is proved, is refused here in the
/// same sentence.
#[test]
fn a_broken_law_is_told_with_its_line() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let folder = Folder::new();
    let mut python = Command::new("python3");
    python.arg(tests.join("proof/test_judge.py")).arg("--write").arg(folder.path(""));
    end(python).expect(0);
    let mut refused = 0;
    for file in fs::read_dir(folder.path("")).unwrap() {
        let story = file.unwrap().path();
        if story.extension() != Some("jsonl".as_ref()) {
            continue;
        }
        let fault = fs::read_to_string(story.with_extension("txt")).unwrap();
        let mut command = incumbent(["replay"]);
        command.arg(&story);
        let told = end(command).expect(1).stdout;
        let wanted = format!("a law is broken at {}, {fault}", story.display());
        assert!(told.contains(&wanted), "{wanted}\n{told}");
        refused += 1;
    }
    assert!(refused >= 10, "{refused}");

    for stories in ["steps", "recorded"] {
        let mut command = incumbent(["replay"]);
        command.arg(tests.join("transcripts").join(stories));
        let told = end(command).stdout;
        let faults: Vec<&str> =
            told.lines().filter(|line| line.starts_with("a law is broken")).collect();
        assert_eq!(faults, [""; 0]);
    }
}

#[test]
fn a_recording_that_cannot_go_on_says_so_once() {
    let folder = Folder::new();
    let line = "campaign jobs --ttl 2s -o json --record gone --record-limit 64KiB";
    let mut running = folder.start(line).once("elected");
    fs::remove_dir_all(folder.path("gone")).unwrap();
    running.stderr.line_with("the recording has ended, and the election goes on");
    running.event("extended");
    running.signal(Signal::INT);
    assert_eq!(running.wait(), 0);
    assert_eq!(
        running.stderr.all().iter().filter(|line| line.contains("recording has")).count(),
        1
    );
}
