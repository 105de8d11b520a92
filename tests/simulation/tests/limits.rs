//! What is just allowed, and what is refused with a sentence.

use std::collections::{BTreeMap, BTreeSet};

use incumbent_guest::Elector;
use incumbent_guest::types::*;

const S: u64 = 1_000_000_000;

fn config() -> Config {
    Config { lease_ttl: 10 * S, safety_margin: S, request_timeout: 5 * S, seed: (1, 2) }
}

fn opened() -> Elector {
    Elector::open(config(), 0).expect("the configuration is good")
}

fn candidacy(name: String, value: Vec<u8>) -> Event {
    Event::Campaign(Candidacy {
        election: 1,
        name,
        contest: Contest::Race,
        value,
        rejoin: false,
        priority: 0,
        preempt_after: None,
    })
}

fn campaign(election: ElectionId) -> Event {
    let (name, value) = (format!("jobs-{election}"), Vec::new());
    Event::Campaign(Candidacy {
        election,
        name,
        contest: Contest::Queue,
        value,
        rejoin: true,
        priority: 0,
        preempt_after: None,
    })
}

fn observation(election: ElectionId, name: &str) -> Observation {
    Observation { election, name: name.into(), contest: Contest::Queue }
}

fn observe(election: ElectionId) -> Event {
    Event::Observe(observation(election, &format!("jobs-{election}")))
}

fn reply(id: RequestId, response: Response) -> Event {
    Event::Reply(Reply { id, outcome: Ok(response) })
}

fn found(id: RequestId, entries: Vec<Entry>) -> Event {
    reply(id, Response::Snapshot(Snapshot { at: 90_000, found: vec![entries] }))
}

fn entry(key: String, lease: LeaseId, created: Revision) -> Entry {
    Entry { key: key.into_bytes(), value: Vec::new(), lease, created, modified: created }
}

/// A store in which nobody else has a key, and all of ours were created at once.
#[derive(Default)]
struct OwnKeys(BTreeMap<Vec<u8>, Entry>);

impl OwnKeys {
    /// Its answer to a grant, a claim or a read.
    fn answer(&mut self, operation: Operation) -> Option<Response> {
        Some(match operation {
            Operation::Grant(_) => Response::Granted(10 * S),
            Operation::Claim(Claim { key, lease, .. }) => {
                let entry = entry(String::from_utf8(key).expect("text"), lease, 7);
                self.0.insert(entry.key.clone(), entry.clone());
                Response::Claimed(Claimed { entry, at: 7 })
            }
            Operation::Read(selections) => {
                let ours = |it: Selection| {
                    self.0.values().filter(|own| own.key.starts_with(&it.key)).cloned().collect()
                };
                let found = selections.into_iter().map(ours).collect();
                Response::Snapshot(Snapshot { at: 7, found })
            }
            Operation::KeepAlive(_) | Operation::Guarded(_) | Operation::Revoke(_) => return None,
        })
    }
}

/// What a step reads.
fn reads(step: &Step) -> Vec<(RequestId, &[Selection])> {
    let reads = step.commands.iter().filter_map(|command| match command {
        Command::Call(Call { id, operation: Operation::Read(selections), .. }) => {
            Some((*id, selections.as_slice()))
        }
        _ => None,
    });
    reads.collect()
}

/// What a new elector says to one event, in short.
fn told(event: Event) -> String {
    let mut elector = opened();
    match elector.handle(0, vec![event]).commands.as_slice() {
        [Command::Call(Call { operation: Operation::Grant(_), .. })] => "taken".into(),
        [
            Command::Notify(Notice::Withdrawn(Withdrawal {
                cause: Some(Failure::Invalid(why)),
                ..
            })),
        ] => why.clone(),
        commands => panic!("{commands:?}"),
    }
}

#[test]
fn a_name_has_1024_bytes_at_most() {
    assert_eq!(told(candidacy("n".repeat(1_024), Vec::new())), "taken");
    assert_eq!(
        told(candidacy("n".repeat(1_025), Vec::new())),
        "the election's name has 1025 bytes: shorten it to 1,024 at most"
    );
    // Bytes, not letters.
    assert_ne!(told(candidacy("é".repeat(513), Vec::new())), "taken");
}

