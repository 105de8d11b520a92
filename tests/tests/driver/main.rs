//! The component in its sandbox: what it wants of a host, what it may use, and
//! what becomes of the host when it breaks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{FutureExt, Stream, StreamExt};
use incumbent::types::{
    Call, Claim, Command, Config, Event, Grant, Notice, Operation, Reply, Step, Term,
};
use incumbent::{
    BootClock, Clock, Component, ComponentError, Elector, Error, Failure, ManualClock, MemoryStore,
    Options, Reason, Session, Store, WriteError,
};
use incumbent_tests::hostile::{self, TERM, demotes, elects, extends, grant, step};
use incumbent_tests::operations;
use incumbent_tests::stores::{Generous, Spoilt};
use incumbent_tests::text_component;
use incumbent_tests::wait::{ExpectSoon, soon, until, yields};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use wasmparser::{ComponentName, Encoding, KnownCustom, Parser, Payload};

const SECOND: u64 = 1_000_000_000;
/// For which the electors ask for leases.
const TTL: u64 = 10 * SECOND;
/// How long an elector may hold up its thread on a machine that is slower than most: 100 ms are
/// promised, and 39 to 64 were measured.
const SOON: Duration = Duration::from_millis(500);

mod component;
mod recording;

use component::importing_bytes;

#[tokio::test]
async fn the_boot_clock_wakes_a_sleeper_in_time() {
    let clock = BootClock;
    let start = clock.now();
    clock.sleep_until(start + SECOND / 10).await;
    let slept = clock.now() - start;
    assert!((SECOND / 10..SECOND).contains(&slept), "{slept}");
    clock.sleep_until(start).await;
}

#[tokio::test]
async fn the_manual_clock_wakes_whom_it_passes() {
    let clock = ManualClock::default();
    let (soon, later) = (clock.sleep_until(5), clock.sleep_until(6));
    clock.advance(Duration::from_nanos(5));
    soon.await;
    assert_eq!(clock.now(), 5);
    assert!(later.now_or_never().is_none());
    clock.sleep_until(5).await;
}

/// What an elector that is to close never says.
#[tokio::test]
async fn a_session_closes_without_its_elector() {
    let Scene { clock, session, .. } = scene(hostile::elector(&[])).await;
    let closing = tokio::spawn(async move { session.close().await });
    for _ in 0..60 {
        yield_now().await;
        clock.advance(Duration::from_secs(1));
    }
    closing.expect_soon("ends").await.expect("closes");
}

/// The only thread is not to be its own.
#[tokio::test]
async fn an_elector_in_a_hurry_leaves_others_their_turn() {
    let soon = "(i32.store8 (i32.const 72) (i32.const 1))
        (i64.store (i32.const 80) (i64.add (local.get 0) (i64.const 1)))";
    let component = importing_bytes("", "", soon);
    let session = session(component, &Generous::default(), &BootClock).await;
    let _candidate = session.election("jobs").join();
    for _ in 0..3 {
        sleep(Duration::from_millis(1)).await;
    }
}

/// The first call comes too early for the second lease, on which nothing was granted.
#[tokio::test]
async fn a_leadership_is_not_believed_beyond_the_grant_of_its_own_lease() {
    for (lease, valid_until, stands) in
        [(7, 10 * SECOND, true), (7, 10 * SECOND + 1, false), (8, 10 * SECOND, false)]
    {
        let steps =
            [step([grant(TTL, SECOND)]), step([elects(TERM, lease, valid_until)]), step([])];
        let Scene { session, .. } = scene(hostile::elector(&steps)).await;
        let mut candidate = session.election("jobs").join();
        yields().await;
        let elected = candidate.elected().now_or_never();
        assert_eq!(elected.is_some(), stands, "{lease} until {valid_until}");
    }
}

/// The lease may have begun when the grant was sent, 3 s before its answer.
#[tokio::test]
async fn a_grant_counts_from_its_sending() {
    for (valid_until, stands) in [(10 * SECOND, true), (10 * SECOND + 1, false)] {
        let elected = elects(TERM, 7, valid_until);
        let steps = [step([grant(TTL, 5 * SECOND)]), step([elected]), step([])];
        let clock = ManualClock::default();
        let store = Generous { late: Some(clock.clone()), ..Generous::default() };
        let session = session(hostile::elector(&steps), &store, &clock).await;
        let mut candidate = session.election("jobs").join();
        yields().await;
        clock.advance(Duration::from_secs(3));
        yields().await;
        let elected = candidate.elected().now_or_never();
        assert_eq!(elected.is_some(), stands, "until {valid_until}");
    }
}

