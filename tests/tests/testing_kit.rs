//! `incumbent::testing`: what a test directs reaches everybody, at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures_util::future::{join_all, pending, try_join_all};
use futures_util::{FutureExt, StreamExt};
use incumbent::testing::{Process, World};
use incumbent::{
    Candidate, Clock, Contest, Election, Error, Event, Leadership, ManualClock, Notifier, Options,
    Reason, WriteError,
};
use incumbent_tests::wait::{ExpectSoon, LIMIT, joins, not_yet, now, soon};
use parking_lot::Mutex;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::yield_now;

const NAME: &str = "jobs";
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(10);

/// A leader, and a rival that waits in line.
struct Scene {
    world: World,
    worker: Process,
    leader: Candidate,
    leadership: Leadership,
    rival: Process,
    next: Candidate,
}

/// A process that has no rivals.
async fn alone() -> (World, Process) {
    let world = World::new();
    let worker = world.process("worker").expect_soon("starts").await;
    (world, worker)
}

async fn scene() -> Scene {
    let (world, worker) = alone().await;
    let mut leader = joins(&worker.session().election(NAME)).await;
    let leadership = leader.elected().expect_soon("is elected").await;
    let rival = world.process("rival").expect_soon("starts").await;
    let next = joins(&rival.session().election(NAME)).await;
    Scene { world, worker, leader, leadership, rival, next }
}

fn shards(process: &Process, many: usize) -> Vec<Election> {
    (0..many).map(|number| process.session().election(format!("shard-{number}"))).collect()
}

/// Why a term ended, once what is called at its end has been called.
fn end_of(leadership: &Leadership) -> Arc<Mutex<Option<Reason>>> {
    let end = Arc::new(Mutex::new(None));
    let ends = Arc::clone(&end);
    leadership.on_end(move |reason| *ends.lock() = Some(reason));
    end
}

#[tokio::test]
async fn a_healthy_leader_leads_on() {
    let Scene { world, leadership, .. } = &scene().await;
    let before = leadership.valid_until();
    world.pass(Duration::from_secs(3600)).await;
    assert!(leadership.is_valid());
    assert!(leadership.remaining() > LEASE / 2);
    assert!(leadership.valid_until() > before + 3_590_000_000_000);
    assert_eq!(world.clock().now(), 3_600_000_000_000);
}

/// The world's time stands still, so the pause after short work never ends by itself. Another
/// term is held, so that the session takes a while to close.
#[tokio::test]
async fn lead_pauses_no_longer_than_the_session_is_open() {
    let (world, worker) = alone().await;
    let held = worker.session().election("other").campaign().await.expect("leads");
    let election = worker.session().election(NAME);
    let (tell, mut terms) = unbounded_channel();
    let leads = tokio::spawn(async move {
        let work = |leadership: Leadership| {
            tell.send(leadership.epoch()).expect("is counted");
            async move { drop(leadership) }
        };
        election.lead(work).await
    });
    terms.recv().await.expect("leads");
    world.settle().await;
    assert!(!leads.is_finished() && terms.is_empty(), "it pauses");
    let session = worker.session().clone();
    let closes = tokio::spawn(async move { session.close().await });
    leads.expect_soon("lead returns at once").await.expect("ends well");
    assert!(!closes.is_finished());
    drop(held);
    closes.expect_soon("the session closes").await.expect("closes");
}

/// The application was busy from the election to the end of the term.
#[tokio::test]
async fn a_term_that_nobody_took_is_followed_by_another() {
    let (world, worker) = alone().await;
    let election = worker.session().election(NAME);
    let campaign = not_yet(election.campaign());
    world.settle().await;
    let missed = world.depose(NAME).expect_soon("it leads").await;
    let leadership = campaign.expect_soon("leads").await;
    assert!(leadership.epoch() > missed.epoch);
    leadership.resign().expect_soon("resigns").await;

    let (tell, mut leads) = unbounded_channel();
    let work = |leadership: Leadership| {
        tell.send(leadership.epoch()).expect("is waited for");
        async move { drop(leadership.lost().await) }
    };
    let lead = not_yet(election.lead(work));
    world.settle().await;
    let missed = world.depose(NAME).expect_soon("it leads").await;
    let epoch = tokio::select! {
        end = lead => panic!("it leads no more: {end:?}"),
        epoch = leads.recv().expect_soon("leads") => epoch,
    };
    assert!(epoch > missed.epoch);
}

