//! The edge cases that need no real process, one by one, in the simulation: each
//! under some dozens of seeds, with the laws judged all the time. (28, 36, 39, 42, 44
//! and 46 are about what is said and shown: transcripts and `limits.rs` have them. 30
//! to 33 and 47 need processes, 49, 50 and 55 to 60 real hosts and stores. 3 is about a
//! clock that nobody reads: `tests/tests/layers.rs` proves it.)

use incumbent_guest::types::{Contest, Limit};
use incumbent_simulation::laws::Law;
use incumbent_simulation::plan::{Election, Fault, Flaw, Kind, Moment, Plan};
use incumbent_simulation::seeds::{Found, run_all};
use incumbent_simulation::store::EXPIRY_TICK;
use incumbent_simulation::{Run, run};

const SEEDS: u64 = 40;
const SECOND: u64 = 1_000_000_000;

/// A fault, in seconds.
fn fault(at: u64, lasts: u64, kind: Kind) -> Fault {
    Fault { at: at * SECOND, lasts: lasts * SECOND, kind }
}

/// A plan with these faults and nothing else amiss.
fn with(faults: &[Fault]) -> impl Fn(u64) -> Plan + Sync + use<> {
    let faults = faults.to_vec();
    move |seed| Plan { faults: faults.clone(), ..Plan::quiet(seed) }
}

/// A fault of each of the three processes, so long after that of the one before.
fn of_each(at: u64, after: u64, lasts: u64, kind: impl Fn(usize) -> Kind) -> [Fault; 3] {
    [0, 1, 2].map(|process| fault(at + after * process as u64, lasts, kind(process)))
}

fn queues<const N: usize>(names: [&str; N]) -> Vec<Election> {
    names.map(|name| Election { name: name.into(), contest: Contest::Queue }).into()
}

/// The same with leaders that change often.
fn in_turns(plan: impl Fn(u64) -> Plan + Sync) -> impl Fn(u64) -> Plan + Sync {
    move |seed| Plan { term: 3 * SECOND, ..plan(seed) }
}

fn play(plan: impl Fn(u64) -> Plan + Sync) -> Run {
    match run_all(0..SEEDS, &plan, run) {
        Ok(summary) => summary.total(),
        Err(found) => panic!("{}", Found::story(&found, &plan(found.seed))),
    }
}

fn ended(run: &Run, reason: &str) -> u64 {
    run.ended.get(reason).copied().unwrap_or(0)
}

/// Everybody closes in the end, so each seed's last leader resigns, and no other did.
fn assert_nobody_stepped_down(run: &Run) {
    assert_eq!((run.terms, ended(run, "resigned")), (SEEDS, SEEDS), "{:?}", run.ended);
}

#[test]
fn row_01_a_waiter_whose_lease_died_does_not_win() {
    let faults: Vec<Fault> = (0..10).map(|n| fault(5 + 5 * n, 1, Kind::RevokeLast(0))).collect();
    let run = play(in_turns(with(&faults)));
    assert!(run.joined > run.terms, "places were lost");
}

#[test]
fn row_02_paused_beyond_the_lease() {
    let run = play(with(&[fault(10, 15, Kind::Pause(0)), fault(30, 15, Kind::Pause(1))]));
    assert!(ended(&run, "expired") > 0);
    assert!(run.terms > SEEDS, "others led meanwhile");
}

#[test]
fn row_04_clocks_at_different_rates() {
    // Each clock is off by up to what the margin allows: here the least margin.
    let pauses = [fault(10, 12, Kind::Cut(0)), fault(30, 12, Kind::Cut(1))];
    let plan = with(&pauses);
    play(|seed| Plan { lease_ttl: 2 * SECOND, ..plan(seed) });
}

#[test]
fn rows_05_and_38_replies_come_late() {
    let run = play(with(&[fault(5, 50, Kind::Slow(3 * SECOND))]));
    assert!(run.terms >= SEEDS);
}

#[test]
fn row_06_lease_not_found() {
    let silent = of_each(10, 0, 1, Kind::SilentWatches);
    let plan = with(&[&silent[..], &[fault(11, 1, Kind::Revoke(0))]].concat());
    let run = play(|seed| Plan { writes: false, ..plan(seed) });
    assert_eq!(ended(&run, "lease-lost"), SEEDS);
}

