//! What a session records, and what comes of a recording.

use std::fs;
use std::path::Path;

use incumbent::recording::{Compared, HostAction, Line, Recording, Replay};
use incumbent::{Contest, Leadership};
use incumbent_tests::soak::recordings;

use super::*;

fn time() -> String {
    "2026-01-02T03:04:05.678Z".into()
}

fn recorded(dir: &Path, identity: &str) -> Options {
    let recording = Some(Recording::new(dir, time));
    Options { identity: identity.into(), recording, ..Options::default() }
}

/// All lines, the oldest file first.
fn lines(dir: &Path) -> Vec<String> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let text = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect::<String>();
    text.lines().map(|line| format!("{line}\n")).collect()
}

fn compared(component: Component, lines: &[String]) -> Vec<Compared> {
    let mut replay = Replay::new(component);
    lines.iter().map(|line| replay.compare(&Line::read(line).expect(line))).collect()
}

fn count(compared: &[Compared], what: &Compared) -> usize {
    compared.iter().filter(|one| *one == what).count()
}

/// Two candidates, one after the other, in both contests.
async fn lead(session: Session, election: String, contest: Contest) -> Leadership {
    let election = session.election(election).contest(contest).value("a secret");
    // The elector makes the value of a wish, and says it again.
    let election = if contest == Contest::Queue { election.priority(1) } else { election };
    soon("it leads", election.campaign()).await.expect("leads")
}

