//! `incumbent::plugin`: what a component is told, and what it can do.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
/// Public for the sake of what is generated.
pub use incumbent::Fence;
use incumbent::plugin::{
    self, LeadershipCtx, LeadershipCtxView, LeadershipView, MOST_BYTES, MOST_CHANGES, MOST_HANDLES,
};
use incumbent::testing::{Process, World};
use incumbent::types::{Operation, Response};
use incumbent::{
    Candidate, Clock, Contest, Leadership, MemoryStore, Options, Reason, Session, Watches, outside,
};
use incumbent_tests::application::puppet;
use incumbent_tests::etcd::{Etcd, Version};
use incumbent_tests::on_each_version;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wasmtime::component::{Component, Linker, Resource, ResourceTable};
use wasmtime::{Engine, Store};

use self::bindings::Puppet as Strings;
use self::bindings::incumbent::election::leadership::{NoTerm, Refusal, Standing};
use self::bindings::incumbent::election::types::{self, Expectation, Failure, Put};

#[allow(missing_docs, clippy::all, reason = "generated code")]
mod bindings {
    wasmtime::component::bindgen!({
        path: ["../wit", "src/application"],
        world: "incumbent:test/puppet",
        exports: { default: async },
        with: { "incumbent:election/leadership.term": crate::Fence },
        additional_derives: [PartialEq, Clone],
    });
}

#[allow(missing_docs, clippy::all, reason = "generated code")]
mod blocking {
    wasmtime::component::bindgen!({
        path: ["../wit", "src/application"],
        world: "incumbent:test/puppet",
        with: { "incumbent:election/leadership.term": crate::Fence },
        additional_derives: [PartialEq, Clone],
    });
}

const NAME: &str = "office";
const SECOND: Duration = Duration::from_secs(1);
/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// Not at all.
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

struct State {
    leadership: LeadershipCtx,
    table: ResourceTable,
}

impl LeadershipView for State {
    fn leadership(&mut self) -> LeadershipCtxView<'_> {
        LeadershipCtxView { ctx: &mut self.leadership, table: &mut self.table }
    }
}

static COMPONENT: LazyLock<Component> =
    LazyLock::new(|| Component::new(&Engine::default(), puppet()).expect("loads"));

/// A component that is told what to ask.
struct Puppet {
    store: Store<State>,
    strings: Strings,
}

/// What the component holds of a term.
#[derive(Clone, Copy, Debug)]
struct Held(u32);

impl From<Resource<Fence>> for Held {
    fn from(term: Resource<Fence>) -> Self {
        Self(term.rep())
    }
}

impl Held {
    fn lent(self) -> Resource<Fence> {
        Resource::new_borrow(self.0)
    }
}

/// Asks a function of the component's.
macro_rules! ask {
    ($puppet:expr, $call:ident $(, $argument:expr)*) => {{
        let strings = $puppet.strings.incumbent_test_strings();
        strings.$call(&mut $puppet.store $(, $argument)*).await.expect("does not trap")
    }};
}

impl Puppet {
    async fn new(leadership: LeadershipCtx) -> Self {
        let engine = COMPONENT.engine();
        let mut linker = Linker::new(engine);
        plugin::add_to_linker_async::<State>(&mut linker).expect("fits");
        let state = State { leadership, table: ResourceTable::new() };
        let mut store = Store::new(engine, state);
        let strings = Strings::instantiate_async(&mut store, &COMPONENT, &linker).await;
        Self { store, strings: strings.expect("starts") }
    }

    fn context(&self) -> &LeadershipCtx {
        &self.store.data().leadership
    }

    async fn election(&mut self) -> String {
        ask!(self, call_election)
    }

    async fn id(&mut self) -> String {
        ask!(self, call_id)
    }

    async fn leading(&mut self) -> Option<Held> {
        ask!(self, call_leading).map(Held::from)
    }

    async fn elected(&mut self, within: Option<Duration>) -> Result<Held, NoTerm> {
        ask!(self, call_elected, within.map(nanoseconds)).map(Held::from)
    }

    async fn epoch(&mut self, term: Held) -> i64 {
        ask!(self, call_epoch, term.lent())
    }

    async fn remaining(&mut self, term: Held) -> Duration {
        Duration::from_nanos(ask!(self, call_remaining, term.lent()))
    }

    async fn standing(&mut self, term: Held) -> Standing {
        ask!(self, call_standing, term.lent())
    }

    async fn changed(&mut self, term: Held, last: &Standing, within: Option<Duration>) -> Standing {
        ask!(self, call_changed, term.lent(), last, within.map(nanoseconds))
    }

