//! `incumbent_plugin`: what a component is told, and what it can do.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
/// Public for the sake of what is generated.
pub use incumbent::Fence;
use incumbent::admin::{self, Admin};
use incumbent::testing::{Process, World};
use incumbent::types::{Operation, Response};
use incumbent::{
    Candidate, Clock, Epoch, Leadership, MemoryStore, Options, Reason, Session, Watches,
};
use incumbent_plugin::{
    self, LeadershipCtx, LeadershipCtxView, LeadershipView, MOST_BYTES, MOST_CHANGES, MOST_HANDLES,
};
use incumbent_tests::application::puppet;
use incumbent_tests::etcd::Etcd;
use incumbent_tests::on_each_version;
use incumbent_tests::wait::{ExpectSoon, joins, not_yet, now, soon};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wasmtime::component::{Component, Linker, Resource, ResourceTable};
use wasmtime::{Engine, Store};

use self::bindings::Puppet as Strings;
use self::bindings::incumbent::election::leadership::{NoTerm, Refusal, Standing};
use self::bindings::incumbent::election::types::{self, Expectation, Failure, Put};
use self::puppet::{COMPONENT, Held, Puppet, State};

mod campaigns;
mod page;
mod puppet;
mod terms;
mod threads;
mod waits;

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

const NAME: &str = "my-service";
const SECOND: Duration = Duration::from_secs(1);
/// Not at all.
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// A component in a leader's term.
struct Scene {
    world: World,
    puppet: Puppet,
    term: Held,
    cast: Cast,
}

/// Who holds that term, and who comes after it.
struct Cast {
    worker: Process,
    leadership: Leadership,
    next: Candidate,
    _rival: Process,
}

async fn scene() -> Scene {
    let world = World::new();
    let worker = world.process("worker").expect_soon("starts").await;
    let leadership = worker.session().election(NAME).campaign().expect_soon("is elected").await;
    let rival = world.process("rival").expect_soon("starts").await;
    let next = joins(&rival.session().election(NAME)).await;
    let mut puppet = Puppet::new(LeadershipCtx::of_term(&leadership).grant("jobs/")).await;
    let term = puppet.leading().expect_soon("leads").await;
    Scene { world, puppet, term, cast: Cast { worker, leadership, next, _rival: rival } }
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
    let worker = world.process("worker").expect_soon("starts").await;
    let election = worker.session().election(NAME);
    let mut puppet = Puppet::new(LeadershipCtx::of_election(election).grant("jobs/")).await;
    let term = puppet.elected(None).expect_soon("leads").await;
    let rival = world.process("rival").expect_soon("starts").await;
    let next = joins(&rival.session().election(NAME)).await;
    Campaign { world, worker, puppet, term, next, _rival: rival }
}

/// What comes of a future when this time has passed, and not a nanosecond before.
async fn exactly_after<F: Future>(
    world: &World,
    time: Duration,
    mut future: Pin<Box<F>>,
) -> F::Output {
    world.pass(time - Duration::from_nanos(1)).await;
    assert!(future.as_mut().now_or_never().is_none(), "it comes too early");
    world.pass(Duration::from_nanos(1)).await;
    now(future)
}

fn invalid(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Failed(Failure::Invalid(_)))
}

on_each_version!(two_components_take_turns_on_an_etcd);

async fn two_components_take_turns_on_an_etcd(etcd: Etcd) {
    let mut parties = Vec::new();
    for identity in ["first", "second"] {
        let options = Options { identity: identity.into(), ..Options::default() };
        let session = Session::connect(&etcd.url(), options).expect_soon("connects").await;
        let context = LeadershipCtx::of_election(session.election(NAME)).grant("jobs/");
        parties.push((session, Puppet::new(context).await));
    }
    let (session, mut second) = parties.pop().expect("is there");
    let (other, mut first) = parties.pop().expect("is there");

    let term = first.elected(None).expect_soon("leads").await;
    assert!(second.leading().await.is_none());
    let revision = first.put(term, "jobs/a", b"1", Some(0)).expect_soon("leads").await;
    assert_eq!(first.put(term, "jobs/a", b"2", Some(0)).await, Err(Refusal::Conflict));
    assert_eq!(first.put(term, "data", b"", None).await, Err(Refusal::NotPermitted));
    first.proclaim(term, b"at home").expect_soon("leads").await;
    let leader =
        session.election(NAME).leader().expect_soon("is read").await.expect("somebody leads");
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
        soon("are woken", both).await
    };
    assert_eq!(end, Standing::Over(types::Reason::Deposed));
    assert_eq!(first.put(term, "jobs/a", b"late", None).await, Err(Refusal::Stale));
    let next = next.expect("leads");
    assert!(second.epoch(next).await > first.epoch(term).await);
    let entry = second.get(next, "jobs/a").expect_soon("leads").await.expect("is there");
    assert_eq!((entry.modified, entry.value.as_slice()), (revision, &b"1"[..]));
    second.put(next, "jobs/a", b"2", Some(revision)).expect_soon("is as expected").await;
    second.delete(next, "jobs/b", Some(0)).expect_soon("is as expected").await;

    second.resign(next).await;
    let again = first.elected(None).expect_soon("leads").await;
    assert!(first.epoch(again).await > second.epoch(next).await);
    assert_eq!(etcd.etcdctl(&["get", "--print-value-only", "jobs/a"]).trim_end(), "2");
    drop((first, second));
    session.close().expect_soon("closes").await;
    other.close().expect_soon("closes").await;
}