#[test]
fn row_07_a_stream_that_ends_is_no_lost_lease() {
    let streams = of_each(10, 2, 1, Kind::BrokenStream);
    let run = play(with(&[streams, of_each(20, 10, 4, Kind::Cut)].concat()));
    assert_nobody_stepped_down(&run);
}

#[test]
fn rows_08_and_09_the_lease_is_revoked() {
    let run = play(with(&[fault(10, 1, Kind::Revoke(0)), fault(20, 1, Kind::Revoke(0))]));
    assert_eq!(ended(&run, "deposed") + ended(&run, "lease-lost"), 2 * SEEDS);
    play(with(&[fault(10, 1, Kind::WrongRevocation), fault(20, 1, Kind::WrongRevocation)]));
}

#[test]
fn row_10_the_leaders_key_is_deleted() {
    let run = play(with(&[fault(10, 1, Kind::Depose(0)), fault(20, 1, Kind::Depose(0))]));
    assert_eq!(ended(&run, "deposed"), 2 * SEEDS);
}

#[test]
fn row_11_the_leaders_key_is_overwritten() {
    let run = play(with(&[fault(10, 1, Kind::Overwrite(0)), fault(20, 1, Kind::Overwrite(0))]));
    assert_eq!(ended(&run, "deposed"), 2 * SEEDS);
    let run = play(with(&[fault(10, 1, Kind::Revalue(0)), fault(20, 1, Kind::Revalue(0))]));
    assert_nobody_stepped_down(&run);
}

#[test]
fn rows_12_to_14_and_40_replies_are_lost() {
    let run = play(in_turns(with(&[fault(1, 58, Kind::Loss(300))])));
    assert!(run.lost > SEEDS * 20 && run.terms > SEEDS * 3);
}

#[test]
fn rows_15_to_17_and_37_leaving_while_the_store_is_stuck() {
    let stuck: Vec<Fault> = (0..8).map(|n| fault(3 + 7 * n, 5, Kind::MemberPaused(0))).collect();
    let plan = in_turns(with(&stuck));
    play(|seed| Plan { members: 1, ..plan(seed) });
}

#[test]
fn row_18_the_watched_revision_is_compacted() {
    let faults: Vec<Fault> = (0..9)
        .flat_map(|n| {
            [fault(5 + 6 * n, 1, Kind::Compact), fault(6 + 6 * n, 1, Kind::BrokenStream(0))]
        })
        .collect();
    let plan = in_turns(with(&faults));
    play(|seed| Plan { hosts_mend: true, ..plan(seed) });
}

#[test]
fn row_19_a_deletion_is_never_told() {
    let silent = of_each(10, 0, 1, Kind::SilentWatches);
    let plan = with(&[&silent[..], &[fault(11, 1, Kind::Depose(0))]].concat());
    let run = play(|seed| Plan { writes: false, ..plan(seed) });
    assert_eq!(ended(&run, "deposed"), SEEDS);
    // Who writes learns it sooner.
    assert_eq!(ended(&play(plan), "fenced"), SEEDS);
}

#[test]
fn row_20_replies_and_events_come_twice() {
    let run = play(in_turns(with(&[fault(1, 58, Kind::Repeat(900))])));
    assert!(run.terms > SEEDS * 5);
}

#[test]
fn rows_21_and_24_a_member_is_killed_paused_or_cut_off() {
    let run = play(with(&[
        fault(5, 3, Kind::Election),
        fault(10, 8, Kind::MemberDown(0)),
        fault(20, 8, Kind::MemberPaused(1)),
        fault(30, 8, Kind::MemberCutOff(2)),
        fault(40, 8, Kind::MemberCutOff(0)),
    ]));
    assert_nobody_stepped_down(&run);
}

#[test]
fn row_22_no_quorum_for_longer_than_the_lease() {
    let run = play(with(&[fault(10, 25, Kind::NoQuorum)]));
    // Renewals are answered in any order once all is well: by the answer to an old one, somebody may lead
    // for the rest of its time, a fraction of a second.
    let expired = ended(&run, "expired");
    assert!((SEEDS..SEEDS + SEEDS / 10).contains(&expired), "who leads steps down");
    assert_eq!(run.terms, expired + SEEDS, "and somebody gets back in");
}