    async fn get(&mut self, term: Held, key: &str) -> Result<Option<types::Entry>, Refusal> {
        ask!(self, call_get, term.lent(), key.as_bytes())
    }

    async fn put(
        &mut self,
        term: Held,
        key: &str,
        value: &[u8],
        expected: Option<i64>,
    ) -> Result<i64, Refusal> {
        ask!(self, call_put, term.lent(), key.as_bytes(), value, expected)
    }

    async fn delete(
        &mut self,
        term: Held,
        key: &str,
        expected: Option<i64>,
    ) -> Result<i64, Refusal> {
        ask!(self, call_delete, term.lent(), key.as_bytes(), expected)
    }

    async fn write(
        &mut self,
        term: Held,
        expectations: &[(&str, i64)],
        puts: &[(&str, &[u8])],
        deletions: &[&str],
    ) -> Result<i64, Refusal> {
        let expectations: Vec<_> =
            expectations.iter().map(|(key, modified)| expectation(key, *modified)).collect();
        let puts: Vec<_> = puts.iter().map(|(key, value)| put(key, value)).collect();
        let deletions: Vec<_> = deletions.iter().map(|key| key.as_bytes().to_vec()).collect();
        ask!(self, call_write, term.lent(), &expectations, &puts, &deletions)
    }

    async fn proclaim(&mut self, term: Held, value: &[u8]) -> Result<(), Refusal> {
        ask!(self, call_proclaim, term.lent(), value)
    }

    async fn resign(&mut self, term: Held) {
        ask!(self, call_resign, term.lent());
    }

    async fn forget(&mut self, term: Held) {
        ask!(self, call_forget, Resource::new_own(term.0));
    }
}

fn expectation(key: &str, modified: i64) -> Expectation {
    Expectation { key: key.into(), modified }
}

fn put(key: &str, value: &[u8]) -> Put {
    Put { key: key.into(), value: value.into() }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().expect("fits")
}

/// A component in a leader's term, and who comes after that.
struct Scene {
    world: World,
    worker: Process,
    leadership: Leadership,
    puppet: Puppet,
    term: Held,
    rival: Process,
    next: Candidate,
}

async fn scene() -> Scene {
    let world = World::new();
    let worker = world.process("worker").await.expect("starts");
    let leadership = worker.session().election(NAME).campaign().await.expect("is elected");
    let rival = world.process("rival").await.expect("starts");
    let next = rival.session().election(NAME).join().await.expect("joins");
    let mut puppet = Puppet::new(LeadershipCtx::of_term(&leadership).grant("jobs/")).await;
    let term = puppet.leading().await.expect("leads");
    Scene { world, worker, leadership, puppet, term, rival, next }
}

/// A component that campaigns by itself, and leads.
struct Campaign {
    world: World,
    worker: Process,
    puppet: Puppet,
    term: Held,
    next: Candidate,
    _rival: Process,
}

async fn campaign() -> Campaign {
    let world = World::new();
    let worker = world.process("worker").await.expect("starts");
    let election = worker.session().election(NAME);
    let mut puppet = Puppet::new(LeadershipCtx::of_election(election).grant("jobs/")).await;
    let term = puppet.elected(None).await.expect("leads");
    let rival = world.process("rival").await.expect("starts");
    let next = rival.session().election(NAME).join().await.expect("joins");
    Campaign { world, worker, puppet, term, next, _rival: rival }
}

/// What comes of a future that has to be there by now.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("is there by now")
}

fn invalid(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Failed(Failure::Invalid(_)))
}

#[tokio::test]
async fn a_component_knows_its_term_and_writes_in_it() {
    let Scene { world, leadership, mut puppet, term, worker: _worker, rival: _rival, next: _next } =
        scene().await;
    assert_eq!(puppet.election().await, NAME);
    assert_eq!(leadership.election(), NAME);
    assert_eq!(puppet.id().await, "worker");
    assert_eq!(puppet.epoch(term).await, leadership.epoch());
    assert_eq!(puppet.remaining(term).await, leadership.remaining());
    assert_eq!(puppet.standing(term).await, Standing::Firm);
    let again = puppet.elected(None).await.expect("leads");
    assert_eq!(puppet.epoch(again).await, leadership.epoch());

    assert_eq!(puppet.get(term, "jobs/a").await, Ok(None));
    let revision = puppet.put(term, "jobs/a", b"1", None).await.expect("leads");
    assert_eq!(world.get("jobs/a").await.as_deref(), Some(&b"1"[..]));
    let entry = puppet.get(term, "jobs/a").await.expect("is read").expect("is there");
    assert_eq!((entry.modified, entry.value.as_slice()), (revision, &b"1"[..]));
    let puts: &[(&str, &[u8])] = &[("jobs/b", b"2"), ("jobs/c", b"3")];
    let all = puppet.write(term, &[("jobs/b", 0)], puts, &["jobs/a"]).await;
    assert!(all.expect("leads") > revision);
    assert_eq!(world.get("jobs/a").await, None);
    assert_eq!(world.get("jobs/c").await.as_deref(), Some(&b"3"[..]));
    puppet.delete(term, "jobs/b", None).await.expect("leads");
    assert_eq!(world.get("jobs/b").await, None);

    puppet.proclaim(term, b"at home").await.expect("leads");
    assert_eq!(world.leader(NAME).await.expect("leads").value, b"at home");
    world.pass(3600 * SECOND).await;
    assert_eq!(puppet.standing(term).await, Standing::Firm);
    assert_eq!(puppet.remaining(term).await, leadership.remaining());
}