#[test]
fn a_value_has_4096_bytes_at_most() {
    assert_eq!(told(candidacy("jobs".into(), vec![0xff; 4_096])), "taken");
    assert_eq!(
        told(candidacy("jobs".into(), vec![0; 1_000_000])),
        "the candidate's value has 1000000 bytes: shorten it to 4,096 at most"
    );
}

#[test]
fn a_proclaimed_value_has_4096_bytes_at_most() {
    let mut elector = opened();
    let value = vec![0; 4_097];
    let proclaim = Event::Proclaim(Proclamation { election: 1, ticket: 9, value });
    let step = elector.handle(0, vec![candidacy("jobs".into(), Vec::new()), proclaim]);
    let refused = |command: &Command| {
        matches!(
            command,
            Command::Notify(Notice::Written(Written {
                ticket: 9,
                outcome: WriteOutcome::Failed(Failure::Invalid(_)),
            }))
        )
    };
    assert!(step.commands.iter().any(refused), "{:?}", step.commands);
}

/// That renewals fail concerns those who lead. An elector with many who wait takes no further steps
/// to look at each of them.
#[test]
fn those_who_wait_are_passed_over() {
    const WAITERS: u32 = 10_000;
    let mut elector = opened();
    let mut events: Vec<Event> = (1..=WAITERS).map(campaign).collect();
    let mut own: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    let (mut now, mut deletions, mut silent, mut most_silent) = (0, 0, 0, 0);
    let mut closing = false;
    loop {
        let step = elector.handle(now, std::mem::take(&mut events));
        let in_vain = step.commands.is_empty() && step.deadline == Some(now + 1);
        silent = if in_vain { silent + 1 } else { 0 };
        most_silent = most_silent.max(silent);
        for command in &step.commands {
            let Command::Call(Call { id, operation, .. }) = command else { continue };
            let response = match operation {
                Operation::Grant(_) => Response::Granted(10 * S),
                Operation::Claim(Claim { key, lease, .. }) => {
                    let key = String::from_utf8(key.clone()).expect("text");
                    let entry = entry(key, *lease, 1_000);
                    let end = entry.key.iter().rposition(|byte| *byte == b'/').expect("in a queue");
                    own.insert(entry.key[..=end].to_vec(), entry.clone());
                    Response::Claimed(Claimed { entry, at: 1_000 })
                }
                // Somebody is in front of each.
                Operation::Read(selections) if !closing => {
                    let name = &selections[0].key;
                    let front = entry(format!("{}1", String::from_utf8_lossy(name)), 1, 5);
                    let found = vec![vec![own[name].clone(), front], Vec::new()];
                    Response::Snapshot(Snapshot { at: 1_000, found })
                }
                Operation::Guarded(_) => {
                    deletions += 1;
                    continue;
                }
                _ => continue,
            };
            events.push(reply(*id, response));
        }
        if now > 9 * S && !closing {
            closing = true;
            events.push(Event::Close);
        } else if deletions == WAITERS && step.deadline.is_some_and(|mark| mark > now + 1) {
            break;
        }
        now = if events.is_empty() { step.deadline.expect("it goes on") } else { now + 1 };
        if events.is_empty() {
            events.push(Event::Wake);
        }
    }
    // A timer may be due for nothing.
    assert!(most_silent <= 2, "{most_silent} steps in a row do nothing");
}