#[test]
fn row_23_cut_off_one_way() {
    for kind in [Kind::CutToStore, Kind::CutFromStore] {
        let run = play(with(&of_each(5, 18, 15, kind)));
        assert!(ended(&run, "expired") > 0 && run.terms > SEEDS);
    }
}

#[test]
fn row_25_the_role_is_taken_away() {
    let plan = in_turns(with(&of_each(5, 15, 12, Kind::Denied)));
    play(&plan);
    let race = Election { name: "mail".into(), contest: Contest::Race };
    let elections = [queues(["jobs"]), vec![race]].concat();
    play(|seed| Plan { elections: elections.clone(), ..plan(seed) });
}

#[test]
fn row_26_no_space_is_left() {
    assert_nobody_stepped_down(&play(with(&[fault(10, 40, Kind::NoSpace)])));
    play(in_turns(with(&[fault(10, 40, Kind::NoSpace)])));
}

#[test]
fn row_27_restored_from_a_backup() {
    for bumped in [true, false] {
        let plan = with(&[fault(10, 30, Kind::Restore { bumped })]);
        play(in_turns(&plan));
        // Who does not write has to see by a look that its key is gone.
        play(|seed| Plan { writes: false, term: 20 * SECOND, unrest: 41 * SECOND, ..plan(seed) });
    }
}

#[test]
fn row_28_elections_below_one_another() {
    play(|seed| Plan {
        elections: queues(["jobs", "jobs/night"]),
        ..in_turns(with(&[fault(20, 15, Kind::Pause(0))]))(seed)
    });
}

#[test]
fn row_29_the_component_traps() {
    let run = play(with(&of_each(10, 10, 1, |process| Kind::Trap(process, Moment::Now))));
    assert!(run.terms > SEEDS, "others lead, or a new elector does");
}

#[test]
fn row_34_the_same_identity_twice() {
    play(|seed| Plan { one_identity: true, ..in_turns(with(&[]))(seed) });
}

#[test]
fn row_35_one_waiter_wakes_per_handover() {
    let processes = 300;
    let plan = |term| Plan { processes, term, unrest: 20 * SECOND, ..Plan::quiet(1) };
    let quiet = run(&plan(100_000 * SECOND)).expect("the laws hold");
    let busy = run(&plan(2 * SECOND)).expect("the laws hold");
    let handovers = busy.terms - quiet.terms;
    let reads = busy.reads.saturating_sub(quiet.reads);
    assert!(handovers >= 5, "{handovers} handovers");
    // The successor reads beside its work, and the candidate two behind it reads whether that one is
    // next. The old leader, which campaigns again, reads its place, and again once its watches are on.
    assert!(reads <= 4 * handovers, "{reads} reads for {handovers} handovers");
}

#[test]
fn row_41_one_of_two_elections_on_a_lease_is_lost() {
    let run = play(|seed| Plan {
        elections: queues(["jobs", "mail"]),
        ..with(&[fault(10, 1, Kind::Depose(0)), fault(20, 1, Kind::Depose(0))])(seed)
    });
    assert_eq!((ended(&run, "deposed"), run.terms), (2 * SEEDS, 4 * SEEDS));
}

#[test]
fn row_43_the_store_is_away_and_waiters_keep_their_places() {
    let processes = 200;
    let plan = Plan { processes, ..with(&[fault(20, 12, Kind::NoQuorum)])(1) };
    let run = run(&plan).expect("the laws hold");
    // Who led comes back under a new epoch.
    assert!(run.joined <= processes as u64 + 1, "{} places for {processes}", run.joined);
}

#[test]
fn row_45_writes_without_expectations_can_be_lost() {
    // A member that is stopped commits late what was given up long ago.
    let stuck: Vec<Fault> =
        (0..8).map(|n| fault(3 + 7 * n, 6, Kind::MemberPaused(n as usize % 3))).collect();
    let plan = |expectations| {
        let faults = stuck.clone();
        move |seed| Plan {
            expectations,
            request_timeout: SECOND,
            faults: faults.clone(),
            ..Plan::quiet(seed)
        }
    };
    play(plan(true));
    let found = run_all(0..1_000, plan(false), run).expect_err("an update is lost");
    assert_eq!(found.broken.law, Law::Linearizable, "{}", found.broken);
}

