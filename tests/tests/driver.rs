//! The component in its sandbox: what it wants of a host, what it may use, and
//! what becomes of the host when it breaks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use incumbent::types::{
    Call, Command, Config, Event, Failure, Grant, Leadership, LeaseId, Notice, Operation,
    RequestId, Response, Step, Term, Watch, Watched,
};
use incumbent::{
    BootClock, Clock, Component, ComponentError, Elector, ManualClock, Options, Session, Store,
    Watches,
};
use incumbent_tests::{hostile, text_component};
use tokio::time::timeout;
use wasmparser::{ComponentName, Encoding, KnownCustom, Parser, Payload};

const SECOND: u64 = 1_000_000_000;

#[test]
fn the_component_imports_nothing_and_exports_the_elector() {
    let mut exports = Vec::new();
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(Component::EMBEDDED) {
        match payload.expect("is valid") {
            Payload::Version { encoding, .. } => {
                depth += 1;
                assert!(depth > 1 || encoding == Encoding::Component);
            }
            Payload::ComponentImportSection(imports) if depth == 1 => {
                assert_eq!(imports.count(), 0, "the component imports something");
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.push(export.expect("is valid").name.name.to_owned());
                }
            }
            Payload::End(_) => depth -= 1,
            _ => {}
        }
    }
    assert_eq!(exports, ["incumbent:election/types@0.1.0", "incumbent:election/elector@0.1.0"]);
}

/// A host finds out which elector it has, without running it.
#[test]
fn the_component_bears_its_name_and_version() {
    let (mut names, mut versions) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(Component::EMBEDDED) {
        let Payload::CustomSection(section) = payload.expect("is valid") else { continue };
        match section.as_known() {
            KnownCustom::ComponentName(all) => {
                names.extend(all.into_iter().filter_map(|name| match name.expect("is valid") {
                    ComponentName::Component { name, .. } => Some(name),
                    _ => None,
                }))
            }
            _ if section.name() == "version" => versions.push(section.data()),
            _ => {}
        }
    }
    assert_eq!(names, ["incumbent-elector"]);
    assert_eq!(versions, [env!("CARGO_PKG_VERSION").as_bytes()]);
}

#[test]
fn the_component_is_small() {
    let size = Component::EMBEDDED.len();
    assert!(size < 128 << 10, "{size} bytes");
}

#[test]
fn an_elector_with_nothing_to_do_does_nothing() {
    let mut elector = open(&Component::embedded().expect("loads")).expect("opens");
    let step = elector.handle(1, &[Event::Wake]).expect("handles");
    assert_eq!(step.commands, []);
    assert_eq!(step.deadline, None);
}

#[test]
fn a_margin_that_leaves_no_time_is_refused_with_a_sentence() {
    let config = Config { safety_margin: 11 * SECOND, ..config() };
    let error = Elector::open(&Component::embedded().expect("loads"), config, 0);
    let error = error.expect_err("no time is left");
    assert!(matches!(error, ComponentError::Config(_)));
    assert!(error.to_string().contains("margin"), "{error}");
}

#[test]
fn what_is_no_elector_is_refused_with_a_sentence() {
    for bytes in [&b""[..], b"\0asm\x01\0\0\0", b"(component)", b"nonsense"] {
        let error = Component::from_bytes(bytes).expect_err("no elector");
        assert!(matches!(error, ComponentError::Unfit(_)));
        assert!(error.to_string().contains("no elector"), "{error}");
    }
}

#[test]
fn a_trap_ends_the_elector_and_not_the_host() {
    let mut elector = open(&doing("unreachable")).expect("opens");
    let error = elector.handle(1, &[]).expect_err("traps");
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
    let error = elector.handle(2, &[]).expect_err("is poisoned");
    assert!(matches!(error, ComponentError::Step(_)), "{error:?}");

    let mut another = open(&Component::embedded().expect("loads")).expect("opens");
    another.handle(3, &[]).expect("handles");
}

#[test]
fn an_endless_loop_is_ended() {
    let mut elector = open(&doing("(loop $for_ever (br $for_ever))")).expect("opens");
    let error = elector.handle(1, &[]).expect_err("is ended");
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
}

#[test]
fn an_endless_recursion_is_ended() {
    let mut elector = open(&doing("(call $again)")).expect("opens");
    let error = elector.handle(1, &[]).expect_err("is ended");
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
}