/// More candidacies are refused at once than one step handles. Each proclamation has its answer.
#[test]
fn a_proclamation_of_a_refused_candidacy_is_answered() {
    const CANDIDACIES: u32 = 300;
    let mut elector = opened();
    let step = elector.handle(0, (1..=CANDIDACIES).map(campaign).collect());
    let [Command::Call(Call { id, operation: Operation::Grant(_), .. })] = step.commands[..] else {
        panic!("{step:?}");
    };
    let proclaim = |election: u32| {
        let ticket = election.into();
        Event::Proclaim(Proclamation { election, ticket, value: b"new".into() })
    };
    let refused = Reply { id, outcome: Err(Failure::Denied("no".into())) };
    // The first and the last one, before and after a portion of them is withdrawn.
    let before = [proclaim(1), proclaim(CANDIDACIES), Event::Reply(refused)];
    let after = [proclaim(2), proclaim(CANDIDACIES - 1), proclaim(CANDIDACIES)];
    let mut step = elector.handle(1, before.into_iter().chain(after).collect());
    let (mut now, mut withdrawn, mut answers) = (1, 0, BTreeMap::<u64, u32>::new());
    while withdrawn < CANDIDACIES || now < 4 {
        for command in &step.commands {
            match command {
                Command::Notify(Notice::Withdrawn(_)) => withdrawn += 1,
                Command::Notify(Notice::Written(Written { ticket, outcome })) => {
                    assert_eq!(*outcome, WriteOutcome::Stale);
                    *answers.entry(*ticket).or_default() += 1;
                }
                _ => {}
            }
        }
        now += 1;
        step = elector.handle(now, vec![Event::Wake]);
    }
    assert_eq!(answers, BTreeMap::from([(1, 1), (2, 1), (299, 1), (300, 2)]));
}

/// Nobody listens after that.
#[test]
fn that_it_has_closed_is_said_last() {
    let mut elector = opened();
    let proclaim = Proclamation { election: 1, ticket: 9, value: b"new".into() };
    let step = elector.handle(0, vec![Event::Close, Event::Proclaim(proclaim)]);
    let stale = Written { ticket: 9, outcome: WriteOutcome::Stale };
    let said = [Notice::Written(stale), Notice::Closed];
    assert_eq!(step.commands, said.map(Command::Notify));
}

/// A host tells every candidate about a trouble that names no election. A thousand failed deletions
/// would be a million events.
#[test]
fn a_deletion_that_fails_is_told_to_its_election() {
    const LEADERS: u32 = 3;
    let mut elector = opened();
    let mut events: Vec<Event> = (1..=LEADERS).map(campaign).collect();
    let mut store = OwnKeys::default();
    let (mut now, mut told) = (0, Vec::new());
    while told.is_empty() {
        let step = elector.handle(now, std::mem::take(&mut events));
        for command in step.commands {
            match command {
                Command::Notify(Notice::Elected(Leadership { term, .. })) => {
                    events.push(Event::Yielded(term));
                }
                Command::Notify(Notice::Trouble(trouble)) => told.push(trouble.election),
                Command::Call(Call { id, operation, .. }) => {
                    // The deletions have no answer.
                    let renewed = matches!(operation, Operation::KeepAlive(_));
                    let renewed = renewed.then_some(Response::Renewed(10 * S));
                    let response = renewed.or_else(|| store.answer(operation));
                    events.extend(response.map(|response| reply(id, response)));
                }
                Command::Notify(_) | Command::Watch(_) | Command::Unwatch(_) => {}
            }
        }
        now = if events.is_empty() { step.deadline.expect("it goes on") } else { now + 1 };
        if events.is_empty() {
            events.push(Event::Wake);
        }
    }
    assert_eq!(told, (1..=LEADERS).map(Some).collect::<Vec<_>>());
}