#[tokio::test]
async fn a_write_that_expects_something_else_changes_nothing() {
    let Scene {
        world,
        mut puppet,
        term,
        leadership: _leadership,
        worker: _worker,
        rival: _rival,
        next: _next,
    } = scene().await;
    let first = puppet.put(term, "jobs/a", b"1", Some(0)).await.expect("is new");
    let second = puppet.put(term, "jobs/a", b"2", Some(first)).await.expect("is as expected");
    assert_eq!(puppet.put(term, "jobs/a", b"3", Some(0)).await, Err(Refusal::Conflict));
    assert_eq!(puppet.put(term, "jobs/a", b"3", Some(first)).await, Err(Refusal::Conflict));
    assert_eq!(puppet.delete(term, "jobs/a", Some(first)).await, Err(Refusal::Conflict));
    let all = puppet.write(term, &[("jobs/a", first)], &[("jobs/b", b"4")], &[]).await;
    assert_eq!(all, Err(Refusal::Conflict));
    assert_eq!(world.get("jobs/a").await.as_deref(), Some(&b"2"[..]));
    assert_eq!(world.get("jobs/b").await, None);
    puppet.delete(term, "jobs/a", Some(second)).await.expect("is as expected");
    assert_eq!(puppet.standing(term).await, Standing::Firm);
}

#[tokio::test]
async fn keys_are_touched_only_where_they_are_granted() {
    let Scene { world, leadership, mut puppet, term, worker, rival: _rival, next: _next } =
        scene().await;
    let refused = || Err(Refusal::NotPermitted);
    let before = world.store().revision();
    for key in ["data", "jobs", "job", "Jobs/a", ""] {
        assert_eq!(puppet.get(term, key).await.map(drop), refused().map(drop::<i64>), "{key}");
        assert_eq!(puppet.put(term, key, b"", None).await, refused(), "{key}");
        assert_eq!(puppet.delete(term, key, None).await, refused(), "{key}");
        assert_eq!(puppet.write(term, &[], &[("jobs/a", b""), (key, b"")], &[]).await, refused());
        assert_eq!(puppet.write(term, &[], &[("jobs/a", b"")], &[key]).await, refused());
        let expecting = puppet.write(term, &[(key, 0)], &[("jobs/a", b"")], &[]).await;
        assert_eq!(expecting, refused(), "what a key expects tells of it as well");
    }
    let mut nothing = Puppet::new(LeadershipCtx::of_term(&leadership)).await;
    let held = nothing.leading().await.expect("leads");
    assert_eq!(nothing.put(held, "jobs/a", b"", None).await, refused());

    // Even where everything is.
    let mut all = Puppet::new(LeadershipCtx::of_term(&leadership).grant("")).await;
    let held = all.leading().await.expect("leads");
    let own = String::from_utf8(leadership.key().into()).expect("is text");
    for key in [NAME, own.as_str(), "office/1"] {
        assert_eq!(all.put(held, key, b"", None).await, refused(), "{key}");
        assert_eq!(all.delete(held, key, None).await, refused(), "{key}");
    }
    let _other = worker.session().election("other").join().await.expect("joins");
    assert!(invalid(&all.put(held, "other/1", b"", None).await.expect_err("is a candidate's")));
    assert_eq!(world.get("jobs/a").await, None);
    assert!(world.store().revision() <= before + 1, "but for the other candidate");

    // What is only named alike belongs to nobody.
    let mut both =
        Puppet::new(LeadershipCtx::of_term(&leadership).grant("jobs/").grant("office")).await;
    let held = both.leading().await.expect("leads");
    both.put(held, "office/data", b"", None).await.expect("is granted");
    both.put(held, "offices", b"", None).await.expect("is granted");
    both.put(held, "jobs/a", b"", None).await.expect("is granted");
    assert!(leadership.is_valid());
}

