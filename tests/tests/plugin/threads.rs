//! Components that block their callers.

use super::*;
use incumbent_tests::wait::LIMIT;

/// A component that takes its turn, once it has `asked` for it, and blocks its caller.
fn take_a_turn(leadership: LeadershipCtx, asked: oneshot::Sender<()>) {
    use blocking::incumbent::election::leadership::{NoTerm, Refusal, Standing};
    use blocking::incumbent::election::types::{Expectation, Failure, Put, Reason};

    let engine = COMPONENT.engine();
    let mut linker = Linker::new(engine);
    incumbent_plugin::add_to_linker_sync::<State>(&mut linker).expect("fits");
    let mut store = Store::new(engine, State { leadership, table: ResourceTable::new() });
    let puppet = blocking::Puppet::instantiate(&mut store, &COMPONENT, &linker).expect("starts");
    /// Asks a function of the component's.
    macro_rules! ask {
        ($call:ident $(, $argument:expr)*) => {
            puppet.incumbent_test_strings().$call(&mut store $(, $argument)*).expect("no trap")
        };
    }

    assert_eq!(ask!(call_election), NAME);
    assert_eq!(ask!(call_id), "worker");
    assert!(ask!(call_leading).is_none());
    assert_eq!(ask!(call_elected, Some(1)).unwrap_err(), NoTerm::NotYet);
    asked.send(()).expect("is waited for");
    let term = Held::from(ask!(call_elected, None).expect("leads"));
    let again = ask!(call_leading).expect("leads");
    assert_eq!(ask!(call_epoch, again), ask!(call_epoch, term.lent()));
    assert!(ask!(call_remaining, term.lent()) > 0);
    assert_eq!(ask!(call_standing, term.lent()), Standing::Firm);
    assert_eq!(ask!(call_changed, term.lent(), &Standing::Firm, Some(1)), Standing::Firm);

    let first = ask!(call_put, term.lent(), b"jobs/a", b"1", Some(0)).expect("leads");
    let refused = ask!(call_put, term.lent(), b"jobs/a", b"2", Some(0));
    assert_eq!(refused, Err(Refusal::Conflict));
    let refused = ask!(call_put, term.lent(), b"data", b"", None);
    assert_eq!(refused, Err(Refusal::NotPermitted));
    let entry = ask!(call_get, term.lent(), b"jobs/a").expect("leads").expect("is there");
    assert_eq!(entry.modified, first);
    let expectation = Expectation { key: b"jobs/a".into(), modified: first };
    let put = Put { key: b"jobs/a".into(), value: b"2".into() };
    ask!(call_write, term.lent(), &[expectation], &[put], &[b"jobs/b".into()]).expect("leads");
    ask!(call_proclaim, term.lent(), b"at home").expect("leads");
    let refused = ask!(call_proclaim, term.lent(), &[7; 4_097]);
    assert!(matches!(refused, Err(Refusal::Failed(Failure::Invalid(_)))), "{refused:?}");

    ask!(call_delete, term.lent(), b"jobs/a", None).expect("leads");
    // Now it is deposed.
    ask!(call_put, term.lent(), b"jobs/done", b"", None).expect("leads");
    let end = ask!(call_changed, term.lent(), &Standing::Firm, None);
    assert_eq!(end, Standing::Over(Reason::Deposed));
    assert_eq!(ask!(call_put, term.lent(), b"jobs/a", b"", None), Err(Refusal::Stale));
    assert_eq!(ask!(call_changed, term.lent(), &end, None), end);
    let next = ask!(call_elected, None).expect("leads again");
    ask!(call_resign, Resource::new_borrow(next.rep()));
    ask!(call_forget, next);
}

/// Somebody leads, and a component comes next.
struct Waiting {
    store: MemoryStore,
    session: Session,
    leader: Leadership,
    next: LeadershipCtx,
    other: Session,
}

async fn waiting() -> Waiting {
    let store = MemoryStore::default();
    let session = Session::open(store.clone(), Options::default()).expect_soon("starts").await;
    let leader = session.election(NAME).campaign().expect_soon("leads").await;
    let options = Options { identity: "worker".into(), ..Options::default() };
    let other = Session::open(store.clone(), options).expect_soon("starts").await;
    let next = LeadershipCtx::of_election(other.election(NAME)).grant("jobs/");
    Waiting { store, session, leader, next, other }
}

/// Starts a component, lets it have its turn when it has asked, and deposes it when it is done.
async fn lead_on(start: impl FnOnce(Box<dyn FnOnce() + Send>) -> JoinHandle<()>) {
    let Waiting { store, session, leader, next, other } = waiting().await;
    let (asks, asked) = oneshot::channel();
    let work = start(Box::new(|| take_a_turn(next, asks)));
    let deposed = async {
        asked.expect_soon("asks").await;
        leader.resign().expect_soon("leads").await;
        while admin::get(&store, "jobs/done", LIMIT).expect_soon("is read").await.is_none() {
            tokio::task::yield_now().await;
        }
        Admin::new(&store, NAME).timeout(LIMIT).depose(None).expect_soon("is deposed").await;
    };
    soon("it writes", deposed).await;
    work.expect_soon("it does all of it").await;
    session.close().expect_soon("closes").await;
    other.close().expect_soon("closes").await;
}

#[tokio::test]
async fn a_component_that_blocks_a_thread_of_its_own_leaves_the_runtime_alone() {
    lead_on(tokio::task::spawn_blocking).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_component_that_blocks_a_runtimes_thread_leaves_the_other_tasks_another() {
    lead_on(|work| tokio::spawn(async move { work() })).await;
}

#[tokio::test]
#[should_panic(expected = "can call blocking only when running on the multi-threaded runtime")]
async fn a_component_does_not_block_the_only_thread_there_is() {
    let Waiting { next, leader: _leader, .. } = waiting().await;
    take_a_turn(next, oneshot::channel().0);
}