/// More terms end at their deadline than one step tells, and a renewal comes late: a term of which
/// nobody was told yet is over as well.
#[test]
fn nothing_is_written_in_a_term_that_is_over() {
    const LEADERS: u32 = 300;
    let mut elector = opened();
    let mut events: Vec<Event> = (1..=LEADERS).map(campaign).collect();
    let mut store = OwnKeys::default();
    let (mut now, mut led, mut renewal) = (0, Vec::new(), None);
    while led.len() < LEADERS as usize || renewal.is_none() {
        let step = elector.handle(now, std::mem::take(&mut events));
        for command in step.commands {
            match command {
                Command::Notify(Notice::Elected(leadership)) => led.push(leadership),
                Command::Call(Call { id, operation, .. }) => {
                    // The renewal is long on its way.
                    if matches!(operation, Operation::KeepAlive(_)) {
                        renewal = renewal.or(Some(id));
                    }
                    events.extend(store.answer(operation).map(|response| reply(id, response)));
                }
                Command::Notify(_) | Command::Watch(_) | Command::Unwatch(_) => {}
            }
        }
        now = if events.is_empty() { step.deadline.expect("it goes on") } else { now + 1 };
        events.extend(events.is_empty().then_some(Event::Wake));
    }
    let until = led[0].valid_until;
    let write = |(ticket, led): (u64, &Leadership)| {
        let mutations = vec![Mutation::Put(Put { key: b"data".into(), value: Vec::new() })];
        Event::Write(GuardedWrite { term: led.term, ticket, expect: Vec::new(), mutations })
    };
    let renewed = reply(renewal.expect("it was sent"), Response::Renewed(10 * S));
    // In a step with few events.
    let writes = (0..).zip(led.iter().rev().take(10)).map(write);
    let step = elector.handle(until, [renewed].into_iter().chain(writes).collect());
    let stale = |command: &&Command| {
        matches!(
            command,
            Command::Notify(Notice::Written(Written { outcome: WriteOutcome::Stale, .. }))
        )
    };
    assert_eq!(step.commands.iter().filter(stale).count(), 10);
}

/// More candidates come first than one step has look again, and the time that a renewal has brought is
/// over before the others have: the next renewal has them look.
#[test]
fn all_who_come_first_look_again_after_a_renewal() {
    const WAITERS: u32 = 300;
    let mut elector = opened();
    let mut events: Vec<Event> = (1..=WAITERS).map(campaign).collect();
    let mut store = OwnKeys::default();
    let (mut now, mut renewals, mut reads) = (0, Vec::new(), Vec::new());
    // The lease is over by our clock when the reads are answered.
    while now < 9 * S {
        let step = elector.handle(now, std::mem::take(&mut events));
        for command in step.commands {
            let Command::Call(Call { id, operation, .. }) = command else { continue };
            if matches!(operation, Operation::KeepAlive(_)) {
                renewals.push((id, now));
            }
            let is_read = matches!(operation, Operation::Read(_));
            let answer = store.answer(operation).map(|response| reply(id, response));
            if is_read { reads.extend(answer) } else { events.extend(answer) }
        }
        now = if events.is_empty() { step.deadline.expect("it goes on") } else { now + 1 };
        events.extend(events.is_empty().then_some(Event::Wake));
    }
    let asked = |step: &Step| {
        let reads = step.commands.iter().filter_map(|command| match command {
            Command::Call(Call { operation: Operation::Read(selections), .. }) => {
                Some(selections[0].key.clone())
            }
            _ => None,
        });
        reads.collect::<Vec<_>>()
    };
    // Those that were given up were asked again; the last ones count.
    elector.handle(now, reads);
    let mut again = BTreeSet::new();
    // One renewal brings a nanosecond, and the other one all the time.
    let (brief, sent) = renewals.remove(0);
    let (lasting, _) = renewals.pop().expect("several were sent");
    let step = elector.handle(now + 1, vec![reply(brief, Response::Renewed(now + 2 + S - sent))]);
    again.extend(asked(&step));
    assert!(again.len() < WAITERS as usize, "{} look again in one step", again.len());
    for now in [now + 2, now + 3] {
        elector.handle(now, vec![Event::Wake]);
    }
    let mut step = elector.handle(now + 4, vec![reply(lasting, Response::Renewed(10 * S))]);
    for later in 5..10 {
        again.extend(asked(&step));
        step = elector.handle(now + later, vec![Event::Wake]);
    }
    assert_eq!(again.len(), WAITERS as usize);
}