#[tokio::test]
async fn what_is_asked_for_in_an_earlier_term_is_stale() {
    let Campaign { world, mut puppet, term: first, next, worker: _worker, _rival } =
        campaign().await;
    drop(next);
    world.settle().await;
    world.depose(NAME).await.expect("somebody led");
    assert_eq!(puppet.standing(first).await, Standing::Over(types::Reason::Deposed));
    assert_eq!(puppet.put(first, "jobs/a", b"", None).await, Err(Refusal::Stale));

    let second = puppet.elected(None).await.expect("leads again");
    assert!(puppet.epoch(second).await > puppet.epoch(first).await);
    assert_eq!(puppet.standing(second).await, Standing::Firm);
    for _ in 0..2 {
        assert_eq!(puppet.put(first, "jobs/a", b"", None).await, Err(Refusal::Stale));
        assert_eq!(puppet.delete(first, "jobs/a", None).await, Err(Refusal::Stale));
        assert_eq!(puppet.write(first, &[], &[("jobs/a", b"")], &[]).await, Err(Refusal::Stale));
        assert_eq!(puppet.get(first, "jobs/a").await.map(drop), Err(Refusal::Stale));
        assert_eq!(puppet.proclaim(first, b"").await, Err(Refusal::Stale));
        assert_eq!(puppet.remaining(first).await, Duration::ZERO);
        // Nor is the later one resigned by it.
        puppet.resign(first).await;
    }
    assert_eq!(world.get("jobs/a").await, None);
    puppet.put(second, "jobs/a", b"", None).await.expect("leads");
}

#[tokio::test]
async fn a_write_without_an_answer_is_unknown() {
    let Scene { world, worker, leadership, mut puppet, term, rival: _rival, next: _next } =
        scene().await;
    worker.lose_next_answer();
    assert_eq!(puppet.put(term, "jobs/a", b"1", None).await, Err(Refusal::Unknown));
    assert_eq!(world.get("jobs/a").await.as_deref(), Some(&b"1"[..]));
    worker.lose_next_answer();
    assert_eq!(puppet.proclaim(term, b"").await, Err(Refusal::Unknown));

    // The answer is not waited for beyond the term.
    worker.pause().await;
    let deadline = leadership.valid_until();
    let mut write = Box::pin(puppet.put(term, "jobs/a", b"2", None));
    assert!(write.as_mut().now_or_never().is_none());
    world.pass(leadership.remaining() - Duration::from_nanos(1)).await;
    assert!(write.as_mut().now_or_never().is_none());
    world.pass(Duration::from_nanos(1)).await;
    assert_eq!(world.clock().now(), deadline);
    assert_eq!(now(write), Err(Refusal::Unknown));
}

