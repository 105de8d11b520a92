//! Components that campaign by themselves.

use super::*;

#[tokio::test]
async fn a_component_that_campaigns_resigns_by_itself_and_is_in_line_when_it_asks() {
    let Campaign { world, mut puppet, term, mut next, worker: _worker, _rival } = campaign().await;
    assert!(next.elected().now_or_never().is_none());
    puppet.resign(term).await;
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Resigned));
    world.settle().await;
    // Who has resigned and asks for nothing does not lead with nothing to do.
    let rivals = now(next.elected()).expect("leads");
    drop((rivals, next));
    world.settle().await;
    assert!(world.leader(NAME).await.is_none());
    assert!(puppet.leading().await.is_none());
    world.settle().await;
    let again = puppet.leading().expect_soon("leads").await;
    assert!(puppet.epoch(again).await > puppet.epoch(term).await);
}

#[tokio::test]
async fn a_component_leads_again_only_when_it_has_stopped_its_work() {
    let Campaign { world, mut puppet, term, next, worker: _worker, _rival } = campaign().await;
    drop(next);
    world.settle().await;
    world.depose(NAME).expect_soon("somebody led").await;
    world.pass(3600 * SECOND).await;
    assert!(world.leader(NAME).await.is_none());
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Deposed));
    assert!(puppet.leading().await.is_none());
    world.settle().await;
    assert!(puppet.leading().await.is_none(), "a part of it may be at work in the term it holds");
    world.settle().await;
    assert!(world.leader(NAME).await.is_none());
    puppet.forget(term).await;
    assert!(puppet.leading().await.is_none());
    world.settle().await;
    let next = puppet.leading().expect_soon("leads").await;
    world.depose(NAME).expect_soon("somebody led").await;

    // Who waits for another term has stopped, whatever it holds.
    assert!(puppet.leading().await.is_none());
    world.settle().await;
    assert!(world.leader(NAME).await.is_none());
    let later = puppet.elected(None).expect_soon("leads").await;
    assert!(puppet.epoch(later).await > puppet.epoch(next).await);
}

/// A component that is in line behind somebody, and asks for nothing more.
struct InLine {
    world: World,
    worker: Process,
    puppet: Puppet,
    rival: Process,
    leads: Leadership,
}

async fn in_line() -> InLine {
    let world = World::new();
    let rival = world.process("rival").expect_soon("starts").await;
    let leads = rival.session().election(NAME).campaign().expect_soon("is elected").await;
    let worker = world.process("worker").expect_soon("starts").await;
    let mut puppet = Puppet::new(LeadershipCtx::of_election(worker.session().election(NAME))).await;
    assert_eq!(puppet.elected(AT_ONCE).await.unwrap_err(), NoTerm::NotYet);
    world.settle().await;
    InLine { world, worker, puppet, rival, leads }
}

#[tokio::test]
async fn a_component_that_asks_no_more_does_not_keep_others_from_leading() {
    let InLine { world, mut puppet, rival, leads, worker: _worker } = in_line().await;
    world.pass(3600 * SECOND).await;
    drop(leads);
    world.settle().await;
    assert_eq!(world.leader(NAME).expect_soon("leads").await.value, b"worker");
    let mut next = joins(&rival.session().election(NAME)).await;
    world.pass(9 * SECOND).await;
    assert!(next.elected().now_or_never().is_none());
    world.pass(SECOND).await;
    let leads = now(next.elected()).expect("leads");
    drop(next);
    drop(leads);
    world.pass(60 * SECOND).await;
    assert!(world.leader(NAME).await.is_none(), "it is out of line");
    let term = puppet.elected(None).expect_soon("leads when it asks").await;

    // Which then is its own.
    world.pass(3600 * SECOND).await;
    assert_eq!(puppet.standing(term).await, Standing::Firm);
}

#[tokio::test]
async fn a_component_that_asks_late_leads_in_what_is_left_for_it() {
    let InLine { world, mut puppet, rival: _rival, leads, worker: _worker } = in_line().await;
    drop(leads);
    world.pass(9 * SECOND).await;
    let term = puppet.leading().expect_soon("leads").await;
    world.pass(60 * SECOND).await;
    assert_eq!(puppet.standing(term).await, Standing::Firm);
}

#[tokio::test]
async fn a_term_that_was_over_before_it_was_asked_for_is_followed_by_another() {
    let InLine { world, mut puppet, rival: _rival, leads, worker } = in_line().await;
    drop(leads);
    world.settle().await;
    world.depose(NAME).expect_soon("the worker led").await;
    let term = puppet.elected(None).expect_soon("leads again").await;
    puppet.resign(term).await;

    assert_eq!(puppet.elected(AT_ONCE).await.unwrap_err(), NoTerm::NotYet);
    worker.session().close().expect_soon("closes").await;
    assert_eq!(puppet.elected(None).await.unwrap_err(), NoTerm::Never(None));
    assert_eq!(puppet.elected(None).await.unwrap_err(), NoTerm::Never(None));
}

