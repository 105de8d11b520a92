//! Thousands of seeds keep the laws, and a few do in thousands of elections. Prints what they came
//! to. By hand it is `just sim`.

use std::ops::Range;

use incumbent_simulation::plan::Plan;
use incumbent_simulation::run;
use incumbent_simulation::seeds::{MANY_ELECTIONS, QUICK_SEEDS, QUICK_SEEDS_OF_MANY, run_all};
use mimalloc::MiMalloc;

/// What is simulated consists of small things that come and go.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Each of them has to be met in so many runs.
const REASONS: [&str; 5] = ["resigned", "expired", "lease-lost", "deposed", "fenced"];

#[test]
fn seeds_keep_the_laws() {
    keep_the_laws(QUICK_SEEDS);
}

#[test]
fn a_seed_keeps_the_laws_in_thousands_of_elections() {
    keep_the_laws_in_many(QUICK_SEEDS_OF_MANY);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: `just test-all` runs it"]
    fn ten_thousand_seeds_keep_the_laws() {
        keep_the_laws(0..10_000);
    }

    /// `just sim --elections 10000` takes up to half a minute for a seed.
    #[test]
    #[ignore = "long: `just test-all` runs it"]
    fn seeds_keep_the_laws_in_thousands_of_elections() {
        keep_the_laws_in_many(0..4);
    }
}

fn keep_the_laws(seeds: Range<u64>) {
    let count = seeds.end - seeds.start;
    let summary = match run_all(seeds, Plan::draw, run) {
        Ok(summary) => summary,
        Err(found) => panic!("{found}\n\n{}", found.story(&Plan::draw(found.seed))),
    };
    println!("{summary}");
    let total = summary.total();
    assert!(total.time >= count * 120_000_000_000, "a seed covers 120 s");
    assert!(total.faults >= count * 5, "and 5 faults");
    assert!(total.terms >= count * 3, "and 3 terms");
    assert!(total.hand_overs >= count / 10, "{} hand overs", total.hand_overs);
    assert!(total.traps >= count / 4, "{} traps", total.traps);
    assert!(total.drops >= count * 2, "{} candidacies are dropped", total.drops);
    assert!(total.lost_news >= count / 10, "{} events are lost", total.lost_news);
    for reason in REASONS {
        assert!(total.ended.contains_key(reason), "a term ends as {reason}");
    }
}

fn keep_the_laws_in_many(seeds: Range<u64>) {
    let count = seeds.end - seeds.start;
    let elections = MANY_ELECTIONS;
    let plan = |seed| Plan::draw_many(seed, elections as usize);
    let summary = match run_all(seeds, plan, run) {
        Ok(summary) => summary,
        Err(found) => panic!("in {elections} elections, {found}"),
    };
    println!("in {elections} elections: {summary}");
    let total = summary.total();
    assert!(total.terms >= count * u64::from(elections), "each election has a leader");
    assert!(total.faults >= count * 2, "and there are faults");
}