#[tokio::test]
async fn a_write_is_of_a_bounded_size() {
    let Scene {
        world,
        mut puppet,
        term,
        leadership: _leadership,
        worker: _worker,
        rival: _rival,
        next: _next,
    } = scene().await;
    let before = world.store().revision();
    let (key, most) = ("jobs/a", vec![7; MOST_BYTES - "jobs/a".len()]);
    let more = vec![7; most.len() + 1];
    assert!(invalid(&puppet.put(term, key, &more, None).await.expect_err("is too much")));
    // What is expected counts as well.
    assert!(invalid(&puppet.put(term, key, &most, Some(0)).await.expect_err("is too much")));
    let keys: Vec<_> = (0..=MOST_CHANGES).map(|n| format!("jobs/{n}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let many = puppet.write(term, &[], &[], &keys).await;
    assert!(invalid(&many.expect_err("is too much")));
    assert!(invalid(&puppet.proclaim(term, &[7; 4_097]).await.expect_err("is too much")));
    assert!(invalid(&puppet.proclaim(term, &more).await.expect_err("is too much")));
    let twice = puppet.write(term, &[], &[(key, b"1"), (key, b"2")], &[]).await;
    assert!(invalid(&twice.expect_err("is not possible")));
    assert_eq!(world.store().revision(), before);
    puppet.put(term, key, &most, None).await.expect("is just as much");
    puppet.write(term, &[], &[], &keys[1..]).await.expect("are just as many");
    puppet.proclaim(term, &[7; 4_096]).await.expect("is just as much");
}

#[tokio::test]
async fn whoever_waits_is_woken_by_the_end_of_the_term() {
    let Scene {
        world,
        mut puppet,
        term,
        leadership: _leadership,
        worker: _worker,
        rival: _rival,
        next: _next,
    } = scene().await;
    {
        let mut change = Box::pin(puppet.changed(term, &Standing::Firm, None));
        world.pass(60 * SECOND).await;
        assert!(change.as_mut().now_or_never().is_none());
        world.depose(NAME).await.expect("somebody led");
        assert_eq!(now(change), Standing::Over(types::Reason::Deposed));
    }
    // And is not kept waiting for what is over.
    let over = Standing::Over(types::Reason::Deposed);
    assert_eq!(now(puppet.changed(term, &over, None)), over);
}

#[tokio::test]
async fn whoever_waits_is_told_of_danger_and_of_its_end() {
    let Scene { world, worker, leadership, mut puppet, term, rival: _rival, next: _next } =
        scene().await;
    world.pass(SECOND).await;
    worker.cut().await;
    let mut change = Box::pin(puppet.changed(term, &Standing::Firm, None));
    while leadership.remaining() > Duration::from_secs(4) {
        world.pass(SECOND).await;
    }
    assert_eq!(now(change), Standing::Endangered);
    assert_eq!(puppet.standing(term).await, Standing::Endangered);
    worker.heal().await;
    change = Box::pin(puppet.changed(term, &Standing::Endangered, None));
    world.pass(SECOND).await;
    assert_eq!(now(change), Standing::Firm);
    worker.cut().await;
    world.pass(60 * SECOND).await;
    let end = puppet.changed(term, &Standing::Firm, None);
    assert_eq!(now(end), Standing::Over(types::Reason::Expired));
}

#[tokio::test]
async fn whoever_waits_for_a_time_is_woken_after_it() {
    let Campaign { world, mut puppet, term, worker: _worker, mut next, _rival } = campaign().await;
    {
        let mut change = Box::pin(puppet.changed(term, &Standing::Firm, Some(SECOND)));
        assert!(change.as_mut().now_or_never().is_none());
        world.pass(SECOND - Duration::from_nanos(1)).await;
        assert!(change.as_mut().now_or_never().is_none());
        world.pass(Duration::from_nanos(1)).await;
        assert_eq!(now(change), Standing::Firm);
    }
    assert_eq!(now(puppet.changed(term, &Standing::Firm, AT_ONCE)), Standing::Firm);
    assert_eq!(now(puppet.changed(term, &Standing::Endangered, None)), Standing::Firm);

    world.depose(NAME).await.expect("somebody led");
    let leads = now(next.elected()).expect("leads");
    assert_eq!(now(puppet.elected(AT_ONCE)).unwrap_err(), NoTerm::NotYet);
    {
        let mut turn = Box::pin(puppet.elected(Some(SECOND)));
        assert!(turn.as_mut().now_or_never().is_none());
        world.pass(SECOND).await;
        assert_eq!(now(turn).unwrap_err(), NoTerm::NotYet);
    }
    let mut turn = Box::pin(puppet.elected(None));
    assert!(turn.as_mut().now_or_never().is_none());
    drop(leads);
    world.settle().await;
    now(turn).expect("leads");
}

#[tokio::test]
async fn the_clock_tells_a_component_what_nobody_has_told_it() {
    let Scene { world, worker, leadership, mut puppet, term, rival: _rival, next: _next } =
        scene().await;
    // Nothing happens in the process from now on, but what the component asks.
    worker.pause().await;
    world.pass(leadership.remaining() - Duration::from_nanos(1)).await;
    assert_eq!(puppet.remaining(term).await, Duration::from_nanos(1));
    assert_ne!(puppet.standing(term).await, Standing::Over(types::Reason::Expired));
    assert!(puppet.leading().await.is_some());
    world.pass(Duration::from_nanos(1)).await;
    assert!(leadership.lost().now_or_never().is_none(), "nobody has been told");
    assert_eq!(puppet.remaining(term).await, Duration::ZERO);
    assert_eq!(now(puppet.put(term, "jobs/a", b"", None)), Err(Refusal::Stale));
    assert_eq!(now(puppet.get(term, "jobs/a")).map(drop), Err(Refusal::Stale));
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Expired));
    assert!(puppet.leading().await.is_none());
    assert_eq!(now(puppet.elected(None)).unwrap_err(), NoTerm::Never(None));
    let over = puppet.changed(term, &Standing::Firm, None);
    assert_eq!(now(over), Standing::Over(types::Reason::Expired));
}