/// 2,048 pages are 128 MB.
#[test]
fn more_memory_than_the_limit_is_not_given() {
    let grow = "(if (i32.ne (memory.grow (i32.const 2048)) (i32.const -1)) (then return))
        unreachable";
    let mut elector = open(&doing(grow)).expect("opens");
    let error = elector.handle(1, &[]).expect_err("is refused");
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
}

/// A list of commands that is longer than its memory.
#[test]
fn a_step_out_of_bounds_is_refused() {
    let lie = "(i32.store (i32.const 64) (i32.const 8)) (i32.store (i32.const 68) (i32.const -1))";
    let mut elector = open(&doing(lie)).expect("opens");
    let error = elector.handle(1, &[]).expect_err("is refused");
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
}

/// A deadline that is not ahead would make the host spin: here it is 7.
#[test]
fn a_deadline_that_is_past_is_refused() {
    let past = "(i32.store8 (i32.const 72) (i32.const 1)) (i64.store (i32.const 80) (i64.const 7))";
    let mut elector = open(&doing(past)).expect("opens");
    let step = elector.handle(6, &[]).expect("is ahead yet");
    assert_eq!(step.deadline, Some(7));
    let error = elector.handle(7, &[]).expect_err("is refused");
    assert!(matches!(error, ComponentError::Step(_)), "{error:?}");
}

/// A replacement may bring WASI along: it sees nobody's environment.
#[test]
fn imports_of_wasi_load_and_reach_nothing() {
    let component = importing(
        "package incumbent:test;
        world test { import wasi:cli/environment@0.2.0; }
        package wasi:cli@0.2.0 {
            interface environment { get-arguments: func() -> list<string>; }
        }",
        r#"(import "wasi:cli/environment@0.2.0" "get-arguments" (func $arguments (param i32)))"#,
        // The list's address and length are written to 128.
        "(call $arguments (i32.const 128))
        (if (i32.ne (i32.load (i32.const 132)) (i32.const 0)) (then unreachable))",
    );
    let mut elector = open(&component).expect("opens");
    let step = elector.handle(1, &[]).expect("handles");
    assert_eq!(step.commands, []);
}

/// The host's thread is not to be blocked by an elector that sleeps.
#[tokio::test]
async fn an_elector_that_waits_is_refused() {
    let component = importing(
        "package incumbent:test;
        world test { import wasi:clocks/monotonic-clock@0.2.0; }
        package wasi:io@0.2.0 {
            interface poll { resource pollable { block: func(); } }
        }
        package wasi:clocks@0.2.0 {
            interface monotonic-clock {
                use wasi:io/poll@0.2.0.{pollable};
                subscribe-duration: func(when: u64) -> pollable;
            }
        }",
        r#"(import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration"
            (func $subscribe (param i64) (result i32)))
        (import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))"#,
        "(call $block (call $subscribe (i64.const 20000000000)))",
    );
    let mut elector = open(&component).expect("opens");
    let error = elector.handle(1, &[]).expect_err("is refused");
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
}

/// Other imports than WASI's are nobody's.
#[test]
fn other_imports_are_refused() {
    let text = r#"(component (import "host:secrets/all" (instance)))"#;
    let error = Component::from_bytes(text.as_bytes()).expect_err("is refused");
    assert!(matches!(error, ComponentError::Unfit(_)), "{error:?}");
}

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
    let clock = ManualClock::default();
    let session = session(&hostile::elector(&[]), Arc::new(clock.clone())).await;
    let closing = tokio::spawn(async move { session.close().await });
    for _ in 0..60 {
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(1));
    }
    timeout(Duration::from_secs(5), closing).await.expect("closes").expect("ends").expect("closes");
}

