//! The supervisor's decisions as text. `TRANSCRIPTS=rewrite` writes the results anew; read
//! what differs before you keep it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use tokio::signal::unix::SignalKind;

use super::*;

/// What has happened, by its name.
fn input(name: &str) -> Input {
    let (word, rest) = name.split_once(' ').unwrap_or((name, ""));
    match (word, rest) {
        ("lost", "") => Input::Lost,
        ("resign", "") => Input::Resign,
        ("signal", "") => Input::Signal(Asked(SignalKind::interrupt())),
        ("started", "") => Input::Started,
        ("not", "started") => Input::NotStarted(io::ErrorKind::NotFound.into()),
        ("paused", "") => Input::Paused,
        ("continued", "") => Input::Continued,
        ("overdue", "") => Input::Overdue,
        ("guard", "lost") => Input::GuardLost,
        ("gone", "") => Input::Gone,
        ("valid", until) => Input::ValidUntil(mark(until.trim_start_matches("until "))),
        ("ended", status) => {
            let (status, had_terminal) = match status.strip_suffix(" on the terminal") {
                Some(status) => (status, true),
                None => (status, false),
            };
            let status = ExitStatus::from_raw(status.parse::<i32>().unwrap() << 8);
            Input::Ended { status, had_terminal }
        }
        _ => panic!("no input: {name}"),
    }
}

fn mark(seconds: &str) -> Mark {
    Duration::from_secs_f64(seconds.parse().unwrap()).as_nanos().try_into().unwrap()
}

fn seconds(mark: Mark) -> f64 {
    Duration::from_nanos(mark).as_secs_f64()
}

fn shown(action: &Action) -> String {
    match action {
        Action::GuardUntil(mark) => format!("guard until {}", seconds(*mark)),
        Action::Wake(mark) => format!("wake {}", seconds(*mark)),
        Action::Ask => "ask".into(),
        Action::Kill => "kill".into(),
        Action::KillStuckGuard => "kill stuck guard".into(),
        Action::Reap => "reap".into(),
        Action::Pause => "pause".into(),
        Action::Resume => "resume".into(),
        Action::Remark(_) => "remark".into(),
        Action::End(Outcome::Ended(ended)) if ended.by_keyboard => {
            format!("END ended with {} by keyboard", ended.status)
        }
        Action::End(Outcome::Ended(ended)) => {
            format!("END ended with {} after {}", ended.status, ended.after.as_secs_f64())
        }
        Action::End(Outcome::Broken { after }) => {
            format!("END broken after {}", after.as_secs_f64())
        }
        Action::End(Outcome::NotStarted(_)) => "END not started".into(),
        Action::End(Outcome::AtOnce(asked)) => format!("END at once, {:?}", asked.status()),
        Action::End(Outcome::Stopped) => "END stopped".into(),
        Action::End(Outcome::Resigned) => "END resigned".into(),
        Action::End(Outcome::Asked) => "END asked".into(),
        Action::End(Outcome::Stuck) => "END stuck".into(),
    }
}

/// Begins at 0, is valid until 10 s, and has a stop time-out of 2 s.
fn begin() -> Term {
    Term::begin(0, mark("10"), Duration::from_secs(2)).unwrap()
}

/// `TIME INPUT, INPUT…`
fn step(term: &mut Term, line: &str) -> Vec<String> {
    let (now, inputs) = line.split_once(' ').unwrap_or((line, ""));
    let inputs = inputs.split(", ").filter(|name| !name.is_empty()).map(input);
    term.next(mark(now), inputs).iter().map(shown).collect()
}

fn phase(term: &Term) -> &'static str {
    match term.phase {
        Phase::Starting => "Starting",
        Phase::Working(_) => "Working",
        Phase::Stopping(..) => "Stopping",
        Phase::Killing(..) => "Killing",
        Phase::Reaping(_) => "Reaping",
    }
}

fn compare(name: &str, results: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/run/supervisor/term").join(name);
    if std::env::var_os("TRANSCRIPTS").is_some_and(|mode| mode == "rewrite") {
        fs::write(&path, results).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap();
    for (number, (kept, result)) in (1..).zip(kept.lines().zip(results.lines())) {
        assert_eq!(kept, result, "{name}, line {number}");
    }
    assert_eq!(kept.len(), results.len(), "{name}");
}

/// Each input in each phase, and in each kind of it that makes a difference.
#[test]
fn edges() {
    let phases: [(&str, &[&str]); 11] = [
        ("Starting", &[]),
        ("Working", &["1 started"]),
        ("Stopping, lost before the start", &["1 lost"]),
        ("Stopping, asked before the start", &["1 signal"]),
        ("Stopping, lost", &["1 started", "2 lost"]),
        ("Stopping, asked", &["1 started", "2 signal"]),
        ("Stopping, ended", &["1 started", "2 ended 3"]),
        ("Killing, lost", &["1 started", "2 lost", "4"]),
        ("Killing, asked", &["1 started", "2 signal", "4"]),
        ("Reaping, guard lost", &["1 started", "2 guard lost"]),
        ("Reaping, asked", &["1 started", "2 signal", "2 guard lost"]),
    ];
    let inputs = [
        "started",
        "not started",
        "ended 3",
        "ended 130 on the terminal",
        "paused",
        "continued",
        "valid until 20",
        "lost",
        "resign",
        "signal",
        "overdue",
        "guard lost",
        "gone",
    ];
    let mut table = String::from(
        "What each input does, 0.05 s after the phase was entered: the next phase, and the actions.\n\
         The term begins at 0 s, is valid until 10 s, and has a stop time-out of 2 s.\n",
    );
    for (name, history) in phases {
        table += &format!("\n{name}\n");
        for input in inputs.into_iter().chain([""]) {
            let mut term = begin();
            history.iter().for_each(|line| drop(step(&mut term, line)));
            let last = history.last().map_or("0", |line| line.split(' ').next().unwrap());
            let now = last.parse::<f64>().unwrap() + 0.05;
            let actions = step(&mut term, &format!("{now} {input}")).join(", ");
            let input = if input.is_empty() { "(nothing)" } else { input };
            let phase = if actions.contains("END") { "-" } else { phase(&term) };
            table += &format!("  {input:<26}{phase:<9} {actions}\n");
        }
    }
    compare("edges.txt", &table);
}

/// Whole terms: lines of a time and inputs, each followed by what there was to do.
#[test]
fn stories() {
    let stories = include_str!("stories.txt");
    let mut results = String::new();
    let mut term = begin();
    for line in stories.lines().filter(|line| !line.starts_with("  ")) {
        results += &format!("{line}\n");
        if line.starts_with('#') {
            term = begin();
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            results += &format!("  {}\n", step(&mut term, line).join(", "));
        }
    }
    compare("stories.txt", &results);
}

#[test]
fn a_term_that_leaves_no_time_is_not_begun() {
    let begin = |now| Term::begin(mark(now), mark("10"), Duration::from_secs(2)).is_some();
    assert!(begin("7.9") && !begin("8") && !begin("11"));
}
