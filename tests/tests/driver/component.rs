//! The component in its sandbox: what it wants of a host, and what it may use.

use super::*;

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
    assert!(size < 160 << 10, "{size} bytes");
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
fn an_endless_recursion_is_ended() {
    breaks_off(&doing("(call $again)"));
}

/// 5,000 pages are 328 MB.
#[test]
fn more_memory_than_the_limit_is_not_given() {
    let grow = "(if (i32.ne (memory.grow (i32.const 5000)) (i32.const -1)) (then return))
        unreachable";
    breaks_off(&doing(grow));
}

/// 2,400 pages are 157 MB: one memory may have them, not both.
#[test]
fn the_limit_is_for_all_memories_together() {
    let grow = "(if (i32.eq (memory.grow (i32.const 2400)) (i32.const -1)) (then unreachable))
        (if (i32.ne (memory.grow $other (i32.const 2400)) (i32.const -1)) (then unreachable))";
    let mut elector = open(&doing(grow)).expect("opens");
    elector.handle(1, &[]).expect("is given one, and not the other");
}

#[test]
fn the_limit_is_for_all_tables_together() {
    let grow = |table| format!("(table.grow {table} (ref.null func) (i32.const 60000))");
    let (first, second) = (grow("$first"), grow("$second"));
    let grow = format!(
        "(if (i32.eq {first} (i32.const -1)) (then unreachable))
        (if (i32.ne {second} (i32.const -1)) (then unreachable))"
    );
    let mut elector = open(&doing(&grow)).expect("opens");
    elector.handle(1, &[]).expect("is given one, and not the other");
}

/// However much there is to tell it.
#[test]
fn an_endless_loop_is_ended_soon() {
    let component = doing("(loop $for_ever (br $for_ever))");
    let failed = |id| {
        let outcome = Err(Failure::Other("x".repeat(16_000)));
        Event::Reply(Reply { id, outcome })
    };
    for events in [Vec::new(), vec![Event::Wake], (0..256).map(failed).collect()] {
        is_ended_soon(&component, &events, "fuel");
    }
}

/// A list of commands that is longer than its memory.
#[test]
fn a_step_out_of_bounds_is_refused() {
    let lie = "(i32.store (i32.const 64) (i32.const 8)) (i32.store (i32.const 68) (i32.const -1))";
    breaks_off(&doing(lie));
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
    breaks_off(&component);
}

/// A call of the host costs it nothing, and the host's thread time.
#[test]
fn an_elector_that_calls_its_host_for_ever_is_ended_soon() {
    let component = importing(
        "package incumbent:test;
        world test { import wasi:clocks/monotonic-clock@0.2.0; }
        package wasi:clocks@0.2.0 {
            interface monotonic-clock { now: func() -> u64; }
        }",
        r#"(import "wasi:clocks/monotonic-clock@0.2.0" "now" (func $now (result i64)))"#,
        "(loop $for_ever (drop (call $now)) (br $for_ever))",
    );
    is_ended_soon(&component, &[], "too often");
}

/// No host has other imports than WASI's.
#[test]
fn other_imports_are_refused() {
    let text = r#"(component (import "host:secrets/all" (instance)))"#;
    let error = Component::from_bytes(text.as_bytes()).expect_err("is refused");
    assert!(matches!(error, ComponentError::Unfit(_)), "{error:?}");
}

/// Its first step ends with a trap.
fn breaks_off(component: &Component) {
    let error = open(component).expect("opens").handle(1, &[]).expect_err("breaks off");
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
}

/// The same, for this reason, before the step has held up its thread for long.
fn is_ended_soon(component: &Component, events: &[Event], why: &str) {
    let mut elector = open(component).expect("opens");
    let start = clock_gettime(ClockId::ThreadCPUTime);
    let error = elector.handle(1, events).expect_err("is ended");
    let took = clock_gettime(ClockId::ThreadCPUTime) - start;
    assert!(matches!(error, ComponentError::Trap(_)), "{error:?}");
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |it| it.source());
    let causes = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(causes.contains(why), "{causes}");
    let took = Duration::try_from(took).expect("goes on");
    println!("{} events: {took:?}", events.len());
    assert!(took < SOON, "{} events: {took:?}", events.len());
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

pub fn importing_bytes(wit: &str, imports: &str, deed: &str) -> Vec<u8> {
    let module = format!(
        r#"(module
            {imports}
            (import "[export]incumbent:election/elector@0.1.0" "[resource-new]elector"
                (func $new (param i32) (result i32)))
            (memory (export "memory") 200)
            (memory $other 1)
            (table $first 1 funcref)
            (table $second 1 funcref)
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
