use incumbent_simulation::history::Outcome;

use super::*;
use crate::soak::faults::{Fault, Removal};

const SECOND: Mark = 1_000_000_000;

/// Leases of 3 s, and 5 s without a leader are allowed. All is ready at 10 s; marks
/// are given in seconds.
fn judged(events: &[(&str, u64, Event)]) -> Report {
    let settings = Settings { seed: 0, store: "3.5".into(), ttl: 3 * SECOND, bound: 5 * SECOND };
    let began = [("soak", 0, Event::Began(settings)), ("soak", 10, Event::Ready)];
    let ended = [("soak", 100, Event::Ended)];
    let mut lines: Vec<_> = [&began[..], events, &ended]
        .concat()
        .into_iter()
        .map(|(process, seconds, event)| Line {
            process: process.into(),
            mark: seconds * SECOND,
            event,
        })
        .collect();
    lines.sort_by_key(|line| line.mark);
    judge(&lines)
}

fn state(epoch: i64, valid_until: u64) -> TermState {
    TermState { election: "jobs".into(), epoch, valid_until: valid_until * SECOND }
}

fn elected(epoch: i64, valid_until: u64) -> Event {
    Event::Elected(state(epoch, valid_until))
}

fn demoted(epoch: i64, valid_until: u64, reason: &str) -> Event {
    Event::Demoted { term: state(epoch, valid_until), reason: reason.into() }
}

fn invoke(epoch: i64) -> Event {
    Event::Invoke { election: "jobs".into(), increment: 0, epoch, leads: true }
}

fn counted_to(value: u64) -> Event {
    Event::Counted { election: "jobs".into(), value }
}

fn fault(id: u64, fault: Fault) -> Event {
    Event::Fault { id, fault }
}

fn pause(host: &str) -> Fault {
    Fault::PauseHost { host: host.into() }
}

fn member_paused(leader: bool) -> Fault {
    Fault::FailMembers { failure: Failure::Paused, members: vec![0], leader }
}

fn violations(events: &[(&str, u64, Event)]) -> usize {
    judged(events).violations.len()
}

#[test]
fn one_after_the_other() {
    let report = judged(&[
        ("worker-1.1", 10, elected(5, 13)),
        ("worker-1.1", 12, Event::Extended(state(5, 60))),
        ("worker-1.1", 59, demoted(5, 60, "resigned")),
        ("worker-2.1", 59, elected(7, 100)),
    ]);
    assert!(report.is_good(), "{report}");
    assert_eq!((report.terms, report.led), (2, Duration::from_secs(90)));
    assert_eq!(report.longest_gap, Duration::ZERO);
}

#[test]
fn one_epoch_in_two_elections() {
    let other = TermState { election: "other-jobs".into(), ..state(5, 100) };
    let jobs = ("worker-1.1", 10, elected(5, 100));
    let both = [jobs.clone(), ("worker-1.1", 10, Event::Elected(other))];
    let report = judged(&both);
    assert!(report.is_good(), "{report}");
    assert_eq!((report.terms, report.led), (2, Duration::from_secs(180)));
    // In one election, an epoch is one term.
    assert_eq!(violations(&[jobs.clone(), jobs]), 1);
}

#[test]
fn two_at_a_time() {
    let first = ("worker-1.1", 10, elected(5, 60));
    let second = ("worker-2.1", 58, elected(7, 100));
    assert_eq!(violations(&[first.clone(), second.clone()]), 1);
    let demoted = ("worker-1.1", 57, demoted(5, 60, "resigned"));
    assert_eq!(violations(&[first.clone(), second.clone(), demoted]), 0);
    let is_killed = fault(1, Fault::KillHost { host: "worker-1".into() });
    let is_killed = ("soak", 20, is_killed);
    assert_eq!(violations(&[first, second, is_killed]), 1, "its lease was still to be kept");
}

#[test]
fn a_paused_host_led_to_its_deadline() {
    let woken = [
        ("worker-1.1", 10, elected(5, 60)),
        ("soak", 50, fault(1, pause("worker-1"))),
        ("soak", 70, Event::Healed { id: 1 }),
        ("worker-1.1", 70, demoted(5, 60, "expired")),
        ("worker-2.1", 61, elected(7, 100)),
    ];
    assert_eq!(violations(&woken), 0);
    let believed = [&woken[..], &[("worker-1.1", 69, invoke(5))]].concat();
    // That it believed, and that another led meanwhile.
    assert_eq!(violations(&believed), 2);
}

#[test]
fn an_operator_and_a_stuck_leader_of_etcds_excuse() {
    let two = [
        ("worker-1.1", 10, elected(5, 60)),
        ("worker-1.1", 58, demoted(5, 60, "lease-lost")),
        ("worker-2.1", 57, elected(7, 100)),
    ];
    let with = |before: Event| judged(&[&two[..], &[("soak", 56, before)]].concat());
    assert_eq!(violations(&two), 1);
    let deposed = |epoch| with(fault(1, Fault::Depose { epoch, by: Removal::Lease }));
    assert!(deposed(5).is_good());
    assert_eq!(deposed(4).violations.len(), 1);
    let stuck = with(fault(1, member_paused(true)));
    assert_eq!((stuck.violations.len(), stuck.broken_words.len()), (0, 1));
}