/// Elections of one contest, with names that differ only in their ends.
fn alike(many: usize, contest: Contest) -> Vec<Election> {
    let name = |number| format!("{}/{number:03}", "a-name-that-all-have-in-common".repeat(3));
    (0..many).map(|number| Election { name: name(number), contest }).collect()
}

#[test]
fn row_48_hundreds_of_elections_are_dropped_expire_and_are_claimed_at_once() {
    let many = 300;
    let faults = [
        fault(5, 1, Kind::DropAll(0)),
        fault(10, 12, Kind::Cut(0)),
        fault(25, 1, Kind::DropAll(0)),
        fault(30, 15, Kind::Pause(0)),
        fault(47, 1, Kind::DropAll(0)),
    ];
    for contest in [Contest::Queue, Contest::Race] {
        let elections = alike(many, contest);
        let plan = |seed| Plan {
            processes: 1,
            writes: false,
            elections: elections.clone(),
            ..with(&faults)(seed)
        };
        let summary = run_all(0..4, plan, run).unwrap_or_else(|found| panic!("{found}"));
        let run = summary.total();
        assert!(ended(&run, "expired") >= many as u64, "{:?}", run.ended);
        assert!(run.terms >= 4 * 4 * many as u64, "{} terms", run.terms);
    }
}

#[test]
fn row_51_the_component_traps_while_work_is_stopping() {
    let plan = |flaw| {
        move |seed: u64| {
            let moment = |n: u64| Moment::ALL[(seed + n) as usize % Moment::ALL.len()];
            let trap = |n: u64| fault(4 + 7 * n, 6, Kind::Trap(n as usize % 3, moment(n)));
            let faults = (0..8).map(trap).collect();
            Plan { stopping: 15 * SECOND, flaw, faults, ..in_turns(Plan::quiet)(seed) }
        }
    };
    play(plan(None));
    let found = run_all(0..SEEDS, plan(Some(Flaw::RevokesOnceTold)), run);
    let found = found.expect_err("a lease goes while work goes on");
    assert_eq!(found.broken.law, Law::ReleasedAfterWork, "{}", found.broken);
}

#[test]
fn row_52_work_goes_on_after_its_term() {
    let plan = |flaw| {
        let plan = in_turns(Plan::quiet);
        move |seed| Plan { stopping: 20 * SECOND, drops: true, flaw, ..plan(seed) }
    };
    play(plan(None));
    let found = run_all(0..SEEDS, plan(Some(Flaw::CampaignsBesideItsWork)), run);
    let found = found.expect_err("two works go on in one process");
    assert_eq!(found.broken.law, Law::YieldedFirst, "{}", found.broken);
}

#[test]
fn row_53_the_event_of_a_key_that_lands_late_is_lost() {
    // Two of three leave while their claims are under way, and stay in the other election.
    play(|seed| {
        let at = SECOND + seed % 8 * SECOND / 2;
        let leave = |process| Fault { at, lasts: SECOND, kind: Kind::Leave(process, 0) };
        let faults = vec![
            fault(0, 58, Kind::SlowElection(0, 9 * SECOND)),
            fault(0, 58, Kind::LostNews(1, 1_000)),
            fault(0, 58, Kind::LostNews(2, 1_000)),
            leave(1),
            leave(2),
        ];
        Plan { elections: queues(["jobs", "mail"]), faults, ..Plan::quiet(seed) }
    });
}

#[test]
fn row_54_elected_while_renewals_fail() {
    // Who leads departs in the moment in which the others' renewals are lost, and the
    // reads that elect one of them are not.
    let faults: Vec<Fault> = (0..10)
        .flat_map(|n| [fault(3 + 5 * n, 5, Kind::Loss(500)), fault(5 + 5 * n, 1, Kind::Depose(0))])
        .collect();
    let run = play(in_turns(with(&faults)));
    assert!(run.terms > SEEDS * 4, "{} terms", run.terms);
}