#[tokio::test]
async fn a_component_says_again_what_was_recorded_and_no_value_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::new(Arc::new(BootClock));
    for (identity, values) in [("hidden", false), ("shown", true)] {
        let folder = dir.path().join(identity);
        let mut options = recorded(&folder, identity);
        options.recording.as_mut().unwrap().values = values;
        let session = Session::open(store.clone(), options.clone()).await.unwrap();
        let own = session.with_own_lease().unwrap();
        let other = Session::open(store.clone(), recorded(&folder, "other")).await.unwrap();
        for contest in [Contest::Queue, Contest::Race] {
            // What is no wish is no less a secret below the keys of wishes.
            let name = format!("incumbent-wishes/{identity}-{contest:?}");
            let leads = lead(session.clone(), name.clone(), contest).await;
            leads.fence().put("/result", "another secret").await.expect("is written");
            let follows = tokio::spawn(lead(other.clone(), name, contest).then(Leadership::resign));
            drop(lead(own.clone(), "own".into(), contest).await);
            leads.resign().await.expect("resigns");
            soon("the other one follows", follows).await.unwrap().expect("resigns");
        }
        for session in [&session, &own, &other] {
            soon("it closes", session.close()).await.expect("closes");
        }

        let lines = lines(&folder);
        let compared = compared(Component::embedded().unwrap(), &lines);
        let differs = compared.iter().find(|one| matches!(one, Compared::Differs(_)));
        assert_eq!(differs, None);
        assert_eq!(count(&compared, &Compared::Incomparable), 0);
        assert!(count(&compared, &Compared::Same) > 30, "{}", compared.len());
        let all = lines.concat();
        assert_eq!(all.matches("{\"tag\":\"closed\"}}\n").count(), 3, "three drivers have ended");
        assert!(all.contains("\"elector\":1"), "the other lease has an elector of its own");
        assert!(all.contains(&format!("\"identity\":\"{identity}\"")));
        assert!(all.contains(&hex(b"/result")), "keys are there");
        assert!(all.contains(&hex(b"incumbent-wishes/")), "wishes are there");
        for secret in [&b"a secret"[..], b"another secret"] {
            let text = str::from_utf8(secret).unwrap();
            assert_eq!(all.contains(&hex(secret)), values, "{text}");
            assert!(!all.contains(text), "{text}");
        }
        if values {
            for line in lines.iter().filter(|line| !line.contains("\"~")) {
                assert_eq!(&Line::read(line).unwrap().text(), line);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_recording_keeps_to_its_limit_and_is_readable_from_its_oldest_file_on() {
    let dir = tempfile::tempdir().unwrap();
    // Of earlier starts; of another process, which still writes; of somebody else.
    let path = |name: &str| dir.path().join(name);
    let ended =
        [0, 1].map(|segment| path(&format!("20250101T000000000Z-7-0-00000{segment}.jsonl")));
    ended.iter().for_each(|file| fs::write(file, "x".repeat(40 << 10)).unwrap());
    let written = fs::File::create(path("20250101T000000000Z-8-0-000000.jsonl")).unwrap();
    written.lock().unwrap();
    fs::write(path("my-own-notes-1.jsonl"), "").unwrap();
    let mut options = recorded(dir.path(), "one");
    let recording = options.recording.as_mut().unwrap();
    (recording.limit, recording.values) = (64 << 10, true);
    let session = Session::open(MemoryStore::default(), options).await.unwrap();
    let leads = lead(session.clone(), "jobs".into(), Contest::Queue).await;
    until("the oldest one is gone", async || !ended[0].exists()).await;
    assert!(ended[1].exists());
    let mut files: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_str().unwrap().contains("20260102"));
    let ours = fs::File::open(&files[0]).unwrap();
    assert!(ours.try_lock_shared().is_err(), "others see that it is written");
    let size = || {
        let files = fs::read_dir(dir.path()).unwrap();
        // Some go meanwhile.
        files.filter_map(|file| file.unwrap().metadata().ok()).map(|found| found.len()).sum::<u64>()
    };
    for number in 0..100 {
        leads.fence().put("/key", format!("{number:0500}")).await.expect("is written");
        assert!(size() <= 64 << 10, "{}", size());
    }
    leads.resign().await.unwrap();
    soon("it closes", session.close()).await.unwrap();
    assert!(size() > 32 << 10, "{}", size());
    assert!(!ended[1].exists());
    for kept in ["20250101T000000000Z-8-0-000000.jsonl", "my-own-notes-1.jsonl"] {
        assert!(path(kept).exists(), "{kept}");
    }

    let lines = lines(dir.path());
    assert!(matches!(Line::read(&lines[0]), Ok(Line::Head(head)) if head.segment > 0));
    let known = lines.iter().find_map(|line| match Line::read(line) {
        Ok(Line::Host { action: HostAction::Elections(known), .. }) => Some(known),
        _ => None,
    });
    assert_eq!(known.unwrap()[0].name, "jobs");
    let compared = compared(Component::embedded().unwrap(), &lines);
    assert_eq!(count(&compared, &Compared::Same), 0, "how it was opened is gone");
    assert!(count(&compared, &Compared::Incomparable) > 20);
}

#[tokio::test]
async fn a_recording_that_cannot_go_on_ends_and_the_election_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("gone");
    let mut options = recorded(&folder, "one");
    options.recording.as_mut().unwrap().limit = 0;
    let session = Session::open(MemoryStore::default(), options).await.unwrap();
    let leads = lead(session.clone(), "jobs".into(), Contest::Queue).await;
    fs::remove_dir_all(&folder).unwrap();
    for number in 0..100 {
        leads.fence().put("/key", format!("{number:0500}")).await.expect("is written");
    }
    assert!(leads.is_valid() && !folder.exists());
    leads.resign().await.unwrap();
    soon("it closes", session.close()).await.unwrap();

    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = Session::open(MemoryStore::default(), recorded(&file, "one")).await.unwrap_err();
    assert!(refused.to_string().starts_with("nothing can be recorded in /"), "{refused}");
}

/// The recording of an elector that breaks says so, and makes it break again.
#[tokio::test]
async fn an_elector_that_broke_breaks_again() {
    let dir = tempfile::tempdir().unwrap();
    let wakes = Step { commands: Vec::new(), deadline: Some(hostile::NOW + SECOND / 100) };
    let bytes: Arc<[u8]> = hostile::breaking(&[wakes], "").into();
    let options = Options { component: Some(Arc::clone(&bytes)), ..recorded(dir.path(), "one") };
    let session = Session::open(MemoryStore::default(), options).await.unwrap();
    let candidate = session.election("jobs").join();
    let broke = |line: &String| line.contains("{\"tag\":\"broke\",\"val\":\"the elector broke off");
    until("it breaks", async || lines(dir.path()).iter().any(broke)).await;
    drop(candidate);
    soon("it closes", session.close()).await.unwrap();
    let lines = lines(dir.path());
    assert!(lines.concat().contains("\"step\":null"));
    let component = Component::from_bytes(&bytes).unwrap();
    let again = compared(component, &lines);
    assert!(count(&again, &Compared::Same) >= 2 && !again.contains(&Compared::Incomparable));
    let other = compared(Component::embedded().unwrap(), &lines);
    assert!(other.iter().any(|one| matches!(one, Compared::Differs(_))), "{other:?}");
}

/// So that it can be judged: no lease goes while work on it may go on.
#[tokio::test]
async fn what_a_host_does_after_its_elector_broke_is_recorded() {
    for (stops_early, expected) in
        [(true, "broke, yielded, gave-back"), (false, "broke, gave-back, yielded")]
    {
        let dir = tempfile::tempdir().unwrap();
        let steps = [step([grant(TTL, SECOND)]), step([elects(TERM, 7, TTL)])];
        let component = Some(hostile::breaking(&steps, "").into());
        let (store, clock) = (Generous::default(), ManualClock::default());
        let options =
            Options { component, clock: Arc::new(clock.clone()), ..recorded(dir.path(), "one") };
        let session = Session::open(store, options).expect_soon("opens").await;
        let mut troubles = session.troubles();
        let mut candidate = session.election("jobs").join();
        let leadership = candidate.elected().expect_soon("leads").await;
        drop(session.election("other").observe());
        troubles.next().expect_soon("it breaks").await;
        drop(candidate);
        if stops_early {
            drop(leadership);
            yields().await;
        } else {
            clock.advance(Duration::from_secs(10));
            yields().await;
            drop(leadership);
        }
        yields().await;
        soon("it closes", session.close()).await.unwrap();
        let lines: Vec<_> =
            lines(dir.path()).iter().map(|line| Line::read(line).unwrap()).collect();
        let told: Vec<_> = lines.iter().filter_map(after_the_break).collect();
        // The next elector breaks as well.
        let told = told.join(", ");
        assert!(told.starts_with(expected), "{told}");
    }
}

fn after_the_break(line: &Line) -> Option<&'static str> {
    let Line::Host { action, .. } = line else { return None };
    match action {
        HostAction::Broke(_) => Some("broke"),
        HostAction::Yielded(term) => {
            assert_eq!((&*term.name, term.epoch), ("jobs", TERM.epoch));
            Some("yielded")
        }
        HostAction::GaveBack(lease) => {
            assert_eq!(*lease, 7);
            Some("gave-back")
        }
        HostAction::Clock(_)
        | HostAction::Expired(_)
        | HostAction::Gap(_)
        | HostAction::Elections(_)
        | HostAction::Closed
        | _ => None,
    }
}