/// Law 7: its work may go on until it has yielded, or to the deadline. So may that of a
/// session that closes.
#[tokio::test]
async fn a_broken_electors_lease_stays_while_a_resigned_term_is_worked_for() {
    for (yields_early, closes) in [(false, false), (true, false), (false, true), (true, true)] {
        let steps = [
            step([grant(TTL, SECOND)]),
            step([elects(TERM, 7, TTL)]),
            step([demotes(TERM, Reason::Resigned)]),
        ];
        let Scene { store, clock, session, mut troubles } =
            scene(hostile::breaking(&steps, "")).await;
        let mut candidate = session.election("jobs").join();
        let leadership = candidate.elected().expect_soon("leads").await;
        drop(session.election("other").observe());
        assert_eq!(soon("the term is lost", leadership.lost()).await, Reason::Resigned);
        drop(session.election("other").observe());
        troubles.next().expect_soon("it breaks").await;
        let closing = closes.then(|| {
            let session = session.clone();
            tokio::spawn(async move { session.close().await })
        });
        yields().await;
        if !yields_early {
            clock.advance(Duration::from_secs(9));
            yields().await;
            assert!(store.revoked.lock().is_empty(), "{closes}");
            assert!(closing.as_ref().is_none_or(|closing| !closing.is_finished()));
            clock.advance(Duration::from_secs(1));
        } else {
            drop(leadership);
        }
        yields().await;
        assert_eq!(store.revoked.lock().first(), Some(&7), "{closes}");
        if let Some(closing) = closing {
            closing.expect_soon("ends").await.expect("closes");
        }
    }
}

#[tokio::test]
async fn a_candidate_that_is_dropped_while_its_elector_is_broken_keeps_its_term() {
    let steps = [step([grant(TTL, SECOND)]), step([elects(TERM, 7, TTL)])];
    let Scene { store, session, mut troubles, .. } = scene(hostile::breaking(&steps, "")).await;
    let mut candidate = session.election("jobs").join();
    let leadership = candidate.elected().expect_soon("leads").await;
    drop(session.election("other").observe());
    troubles.next().expect_soon("it breaks").await;
    drop(candidate);
    yields().await;
    assert!(leadership.is_valid());
    drop(leadership);
    yields().await;
    assert_eq!(store.revoked.lock().first(), Some(&7));
}

/// No successor campaigns for it.
#[tokio::test]
async fn a_candidate_whose_elector_breaks_as_it_leaves_has_left() {
    let Scene { session, .. } = scene(hostile::breaking(&[step([])], "")).await;
    let candidate = session.election("jobs").join();
    yields().await;
    let events = candidate.events();
    drop(candidate);
    let told: Vec<_> = soon("the end of what is told", events.collect()).await;
    assert!(matches!(told[0], incumbent::Event::Trouble(_)), "{told:?}");
    assert_eq!(told[1..], [incumbent::Event::Withdrawn(None)]);
}

/// What it is told of them all at once is too much for any.
#[tokio::test]
async fn all_999_candidates_are_back_after_their_elector_broke() {
    let store = Spoilt::new(MemoryStore::default());
    let component = Some(hostile::cramped(Component::EMBEDDED, 96).into());
    let options = Options { component, ttl: Duration::from_secs(5), ..Options::default() };
    let session = Session::open(store.clone(), options).expect_soon("opens").await;
    let mut troubles = session.troubles();
    let join = |number| session.election(format!("{number:0>100}")).join();
    let mut candidates: Vec<_> = (0..999).map(join).collect();
    let mut terms = Vec::new();
    for candidate in &mut candidates {
        terms.push(candidate.elected().expect_soon("leads").await);
    }
    // More than it has memory for.
    store.bytes.store(7_500_000, Ordering::SeqCst);
    let trouble = troubles.next().expect_soon("it breaks").await.to_string();
    assert!(trouble.contains("is replaced"), "{trouble}");
    store.bytes.store(0, Ordering::SeqCst);
    let mut epochs = Vec::new();
    for term in terms {
        soon("the term is lost", term.lost()).await;
        epochs.push(term.epoch());
    }
    for (candidate, epoch) in candidates.iter_mut().zip(epochs) {
        let again = candidate.elected().expect_soon("leads again").await;
        assert!(again.epoch() > epoch);
    }
}