/// One task that polls all of them spends what tokio grants a task before it has asked each.
#[tokio::test]
async fn terms_that_nobody_took_are_followed_by_others_in_a_crowd() {
    let (world, worker) = alone().await;
    let elections = shards(&worker, 200);
    let campaigns = not_yet(join_all(elections.iter().map(Election::campaign)));
    world.settle().await;
    for n in 0..200 {
        world.depose(&format!("shard-{n}")).expect_soon("it leads").await;
    }
    for leadership in soon("all lead", campaigns).await {
        leadership.expect("leads");
    }
}

/// One that waits in line, and one that leads again and again.
#[tokio::test]
async fn a_closed_session_ends_all_that_goes_on_in_it() {
    let Scene { world, .. } = &scene().await;
    let late = world.process("late").expect_soon("starts").await;
    let (behind, alone) = (late.session().election(NAME), late.session().election("other"));
    let work = |leadership: Leadership| async move {
        let _leadership = leadership;
        pending().await
    };
    let both = async { tokio::join!(behind.campaign(), alone.lead(work)) };
    let closed = async {
        world.settle().await;
        late.session().close().await
    };
    let all = soon("all are told", async { tokio::join!(both, closed) });
    let ((waits, leads), closed) = all.await;
    assert!(matches!(waits, Err(Error::Closed)), "{waits:?}");
    leads.expect("is closed");
    closed.expect("closes");
}

#[tokio::test]
async fn a_deposed_leader_knows_and_is_followed() {
    let Scene { world, leadership, next, .. } = &mut scene().await;
    let deposed = world.depose(NAME).expect_soon("somebody led").await;
    assert_eq!(deposed.value, b"worker");
    assert!(!leadership.is_valid());
    assert_eq!(now(leadership.lost()), Reason::Deposed);
    let successor = now(next.elected()).expect("leads");
    assert!(successor.epoch() > leadership.epoch());
    assert_eq!(world.leader(NAME).expect_soon("leads").await.value, b"rival");
    assert_eq!(now(leadership.fence().put("/data", "")), Err(WriteError::Stale));
}

#[tokio::test]
async fn a_leader_that_is_asked_to_stop_leads_on_but_is_firm_no_more() {
    let Scene { world, leadership, .. } = &scene().await;
    assert!(leadership.endangered().now_or_never().is_none());
    leadership.ask_to_stop();
    now(leadership.endangered());
    let before = leadership.valid_until();
    world.pass(LEASE * 3).await;
    assert!(leadership.is_valid() && leadership.valid_until() > before);
    now(leadership.endangered());
}

#[tokio::test]
async fn the_leader_of_a_race_is_deposed_as_well() {
    let (world, worker) = alone().await;
    let election = worker.session().election(NAME).contest(Contest::Race);
    let leadership = election.campaign().expect_soon("leads").await;
    assert_eq!(world.leader(NAME).expect_soon("leads").await.epoch, leadership.epoch());
    assert!(world.depose(NAME).await.is_some());
    assert_eq!(now(leadership.lost()), Reason::Deposed);
    assert_eq!(world.depose(NAME).await, None);
}

#[tokio::test]
async fn a_revoked_lease_ends_the_term_on_it() {
    let Scene { world, leadership, next, .. } = &mut scene().await;
    let revoked = world.revoke(NAME).expect_soon("somebody led").await;
    assert_eq!(revoked.lease, leadership.lease());
    assert!(matches!(now(leadership.lost()), Reason::LeaseLost | Reason::Deposed));
    now(next.elected()).expect("leads");
}

#[tokio::test]
async fn a_paused_process_is_told_nothing_and_its_clock_says_all() {
    let Scene { world, worker, leader, leadership, next, .. } = &mut scene().await;
    let ended = end_of(leadership);
    world.pass(SECOND).await;
    let mut events = leader.events();
    while events.next().now_or_never().is_some() {}

    worker.pause().await;
    let valid_until = Duration::from_nanos(leadership.valid_until() - world.clock().now());
    world.pass(valid_until - Duration::from_nanos(1)).await;
    assert!(leadership.is_valid());
    assert!(next.elected().now_or_never().is_none());
    world.pass(Duration::from_nanos(1)).await;
    assert!(!leadership.is_valid());
    world.pass(SECOND).await;
    let successor = now(next.elected()).expect("leads");
    successor.fence().put("/data", "by the rival").expect_soon("leads").await;

    assert!(leadership.lost().now_or_never().is_none());
    assert!(events.next().now_or_never().is_none());
    assert!(ended.lock().is_none());
    assert_eq!(now(leadership.fence().put("/data", "late")), Err(WriteError::Stale));

    worker.resume().await;
    assert_eq!(now(leadership.lost()), Reason::Expired);
    assert!(ended.lock().is_some());
    let told = now(events.next());
    let epoch = leadership.epoch();
    assert_eq!(told, Some(Event::Demoted { epoch, reason: Reason::Expired }));
    assert_eq!(world.get("/data").await, Some(b"by the rival".into()));
}