/// A term is given up until its key is gone. The reads that look for successors are not too large.
#[test]
fn a_drain_hands_over_so_many_terms_at_a_time() {
    const LEADERS: u32 = 100;
    let together = [false, true].into_iter().cycle();
    for (at_once, together) in [1, 7, 64, 64, 100, 100, 1_000, 1_000].into_iter().zip(together) {
        let mut elector = opened();
        let mut events: Vec<Event> = (1..=LEADERS).map(campaign).collect();
        let mut own: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
        let (mut now, mut elected, mut handed_over) = (0, 0, 0);
        let (mut under_way, mut most) = (Vec::new(), 0);
        while handed_over < LEADERS || !under_way.is_empty() {
            let step = elector.handle(now, std::mem::take(&mut events));
            let mut deletions = Vec::new();
            for command in step.commands {
                match command {
                    Command::Notify(Notice::Elected(_)) => {
                        elected += 1;
                        if elected == LEADERS {
                            events.push(Event::Limit(Some(Limit {
                                at_most: 0,
                                is_fair: false,
                                at_once,
                            })));
                        }
                    }
                    Command::Notify(Notice::HandOver(term)) => {
                        handed_over += 1;
                        under_way.push(term.election);
                    }
                    Command::Call(Call { id, operation, .. }) => {
                        let response = match operation {
                            Operation::Grant(_) => Response::Granted(10 * S),
                            Operation::KeepAlive(_) => Response::Renewed(10 * S),
                            Operation::Claim(Claim { key, lease, .. }) => {
                                assert!(elected < LEADERS, "it claims a key while it is drained");
                                let key = String::from_utf8(key).expect("text");
                                let entry = entry(key, lease, 7);
                                own.insert(entry.key.clone(), entry.clone());
                                Response::Claimed(Claimed { entry, at: 7 })
                            }
                            Operation::Read(selections) => {
                                assert!(selections.len() <= 64, "{} keys", selections.len());
                                let found = |it: Selection| {
                                    let name = String::from_utf8(it.key.clone()).expect("text");
                                    let ours =
                                        own.values().filter(|own| own.key.starts_with(&it.key));
                                    let next = entry(format!("{name}9"), 9, 9);
                                    let is_newest = it.order == Order::NewestFirst;
                                    let next = Some(next)
                                        .filter(|_| is_newest && it.created_before.is_none());
                                    next.into_iter().chain(ours.cloned()).collect()
                                };
                                let found = selections.into_iter().map(found).collect();
                                Response::Snapshot(Snapshot { at: 9, found })
                            }
                            Operation::Guarded(deletion) => {
                                deletions.push((id, deletion.guard.key));
                                continue;
                            }
                            Operation::Revoke(_) => continue,
                        };
                        events.push(reply(id, response));
                    }
                    Command::Notify(_) | Command::Watch(_) | Command::Unwatch(_) => {}
                }
            }
            most = most.max(under_way.len());
            for (id, key) in deletions {
                let key = String::from_utf8(key).expect("text");
                let of = |election: &u32| key.starts_with(&format!("jobs-{election}/"));
                under_way.retain(|election| !of(election));
                events.push(reply(id, Response::Applied(9)));
            }
            if together || events.is_empty() {
                // All work stops at once, or that of one term when nothing else happens.
                let stopped = under_way.iter().take(if together { usize::MAX } else { 1 });
                let term = |election: &u32| Term { election: *election, epoch: 7 };
                events.extend(stopped.map(term).map(Event::Yielded));
            }
            now = if events.is_empty() { step.deadline.expect("it goes on") } else { now + 1 };
            events.extend(events.is_empty().then_some(Event::Wake));
        }
        let allowed = (at_once as usize).min(LEADERS as usize);
        assert_eq!(most, allowed, "at most {at_once} at once");
        assert!(now < S, "{at_once} at once: it waits for the next round");
    }
}