/// The law of wishes: a wish never leaves an election without a leader for longer than a handover,
/// and a lease where a candidate has died.
#[test]
fn wishes_leave_no_election_without_a_leader() {
    let wishes: Vec<Fault> = (0..10).map(|n| fault(5 + 5 * n, 1, Kind::Wish(0))).collect();
    let run = play(with(&wishes));
    assert!(run.hand_overs > 5 * SEEDS, "{} hand overs", run.hand_overs);
    // The work stops, and then a deletion, its event and a read: 2 ms each way.
    let handover = Plan::quiet(0).stopping + SECOND / 50;
    assert!(run.vacancy < handover, "nobody led for {} ns", run.vacancy);

    let deaths = of_each(6, 15, 8, Kind::Crash);
    let run = play(with(&[&wishes[..], &deaths].concat()));
    assert!(run.hand_overs > 2 * SEEDS, "{} hand overs", run.hand_overs);
    let lease = Plan::quiet(0).lease_ttl;
    assert!(run.vacancy < lease + EXPIRY_TICK + handover, "nobody led for {} ns", run.vacancy);
}

/// It needs no word from the operator for that.
#[test]
fn a_leader_hands_over_once_nobody_is_between_it_and_the_wanted_one() {
    let wishes: Vec<Fault> = (0..10).map(|n| fault(5 + 5 * n, 3, Kind::Wish(0))).collect();
    let run = play(with(&wishes));
    // Half of them are when the fault ends, with a word.
    assert!(run.hand_overs > 15 * SEEDS, "{} hand overs", run.hand_overs);
}

/// A preferred candidate that is killed and comes back again and again is in front of everybody else each time, and
/// so are its dead keys.
#[test]
fn a_preferred_candidate_that_flaps_does_not_keep_the_lead_from_all() {
    let flaps = (0..18).map(|n| fault(3 + 3 * n, 1, Kind::Crash(2)));
    // In half of the runs, of the leader.
    let death = fault(10, 45, Kind::Crash(0));
    let plan = with(&flaps.chain([death]).collect::<Vec<_>>());
    let run = play(move |seed| Plan { priorities: vec![0, 0, 1], ..plan(seed) });
    let lease = Plan::quiet(0).lease_ttl;
    // That of a dead leader, and twice that between two moves of who waits.
    assert!(run.vacancy < 3 * lease + SECOND, "nobody led for {} ns", run.vacancy);
}

/// A preferred candidate that fails again and again takes the lead over once for each of its starts,
/// and only if it was in line for long enough.
#[test]
fn a_preferred_candidate_that_flaps_does_not_take_the_lead_again_and_again() {
    let flaps: Vec<Fault> = (0..4).map(|n| fault(10 + 12 * n, 1, Kind::Crash(2))).collect();
    let plan = with(&flaps);
    let preferring = |after: u64| {
        let plan = &plan;
        play(move |seed| Plan {
            priorities: vec![0, 0, 1],
            preempt_after: Some(after * SECOND),
            ..plan(seed)
        })
    };
    let run = preferring(3);
    assert!(run.hand_overs > SEEDS / 2, "{} hand overs", run.hand_overs);
    assert!(run.hand_overs <= 5 * SEEDS, "{} hand overs, and 5 starts each", run.hand_overs);
    // It is in line for so long only once all is well.
    let run = preferring(60);
    assert!(run.hand_overs <= SEEDS, "{} hand overs, and one time of peace each", run.hand_overs);
}

#[test]
fn who_drops_a_candidacy_and_campaigns_again_is_let_in() {
    let drops: Vec<Fault> =
        (0..50).map(|n| fault(3 + n, 1, Kind::DropAll(n as usize % 3))).collect();
    let plan = in_turns(with(&drops));
    let run = play(|seed| Plan { drops: true, ..plan(seed) });
    assert!(run.joined > SEEDS * 30, "{} places", run.joined);
}

#[test]
fn a_waiter_in_a_race_is_answered() {
    let plan = in_turns(with(&[]));
    play(|seed| Plan { elections: alike(3, Contest::Race), ..plan(seed) });
}

#[test]
fn the_same_seed_gives_the_same_steps() {
    for seed in 0..SEEDS {
        let again = || run(&Plan::draw(seed)).map(|run| run.fingerprint());
        assert_eq!(again(), again());
    }
}

#[test]
#[cfg(feature = "component")]
fn the_component_takes_the_same_steps() {
    use incumbent_simulation::run_component;

    for seed in 0..SEEDS {
        let plan = Plan::draw(seed);
        let component = run_component(&plan).expect("the laws hold");
        let native = run(&plan).expect("the laws hold");
        assert_eq!(component.fingerprint(), native.fingerprint());
    }
}