#[tokio::test]
async fn a_write_of_a_paused_process_waits() {
    let Scene { world, worker, leadership, .. } = &scene().await;
    worker.pause().await;
    let fence = leadership.fence();
    let write = not_yet(fence.put("/data", "1"));
    world.pass(SECOND).await;
    assert_eq!(world.get("/data").await, None);
    worker.resume().await;
    now(write).expect("leads");
    assert_eq!(world.get("/data").await, Some(b"1".into()));
}

#[tokio::test]
async fn without_the_store_a_leader_is_endangered_and_ends_at_its_deadline() {
    let Scene { world, worker, leadership, mut next, leader: _leader, rival: _rival } =
        scene().await;
    worker.cut().await;
    let left = Duration::from_nanos(leadership.valid_until() - world.clock().now());
    world.pass(left / 3).await;
    assert!(leadership.endangered().now_or_never().is_none());
    world.pass(left / 3).await;
    now(leadership.endangered());
    assert!(leadership.is_valid());
    world.pass(left / 3 + SECOND).await;
    assert_eq!(now(leadership.lost()), Reason::Expired);
    let successor = now(next.elected()).expect("leads");

    // Back, it stands in line.
    drop(leadership);
    worker.heal().await;
    world.pass(5 * SECOND).await;
    assert!(successor.is_valid());
    assert_eq!(worker.session().election(NAME).candidates().expect_soon("answers").await.len(), 2);
}

#[tokio::test]
async fn a_short_outage_costs_nothing() {
    let Scene { world, worker, leadership, .. } = &scene().await;
    worker.cut().await;
    world.pass(LEASE / 2).await;
    worker.heal().await;
    world.pass(LEASE).await;
    assert!(leadership.is_valid());
}

#[tokio::test]
async fn what_happened_in_an_outage_is_seen_after_it() {
    let Scene { world, worker, leadership, next, .. } = &mut scene().await;
    worker.cut().await;
    assert!(world.depose(NAME).await.is_some());
    // It cannot know.
    assert!(leadership.is_valid());
    let successor = now(next.elected()).expect("leads");
    worker.heal().await;
    assert_eq!(now(leadership.lost()), Reason::Deposed);
    assert!(successor.is_valid());
}

#[tokio::test]
async fn a_suspended_machine_has_no_leader_from_before() {
    let Scene {
        world,
        leader: mut candidate,
        leadership,
        mut next,
        worker: _worker,
        rival: _rival,
    } = scene().await;
    let ended = end_of(&leadership);
    world.suspend(2 * LEASE).await;
    assert!(!leadership.is_valid());
    now(leadership.lost());
    assert!(ended.lock().is_some());
    let epoch = leadership.epoch();
    drop(leadership);
    world.pass(LEASE).await;
    let new = [candidate.elected().now_or_never(), next.elected().now_or_never()];
    let mut leaders = new.into_iter().flatten().map(|elected| elected.expect("leads"));
    let successor = leaders.next().expect("somebody leads");
    assert!(successor.epoch() > epoch);
    assert!(leaders.next().is_none());
}

#[tokio::test]
async fn a_delayed_write_is_refused_by_the_store() {
    let Scene { world, worker, leadership, next, .. } = &mut scene().await;
    worker.delay_writes().await;
    let fence = leadership.fence();
    let write = not_yet(fence.put("/data", "late"));
    world.settle().await;
    assert_eq!(world.get("/data").await, None);
    world.depose(NAME).await;
    let successor = now(next.elected()).expect("leads");
    successor.fence().put("/data", "by the rival").expect_soon("leads").await;
    let before = world.store().revision();
    worker.deliver_writes().await;
    assert!(matches!(now(write), Err(WriteError::Stale | WriteError::Unknown)));
    assert_eq!(world.store().revision(), before);
}

