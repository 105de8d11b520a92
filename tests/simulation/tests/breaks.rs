//! The proof can fail: each law is broken on purpose in a copy of the elector, and
//! the seeds of `just test` have to find it. Prints which one did.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use incumbent_simulation::laws::Law;
use incumbent_simulation::seeds::{MANY_ELECTIONS, QUICK_SEEDS, QUICK_SEEDS_OF_MANY};

/// One way to break a law.
struct Break {
    law: Law,
    /// What the elector does then.
    what: &'static str,
    /// In a file of the elector: this becomes that.
    edits: &'static [(&'static str, &'static str, &'static str)],
    seeds: Seeds,
    /// The judge refuses its recordings. The model that is proved says nothing of when somebody has to lead or to
    /// step down, of who asks for a key while work goes on, and of how often an elector is woken.
    is_refused: bool,
}

/// Which seeds find it.
enum Seeds {
    Quick,
    OfMany,
    /// This is the first: it takes all before it a quarter of an hour.
    One(u64),
}

impl Seeds {
    fn range(&self) -> Range<u64> {
        match *self {
            Seeds::Quick => QUICK_SEEDS,
            Seeds::OfMany => QUICK_SEEDS_OF_MANY,
            Seeds::One(seed) => seed..seed + 1,
        }
    }

    /// In so many elections, instead of in as many as each seed draws.
    fn elections(&self) -> Option<u32> {
        matches!(self, Seeds::OfMany).then_some(MANY_ELECTIONS)
    }

    /// Those whose recordings are judged.
    fn recorded(&self) -> Range<u64> {
        match self {
            Seeds::Quick | Seeds::OfMany => 0..300,
            Seeds::One(_) => self.range(),
        }
    }
}

const BREAKS: &[Break] = &[
    Break {
        law: Law::OneLeader,
        what: "leads by what it read in a former life of its lease",
        edits: &[(
            "candidate/waiting.rs",
            "if matches!(place, Place::First) && stretch",
            "if !BROKEN && matches!(place, Place::First) && stretch",
        )],
        seeds: Seeds::One(86_890),
        is_refused: true,
    },
    Break {
        law: Law::OneLeader,
        what: "takes the candidate in front of it for dead, and removes the key",
        edits: &[(
            "candidate/waiting.rs",
            "Followed::enter(cx.context, watcher, entry)",
            "{ if BROKEN { \
             let lease = cx.context.lease.unwrap_or_default(); \
             let abandoned = cx.abandon(entry.key.clone(), lease, None); \
             cx.cleanup.delete(cx.context, abandoned, entry.created); } \
             Followed::enter(cx.context, watcher, entry) }",
        )],
        seeds: Seeds::Quick,
        is_refused: true,
    },
    Break {
        law: Law::ValidUntil,
        what: "counts a renewal from its answer",
        edits: &[(
            "session.rs",
            "held.acknowledge(renewal.sent,",
            "held.acknowledge(if BROKEN { context.now } else { renewal.sent },",
        )],
        seeds: Seeds::Quick,
        is_refused: true,
    },
    Break {
        law: Law::ElectedWhenShown,
        what: "does not look at its own key in the predecessor check",
        edits: &[("candidate/place.rs", "if !own.is_intact(", "if !BROKEN && !own.is_intact(")],
        seeds: Seeds::Quick,
        is_refused: true,
    },
    Break {
        law: Law::ByTheClock,
        what: "takes the events before the end of its time",
        edits: &[(
            "session.rs",
            "&& held.valid_until <= context.now",
            "&& held.valid_until <= if BROKEN { 0 } else { context.now }",
        )],
        seeds: Seeds::Quick,
        is_refused: true,
    },
    Break {
        law: Law::Guarded,
        what: "leads on after its guard was refused",
        edits: &[("elector.rs", "if fenced {", "if fenced && !BROKEN {")],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::EpochsRise,
        what: "takes a key of a dead epoch for a new one",
        edits: &[
            (
                "candidate/idle.rs",
                "if cx.cleanup.blocks(&key)",
                "if !BROKEN && cx.cleanup.blocks(&key)",
            ),
            (
                "candidate/claiming.rs",
                "if entry.created <= cx",
                "if !BROKEN && entry.created <= cx",
            ),
        ],
        seeds: Seeds::Quick,
        is_refused: true,
    },
    Break {
        law: Law::ReleasedAfterWork,
        what: "releases its key before the work has stopped",
        edits: &[("candidate/ended.rs", "if until <= cx", "if BROKEN || until <= cx")],
        seeds: Seeds::Quick,
        is_refused: true,
    },
    Break {
        law: Law::YieldedFirst,
        what: "campaigns before the work has stopped",
        edits: &[(
            "candidate/ended.rs",
            "(true, _) => Next::Stay,",
            "(true, true) if BROKEN => Next::Idle(Pause::None), (true, _) => Next::Stay,",
        )],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::LeaderReturns,
        what: "never checks its watches",
        edits: &[(
            "elector.rs",
            "Timer::Recheck => ",
            "Timer::Recheck if BROKEN => {} Timer::Recheck => ",
        )],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::LeaderReturns,
        what: "does not take part again after a drain",
        edits: &[(
            "elector.rs",
            "self.limited = true;",
            "self.limited = !BROKEN || limit.is_some();",
        )],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::Drained,
        what: "stays in line when it is drained, and leads",
        edits: &[
            (
                "candidate.rs",
                "|| context.share.is_drained()",
                "|| !BROKEN && context.share.is_drained()",
            ),
            (
                "candidate/waiting.rs",
                "if cx.context.share.is_drained()\n                    ||",
                "if !BROKEN && cx.context.share.is_drained() ||",
            ),
        ],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::ElectedWhenShown,
        what: "takes the farther one of two in front for the first in line",
        edits: &[(
            "candidate/predecessor.rs",
            "stretch.filter(|_| is_alone)",
            "stretch.filter(|_| BROKEN || is_alone)",
        )],
        seeds: Seeds::Quick,
        is_refused: true,
    },
    Break {
        law: Law::InOrder,
        what: "never reads the wishes that its watch has missed",
        edits: &[(
            "elector/checks.rs",
            "if self.rechecked.is_none() && self.context.hears_wishes()",
            "if !BROKEN && self.rechecked.is_none() && self.context.hears_wishes()",
        )],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::Preempted,
        what: "preempts only with a priority of its own",
        edits: &[(
            "candidate/own_wish.rs",
            "priority.level != 0 || epoch != 0",
            "priority.level != 0 || !BROKEN && epoch != 0",
        )],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::NothingSpins,
        what: "tries again at once",
        edits: &[(
            "backoff.rs",
            "full / 2 + random.below(full / 2)",
            "if BROKEN { 1 + random.below(1) } else { full / 2 + random.below(full / 2) }",
        )],
        seeds: Seeds::Quick,
        is_refused: false,
    },
    Break {
        law: Law::NothingSpins,
        what: "goes over its thousands of elections again and again",
        edits: &[(
            "elector.rs",
            "self.sweep = None;\n                        return self.session.swept();",
            "self.sweep = BROKEN.then_some(FIRST); return self.session.swept();",
        )],
        seeds: Seeds::OfMany,
        is_refused: false,
    },
    Break {
        law: Law::NothingSpins,
        what: "looks at thousands of elections for what concerns a few",
        edits: &[(
            "elector.rs",
            "self.next_behind(from) else",
            "(if BROKEN { self.next_from(from) } else { self.next_behind(from) }) else",
        )],
        seeds: Seeds::OfMany,
        // It takes deletions for done that may still land.
        is_refused: true,
    },
];

