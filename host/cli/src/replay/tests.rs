//! What is told of the stories in `tests/transcripts`, and of some that were made for this.

use std::fs;

use incumbent::recording::Line;

use super::*;

macro_rules! story {
    ($name:literal, $before:expr) => {{
        let text = include_str!(concat!("../../../../tests/transcripts/steps/", $name, ".jsonl"));
        told(text, $before)
    }};
}

/// With these lines between the head and the rest.
fn told(text: &str, before: &str) -> Story {
    let (first, rest) = text.split_once('\n').unwrap();
    let Ok(Line::Head(mut head)) = Line::read(first) else { panic!("{first}") };
    head.identity = "<\u{1b}[1m>".into();
    let mut story = Story::new(head);
    for line in before.lines().chain(rest.lines()) {
        story.line(&Line::read(line).unwrap());
    }
    story.finish();
    story
}

fn texts(stories: &[Story]) -> Vec<String> {
    let merged = Merged::new(stories);
    merged.told().iter().map(|told| line(Form::People, &merged, told)).collect()
}

fn clock(now: u64, time: &str) -> String {
    format!("{{\"now\":\"{now}\",\"host\":{{\"tag\":\"clock\",\"val\":\"{time}\"}}}}\n")
}

#[test]
fn renewals_and_ends_have_their_causes() {
    for (story, expected) in [
        (
            story!("away_longer_than_the_lease", ""),
            "9.900 s  <\\u{1b}[1m>: leads jobs no longer; epoch 5 is over: no renewal came before its \
             deadline, 9.900 s: 2 renewals, the first sent at 3.400 s, got no answer until 3.510 s \
             (the store is not reached, or says to try again)",
        ),
        (
            story!("late_keep_alive_replies", ""),
            "5.500 s  <\\u{1b}[1m>: the renewal sent at 3.400 s got no answer until 5.067 s; the one \
             sent at 3.400 s was answered at 5.500 s, and the deadline was 9.900 s",
        ),
        (
            story!("deletion_overrules_a_renewal", ""),
            "3.410 s  <\\u{1b}[1m>: leads jobs no longer; epoch 5 is over: somebody deleted or took \
             its key, at revision 8",
        ),
        (
            story!("leaves_after_the_lease_was_lost", ""),
            "3.500 s  <\\u{1b}[1m>: leads jobs no longer; epoch 5 is over: the store said that the \
             lease was gone, to the renewal sent at 3.400 s (the last one that came in time was sent \
             at 0.000 s)",
        ),
    ] {
        let told = texts(&[story]);
        assert!(told.iter().any(|text| text == expected), "{expected}\n{}", told.join("\n"));
    }
}

#[test]
fn clocks_that_disagree_or_are_set_are_told_of() {
    let at = |time| story!("deletion_overrules_a_renewal", &clock(0, time));
    let stories = [at("2026-01-02T03:04:05Z"), at("2026-01-02T03:04:08.2Z")];
    let told = texts(&stories).join("\n");
    assert!(told.contains("is 3.2 s ahead of that of <"), "{told}");
    let merged = Merged::new(&stories);
    assert_eq!(merged.time(0, 7), merged.time(1, 7));
    let set = format!("{}{}", clock(0, "2026-01-02T03:04:05Z"), clock(1, "2026-01-02T03:04:04Z"));
    let told = texts(&[story!("deletion_overrules_a_renewal", &set)]).join("\n");
    assert!(told.contains("the wall clock was set back by 1.000 s"), "{told}");
}

/// The revisions decide where the clocks, or late answers, say otherwise.
#[test]
fn what_happened_at_a_later_revision_is_told_later() {
    let mut stories =
        [story!("deletion_overrules_a_renewal", ""), story!("comes_back_one_by_one", "")];
    // It tells of all of it 100 s late.
    stories[0].sentences.iter_mut().for_each(|sentence| sentence.at += 100_000_000_000);
    let merged = Merged::new(&stories);
    let told = merged.told();
    let joined = told.iter().filter(|told| told.sentence.event == "joined");
    let revisions: Vec<_> = joined.filter_map(|told| told.sentence.revision).collect();
    assert_eq!(revisions, [5, 6]);
    // What one instance tells stays in its order.
    for instance in 0..2 {
        let own = told.iter().filter(|told| told.instance == Some(instance));
        let own: Vec<_> = own.map(|told| told.sentence.at).collect();
        assert!(own.is_sorted() && own.len() > 2, "{own:?}");
    }
}