#[test]
fn the_values_of_others_are_carried() {
    let mut elector = opened();
    elector.handle(0, vec![candidacy("jobs".into(), Vec::new())]);
    elector.handle(1, vec![reply(1, Response::Granted(10 * S))]);
    let value = vec![b'x'; 10_000_000];
    let entry = Entry { key: b"jobs".into(), value, lease: 7, created: 5, modified: 5 };
    let taken = Response::Taken(Claimed { entry: entry.clone(), at: 5 });
    let step = elector.handle(2, vec![reply(3, taken)]);
    let sighting = Notice::Leader(Sighting { election: 1, leader: Some(entry) });
    assert!(step.commands.contains(&Command::Notify(sighting)));
}

#[test]
fn an_elector_holds_10000_elections_at_most() {
    let mut elector = opened();
    let step = elector.handle(0, (1..=10_000).map(observe).collect());
    assert_eq!(step.commands.len(), 10_000);
    let step = elector.handle(0, vec![observe(10_001)]);
    assert!(matches!(step.commands[..], [Command::Notify(Notice::Withdrawn(_))]));
}

/// Law 10: the check of silent watches leaves none out, and no read is too large, or
/// smaller than it may be.
#[test]
fn all_watches_are_checked_every_30_seconds() {
    let mut elector = opened();
    elector.handle(0, (1..=1_000).map(observe).collect());
    // A portion at a time, and all of them in each period.
    let mut now = 30 * S;
    for portion in [128, 128, 128, 128, 128, 128, 128, 104].repeat(2) {
        let step = elector.handle(now, vec![Event::Wake]);
        let sizes: Vec<usize> = reads(&step).iter().map(|(_, read)| read.len()).collect();
        assert_eq!(sizes.len(), step.commands.len(), "{step:?}");
        assert_eq!(sizes.iter().sum::<usize>(), portion);
        assert!(sizes.iter().rev().skip(1).all(|size| *size == 64), "{sizes:?}");
        now += 30 * S / 8;
    }
}

/// A thousand candidates with a wish each would read a million in each period, were none left out.
#[test]
fn all_wishes_are_read_less_often_the_more_there_are() {
    let in_ten_checks = |wishes: usize| {
        let mut elector = opened();
        let mut store = OwnKeys::default();
        for number in 0..wishes {
            let wish = format!("incumbent-wishes/others/priority-{number:x}");
            store.0.insert(wish.clone().into(), entry(wish, 9, 6));
        }
        let (mut now, mut events, mut all, mut own) = (0, vec![campaign(1)], 0, 0);
        while now <= 300 * S + 1 {
            let step = elector.handle(now, std::mem::take(&mut events));
            for command in step.commands {
                match command {
                    Command::Call(Call { id, operation: Operation::KeepAlive(_), .. }) => {
                        events.push(reply(id, Response::Renewed(10 * S)));
                    }
                    Command::Call(Call { id, operation, .. }) => {
                        if let Operation::Read(selections) = &operation {
                            let reads =
                                |key: &str| selections.iter().any(|it| it.key == key.as_bytes());
                            all += u32::from(reads("incumbent-wishes/"));
                            own += u32::from(now > S && reads("incumbent-wishes/jobs-1/"));
                        }
                        let mut answer = store.answer(operation);
                        // Others write something meanwhile.
                        if let Some(Response::Snapshot(snapshot)) = &mut answer {
                            snapshot.at += i64::from(now > S);
                        }
                        events.extend(answer.map(|response| reply(id, response)));
                    }
                    Command::Watch(Watch { id, .. }) => {
                        events.push(Event::Watched(Watched { id, change: Change::Started(7) }));
                    }
                    Command::Unwatch(_) | Command::Notify(_) => {}
                }
            }
            now = if events.is_empty() { step.deadline.expect("it goes on") } else { now + 1 };
            events.extend(events.is_empty().then_some(Event::Wake));
        }
        (all, own)
    };
    let read = [10, 99, 100, 250, 999, 1_000].map(in_ten_checks);
    // Where there are too many for one read, those of its own election are read.
    assert_eq!(read, [(10, 0), (10, 0), (5, 0), (4, 0), (1, 0), (1, 1)]);
}