#[tokio::test]
async fn a_platform_sees_the_term_of_a_component_that_campaigns_and_who_overstays_it() {
    const GRACE: Duration = Duration::from_millis(50);
    let Campaign { world, mut puppet, term, worker, next, _rival } = campaign().await;
    drop(next);
    let context = LeadershipCtx::of_election(worker.session().election("another"));
    assert!(context.term().is_none());
    assert!(context.overstayed(Duration::ZERO).now_or_never().is_none());
    let epoch = puppet.epoch(term).await;
    let given = puppet.context().term().expect("is given");
    assert_eq!((given.epoch(), given.is_valid()), (epoch, true));

    let mut overstayed = Box::pin(puppet.context().overstayed(GRACE));
    world.pass(3600 * SECOND).await;
    assert!(overstayed.as_mut().now_or_never().is_none());
    world.depose(NAME).expect_soon("somebody led").await;
    assert!(overstayed.as_mut().now_or_never().is_none());
    let given = puppet.context().term().expect("may be at work yet");
    assert_eq!((given.epoch(), given.is_valid()), (epoch, false));

    // It heeds the end of this one ...
    let next = puppet.elected(None).expect_soon("leads again").await;
    let epoch = puppet.epoch(next).await;
    world.pass(2 * GRACE).await;
    assert!(overstayed.as_mut().now_or_never().is_none());
    // ... but not of the next one, for as long as is left to it.
    world.depose(NAME).expect_soon("somebody led").await;
    assert!(overstayed.as_mut().now_or_never().is_none());
    assert_eq!(exactly_after(&world, GRACE, overstayed).await.epoch(), epoch);

    // One that has resigned is at work in none.
    let last = puppet.elected(None).expect_soon("leads again").await;
    puppet.resign(last).await;
    assert!(puppet.context().term().is_none());
}

#[tokio::test]
async fn a_platform_sees_who_overstays_the_term_that_it_was_started_in() {
    let Scene { world, puppet, term: _, cast } = scene().await;
    let mut overstayed = not_yet(puppet.context().overstayed(SECOND));
    world.depose(NAME).expect_soon("somebody led").await;
    assert!(overstayed.as_mut().now_or_never().is_none());
    world.pass(SECOND).await;
    assert_eq!(now(overstayed).epoch(), cast.leadership.epoch());
}

/// Notes on which runtime it is asked.
#[derive(Debug)]
struct Located {
    store: MemoryStore,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl incumbent::Store for Located {
    fn call(
        &self,
        operation: Operation,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response, incumbent::Failure>> {
        let (answer, asked) = (self.store.call(operation, within), Arc::clone(&self.asked));
        async move {
            let here = Handle::current().id().to_string();
            asked.lock().insert(here);
            answer.await
        }
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        self.store.watches()
    }
}

#[tokio::test]
async fn what_a_component_asks_for_is_done_where_the_session_lives() {
    let asked = Arc::default();
    let store = Located { store: MemoryStore::default(), asked: Arc::clone(&asked) };
    let session = Session::open(store, Options::default()).expect_soon("starts").await;
    let leadership = session.election(NAME).campaign().expect_soon("leads").await;
    let context = LeadershipCtx::of_term(&leadership).grant("jobs/");
    let work = tokio::task::spawn_blocking(|| {
        // A runtime of the component's own, that ends with it.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
        runtime.block_on(async {
            let mut puppet = Puppet::new(context).await;
            let term = puppet.leading().expect_soon("leads").await;
            puppet.put(term, "jobs/a", b"1", None).expect_soon("leads").await;
            puppet.get(term, "jobs/a").expect_soon("is read").await.expect("is there");
            puppet.proclaim(term, b"at home").expect_soon("leads").await;
        });
    });
    work.expect_soon("works").await;
    let asked = asked.lock().clone();
    assert_eq!(asked, BTreeSet::from([Handle::current().id().to_string()]));
    leadership.resign().expect_soon("leads").await;
    session.close().expect_soon("closes").await;
}

#[tokio::test]
async fn the_end_of_a_component_that_campaigns_leaves_the_election() {
    let Campaign { world, puppet, mut next, worker: _worker, .. } = campaign().await;
    drop(puppet);
    world.settle().await;
    now(next.elected()).expect("leads");
}

#[tokio::test]
async fn a_candidate_that_never_leads_again_is_told_why() {
    let Campaign { world, worker, mut puppet, term, .. } = campaign().await;
    let unacceptable = worker.session().election("of\tfice");
    let mut refused = Puppet::new(LeadershipCtx::of_election(unacceptable)).await;
    let never = refused.elected(None).await.expect_err("has no such name");
    assert!(matches!(never, NoTerm::Never(Some(Failure::Invalid(_)))), "{never:?}");

    // Which waits for the work to stop.
    let session = worker.session().clone();
    let closing = tokio::spawn(async move { session.close().await });
    world.settle().await;
    assert_eq!(puppet.put(term, "jobs/a", b"", None).await, Err(Refusal::Stale));
    assert_eq!(puppet.elected(None).await.unwrap_err(), NoTerm::Never(None));
    closing.expect_soon("runs").await.expect("closes");
    assert_eq!(now(puppet.elected(None)).unwrap_err(), NoTerm::Never(None));
    assert!(puppet.leading().await.is_none());
    assert_eq!(puppet.put(term, "jobs/a", b"", None).await, Err(Refusal::Stale));
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Resigned));
}