#[tokio::test]
async fn the_clock_wakes_whom_nobody_wakes() {
    let Scene { world, worker, leadership, mut puppet, term, rival: _rival, next: _next } =
        scene().await;
    worker.pause().await;
    let mut change = Box::pin(puppet.changed(term, &Standing::Firm, None));
    world.pass(leadership.remaining() - Duration::from_nanos(1)).await;
    assert!(change.as_mut().now_or_never().is_none());
    world.pass(Duration::from_nanos(1)).await;
    assert_eq!(now(change), Standing::Over(types::Reason::Expired));
}

#[tokio::test]
async fn a_component_that_resigns_ends_the_term_and_its_platform_releases_it() {
    let Scene { world, leadership, mut puppet, term, mut next, worker: _worker, rival: _rival } =
        scene().await;
    puppet.resign(term).await;
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Resigned));
    assert_eq!(puppet.put(term, "jobs/a", b"", None).await, Err(Refusal::Stale));
    assert_eq!(now(leadership.lost()), Reason::Resigned);
    // The component may work on until the platform has ended it.
    world.pass(SECOND).await;
    assert!(next.elected().now_or_never().is_none());
    drop(puppet);
    leadership.resign().await.expect("is released");
    world.settle().await;
    now(next.elected()).expect("leads");
}

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
    let again = puppet.leading().await.expect("leads");
    assert!(puppet.epoch(again).await > puppet.epoch(term).await);
}

#[tokio::test]
async fn a_component_leads_again_only_when_it_has_stopped_its_work() {
    let Campaign { world, mut puppet, term, next, worker: _worker, _rival } = campaign().await;
    drop(next);
    world.settle().await;
    world.depose(NAME).await.expect("somebody led");
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
    let next = puppet.leading().await.expect("leads");
    world.depose(NAME).await.expect("somebody led");

    // Who waits for another term has stopped, whatever it holds.
    assert!(puppet.leading().await.is_none());
    world.settle().await;
    assert!(world.leader(NAME).await.is_none());
    let later = puppet.elected(None).await.expect("leads");
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
    let rival = world.process("rival").await.expect("starts");
    let leads = rival.session().election(NAME).campaign().await.expect("is elected");
    let worker = world.process("worker").await.expect("starts");
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
    assert_eq!(world.leader(NAME).await.expect("leads").value, b"worker");
    let mut next = rival.session().election(NAME).join().await.expect("joins");
    world.pass(9 * SECOND).await;
    assert!(next.elected().now_or_never().is_none());
    world.pass(SECOND).await;
    let leads = now(next.elected()).expect("leads");
    drop(next);
    drop(leads);
    world.pass(60 * SECOND).await;
    assert!(world.leader(NAME).await.is_none(), "it is out of line");
    let term = puppet.elected(None).await.expect("leads when it asks");

    // Which then is its own.
    world.pass(3600 * SECOND).await;
    assert_eq!(puppet.standing(term).await, Standing::Firm);
}

#[tokio::test]
async fn a_component_that_asks_late_leads_in_what_is_left_for_it() {
    let InLine { world, mut puppet, rival: _rival, leads, worker: _worker } = in_line().await;
    drop(leads);
    world.pass(9 * SECOND).await;
    let term = puppet.leading().await.expect("leads");
    world.pass(60 * SECOND).await;
    assert_eq!(puppet.standing(term).await, Standing::Firm);
}

#[tokio::test]
async fn a_term_that_was_over_before_it_was_asked_for_is_followed_by_another() {
    let InLine { world, mut puppet, rival: _rival, leads, worker } = in_line().await;
    drop(leads);
    world.settle().await;
    world.depose(NAME).await.expect("the worker led");
    let term = puppet.elected(None).await.expect("leads again");
    puppet.resign(term).await;

    assert_eq!(puppet.elected(AT_ONCE).await.unwrap_err(), NoTerm::NotYet);
    worker.session().close().await.expect("closes");
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
    world.depose(NAME).await.expect("somebody led");
    assert!(overstayed.as_mut().now_or_never().is_none());
    let given = puppet.context().term().expect("may be at work yet");
    assert_eq!((given.epoch(), given.is_valid()), (epoch, false));

    // It heeds the end of this one ...
    let next = puppet.elected(None).await.expect("leads again");
    let epoch = puppet.epoch(next).await;
    world.pass(2 * GRACE).await;
    assert!(overstayed.as_mut().now_or_never().is_none());
    // ... but not of the next one, for as long as is left to it.
    world.depose(NAME).await.expect("somebody led");
    assert!(overstayed.as_mut().now_or_never().is_none());
    world.pass(GRACE - Duration::from_nanos(1)).await;
    assert!(overstayed.as_mut().now_or_never().is_none());
    world.pass(Duration::from_nanos(1)).await;
    assert_eq!(now(overstayed).epoch(), epoch);

    // One that has resigned is at work in none.
    let last = puppet.elected(None).await.expect("leads again");
    puppet.resign(last).await;
    assert!(puppet.context().term().is_none());
}