/// What the copy's elector has beside the edits: which one of the breaks is on.
const SWITCH: &str = r#"
extern crate std;

pub fn is_broken(number: usize) -> bool {
    static BREAK: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *BREAK.get_or_init(|| std::env::var("BREAK").ok()?.parse().ok()) == Some(number)
}
"#;

#[test]
fn each_broken_law_is_found() {
    let copy = Copy::make();
    assert_eq!(copy.simulate(None, &(0..100), &Seeds::Quick), Ok(()), "the copy keeps the laws");
    for (number, Break { law, what, seeds, .. }) in BREAKS.iter().enumerate() {
        let seed = copy.find(number, *law, seeds);
        let seed = seed.unwrap_or_else(|| {
            panic!("{law:?} is broken, and no seed finds it: an elector that {what}")
        });
        println!("{law:?}: an elector that {what} is found by seed {seed}");
    }
}

/// Sources of the elector that are not as they are in the workspace.
#[derive(Default)]
struct Sources(BTreeMap<PathBuf, String>);

impl Sources {
    fn change(&mut self, name: &str, change: impl Fn(&str) -> String) {
        let file = root().join("guest/src").join(name);
        let source = self.0.remove(&file);
        let source = source.unwrap_or_else(|| fs::read_to_string(&file).expect("a source"));
        self.0.insert(file, change(&source));
    }