/// The only thread is not to be its own.
#[tokio::test]
async fn an_elector_in_a_hurry_leaves_others_their_turn() {
    let soon = "(i32.store8 (i32.const 72) (i32.const 1))
        (i64.store (i32.const 80) (i64.add (local.get 0) (i64.const 1)))";
    let session = session(&importing_bytes("", "", soon), Arc::new(BootClock)).await;
    let _candidate = session.election("jobs").enter();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The first call comes too early for the second lease, on which nothing was granted.
#[tokio::test]
async fn a_leadership_is_not_believed_beyond_the_grant_of_its_own_lease() {
    for (lease, valid_until, stands) in
        [(7, 10 * SECOND, true), (7, 10 * SECOND + 1, false), (8, 10 * SECOND, false)]
    {
        let grant = Operation::Grant(Grant { lease: 7, ttl: 10 * SECOND });
        let call = Call { id: 1, give_up: SECOND, operation: grant };
        let term = Term { election: 1, epoch: 1 };
        let leadership = Leadership { term, key: b"jobs/7".into(), lease, valid_until };
        let steps = [
            Step { commands: vec![Command::Call(call)], deadline: None },
            Step { commands: vec![Command::Notify(Notice::Elected(leadership))], deadline: None },
            Step { commands: Vec::new(), deadline: None },
        ];
        let session = session(&hostile::elector(&steps), Arc::<ManualClock>::default()).await;
        let mut candidate = session.election("jobs").enter();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let elected = candidate.elected().now_or_never();
        assert_eq!(elected.is_some(), stands, "{lease} until {valid_until}");
    }
}

/// The leases of the one that broke are not to be taken for its own.
#[tokio::test]
async fn an_elector_that_replaces_another_has_a_seed_of_its_own() {
    let grant = Operation::Grant(Grant { lease: hostile::SEED, ttl: 10 * SECOND });
    let call = Call { id: 1, give_up: SECOND, operation: grant };
    let step = Step { commands: vec![Command::Call(call)], deadline: None };
    let clock = ManualClock::default();
    let component = Some(hostile::breaking(&[step], "").into());
    let options = Options { component, clock: Arc::new(clock.clone()), ..Options::default() };
    let store = Generous::default();
    let session = Session::open(store.clone(), options).await.expect("opens");
    let _candidate = session.election("jobs").enter();
    timeout(Duration::from_secs(30), async {
        while store.granted.lock().expect("whole").len() < 3 {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_secs(1));
        }
    })
    .await
    .expect("it breaks again and again");
    let granted = store.granted.lock().expect("whole");
    let seeds: BTreeSet<_> = granted.iter().collect();
    assert_eq!(seeds.len(), granted.len(), "{granted:?}");
}

async fn session(component: &[u8], clock: Arc<dyn Clock>) -> Session {
    let options = Options { component: Some(component.into()), clock, ..Options::default() };
    Session::open(Generous::default(), options).await.expect("opens")
}

/// A store that grants, and nothing else.
#[derive(Clone, Debug, Default)]
struct Generous {
    granted: Arc<Mutex<Vec<LeaseId>>>,
}

impl Store for Generous {
    fn call(
        &self,
        operation: Operation,
        _: Duration,
    ) -> BoxFuture<'static, Result<Response, Failure>> {
        ready(match operation {
            Operation::Grant(grant) => {
                self.granted.lock().expect("whole").push(grant.lease);
                Ok(Response::Granted(grant.ttl))
            }
            _ => Err(Failure::Unavailable),
        })
        .boxed()
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(self.clone())
    }
}

impl Watches for Generous {
    fn open(&mut self, _: Watch) {}

    fn close(&mut self, _: RequestId) {}

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Watched> {
        Poll::Pending
    }
}

fn config() -> Config {
    Config { lease_ttl: 10 * SECOND, safety_margin: 0, request_timeout: 5 * SECOND, seed: (1, 2) }
}

fn open(component: &Component) -> Result<Elector, ComponentError> {
    Elector::open(component, config(), 0)
}

/// A component of the same WIT that does this when it is to handle something.
/// Its step lies at 64.
fn doing(deed: &str) -> Component {
    importing("", "", deed)
}

/// The same, with imports of WASI as well.
fn importing(wit: &str, imports: &str, deed: &str) -> Component {
    Component::from_bytes(&importing_bytes(wit, imports, deed)).expect("loads")
}

fn importing_bytes(wit: &str, imports: &str, deed: &str) -> Vec<u8> {
    let module = format!(
        r#"(module
            {imports}
            (import "[export]incumbent:election/elector@0.1.0" "[resource-new]elector"
                (func $new (param i32) (result i32)))
            (memory (export "memory") 1)
            (func $again (call $again))
            (func $deed (param i64) {deed})
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                i32.const 1024)
            (func (export "incumbent:election/elector@0.1.0#[static]elector.open")
                (param i64 i64 i64 i64 i64 i64) (result i32)
                (i32.store (i32.const 4) (call $new (i32.const 0)))
                i32.const 0)
            (func (export "incumbent:election/elector@0.1.0#[method]elector.handle")
                (param i32 i64 i32 i32) (result i32)
                (call $deed (local.get 1))
                i32.const 64))"#
    );
    text_component::of_elector(&module, wit)
}
