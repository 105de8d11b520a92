//! Applications as components, which use leadership.

use std::fmt::Write;

use wit_parser::abi::AbiVariant;
use wit_parser::{Type, TypeDefKind};

use crate::text_component::{REALLOC, declared, of_world, project};

const LEADERSHIP: &str = "incumbent:election/leadership@0.1.0";

/// A component that does what its host tells it to: it exports all functions that it
/// imports. Panics if there is one in `puppet.wit` that `leadership` does not have.
pub fn puppet() -> Vec<u8> {
    let wit = include_str!("application/puppet.wit");
    let (mut resolve, _) = project();
    resolve.push_str("puppet.wit", wit).expect("the WIT parses");
    let (_, strings) = resolve.interfaces.iter().next_back().expect("has an interface");
    let mut exports = String::new();
    for (name, function) in &strings.functions {
        let is_handle = |id| matches!(resolve.types[id].kind, TypeDefKind::Handle(_));
        let of_term = function.params.first().is_some_and(|first| match first.ty {
            Type::Id(id) => is_handle(id),
            _ => false,
        });
        let export = resolve.wasm_signature(AbiVariant::GuestExport, function);
        let (parameters, results) =
            (declared("param", &export.params), declared("result", &export.results));
        let mut call = String::new();
        if name != "forget" {
            let asked = if of_term { format!("term.{name}") } else { name.clone() };
            let arguments: String =
                (0..export.params.len()).map(|at| format!("(local.get {at})")).collect();
            call = if export.retptr {
                format!("(call ${asked} {arguments} (i32.const {ANSWER})) (i32.const {ANSWER})")
            } else {
                format!("(call ${asked} {arguments})")
            };
        }
        // What was lent is given back, and what is to be forgotten dropped.
        let drop = if of_term { "(call $drop (local.get 0))" } else { "" };
        let done = declared("param", &export.results);
        writeln!(
            exports,
            r#"(func (export "incumbent:test/strings#{name}") {parameters} {results} {call} {drop})
            (func (export "cabi_post_incumbent:test/strings#{name}") {done}
                (global.set $free (i32.const {HEAP})))"#,
        )
        .expect("is written");
    }
    of_world(
        &format!(
            r#"(module
            (import "{LEADERSHIP}" "[resource-drop]term" (func $drop (param i32)))
            (memory (export "memory") 64)
            {FREE}
            {REALLOC}
            {exports})"#
        ),
        wit,
    )
}

/// Where a function's answer lies, and where what it points to begins.
const ANSWER: u32 = 64;
const HEAP: u32 = 4_096;

/// Where memory is given from. At the end of a call, or of a round, it is set back.
const FREE: &str = "(global $free (mut i32) (i32.const 4096))";

/// A component that exports `epoch`: the one in which it leads, or 0.
pub fn epoch() -> Vec<u8> {
    of_world(
        &format!(
            r#"(module
            (memory (export "memory") 1)
            {FREE}
            {REALLOC}
            (func (export "epoch") (result i64)
                (call $leading (i32.const {ANSWER}))
                (if (result i64) (i32.load8_u (i32.const {ANSWER}))
                    (then (call $term.epoch (i32.load offset=4 (i32.const {ANSWER}))))
                    (else (i64.const 0)))))"#
        ),
        "package incumbent:test;
        world job {
            import incumbent:election/leadership@0.1.0;
            export epoch: func() -> s64;
        }",
    )
}

/// A command that counts in the key `data/tally/count` while it leads: a stroke every few
/// milliseconds, each put only where nobody has written since it was read.
pub fn tally() -> Vec<u8> {
    command(&format!(
        r#"(module
        (memory (export "memory") 64)
        {FREE}
        {REALLOC}
        (data (i32.const 0) "data/tally/count")
        (func (export "wasi:cli/run@0.2.0#run") (result i32)
            (local $term i32) (local $strokes i32) (local $many i32) (local $modified i64)
            (call $leading (i32.const {ANSWER}))
            (local.set $term (i32.load offset=4 (i32.const {ANSWER})))
            (loop $again
                (global.set $free (i32.const {HEAP}))
                (call $term.get (local.get $term) (i32.const 0) (i32.const 16) (i32.const {ANSWER}))
                (if (i32.load8_u (i32.const {ANSWER})) (then (return (i32.const 1))))
                (local.set $strokes (i32.const {HEAP}))
                (local.set $many (i32.const 0))
                (local.set $modified (i64.const 0))
                (if (i32.load8_u offset=8 (i32.const {ANSWER}))
                    (then
                        (local.set $strokes (i32.load offset=24 (i32.const {ANSWER})))
                        (local.set $many (i32.load offset=28 (i32.const {ANSWER})))
                        (local.set $modified (i64.load offset=48 (i32.const {ANSWER})))))
                (i32.store8 (i32.add (local.get $strokes) (local.get $many)) (i32.const 0x7c))
                (call $term.put (local.get $term) (i32.const 0) (i32.const 16)
                    (local.get $strokes) (i32.add (local.get $many) (i32.const 1))
                    (i32.const 1) (local.get $modified) (i32.const {ANSWER}))
                (if (i32.load8_u (i32.const {ANSWER})) (then (return (i32.const 1))))
                ;; Unless the term changes, a rest of 5 ms.
                (call $term.changed (local.get $term)
                    (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                    (i32.const 1) (i64.const 5_000_000) (i32.const {ANSWER}))
                (br_if $again (i32.ne (i32.load8_u (i32.const {ANSWER})) (i32.const 2))))
            i32.const 0))"#
    ))
}

/// A command that writes the key `data/spin/begun`, and then computes without end.
pub fn spin() -> Vec<u8> {
    command(&format!(
        r#"(module
        (memory (export "memory") 1)
        {FREE}
        {REALLOC}
        (data (i32.const 0) "data/spin/begun")
        (func (export "wasi:cli/run@0.2.0#run") (result i32)
            (call $leading (i32.const {ANSWER}))
            (call $term.put (i32.load offset=4 (i32.const {ANSWER})) (i32.const 0) (i32.const 15)
                (i32.const 0) (i32.const 15) (i32.const 0) (i64.const 0) (i32.const {ANSWER}))
            (loop $again (br $again))
            unreachable))"#
    ))
}

/// A command of two memories, of 40 MiB each.
pub fn sprawl() -> Vec<u8> {
    wat::parse_str(
        r#"(component
        (core module $module
            (memory 640)
            (func (export "run") (result i32) i32.const 0))
        (core instance $one (instantiate $module))
        (core instance (instantiate $module))
        (func $run (result (result)) (canon lift (core func $one "run")))
        (instance $exported (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $exported)))"#,
    )
    .expect("parses")
}

fn command(module: &str) -> Vec<u8> {
    of_world(
        module,
        "package incumbent:test;
        world command {
            import incumbent:election/leadership@0.1.0;
            export wasi:cli/run@0.2.0;
        }
        package wasi:cli@0.2.0 {
            interface run { run: func() -> result; }
        }",
    )
}
