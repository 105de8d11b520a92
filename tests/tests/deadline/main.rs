//! `valid-until` is kept, whatever else does not work: the runtime, the component, the
//! store.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, pending};
use futures_util::{FutureExt, Stream, StreamExt};
use incumbent::types::{Answer, Grant, Operation, Response, Step, Term};
use incumbent::{
    BootClock, Candidate, Clock, Epoch, Event, Failure, Fence, Leadership, ManualClock, Mark,
    MemoryStore, Notifier, Options, Reason, Session, Store, TermInfo, Watches,
};
use incumbent_tests::hostile::{self, NOW, TERM, demotes, elects, extends, grant, step};
use incumbent_tests::stores::Generous;
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon, yields};
use parking_lot::Mutex;
use tempfile::NamedTempFile;
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::sleep;

mod tools;

use tools::*;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const TTL: Duration = Duration::from_nanos(SECOND);
/// How late a thread may be on a machine that is busy with other things.
const LATE: u64 = SECOND;

// What does not work.

#[tokio::test]
async fn a_starved_runtime_of_one_thread() {
    let led = Led::on(Renewal::Answers).await;
    // The only thread of the runtime waits right here.
    led.ends_in_time();
    led.stays_over().await;
}

#[test]
fn a_starved_runtime_of_many_threads() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("starts");
    let led = runtime.block_on(Led::on(Renewal::Answers));
    let (blocked, all_blocked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    for _ in 0..2 {
        let (blocked, released) = (blocked.clone(), Arc::clone(&released));
        runtime.spawn(async move {
            blocked.send(()).expect("is awaited");
            // One thread waits for the release, the other one for the lock.
            let _ = released.lock().recv_timeout(LIMIT);
        });
    }
    for _ in 0..2 {
        all_blocked.recv_timeout(LIMIT).expect("blocks");
    }
    led.ends_in_time();
    drop(release);
    runtime.block_on(led.stays_over());
}

#[tokio::test]
async fn a_store_that_never_answers() {
    let led = Led::on(Renewal::Never).await;
    assert_eq!(soon("the term is lost", led.leadership.lost()).await, Reason::Expired);
    led.ends_in_time();
    led.stays_over().await;
}

/// And whose answer, in the end, is a renewal.
#[tokio::test]
async fn a_store_that_blocks_the_thread() {
    let (release, released) = mpsc::channel::<()>();
    let led = Led::on(Renewal::Blocks(Arc::new(Mutex::new(released)))).await;
    // Nothing but this ends the store's call.
    led.leadership.on_end(move |_| drop(release));
    assert_eq!(soon("the term is lost", led.leadership.lost()).await, Reason::Expired);
    led.ends_in_time();
    led.stays_over().await;
}

#[tokio::test]
async fn a_full_queue() {
    let led = Led::on(Renewal::Never).await;
    while led.leadership.is_valid() {
        too_many(&led.leadership.fence()).await;
    }
    led.ends_in_time();
    led.stays_over().await;
}

/// Nor does it come before the store's answers.
#[tokio::test]
async fn a_full_queue_does_not_keep_the_lease_from_being_renewed() {
    let Led { leadership, valid_until, .. } = &Led::on(Renewal::Answers).await;
    while leadership.valid_until() < valid_until + SECOND / 2 {
        assert!(leadership.is_valid(), "was renewed too late");
        too_many(&leadership.fence()).await;
    }
}

/// More writes than the driver takes in a turn. Nobody waits for the answers.
async fn too_many(fence: &Fence) {
    for _ in 0..2_000 {
        let _ = fence.put("/data", "").now_or_never();
    }
    yield_now().await;
}

#[tokio::test]
async fn a_component_that_traps() {
    breaks("", "unreachable").await;
}

#[tokio::test]
async fn a_component_in_an_endless_loop() {
    breaks("(loop $for_ever (br $for_ever))", "fuel").await;
}

#[tokio::test]
async fn a_component_that_calls_itself_for_ever() {
    breaks("(call $again)", "stack").await;
}

/// 5,000 pages are 328 MB. It is refused, and gives up.
#[tokio::test]
async fn a_component_that_wants_too_much_memory() {
    let grow = "(if (i32.ne (memory.grow (i32.const 5000)) (i32.const -1)) (then (loop (br 0))))";
    breaks(grow, "unreachable").await;
}