/// The first process leads all elections, and gives up the terms beyond its part. Then nothing moves.
#[test]
fn fair_parts_are_found_and_kept() {
    let elections = alike(120, Contest::Queue);
    for (processes, part) in [(2, 60), (3, 40), (4, 30)] {
        let plan = |seed, at_most, unrest| Plan {
            processes,
            elections: elections.clone(),
            limits: vec![Limit { at_most, is_fair: true, at_once: 8 }],
            writes: false,
            // Nobody resigns by itself.
            term: 100_000_000 * SECOND,
            unrest,
            ..Plan::quiet(seed)
        };
        // Where the limit is below the fair part, nobody has room for what is left over.
        let limits = [u32::MAX, u32::MAX, u32::MAX, 25].into_iter().cycle();
        for (seed, at_most) in (0..SEEDS / 4).zip(limits) {
            let soon = run(&plan(seed, at_most, 60 * SECOND)).expect("keeps the laws");
            let (least, most) = soon.led;
            assert!(at_most == 25 || 10 * (most - least) <= part, "{least} to {most} of {part}");
            let later = run(&plan(seed, at_most, 200 * SECOND)).expect("keeps the laws");
            assert_eq!(later.led, soon.led);
            assert_eq!(later.hand_overs, soon.hand_overs, "nothing moves");
        }
    }
}

/// Counts are late where everything takes longer: what went to others who had enough by an old one
/// goes to them again soon.
#[test]
fn fair_parts_are_found_again() {
    let elections = alike(120, Contest::Queue);
    for (processes, part) in [(3, 40), (4, 30)] {
        let plan = |seed| Plan {
            processes,
            elections: elections.clone(),
            limits: vec![Limit { at_most: u32::MAX, is_fair: true, at_once: 8 }],
            writes: false,
            term: 100_000_000 * SECOND,
            faults: vec![
                Fault { at: 15 * SECOND, lasts: 30 * SECOND, kind: Kind::Crash(1) },
                Fault { at: 20 * SECOND, lasts: 60 * SECOND, kind: Kind::Slow(SECOND / 5) },
            ],
            unrest: 100 * SECOND,
            ..Plan::quiet(seed)
        };
        for seed in 0..SEEDS / 4 {
            let (least, most) = run(&plan(seed)).expect("keeps the laws").led;
            assert!(10 * (most - least) <= part, "seed {seed}: {least} to {most} of {part}");
        }
    }
}

/// What was counted while only some of the lines had grown is forgotten: not even one term stays beyond
/// the fair part.
#[test]
fn fair_parts_are_exact_where_few_are_counted() {
    for (elections, part) in [(20, 10), (12, 6), (6, 3)] {
        for seed in 0..SEEDS / 2 {
            let plan = Plan {
                processes: 2,
                elections: alike(elections, Contest::Queue),
                limits: vec![Limit { at_most: u32::MAX, is_fair: true, at_once: 8 }],
                writes: false,
                term: 100_000_000 * SECOND,
                faults: vec![
                    Fault { at: 15 * SECOND, lasts: 15 * SECOND, kind: Kind::Crash(1) },
                    Fault {
                        at: 20 * SECOND,
                        lasts: 20 * SECOND,
                        kind: Kind::Slow((seed + 1) * SECOND / SEEDS),
                    },
                ],
                unrest: 100 * SECOND,
                ..Plan::quiet(seed)
            };
            assert_eq!(run(&plan).expect("keeps the laws").led, (part, part), "seed {seed}");
        }
    }
}

/// Some processes take part in some of the elections only.
#[test]
fn fair_parts_are_kept_where_lines_differ_in_length() {
    let elections = alike(400, Contest::Queue);
    let takes_part: [fn(usize) -> bool; 2] =
        [|election| election < 200, |election| election % 2 == 0];
    for (seed, takes_part) in (0..SEEDS / 8).zip(takes_part.into_iter().cycle()) {
        let leaves = (0..400).filter(|election| !takes_part(*election));
        let plan = |unrest| Plan {
            processes: 3,
            elections: elections.clone(),
            limits: vec![Limit { at_most: u32::MAX, is_fair: true, at_once: 8 }],
            writes: false,
            term: 100_000_000 * SECOND,
            faults: leaves.clone().map(|election| fault(10, 0, Kind::Leave(2, election))).collect(),
            unrest,
            ..Plan::quiet(seed)
        };
        // The last few terms go over after minutes: one that came back stays for up to 300 s.
        let soon = run(&plan(420 * SECOND)).expect("keeps the laws");
        let later = run(&plan(840 * SECOND)).expect("keeps the laws");
        assert_eq!(later.hand_overs, soon.hand_overs, "seed {seed}: nothing moves");
    }
}