/// Each elector that follows is told of it first.
#[tokio::test]
async fn a_session_stays_drained_after_its_elector_broke() {
    let store = Spoilt::new(MemoryStore::default());
    let component = Some(hostile::cramped(Component::EMBEDDED, 96).into());
    let options = Options { component, ttl: Duration::from_secs(5), ..Options::default() };
    let session = Session::open(store.clone(), options).expect_soon("opens").await;
    let mut troubles = session.troubles();
    let mut candidate = session.election("jobs").join();
    let leadership = candidate.elected().expect_soon("leads").await;
    // More than it has memory for.
    store.bytes.store(7_500_000, Ordering::SeqCst);
    session.drain(1);
    troubles.next().expect_soon("it breaks").await;
    store.bytes.store(0, Ordering::SeqCst);
    drop(leadership);
    let other = Session::open(store, Options::default()).expect_soon("opens").await;
    for _ in 0..3 {
        // Whoever is in line would lead in between.
        drop(other.election("jobs").campaign().expect_soon("leads").await);
    }
    assert_eq!(session.terms().await.expect("is open"), 0);
    session.undo_drain();
    candidate.elected().expect_soon("leads again").await;
}

/// Nobody else suffers from it for longer than it takes to find out.
#[tokio::test]
async fn an_election_that_breaks_each_elector_is_withdrawn_alone() {
    let Scene { clock, session, mut troubles, .. } = scene(hostile::fearing(*b"poisoned")).await;
    let join = |number| session.election(format!("good-{number}")).join();
    let mut candidates: Vec<_> = (0..300).map(join).collect();
    let poisoned = session.election("poisoned");
    let mut poisoned = tokio::spawn(async move { poisoned.join().joined().await });
    candidates.extend((300..600).map(join));
    let withdrawn = timeout(Duration::from_secs(30), async {
        loop {
            if let Some(ended) = (&mut poisoned).now_or_never() {
                return ended.expect("ends");
            }
            yields().await;
            clock.advance(Duration::from_secs(1));
        }
    });
    let withdrawn = withdrawn.expect_soon("is found").await;
    let Err(Error::Withdrawn(Failure::Other(why))) = withdrawn else { panic!("{withdrawn:?}") };
    assert!(why.contains("told of this election"), "{why}");
    let mut broken = 0;
    while let Some(Some(_)) = troubles.next().now_or_never() {
        broken += 1;
    }
    assert!(broken > 2, "{broken}");
    for _ in 0..100 {
        yields().await;
        clock.advance(Duration::from_secs(1));
    }
    assert!(troubles.next().now_or_never().is_none(), "it breaks no more");
    for mut candidate in candidates {
        assert!(candidate.elected().now_or_never().is_none(), "is in line");
    }
}

/// One call fails, and nothing else.
#[tokio::test]
async fn a_store_that_says_too_much_does_not_break_the_elector() {
    let store = Spoilt::new(MemoryStore::default());
    store.is_loud.store(true, Ordering::SeqCst);
    let options = Options { ttl: Duration::from_secs(6), ..Options::default() };
    let session = Session::open(store.clone(), options).expect_soon("opens").await;
    let mut troubles = session.troubles();
    // The watch that was too loud is opened again.
    let leadership = session.election("jobs").campaign().expect_soon("leads").await;
    let mut told = Vec::new();
    while let Some(Some(trouble)) = troubles.next().now_or_never() {
        told.push(trouble.to_string());
    }
    store.bytes.store(80 << 20, Ordering::SeqCst);
    soon("the long answer comes", async {
        // On a busy machine the long answer comes late, too.
        loop {
            let trouble = troubles.next().expect_soon("goes on").await.to_string();
            if trouble.contains("the store's answer has 83886080 bytes") {
                break;
            }
            told.push(trouble);
        }
    })
    .await;
    store.bytes.store(0, Ordering::SeqCst);
    let told_by_then = leadership.valid_until();
    until("the term is extended", async || leadership.valid_until() != told_by_then).await;
    assert!(leadership.is_valid());
    assert!(told.iter().all(|trouble| !trouble.contains("replaced")), "{told:?}");
}

/// A candidate of another program, with a value of so many bytes.
async fn stands(store: &MemoryStore, election: &str, lease: i64, bytes: usize) {
    let key = format!("{election}/{lease:x}").into_bytes();
    let claim = Operation::Claim(Claim { key, value: vec![b'v'; bytes], lease });
    for operation in [operations::grant(lease, 600 * SECOND), claim] {
        store.call(operation, Duration::from_secs(5)).await.expect("is done");
    }
}