/// A component that breaks by this deed while it leads is reported for that reason, its
/// term stands to the deadline, and its successor leads.
async fn breaks(deed: &str, why: &str) {
    let logs = NamedTempFile::new().expect("a file");
    let writer = logs.reopen().expect("opens");
    let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut steps = steps(NOW, NOW + 300 * MILLISECOND);
    // Then it is woken, and breaks.
    steps[1].deadline = Some(NOW + 50 * MILLISECOND);
    let session = hostile_session(hostile::breaking(&steps, deed), BootClock).await;
    let mut troubles = session.troubles();
    let mut candidate = session.election("jobs").join();
    let mut events = candidate.events();
    let first = candidate.elected().expect_soon("leads").await;
    let end = End::of(&first, BootClock);

    let trouble = troubles.next().expect_soon("the trouble is told").await;
    let Failure::Other(trouble) = trouble else { panic!("{trouble:?}") };
    assert!(trouble.contains(why) && !trouble.contains('\n'), "{trouble}");
    let logs = fs::read_to_string(logs.path()).expect("is text");
    assert!(logs.contains("the elector is replaced") && logs.contains(why), "{logs}");

    end.is_in_time(first.valid_until());
    assert!(!first.is_valid());
    assert_eq!(soon("the term is lost", first.lost()).await, Reason::Expired);
    // On a busy machine there may have been a term that was over before anybody took it.
    let told = loop {
        let told = demoted(&mut events).await;
        if told.0 >= first.epoch() {
            break told;
        }
    };
    assert_eq!(told, (first.epoch(), Reason::Expired));
    assert!(candidate.elected().now_or_never().is_none(), "it has not yielded");
    let epoch = first.epoch();
    drop(first);
    let second = candidate.elected().expect_soon("leads again").await;
    assert!(second.epoch() > epoch && second.is_valid());
}

/// It is not handed out when it is too late.
#[tokio::test]
async fn a_term_that_nobody_took_in_time() {
    let store = Lasting::new(Renewal::Answers);
    let session = Session::open(store, options()).expect_soon("opens").await;
    let mut candidate = session.election("jobs").join();
    let mut events = candidate.events();
    let valid_until = loop {
        let event = events.next().expect_soon("goes on").await;
        if let Event::Elected(TermInfo { valid_until, .. }) = event {
            break valid_until;
        }
    };
    while BootClock.now() < valid_until {
        BootClock.wait_until(valid_until, &Notifier::default());
    }
    let leadership = candidate.elected().expect_soon("leads again").await;
    assert!(leadership.is_valid() && leadership.valid_until() > valid_until);
}

// The driver and the thread end a term, and the elector extends it.

#[tokio::test]
async fn a_term_that_was_extended_in_time_goes_on() {
    let clock = ManualClock::default();
    let mut world = World::open(&clock, &extended()).await;
    clock.advance(Duration::from_secs(9));
    world.poke();
    while !matches!(world.events.next().expect_soon("goes on").await, Event::Extended(_)) {}
    clock.advance(Duration::from_secs(3));
    // Time for the thread to err.
    thread::sleep(Duration::from_millis(50));
    assert!(world.leadership.is_valid());
    clock.advance(Duration::from_secs(3));
    assert_eq!(world.end.comes(), (15 * SECOND, Reason::Expired));
}

/// The elector has decided in time, and is heard too late.
#[tokio::test]
async fn an_extension_after_the_end_revives_nothing() {
    let clock = ManualClock::default();
    let mut steps = extended();
    steps.push(step([demotes(TERM, Reason::Resigned)]));
    let world = World::open(&clock, &steps).await;
    clock.advance(Duration::from_secs(10));
    assert_eq!(world.end.comes(), (10 * SECOND, Reason::Expired));
    world.poke();
    world.stays_over(Reason::Expired).await;
}

/// The driver has read the clock, and is stopped before it extends the term. Meanwhile somebody
/// asks whether the term is valid.
#[tokio::test]
async fn once_not_valid_never_valid() {
    let clock = TurnedBack::default();
    let world = World::open(&clock, &extended()).await;
    clock.0.store(10 * SECOND, Ordering::SeqCst);
    assert!(!world.leadership.is_valid());
    clock.0.store(9 * SECOND, Ordering::SeqCst);
    assert!(!world.leadership.is_valid());
    world.poke();
    world.stays_over(Reason::Expired).await;
}

/// Law 6: an epoch is not led in a second time, nor an earlier one.
#[tokio::test]
async fn an_epoch_that_is_not_above_the_last_one_is_not_believed() {
    for (epoch, stands) in [(4, false), (5, false), (6, true)] {
        let (first, next) = (Term { epoch: 5, ..TERM }, Term { epoch, ..TERM });
        let mut steps = steps(4, 10 * SECOND);
        let elected = elects(next, hostile::LEASE, 10 * SECOND);
        steps.extend([step([demotes(first, Reason::Resigned), elected]), step([])]);
        let session = hostile_session(hostile::elector(&steps), ManualClock::default()).await;
        let mut troubles = session.troubles();
        let mut candidate = session.election("jobs").join();
        drop(candidate.elected().expect_soon("leads").await);
        if stands {
            let again = candidate.elected().expect_soon("leads again").await;
            assert_eq!(again.epoch(), Epoch::from(epoch));
        } else {
            let trouble = troubles.next().expect_soon("goes on").await.to_string();
            assert!(trouble.contains(&format!("cannot lead in epoch {epoch}")), "{trouble}");
        }
    }
}

