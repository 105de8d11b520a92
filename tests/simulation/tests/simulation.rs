//! Ten thousand seeds keep the laws, and a few do in thousands of elections. Prints what they came
//! to; run by `cargo test`, and by hand as `just sim`.

use incumbent_simulation::plan::Plan;
use incumbent_simulation::run;
use incumbent_simulation::seeds::run_all;
use mimalloc::MiMalloc;

/// What is simulated consists of small things that come and go.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Each of them has to be met in so many runs.
const REASONS: [&str; 5] = ["resigned", "expired", "lease-lost", "deposed", "fenced"];

fn main() {
    let seeds = 10_000;
    let summary = match run_all(0..seeds, Plan::draw, run) {
        Ok(summary) => summary,
        Err(found) => panic!("{found}\n\n{}", found.story(&Plan::draw(found.seed))),
    };
    println!("{summary}");
    let total = summary.total();
    assert!(total.time >= seeds * 120_000_000_000, "a seed covers 120 s");
    assert!(total.faults >= seeds * 5, "and 5 faults");
    assert!(total.terms >= seeds * 3, "and 3 terms");
    assert!(total.hand_overs >= seeds / 10, "{} hand overs", total.hand_overs);
    assert!(total.traps >= seeds / 4, "{} traps", total.traps);
    assert!(total.drops >= seeds * 2, "{} candidacies are dropped", total.drops);
    assert!(total.lost_news >= seeds / 10, "{} events are lost", total.lost_news);
    for reason in REASONS {
        assert!(total.ended.contains_key(reason), "a term ends as {reason}");
    }
    thousands_of_elections();
}

/// `just sim --elections 10000` takes up to half a minute for a seed.
fn thousands_of_elections() {
    let (elections, seeds) = (3_000, 4);
    let plan = |seed| Plan::draw_many(seed, elections);
    let summary = match run_all(0..seeds, plan, run) {
        Ok(summary) => summary,
        Err(found) => panic!("in {elections} elections, {found}"),
    };
    println!("in {elections} elections: {summary}");
    let total = summary.total();
    assert!(total.terms >= seeds * elections as u64, "each election has a leader");
    assert!(total.faults >= seeds * 2, "and there are faults");
}