/// Others' data are read page by page, and what cannot be a candidate's is passed over.
#[test]
fn others_data_are_passed_over() {
    let mut elector = opened();
    elector.handle(0, vec![Event::Observe(observation(1, "jobs"))]);
    let mut news = Event::Watched(Watched { id: 1, change: Change::Started(90_000) });
    let mut asked = Vec::new();
    loop {
        let step = elector.handle(1, vec![news]);
        let [(id, [Selection { from, limit, .. }])] = reads(&step)[..] else { break };
        let from = from.clone().map(|from| String::from_utf8(from).expect("text"));
        let data = |number| entry(format!("jobs/data/{number:05}"), 0, number);
        // There are a hundred thousand of them.
        let entries = match from.as_deref() {
            None | Some("jobs/") => (1..=i64::from(*limit)).map(data).collect(),
            Some(_) => Vec::new(),
        };
        asked.push((from, *limit));
        news = found(id, entries);
    }
    let page = |from: &str, limit| (Some(from.to_owned()), limit);
    assert_eq!(asked, [(None, 1), page("jobs/", 1_000), page("jobs/dau", 2_000)]);
}

/// The candidate in front is on the first of two pages, and goes before the second one is read.
#[test]
fn a_candidate_that_leaves_between_two_pages_is_noticed() {
    let mut elector = opened();
    let mut events = vec![campaign(1)];
    let (mut own, mut pages, mut is_elected) = (None, 0, false);
    for now in 0..20 {
        let step = elector.handle(now, std::mem::take(&mut events));
        for command in step.commands {
            let (id, response) = match command {
                Command::Call(Call { id, operation: Operation::Grant(_), .. }) => {
                    (id, Response::Granted(10 * S))
                }
                Command::Call(Call { id, operation: Operation::Claim(claim), .. }) => {
                    let key = String::from_utf8(claim.key).expect("text");
                    let entry = entry(key, claim.lease, 2_000);
                    own = Some(entry.clone());
                    (id, Response::Claimed(Claimed { entry, at: 2_000 }))
                }
                Command::Call(Call { id, operation: Operation::Read(selections), .. }) => {
                    let own = own.clone().expect("it has a key");
                    let data = |number| entry(format!("jobs-1/data/{number:05}"), 0, number);
                    let in_front = entry("jobs-1/1f".into(), 0x1f, 1_001);
                    let found = |it: &Selection| match (it.from.is_some(), pages) {
                        // One page is full, and the next one is the last.
                        (true, 0) => {
                            (1..i64::from(it.limit)).map(data).chain([in_front.clone()]).collect()
                        }
                        (true, _) => Vec::new(),
                        (false, _) if !own.key.starts_with(&it.key) => Vec::new(),
                        (false, 0) if it.prefix => vec![own.clone(), data(1_999)],
                        (false, _) if it.prefix || it.key == own.key => vec![own.clone()],
                        (false, _) => Vec::new(),
                    };
                    let found = selections.iter().map(found).collect();
                    pages += i64::from(selections.iter().any(|it| it.from.is_some()));
                    (id, Response::Snapshot(Snapshot { at: 2_000 + pages, found }))
                }
                Command::Watch(Watch { id, .. }) => {
                    let change = Change::Started(2_000 + pages);
                    events.push(Event::Watched(Watched { id, change }));
                    continue;
                }
                Command::Notify(Notice::Elected(_)) => {
                    is_elected = true;
                    continue;
                }
                _ => continue,
            };
            events.push(reply(id, response));
        }
    }
    assert_eq!((pages, is_elected), (2, true));
}

fn inspect(election: ElectionId) -> Event {
    Event::Inspect(observation(election, "jobs"))
}

/// Each inspection may hold many candidates.
#[test]
fn candidates_are_listed_for_one_after_the_other() {
    let mut elector = opened();
    let step = elector.handle(0, vec![inspect(1), inspect(2), inspect(3)]);
    let [(first, _)] = reads(&step)[..] else { panic!("{step:?}") };
    // Both one that waits and one that is running can be given up.
    let step = elector.handle(1, vec![Event::Leave(2)]);
    assert_eq!(reads(&step), []);
    let step = elector.handle(1, vec![found(first, Vec::new())]);
    let listed = |command: &Command| matches!(command, Command::Notify(Notice::Listed(_)));
    assert!(step.commands.iter().any(listed), "{step:?}");
    assert_eq!(reads(&step).len(), 1);
    let step = elector.handle(1, vec![inspect(4), Event::Leave(3)]);
    assert_eq!(reads(&step).len(), 1);
    let step = elector.handle(1, vec![Event::Close]);
    assert_eq!(reads(&step), []);
}