/// Neither do many calls at once that list large candidates, nor many observers of a large one,
/// nor the largest crowd that is listed.
#[tokio::test]
async fn large_lists_and_values_do_not_break_the_elector() {
    let store = MemoryStore::default();
    for lease in 1..=5_000 {
        stands(&store, "jobs", lease, 4_096).await;
    }
    stands(&store, "large", 10_001, 1 << 20).await;
    // In another order than by key: listing them sorts.
    let crowd = "c".repeat(1_000);
    for number in 0..30_000 {
        stands(&store, &crowd, 20_001 + number * 7_919 % 30_011, 1_024).await;
    }
    let session = in_memory(store).await;
    let mut troubles = session.troubles();
    let mine = session.election("mine").campaign().expect_soon("leads").await;
    let jobs = session.election("jobs");
    let leaders = join_all((0..8).map(|_| jobs.leader()));
    for leader in soon("all leaders are read", leaders).await {
        assert_eq!(leader.expect("reads").expect("leads").key, b"jobs/1");
    }
    let mut observers = Vec::new();
    for _ in 0..300 {
        let mut leaders = session.election("large").observe();
        let leader = leaders.next().expect_soon("goes on").await.expect("reads");
        assert_eq!(leader.expect("leads").key, b"large/2711");
        observers.push(leaders);
    }
    let crowd = session.election(crowd).candidates().expect_soon("reads").await;
    assert_eq!(crowd.len(), 30_000);
    assert!(mine.is_valid());
    assert_eq!(troubles.next().now_or_never(), None);
}

/// What users give it is bounded as well.
#[tokio::test]
async fn a_write_that_is_too_large_is_refused() {
    let session = in_memory(MemoryStore::default()).await;
    let leadership = session.election("jobs").campaign().expect_soon("leads").await;
    let refused =
        soon("the write is answered", leadership.fence().put("/data", vec![0; 80 << 20])).await;
    let Err(WriteError::Failed(Failure::Invalid(why))) = refused else { panic!("{refused:?}") };
    assert!(why.contains("the write has"), "{why}");
    leadership.fence().put("/data", vec![0; 1 << 20]).expect_soon("writes").await;
    let there = leadership.fence().get("/data").expect_soon("reads").await.expect("is there");
    assert_eq!(there.value.len(), 1 << 20);
    let value = session.election("others").value(vec![0; 80 << 20]);
    let refused = soon("the campaign is answered", value.campaign()).await;
    assert!(matches!(refused, Err(Error::Withdrawn(Failure::Invalid(_)))), "{refused:?}");
    assert!(leadership.is_valid());
}

#[tokio::test]
async fn an_elector_that_closes_unasked_is_broken() {
    let steps = [step([Command::Notify(Notice::Closed)])];
    let Scene { session, mut troubles, .. } = scene(hostile::breaking(&steps, "")).await;
    let _candidate = session.election("jobs").join();
    let trouble = troubles.next().expect_soon("it breaks").await.to_string();
    assert!(trouble.contains("it closes, and nobody asked for it"), "{trouble}");
}

#[tokio::test]
async fn a_session_that_closes_has_no_trouble() {
    let session = in_memory(MemoryStore::default()).await;
    let mut troubles = session.troubles();
    let leadership = session.election("jobs").campaign().expect_soon("leads").await;
    drop(leadership);
    session.close().expect_soon("closes").await;
    assert_eq!(soon("something more is told", troubles.next()).await, None);
}

/// The next candidate leads at once, and does not wait for the lease to expire.
#[tokio::test]
async fn a_session_that_nobody_holds_any_more_gives_back_its_lease() {
    let store = MemoryStore::default();
    let options = || Options { ttl: Duration::from_secs(600), ..Options::default() };
    let first = Session::open(store.clone(), options()).expect_soon("opens").await;
    let leadership = first.election("jobs").campaign().expect_soon("leads").await;
    let second = Session::open(store, options()).expect_soon("opens").await;
    let mut candidate = second.election("jobs").join();
    drop((first, leadership));
    candidate.elected().expect_soon("leads").await;
}

/// One lease has one validity, which only grows.
#[tokio::test]
async fn a_validity_that_is_taken_back_is_not_believed() {
    let steps = [
        step([grant(TTL, SECOND)]),
        step([elects(TERM, 7, 9 * SECOND)]),
        step([elects(Term { election: 2, ..TERM }, 7, 5 * SECOND)]),
    ];
    let Scene { session, mut troubles, .. } = scene(hostile::breaking(&steps, "")).await;
    let mut first = session.election("jobs").join();
    let _leadership = first.elected().expect_soon("leads").await;
    let _second = session.election("others").join();
    let trouble = troubles.next().expect_soon("it breaks").await.to_string();
    assert!(trouble.contains("would be valid until 5000000000"), "{trouble}");
}