#[tokio::test]
async fn a_delayed_write_is_made_while_its_leader_leads() {
    let Scene { world, worker, leadership, .. } = &scene().await;
    worker.delay_writes().await;
    let fence = leadership.fence();
    let write = not_yet(fence.put("/data", "1"));
    // Nobody waits for so long, and it arrives all the same.
    world.pass(6 * SECOND).await;
    assert_eq!(now(write), Err(WriteError::Unknown));
    worker.deliver_writes().await;
    assert_eq!(world.get("/data").await, Some(b"1".into()));
    assert!(leadership.is_valid());
}

#[tokio::test]
async fn a_lost_answer_leaves_the_writer_in_the_dark() {
    let Scene { world, worker, leadership, .. } = &scene().await;
    worker.lose_next_answer();
    assert_eq!(leadership.fence().put("/data", "1").await, Err(WriteError::Unknown));
    assert_eq!(world.get("/data").await, Some(b"1".into()));
    leadership.fence().put("/data", "2").expect_soon("leads").await;
}

#[tokio::test]
async fn work_that_leads_again_and_again_stops_in_time() {
    let (world, worker) = alone().await;
    let election = worker.session().election(NAME);
    let (started, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));

    /// Notes whether its term stood when it was dropped.
    struct Note(Leadership, Arc<Mutex<Vec<bool>>>);
    impl Drop for Note {
        fn drop(&mut self) {
            self.1.lock().push(self.0.is_valid());
        }
    }

    let (starts, drops) = (Arc::clone(&started), Arc::clone(&dropped));
    let leads = tokio::spawn(async move {
        let work = |leadership| {
            starts.fetch_add(1, Ordering::Relaxed);
            let note = Note(leadership, Arc::clone(&drops));
            async move {
                let _note = note;
                pending().await
            }
        };
        election.lead(work).await
    });
    world.settle().await;
    assert_eq!(started.load(Ordering::Relaxed), 1);

    world.depose(NAME).await;
    assert_eq!(started.load(Ordering::Relaxed), 2);
    assert_eq!(*dropped.lock(), [false]);

    // Renewals fail: it is dropped a little before the deadline.
    worker.cut().await;
    world.pass(LEASE).await;
    assert_eq!(*dropped.lock(), [false, true]);
    worker.heal().await;
    world.pass(LEASE).await;
    assert_eq!(started.load(Ordering::Relaxed), 3);
    worker.session().close().expect_soon("closes").await;
    leads.expect_soon("ends").await.expect("is closed");
}

#[tokio::test]
async fn an_observer_sees_the_gap() {
    let Scene { world, worker, leadership, next, leader: _leader, rival: _rival } = scene().await;
    drop(next);
    let watcher = world.process("watcher").expect_soon("starts").await;
    let mut leaders = watcher.session().election(NAME).observe();
    world.settle().await;
    let first = now(leaders.next()).expect("is there").expect("is seen").expect("leads");
    assert_eq!(first.epoch, leadership.epoch());
    // As if it had crashed.
    worker.pause().await;
    world.pass(2 * LEASE).await;
    assert_eq!(now(leaders.next()).expect("is there").expect("is seen"), None);
}

#[tokio::test]
async fn a_task_that_waits_by_the_clock_acts_on_the_way() {
    let world = World::new();
    let clock = world.clock().clone();
    let rounds = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&rounds);
    tokio::spawn(async move {
        loop {
            let next = clock.now() + 300_000_000;
            clock.sleep_until(next).await;
            seen.lock().push(clock.now());
        }
    });
    world.pass(SECOND).await;
    assert_eq!(*rounds.lock(), [300_000_000, 600_000_000, 900_000_000]);
}

#[tokio::test]
async fn work_that_never_pauses_holds_up_nobody() {
    let Scene { world, leadership, .. } = &scene().await;
    let fence = leadership.fence();
    let writing = tokio::spawn(async move {
        while fence.put("/data", "again").await.is_ok() {
            yield_now().await;
        }
    });
    world.settle().await;
    assert!(leadership.is_valid());
    world.depose(NAME).await;
    writing.expect_soon("ends").await;
}

/// A process is one process, however many leases it has.
#[tokio::test]
async fn a_paused_process_renews_none_of_its_leases() {
    let (world, process) = alone().await;
    let first = process.session().with_own_lease().expect("starts");
    let first = first.election("first").campaign().await.expect("leads");
    process.pause().await;
    let later = process.session().with_own_lease().expect("starts");
    let mut waits = later.election("later").join();
    world.pass(Duration::from_secs(11)).await;
    assert!(!first.is_valid());
    assert!(waits.elected().now_or_never().is_none(), "a paused process campaigns");
    process.resume().await;
    assert!(waits.elected().await.expect("leads").is_valid());
}