#[test]
fn candidates_beyond_a_number_are_not_listed() {
    let mut elector = opened();
    let mut step = elector.handle(0, vec![inspect(1)]);
    let mut shown = 0;
    while let [(id, [Selection { limit, .. }])] = reads(&step)[..] {
        let candidate = |number| entry(format!("jobs/{number:016x}"), number, number);
        let candidates = (shown..shown + i64::from(*limit)).map(candidate).collect();
        shown += i64::from(*limit);
        step = elector.handle(1, vec![found(id, candidates)]);
    }
    assert_eq!(shown, 31_000);
    let [Command::Notify(Notice::Withdrawn(withdrawal))] = &step.commands[..] else {
        panic!("{step:?}");
    };
    let why = withdrawal.cause.as_ref().expect("has a cause");
    assert!(matches!(why, Failure::Other(why) if why.contains("more than 30,000")), "{why:?}");
}

/// A page that is too large for the store is not tried again at each further one.
#[test]
fn pages_are_no_larger_than_one_that_failed() {
    const THERE: usize = 40_000;
    let mut elector = opened();
    elector.handle(0, vec![Event::Observe(observation(1, "jobs"))]);
    let mut news = Event::Watched(Watched { id: 1, change: Change::Started(90_000) });
    let (mut now, mut shown, mut refused) = (1, 0, 0);
    while shown < THERE {
        let step = elector.handle(now, vec![news]);
        let [(id, [Selection { limit, .. }])] = reads(&step)[..] else {
            now = step.deadline.expect("it tries again");
            news = Event::Wake;
            continue;
        };
        news = if *limit > 2_500 {
            refused += 1;
            Event::Reply(Reply { id, outcome: Err(Failure::Other("too large".into())) })
        } else {
            let data = |number| entry(format!("jobs/{number:016x}-data"), 0, 1);
            let page: Vec<Entry> = (shown..THERE).take(*limit as usize).map(data).collect();
            shown += if *limit == 1 { 0 } else { page.len() };
            found(id, page)
        };
    }
    assert_eq!(refused, 1);
}

#[test]
fn a_configuration_leaves_time_to_lead() {
    let open = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        Elector::open(config, 0).err()
    };
    assert_eq!(open(|_| ()), None);
    assert_eq!(open(|config| config.safety_margin = 10 * S - 1), None);
    assert_eq!(open(|config| config.safety_margin = 10 * S), Some(ConfigError::MarginExceedsTtl));
    assert!(matches!(open(|config| config.lease_ttl = 0), Some(ConfigError::Other(_))));
    assert!(matches!(open(|config| config.request_timeout = 0), Some(ConfigError::Other(_))));
    // The far ends of the numbers.
    assert_eq!(
        open(|config| {
            config.lease_ttl = u64::MAX;
            config.request_timeout = u64::MAX;
        }),
        None
    );
}

#[test]
fn marks_and_spans_at_the_far_end_do_not_overflow() {
    let mut config = config();
    config.lease_ttl = u64::MAX;
    config.request_timeout = u64::MAX;
    let mut elector = Elector::open(config, u64::MAX).expect("the configuration is good");
    elector.handle(u64::MAX, vec![candidacy("jobs".into(), Vec::new())]);
    let granted = reply(1, Response::Granted(u64::MAX));
    let step = elector.handle(u64::MAX, vec![granted, Event::Wake, Event::Close]);
    assert!(!step.commands.is_empty());
    for _ in 0..10 {
        elector.handle(u64::MAX, vec![Event::Wake]);
    }
}