/// One term is worked for to its deadline, and one is given up before.
#[tokio::test]
async fn the_recording_of_an_elector_that_broke_keeps_to_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let store = Spoilt::new(MemoryStore::default());
    let component = Some(hostile::cramped(Component::EMBEDDED, 96).into());
    let ttl = Duration::from_secs(2);
    let options = Options { component, ttl, ..recorded(dir.path(), "one") };
    let session = Session::open(store.clone(), options).expect_soon("opens").await;
    let mut troubles = session.troubles();
    let kept = lead(session.clone(), "kept".into(), Contest::Queue).await;
    let given_up = lead(session.clone(), "given-up".into(), Contest::Queue).await;
    // More than it has memory for.
    store.bytes.store(7_500_000, Ordering::SeqCst);
    troubles.next().expect_soon("it breaks").await;
    store.bytes.store(0, Ordering::SeqCst);
    drop(given_up);
    soon("the term is lost", kept.lost()).await;
    drop(kept);
    let again = lead(session.clone(), "kept".into(), Contest::Queue).await;
    again.resign().await.expect("resigns");
    soon("it closes", session.close()).await.unwrap();
    let told = lines(dir.path()).concat();
    assert!(told.contains("gave-back") && told.contains("yielded"));
    let judged = recordings::judge(dir.path());
    assert!(judged.as_ref().is_ok_and(|told| told.contains("3 terms: no faults")), "{judged:?}");
}