    /// Breaks the elector where this is true.
    fn make(&mut self, it: &Break, condition: &str) {
        for (name, from, to) in it.edits {
            self.change(name, |source| {
                assert_eq!(source.matches(from).count(), 1, "{name} has once: {from}");
                source.replace(from, &to.replace("BROKEN", condition))
            });
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A copy of the workspace whose elector is broken.
struct Copy(PathBuf);

impl Copy {
    /// With all breaks, each behind a switch.
    fn make() -> Copy {
        let mut sources = Sources::default();
        sources.change("lib.rs", |source| [source, SWITCH].concat());
        for (number, it) in BREAKS.iter().enumerate() {
            sources.make(it, &format!("crate::is_broken({number})"));
        }
        Copy::of("breaks", &sources, &[])
    }

    /// With this break, in the elector and in its component.
    fn make_with_component(it: &Break) -> Copy {
        let mut sources = Sources::default();
        sources.make(it, "true");
        Copy::of("break", &sources, &["--features", "component"])
    }

    fn of(name: &str, sources: &Sources, more: &[&str]) -> Copy {
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join("workspace");
        // The component's sources are links to the same files.
        let (guest, linked) =
            (root().join("guest/src"), root().join("host/component/source/guest"));
        let link = |file: &Path| file.strip_prefix(&guest).ok().map(|name| linked.join(name));
        let links =
            sources.0.iter().filter_map(|(file, source)| Some((link(file)?, source.clone())));
        let changed = sources.0.clone().into_iter().chain(links).collect();
        fs::create_dir_all(&copy).expect("a folder");
        for part in ["Cargo.toml", "Cargo.lock", "wit", "guest", "host", "tests"] {
            mirror(&root().join(part), &copy.join(part), &changed);
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--locked"])
            .args(["--package", "incumbent-simulation", "--bin", "sim"])
            .args(more)
            .current_dir(&copy)
            // Not the tests' own: for cargo, a package at the same place of another workspace is the same
            // one, and the tests would be built with the broken elector.
            .env("CARGO_TARGET_DIR", copy.with_file_name("target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()
            .expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Copy(copy)
    }

    /// What the judge says of the recordings of these seeds.
    fn judged(&self, seeds: &Range<u64>) -> Result<String, String> {
        let recordings = self.0.with_file_name("recordings");
        if recordings.exists() {
            fs::remove_dir_all(&recordings).expect("it goes");
        }
        let recorded = Command::new(self.0.with_file_name("target/debug/sim"))
            .args(arguments(seeds))
            .arg("--record")
            .arg(&recordings)
            .output()
            .expect("the simulation runs");
        assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
        let judged = Command::new("python3")
            .arg(root().join("tests/proof/judge.py"))
            .arg("--each")
            .arg(&recordings)
            .output()
            .expect("python3 runs");
        let said = String::from_utf8_lossy(&judged.stdout).into_owned();
        match (judged.status.code(), said.is_empty()) {
            (Some(0), _) => Ok(said),
            (Some(1), false) => Err(said),
            _ => panic!("{}", String::from_utf8_lossy(&judged.stderr)),
        }
    }

    /// The first seed that finds this law broken. Another one may be broken before.
    fn find(&self, number: usize, law: Law, of: &Seeds) -> Option<u64> {
        let mut seeds = of.range();
        while let Err(found) = self.simulate(Some(number), &seeds, of) {
            // As in `seed 17: ElectedWhenShown is broken (…): …`.
            let seed = found.strip_prefix("seed ").and_then(|rest| rest.split_once(':'));
            let (seed, found) = seed.unwrap_or_else(|| panic!("no seed is named: {found}"));
            let seed = seed.parse().expect("a seed");
            if found.contains(&format!("{law:?} is broken")) {
                return Some(seed);
            }
            seeds.start = seed + 1;
        }
        None
    }

    /// Runs these seeds, with one of the breaks; what was found, if anything.
    fn simulate(
        &self,
        number: Option<usize>,
        seeds: &Range<u64>,
        of: &Seeds,
    ) -> Result<(), String> {
        let ran = Command::new(self.0.with_file_name("target/debug/sim"))
            .args(arguments(seeds))
            .args(of.elections().map(|elections| format!("--elections={elections}")))
            .env("BREAK", number.map_or_else(String::new, |number| number.to_string()))
            .output()
            .expect("the simulation runs");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        match (ran.status.success(), said.starts_with("seed ")) {
            (true, _) => Ok(()),
            (false, true) => Err(said),
            (false, false) => panic!("{}", String::from_utf8_lossy(&ran.stderr)),
        }
    }
}

fn arguments(seeds: &Range<u64>) -> [String; 2] {
    [format!("--first={}", seeds.start), format!("--seeds={}", seeds.end - seeds.start)]
}

/// Makes a copy of a file or a folder, with other contents for some files. What has not changed since
/// an earlier copy stays as it is, so that it is not compiled again.
fn mirror(from: &Path, to: &Path, changed: &BTreeMap<PathBuf, String>) {
    if !from.is_dir() {
        let content = changed.get(from).map(|content| content.clone().into_bytes());
        let content = content.unwrap_or_else(|| fs::read(from).expect("a file"));
        if fs::read(to).ok().as_ref() != Some(&content) {
            fs::write(to, content).expect("a file is copied");
        }
        return;
    }
    fs::create_dir_all(to).expect("a folder");
    let names = |folder: &Path| -> BTreeSet<OsString> {
        let entries = fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    let present = names(from);
    for gone in names(to).difference(&present).map(|name| to.join(name)) {
        let removed = if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) };
        removed.expect("it goes");
    }
    for name in present {
        mirror(&from.join(&name), &to.join(name), changed);
    }
}

/// Half an hour and more.
mod nights {
    use super::*;

    #[test]
    #[ignore = "builds a component for each break"]
    fn the_judge_refuses_recordings_of_broken_electors() {
        let mut wrong = Vec::new();
        for it @ Break { what, seeds, is_refused, .. } in BREAKS {
            let judged = Copy::make_with_component(it).judged(&seeds.recorded());
            println!("an elector that {what}: {judged:?}");
            if judged.is_err() != *is_refused {
                wrong.push(what);
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