#[test]
fn epochs_rise() {
    let first = ("worker-1.1", 10, elected(5, 60));
    assert_eq!(violations(&[first.clone(), ("worker-2.1", 60, elected(5, 100))]), 1);
    assert_eq!(violations(&[first.clone(), ("worker-2.1", 60, elected(4, 100))]), 1);
    assert_eq!(violations(&[first, ("worker-2.1", 60, elected(6, 100))]), 0);
}

#[test]
fn a_leader_within_the_bound_of_the_end_of_the_faults() {
    let led = |from| {
        vec![
            ("worker-1.1", 10, elected(5, 40)),
            ("soak", 41, fault(1, member_paused(true))),
            ("soak", 50, Event::Healed { id: 1 }),
            ("worker-2.1", from, elected(7, 100)),
        ]
    };
    assert_eq!(violations(&led(55)), 0);
    assert_eq!(judged(&led(55)).longest_gap, Duration::from_secs(15));
    assert_eq!(judged(&led(55)).longest_calm_gap, Duration::from_secs(5));
    assert_eq!(violations(&led(56)), 1);
    assert_eq!(violations(&[]), 1, "nobody ever led");
}

#[test]
fn a_loss_has_a_cause() {
    let lost = |cause: Option<(u64, Fault)>| {
        let mut events = vec![
            ("worker-1.1", 10, elected(5, 60)),
            ("worker-1.1", 60, demoted(5, 60, "expired")),
            ("worker-2.1", 61, elected(7, 100)),
        ];
        if let Some((at, one)) = cause {
            events.push(("soak", at, fault(1, one)));
            events.push(("soak", at + 1, Event::Healed { id: 1 }));
        }
        judged(&events).without_cause.len()
    };
    assert_eq!(lost(None), 1);
    assert_eq!(lost(Some((57, pause("worker-1")))), 0);
    assert_eq!(lost(Some((57, pause("worker-2")))), 1, "it is another one's");
    assert_eq!(lost(Some((50, pause("worker-1")))), 1, "that was long before");
    assert_eq!(lost(Some((57, member_paused(true)))), 0);
    assert_eq!(lost(Some((57, member_paused(false)))), 1, "two members are enough");
}

#[test]
fn what_an_earlier_term_counts_late() {
    let counted = |first: i64, second: i64| {
        let mut events = vec![("worker-1.1", 10, elected(9, 100))];
        for (value, epoch) in [(0, first), (1, second)] {
            let increment = value;
            let at = 20 + 3 * value;
            let (election, leads) = ("jobs".into(), false);
            let invoke = Event::Invoke { election, increment, epoch, leads };
            events.push(("worker-1.1", at, invoke));
            events.push(("worker-1.1", at + 1, Event::Read { increment, value, timeline: None }));
            let outcome = Outcome::Applied;
            events.push(("worker-1.1", at + 2, Event::Return { increment, outcome }));
        }
        events.push(("soak", 101, counted_to(2)));
        violations(&events)
    };
    assert_eq!(counted(8, 9), 0);
    assert_eq!(counted(9, 8), 1);
    let lost = [("worker-1.1", 10, elected(9, 100)), ("soak", 101, counted_to(1))];
    assert_eq!(violations(&lost), 1, "nobody counted to 1");
}

/// Increments of one leader from these values on, each on its timeline, at 20 s, 23 s, ….
fn increments(read: &[(u64, u32)]) -> Vec<(&'static str, u64, Event)> {
    let mut events = vec![("worker-1.1", 10, elected(9, 100))];
    for ((value, timeline), increment) in read.iter().copied().zip(0..) {
        let (at, election, epoch, leads) = (20 + 3 * increment, "jobs".into(), 9, false);
        let read = Event::Read { increment, value, timeline: Some(timeline) };
        let outcome = Outcome::Applied;
        events.push(("worker-1.1", at, Event::Invoke { election, increment, epoch, leads }));
        events.push(("worker-1.1", at + 1, read));
        events.push(("worker-1.1", at + 2, Event::Return { increment, outcome }));
    }
    events
}

#[test]
fn what_a_lost_primary_counted_last() {
    let judged_from = |since: u64, left: u64, read: &[(u64, u32)], value: u64| {
        let counters = [("jobs".to_owned(), left)].into();
        let since = since * SECOND;
        let mut events = increments(read);
        // The next server is heard of before this is written.
        events.push(("soak", 33, Event::TakenOver { since, timeline: 2, counters }));
        events.push(("soak", 101, counted_to(value)));
        let report = judged(&events);
        (report.violations.len(), report.lost)
    };
    let kept = [(0, 1), (1, 1), (2, 2), (3, 2)];
    assert_eq!(judged_from(26, 2, &kept, 4), (0, 0));
    let lost = [(0, 1), (1, 1), (1, 2), (2, 2)];
    assert_eq!(judged_from(24, 1, &lost, 3), (0, 0), "the second one was not copied yet");
    assert_eq!(judged_from(26, 1, &lost, 3), (1, 1), "it was copied");
    assert_eq!(judged_from(24, 1, &lost, 2), (1, 1), "one of the new server is missing");
    let early = [(0, 1), (1, 1), (0, 2)];
    assert_eq!(judged_from(26, 2, &early, 2), (1, 0), "a server that had not all was read");
}