#[tokio::test]
async fn a_platform_sees_who_overstays_the_term_that_it_was_started_in() {
    let Scene { world, leadership, puppet, worker: _worker, rival: _rival, .. } = scene().await;
    let mut overstayed = Box::pin(puppet.context().overstayed(SECOND));
    assert!(overstayed.as_mut().now_or_never().is_none());
    world.depose(NAME).await.expect("somebody led");
    assert!(overstayed.as_mut().now_or_never().is_none());
    world.pass(SECOND).await;
    assert_eq!(now(overstayed).epoch(), leadership.epoch());
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
    ) -> BoxFuture<'static, Result<Response, incumbent::types::Failure>> {
        let (answer, asked) = (self.store.call(operation, within), Arc::clone(&self.asked));
        async move {
            let here = Handle::current().id().to_string();
            asked.lock().expect("whole").insert(here);
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
    let session = Session::open(store, Options::default()).await.expect("starts");
    let leadership = session.election(NAME).campaign().await.expect("leads");
    let context = LeadershipCtx::of_term(&leadership).grant("jobs/");
    let work = tokio::task::spawn_blocking(|| {
        // A runtime of the component's own, that ends with it.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
        runtime.block_on(async {
            let mut puppet = Puppet::new(context).await;
            let term = puppet.leading().await.expect("leads");
            puppet.put(term, "jobs/a", b"1", None).await.expect("leads");
            puppet.get(term, "jobs/a").await.expect("is read").expect("is there");
            puppet.proclaim(term, b"at home").await.expect("leads");
        });
    });
    timeout(PATIENCE, work).await.expect("in time").expect("works");
    let asked = asked.lock().expect("whole").clone();
    assert_eq!(asked, BTreeSet::from([Handle::current().id().to_string()]));
    leadership.resign().await.expect("leads");
    session.close().await.expect("closes");
}

#[tokio::test]
async fn the_end_of_a_component_that_campaigns_leaves_the_election() {
    let Campaign { world, puppet, mut next, worker: _worker, .. } = campaign().await;
    drop(puppet);
    world.settle().await;
    now(next.elected()).expect("leads");
}

#[tokio::test]
async fn whoever_never_leads_again_is_told_why() {
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
    closing.await.expect("runs").expect("closes");
    assert_eq!(now(puppet.elected(None)).unwrap_err(), NoTerm::Never(None));
    assert!(puppet.leading().await.is_none());
    assert_eq!(puppet.put(term, "jobs/a", b"", None).await, Err(Refusal::Stale));
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Resigned));
}

#[tokio::test]
async fn a_component_cannot_hoard_terms() {
    let Scene {
        mut puppet,
        term,
        world: _world,
        leadership: _leadership,
        worker: _worker,
        rival: _rival,
        next: _next,
    } = scene().await;
    for _ in 0..2 * MOST_HANDLES {
        let another = puppet.leading().await.expect("leads");
        puppet.forget(another).await;
    }
    for _ in 1..MOST_HANDLES {
        puppet.leading().await.expect("leads");
    }
    puppet.forget(term).await;
    puppet.leading().await.expect("leads");
    let strings = puppet.strings.incumbent_test_strings();
    let trap = strings.call_leading(&mut puppet.store).await.expect_err("is too much");
    assert!(format!("{trap:?}").contains("handles of terms"), "{trap:?}");
}

/// A component that takes its turn, once it has `asked` for it, and blocks whoever called it.
fn take_a_turn(leadership: LeadershipCtx, asked: oneshot::Sender<()>) {
    use blocking::incumbent::election::leadership::{NoTerm, Refusal, Standing};
    use blocking::incumbent::election::types::{Expectation, Failure, Put, Reason};

    let engine = COMPONENT.engine();
    let mut linker = Linker::new(engine);
    plugin::add_to_linker_sync::<State>(&mut linker).expect("fits");
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
    let session = Session::open(store.clone(), Options::default()).await.expect("starts");
    let leader = session.election(NAME).campaign().await.expect("leads");
    let options = Options { identity: "worker".into(), ..Options::default() };
    let other = Session::open(store.clone(), options).await.expect("starts");
    let next = LeadershipCtx::of_election(other.election(NAME)).grant("jobs/");
    Waiting { store, session, leader, next, other }
}