#[tokio::test]
async fn a_session_that_is_over_holds_up_nobody() {
    let Scene { world, worker, leadership, leader, mut next, rival: _rival } = scene().await;
    drop((leader, leadership));
    worker.session().close().expect_soon("closes").await;
    world.settle().await;
    now(next.elected()).expect("leads");
    worker.pause().await;
    drop(worker);
    world.pass(LEASE).await;
    assert_eq!(world.leader(NAME).expect_soon("leads").await.value, b"rival");
}

#[tokio::test]
async fn the_same_story_goes_the_same_way() {
    async fn story() -> Vec<Event> {
        let Scene { world, worker, leader, leadership, rival: _rival, next: _next } = scene().await;
        let mut events = leader.events();
        world.pass(LEASE).await;
        worker.cut().await;
        world.pass(LEASE * 2).await;
        worker.heal().await;
        drop(leadership);
        world.pass(LEASE).await;
        let mut told = Vec::new();
        while let Some(Some(event)) = events.next().now_or_never() {
            told.push(event);
        }
        told
    }
    let first = story().await;
    assert!(first.len() > 5, "{first:?}");
    assert_eq!(first, story().await);
}

/// They are more than a step of the elector looks at, and the clock stands still.
#[tokio::test]
async fn many_elections_are_won_and_lost_at_one_moment() {
    let (world, worker) = alone().await;
    let elections = shards(&worker, 1_000);
    let led = try_join_all(elections.iter().map(Election::campaign)).expect_soon("leads").await;
    assert!(led.iter().all(Leadership::is_valid));
    world.revoke("shard-7").expect_soon("somebody led").await;
    for leadership in &led {
        assert!(matches!(now(leadership.lost()), Reason::LeaseLost | Reason::Deposed));
    }
}

#[tokio::test]
async fn a_session_with_many_elections_closes_at_one_moment() {
    let (_world, worker) = alone().await;
    let elections = shards(&worker, 1_000);
    let mut candidates: Vec<_> = elections.iter().map(Election::join).collect();
    try_join_all(candidates.iter_mut().map(Candidate::joined)).expect_soon("join").await;
    worker.session().close().expect_soon("closes").await;
    drop(candidates);
}

#[tokio::test]
async fn options_are_taken_and_refused_as_ever() {
    let world = World::new();
    let short = Options { ttl: SECOND, identity: "short".into(), ..Options::default() };
    let worker = world.process_with(short).expect_soon("starts").await;
    let leadership = worker.session().election(NAME).campaign().expect_soon("leads").await;
    assert!(leadership.remaining() < SECOND);
    let bad = Options { margin: LEASE, ttl: LEASE, ..Options::default() };
    world.process_with(bad).await.expect_err("no time is left");
}

/// All but the application's own tasks is waited for there, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_runtime_of_several_threads() {
    for _ in 0..50 {
        let Scene { world, worker, leadership, next, .. } = &mut scene().await;
        let ended = end_of(leadership);
        world.pass(LEASE).await;
        assert!(leadership.is_valid());
        worker.cut().await;
        world.pass(LEASE + SECOND).await;
        assert_eq!(now(leadership.lost()), Reason::Expired);
        assert!(ended.lock().is_some());
        let successor = now(next.elected()).expect("leads");
        world.pass(LEASE).await;
        assert!(successor.is_valid());
        world.depose(NAME).await;
        assert_eq!(now(successor.lost()), Reason::Deposed);
    }
}

/// It waits for an hour, unless it is woken.
#[test]
fn a_thread_that_waits_for_a_clock_is_woken_by_it() {
    let clock = ManualClock::default();
    let (woken, wakes) = mpsc::channel();
    let waits = clock.clone();
    thread::spawn(move || {
        let notifier = Notifier::default();
        while waits.now() < 7 {
            waits.wait_until(7, &notifier);
        }
        woken.send(waits.now()).expect("is awaited");
    });
    while clock.next_due() != Some(7) {
        thread::yield_now();
    }
    clock.advance(Duration::from_nanos(6));
    assert_eq!(clock.next_due(), Some(7));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(wakes.recv_timeout(LIMIT), Ok(7));
}