/// Its documentation says so: there would be two works at once.
#[tokio::test]
async fn lead_waits_until_a_task_has_dropped_its_leadership() {
    let store = MemoryStore::default();
    let session = in_memory(store.clone()).await;
    let (give, mut given) = mpsc::unbounded_channel::<incumbent::Leadership>();
    let election = session.election("jobs");
    let lead = tokio::spawn(async move {
        let work = |leadership| {
            give.send(leadership).expect("is awaited");
            std::future::pending::<()>()
        };
        election.lead(work).await
    });
    let first = given.recv().expect_soon("leads").await;
    store.revoke(first.lease());
    soon("the term is lost", first.lost()).await;
    let second = timeout(Duration::from_millis(500), given.recv()).await;
    assert!(second.is_err(), "leads again, and the first task works");
    drop(first);
    let second = given.recv().expect_soon("leads again").await;
    store.revoke(second.lease());
    soon("the term is lost", second.lost()).await;
    session.close().expect_soon("closes").await;
    // There is no next term to wait for.
    lead.expect_soon("ends").await.expect("was closed");
    drop(second);
}

/// What a turn of the driver's costs beside the elector, and an extension of all terms.
#[tokio::test]
#[ignore = "prints figures"]
async fn what_a_turn_costs() {
    for many in [10, 100, 1_000, 10_000_u32] {
        let elected = (1..=many).map(|election| elects(Term { election, ..TERM }, 7, SECOND));
        let soon_again = Some(hostile::NOW + 1_000);
        let mut steps = vec![
            // All candidates are told of, in several batches.
            Step { commands: Vec::new(), deadline: soon_again };
            many as usize / 768 + 2
        ];
        let extended = (1..=60).map(|turn| vec![extends(SECOND + turn)]);
        let said = [vec![grant(TTL, SECOND)], Vec::new(), elected.collect()];
        let said = said.into_iter().chain(extended);
        steps.extend(said.map(|commands| Step { commands, deadline: soon_again }));
        let Scene { clock, session, .. } = scene(hostile::elector(&steps)).await;
        let join = |number| session.election(format!("jobs-{number}")).join();
        let mut candidates: Vec<_> = (0..many).map(join).collect();
        let first = loop {
            yields().await;
            clock.advance(Duration::from_micros(1));
            if let Some(elected) = candidates[0].elected().now_or_never() {
                break elected.expect("leads");
            }
        };
        let (mut took, mut turns) = (Duration::ZERO, 0);
        while first.valid_until() < SECOND + 55 {
            clock.advance(Duration::from_micros(1));
            let start = Instant::now();
            yield_now().await;
            took += start.elapsed();
            turns += 1;
        }
        println!("{many} terms: an extension takes {:?}", took / turns);
    }
}

/// The leases of the one that broke are not to be taken for its own.
#[tokio::test]
async fn an_elector_that_replaces_another_has_a_seed_of_its_own() {
    let operation = Operation::Grant(Grant { lease: hostile::SEED, ttl: TTL });
    let steps = [step([Command::Call(Call { id: 1, give_up: SECOND, operation })])];
    let Scene { store, clock, session, mut troubles } = scene(hostile::breaking(&steps, "")).await;
    let _candidate = session.election("jobs").join();
    soon("it breaks again and again", async {
        while store.granted.lock().len() < 3 {
            yield_now().await;
            clock.advance(Duration::from_secs(1));
        }
    })
    .await;
    let granted = store.granted.lock().clone();
    let seeds: BTreeSet<_> = granted.iter().collect();
    assert_eq!(seeds.len(), granted.len(), "{granted:?}");
    // The pauses grow while each elector breaks soon.
    for pause in ["in 100ms:", "in 200ms:", "in 400ms:"] {
        let trouble = troubles.next().expect_soon("was told").await.to_string();
        assert!(trouble.contains(pause), "{trouble}");
    }
}

/// A session on a store that grants leases, with a clock that stands still.
struct Scene<T> {
    store: Generous,
    clock: ManualClock,
    session: Session,
    troubles: T,
}

async fn scene(component: Vec<u8>) -> Scene<impl Stream<Item = Failure> + Unpin> {
    let (store, clock) = (Generous::default(), ManualClock::default());
    let session = session(component, &store, &clock).await;
    let troubles = session.troubles();
    Scene { store, clock, session, troubles }
}

/// A session whose elector is this component.
async fn session(component: Vec<u8>, store: &Generous, clock: &(impl Clock + Clone)) -> Session {
    let (component, clock) = (Some(component.into()), Arc::new(clock.clone()));
    let options = Options { component, clock, ..Options::default() };
    Session::open(store.clone(), options).expect_soon("opens").await
}

async fn in_memory(store: MemoryStore) -> Session {
    Session::open(store, Options::default()).expect_soon("opens").await
}