#[tokio::test]
async fn the_first_reason_is_the_reason() {
    let clock = ManualClock::default();
    let mut steps = steps(0, 10 * SECOND);
    steps.push(step([demotes(TERM, Reason::Deposed)]));
    let world = World::open(&clock, &steps).await;
    world.poke();
    assert_eq!(soon("the term is lost", world.leadership.lost()).await, Reason::Deposed);
    assert_eq!(world.end.comes(), (0, Reason::Deposed));
    clock.advance(Duration::from_secs(11));
    world.stays_over(Reason::Deposed).await;
}

// What is called at the end.

#[tokio::test]
async fn what_is_hung_on_the_end_is_called_in_order_and_a_panic_is_its_own() {
    let options = Options { ttl: 2 * LIMIT, ..Options::default() };
    let session = Session::open(MemoryStore::default(), options).expect_soon("opens").await;
    let leadership = session.election("jobs").campaign().expect_soon("leads").await;
    let (calls, called) = mpsc::channel();
    for call in 1..=3 {
        let calls = calls.clone();
        leadership.on_end(move |reason| {
            let thread = thread::current().name().map(String::from);
            calls.send((call, reason, thread)).expect("is awaited");
            assert_ne!(call, 2, "on purpose");
        });
    }
    let valid_until = leadership.valid_until();
    leadership.resign().expect_soon("resigns").await;
    for call in 1..=3 {
        let told = called.recv_timeout(LIMIT).expect("is called");
        assert_eq!(told, (call, Reason::Resigned, Some("incumbent-terms".into())));
    }
    assert!(BootClock.now() < valid_until, "it is called at once");
}

#[tokio::test]
async fn a_term_that_is_over_calls_soon() {
    let Led { candidate, leadership, end, .. } = Led::on(Renewal::Answers).await;
    drop(candidate);
    assert_eq!(soon("the term is lost", leadership.lost()).await, Reason::Resigned);
    end.comes();
    let end = End::of(&leadership, BootClock);
    let (at, reason) = end.comes();
    assert!(at < leadership.valid_until());
    assert_eq!(reason, Reason::Resigned);
}

#[test]
fn the_end_of_the_runtime_is_an_end() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("starts");
    let Led { candidate: _candidate, leadership, end, .. } =
        runtime.block_on(Led::on(Renewal::Answers));
    drop(runtime);
    let (at, reason) = end.comes();
    assert!(matches!(reason, Reason::Other(_)), "{reason:?}");
    assert!(at < leadership.valid_until());
    assert!(!leadership.is_valid());
}

/// No thread is left, nor anything else of the term.
#[tokio::test]
async fn the_thread_ends_with_the_last_term() {
    let clock = TurnedBack::default();
    let world = World::open(&clock, &steps(0, 10 * SECOND)).await;
    clock.0.store(10 * SECOND, Ordering::SeqCst);
    assert_eq!(world.end.comes(), (10 * SECOND, Reason::Expired));
    drop(world);
    clock.0.store(1_000 * SECOND, Ordering::SeqCst);
    let start = Instant::now();
    // Whatever has a deadline has the clock.
    while Arc::strong_count(&clock.0) > 1 {
        assert!(start.elapsed() < LIMIT, "{} are left", Arc::strong_count(&clock.0) - 1);
        sleep(Duration::from_millis(1)).await;
    }
}

// The clocks.

#[test]
fn the_boot_clock_waits_without_a_runtime() {
    let (clock, notifier) = (BootClock, Notifier::default());
    let end = clock.now() + SECOND / 10;
    while clock.now() < end {
        clock.wait_until(end, &notifier);
    }
    assert!(clock.now() - end < LATE);
    clock.wait_until(end, &notifier);
    clock.wait_until(0, &notifier);
}

#[test]
fn a_notifier_ends_the_wait_of_any_clock() {
    let clocks: [&dyn Clock; 2] = [&BootClock, &ManualClock::default()];
    for clock in clocks {
        let notifier = Notifier::default();
        let far = clock.now() + 1_000 * SECOND;
        // Notified before, and meanwhile.
        notifier.notify();
        clock.wait_until(far, &notifier);
        thread::scope(|scope| {
            let waits = scope.spawn(|| clock.wait_until(far, &notifier));
            while !waits.is_finished() {
                notifier.notify();
                thread::sleep(Duration::from_millis(1));
            }
        });
        notifier.wait(Duration::ZERO);
    }
}