/// One has room beyond its fair part, and the other ones do not have it up to theirs.
#[test]
fn a_limit_does_not_give_way_to_the_fair_part_of_others() {
    for (processes, at_most, most) in [(2, 12, 28), (3, 4, 32)] {
        for seed in 0..SEEDS / 8 {
            let fair = |at_most| Limit { at_most, is_fair: true, at_once: 8 };
            let plan = |unrest| Plan {
                processes,
                elections: alike(40, Contest::Queue),
                limits: [fair(u32::MAX), fair(at_most), fair(at_most)][..processes].into(),
                writes: false,
                term: 100_000_000 * SECOND,
                unrest,
                ..Plan::quiet(seed)
            };
            for unrest in [60, 200] {
                let run = run(&plan(unrest * SECOND)).expect("keeps the laws");
                assert_eq!(run.led, (at_most as usize, most), "seed {seed}, after {unrest} s");
            }
        }
    }
}

/// All sessions lead as much as they may, and the lead goes round once, however long that takes.
#[test]
fn a_round_of_sessions_that_lead_enough_has_an_end() {
    let elections = alike(20, Contest::Queue);
    for seed in 0..SEEDS / 4 {
        let plan = Plan {
            processes: 10,
            elections: elections.clone(),
            limits: vec![Limit { at_most: 1, is_fair: false, at_once: 8 }],
            lease_ttl: 6 * SECOND,
            writes: false,
            faults: vec![fault(5, 200, Kind::Slow(SECOND / 2)), fault(10, 195, Kind::Crash(0))],
            unrest: 210 * SECOND,
            ..Plan::quiet(seed)
        };
        let vacancy = run(&plan).expect("keeps the laws").vacancy;
        assert!(vacancy < 20 * SECOND, "seed {seed}: nobody led for {vacancy} ns");
    }
}

/// Each leads an election of its own, and all wait in one more.
#[test]
fn a_round_has_an_end_in_a_long_line() {
    let processes = 700;
    let leaves = |process| {
        (0..processes)
            .filter(move |other| *other != process)
            .map(move |other| fault(0, 0, Kind::Leave(process, 1 + other)))
    };
    let plan = Plan {
        processes,
        elections: alike(processes + 1, Contest::Queue),
        limits: vec![Limit { at_most: 1, is_fair: false, at_once: 8 }],
        writes: false,
        faults: (0..processes).flat_map(leaves).collect(),
        unrest: 60 * SECOND,
        ..Plan::quiet(1)
    };
    let vacancy = run(&plan).expect("keeps the laws").vacancy;
    assert!(vacancy < 20 * SECOND, "nobody led for {vacancy} ns");
}

/// It would give way, and the leader lead again.
#[test]
fn a_session_that_leads_enough_does_not_take_the_lead_over() {
    let elections = alike(2, Contest::Queue);
    let plan = Plan {
        processes: 2,
        elections,
        limits: vec![Limit { at_most: 1, is_fair: false, at_once: 1 }],
        priorities: vec![0, 1],
        preempt_after: Some(3 * SECOND),
        writes: false,
        ..Plan::quiet(1)
    };
    let run = run(&plan).expect("keeps the laws");
    assert_eq!(run.led, (1, 1));
    assert!(run.hand_overs < 3, "{} hand overs", run.hand_overs);
}

/// It is no reason for an election to have no leader.
#[test]
fn a_limit_is_for_what_others_would_lead() {
    let elections = alike(20, Contest::Queue);
    let limits = vec![Limit { at_most: 4, is_fair: false, at_once: 2 }];
    let plan = Plan { processes: 3, elections, limits, writes: false, ..Plan::quiet(1) };
    // Eight of them have nobody whose limit they fit in.
    let run = run(&plan).expect("keeps the laws");
    let (least, most) = run.led;
    assert!(least >= 4 && most <= 12, "{least} to {most}");
    assert!(run.hand_overs < 1_000, "{}", run.hand_overs);
}