/// Lets the component have its turn when it has asked, and deposes it when it is done.
async fn lead_on(
    store: MemoryStore,
    leader: Leadership,
    asked: oneshot::Receiver<()>,
    work: JoinHandle<()>,
) {
    let deposed = async {
        asked.await.expect("asks");
        leader.resign().await.expect("leads");
        while outside::get(&store, "jobs/done", PATIENCE).await.expect("is read").is_none() {
            tokio::task::yield_now().await;
        }
        outside::depose(&store, NAME, Contest::Queue, None, PATIENCE).await.expect("is deposed");
    };
    timeout(PATIENCE, deposed).await.expect("it writes");
    timeout(PATIENCE, work).await.expect("it is woken").expect("it does all of it");
}

#[tokio::test]
async fn a_component_that_blocks_a_thread_of_its_own_leaves_the_runtime_alone() {
    let Waiting { store, session, leader, next, other } = waiting().await;
    let (asks, asked) = oneshot::channel();
    let work = tokio::task::spawn_blocking(move || take_a_turn(next, asks));
    lead_on(store, leader, asked, work).await;
    session.close().await.expect("closes");
    other.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_component_that_blocks_a_runtimes_thread_leaves_the_other_tasks_another() {
    let Waiting { store, session, leader, next, other } = waiting().await;
    let (asks, asked) = oneshot::channel();
    let work = tokio::spawn(async move { take_a_turn(next, asks) });
    lead_on(store, leader, asked, work).await;
    session.close().await.expect("closes");
    other.close().await.expect("closes");
}

#[tokio::test]
#[should_panic(expected = "can call blocking only when running on the multi-threaded runtime")]
async fn a_component_does_not_block_the_only_thread_there_is() {
    let Waiting { next, leader: _leader, .. } = waiting().await;
    take_a_turn(next, oneshot::channel().0);
}

on_each_version!(two_components_take_turns_on_an_etcd);

async fn two_components_take_turns_on_an_etcd(version: Version) {
    let etcd = Etcd::start(version);
    let mut parties = Vec::new();
    for identity in ["first", "second"] {
        let options = Options { identity: identity.into(), ..Options::default() };
        let session = Session::connect(&etcd.url(), options).await.expect("connects");
        let context = LeadershipCtx::of_election(session.election(NAME)).grant("jobs/");
        parties.push((session, Puppet::new(context).await));
    }
    let (session, mut second) = parties.pop().expect("is there");
    let (other, mut first) = parties.pop().expect("is there");

    let term = timeout(PATIENCE, first.elected(None)).await.expect("in time").expect("leads");
    assert!(second.leading().await.is_none());
    let revision = first.put(term, "jobs/a", b"1", Some(0)).await.expect("leads");
    assert_eq!(first.put(term, "jobs/a", b"2", Some(0)).await, Err(Refusal::Conflict));
    assert_eq!(first.put(term, "data", b"", None).await, Err(Refusal::NotPermitted));
    first.proclaim(term, b"at home").await.expect("leads");
    let leader = session.election(NAME).leader().await.expect("is read").expect("somebody leads");
    assert_eq!(leader.value, b"at home");

    let key = String::from_utf8(leader.key).expect("is text");
    let (end, next) = {
        let change = first.changed(term, &Standing::Firm, None);
        let turn = second.elected(None);
        let both = async {
            let deposed = async { etcd.etcdctl(&["del", &key]) };
            let (end, next, _) = tokio::join!(change, turn, deposed);
            (end, next)
        };
        timeout(PATIENCE, both).await.expect("are woken")
    };
    assert_eq!(end, Standing::Over(types::Reason::Deposed));
    assert_eq!(first.put(term, "jobs/a", b"late", None).await, Err(Refusal::Stale));
    let next = next.expect("leads");
    assert!(second.epoch(next).await > first.epoch(term).await);
    let entry = second.get(next, "jobs/a").await.expect("leads").expect("is there");
    assert_eq!((entry.modified, entry.value.as_slice()), (revision, &b"1"[..]));
    second.put(next, "jobs/a", b"2", Some(revision)).await.expect("is as expected");
    second.delete(next, "jobs/b", Some(0)).await.expect("is as expected");

    second.resign(next).await;
    let again = timeout(PATIENCE, first.elected(None)).await.expect("in time").expect("leads");
    assert!(first.epoch(again).await > second.epoch(next).await);
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "jobs/a"]).trim_end(), "2");
    drop((first, second));
    session.close().await.expect("closes");
    other.close().await.expect("closes");
}