#[test]
fn what_is_not_recorded_is_not_told_as_known() {
    let mut stories =
        [story!("comes_back_one_by_one", ""), story!("deletion_overrules_a_renewal", "")];
    let shared = stories[0].keys[0].clone();
    stories[1].keys.push(shared.clone());
    let merged = Merged::new(&stories);
    assert_ne!(merged.name(&shared), shown_bytes(&shared), "both are called the same");
    stories[1].head.identity = "another".into();
    let merged = Merged::new(&stories);
    assert_eq!(merged.name(&shared), shown_bytes(&shared), "a key of several names no one");

    let mut head = Head::default();
    (head.segment, head.recording) = (3, "late".into());
    let mut story = Story::new(head);
    for line in [
        r#"{"now":"1","host":{"tag":"elections","val":[{"election":1,"name":"jobs","key":"6b"}]}}"#,
        r#"{"now":"2","events":[{"tag":"wake"}],"step":{"commands":[{"tag":"notify","val":{"tag":"elected","val":{"term":{"election":1,"epoch":"7"},"key":"6b","lease":"1","valid-until":"9"}}}],"deadline":null}}"#,
    ] {
        story.line(&Line::read(&format!("{line}\n")).unwrap());
    }
    story.finish();
    let told: Vec<_> = story.sentences.iter().map(|sentence| &*sentence.text).collect();
    assert!(told[0].contains("not in this recording any more"), "{told:?}");
    assert_eq!(told[1], "leads jobs in epoch 7", "nothing is said of those in front");
    assert!(told[2].contains("(its terms had until "), "{told:?}");
    assert_eq!(story.keys, [b"k"]);
}

#[test]
fn a_picture_is_closed_and_escaped() {
    let stories = [story!("away_longer_than_the_lease", ""), story!("comes_back_one_by_one", "")];
    let drawing = timeline::draw(&Merged::new(&stories));
    assert!(drawing.contains(">&lt;\\u{1b}[1m&gt;</text>"), "{drawing}");
    assert_eq!(drawing.matches("http").count(), 1, "nothing from elsewhere");
    for tag in drawing.split('<').skip(1) {
        let name = tag.split([' ', '>', '/']).find(|name| !name.is_empty()).unwrap();
        assert!(["svg", "style", "rect", "line", "text"].contains(&name), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert_eq!(drawing.matches("<text").count(), drawing.matches("</text>").count());
    timeline::draw(&Merged::new(&[Story::default()]));
}

/// As of a recording whose oldest files are gone.
#[test]
fn what_cannot_be_run_again_still_has_a_story() {
    let dir = tempfile::tempdir().unwrap();
    let text = include_str!("../../../../tests/transcripts/steps/away_longer_than_the_lease.jsonl");
    let rest: Vec<_> = text.lines().filter(|line| !line.starts_with("{\"open\"")).collect();
    fs::write(dir.path().join("late.jsonl"), rest.join("\n") + "\n").unwrap();
    let source = source::find(&[dir.path().into()]).unwrap().pop().unwrap();
    let (story, comparison) = play(source, &Component::embedded().unwrap()).unwrap();
    let told = comparison.line(Form::People, &story, "");
    let (from, to) = (story.clock(story.first.unwrap()), story.clock(story.last));
    let gap = format!("steps from {from} to {to} could not be run again, because what the elector");
    assert!(told.contains(&gap) && told.contains("0 steps were run again"), "{told}");
    assert!(texts(&[story]).iter().any(|text| text.contains("leads jobs in epoch 5")));
}
