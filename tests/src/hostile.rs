//! Components that are not what an elector should be.

use std::sync::LazyLock;

use incumbent::types::{
    Call, Command, Demotion, Extension, Grant, Leadership, Notice, Operation, Step, Term,
};
use incumbent::{Mark, Reason};
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store};

use crate::text_component::{REALLOC, of_elector, of_world};

/// Where the steps lie, and how far from one another.
const STEPS: usize = 64;
const APART: usize = 32;
/// Where all that they point to begins.
const HEAP: usize = 4_096;

/// An elector that says these steps one after the other, whatever it is told, and begins
/// again after the last one. Panics if there are more than a hundred, or more than a
/// megabyte of them.
pub fn elector(steps: &[Step]) -> Vec<u8> {
    saying(steps, "(global.set $next (i32.const 0))")
}

/// The same, but after the last step it does this, in WebAssembly's text format.
pub fn breaking(steps: &[Step], deed: &str) -> Vec<u8> {
    saying(steps, &format!("{deed} unreachable"))
}

/// The first term of the first candidate.
pub const TERM: Term = Term { election: 1, epoch: 1 };
/// The lease that [`grant`] asks for.
pub const LEASE: i64 = 7;

/// What an elector says at once.
pub fn step<const COMMANDS: usize>(commands: [Command; COMMANDS]) -> Step {
    Step { commands: commands.into(), deadline: None }
}

/// Asks for the [`LEASE`], for so many nanoseconds.
pub fn grant(ttl: u64, give_up: Mark) -> Command {
    let operation = Operation::Grant(Grant { lease: LEASE, ttl });
    Command::Call(Call { id: 1, give_up, operation })
}

/// Says that a candidate leads.
pub fn elects(term: Term, lease: i64, valid_until: Mark) -> Command {
    let leadership = Leadership { term, key: b"jobs/7".into(), lease, valid_until };
    Command::Notify(Notice::Elected(leadership))
}

/// Says that the terms on the [`LEASE`] last longer.
pub fn extends(valid_until: Mark) -> Command {
    Command::Notify(Notice::Extended(Extension { lease: LEASE, valid_until }))
}

/// Says that a candidate leads no more.
pub fn demotes(term: Term, reason: Reason) -> Command {
    Command::Notify(Notice::Demoted(Demotion { term, reason }))
}

/// A mark, or an epoch, in a step: the time at which it is said. What is added, up to some
/// minutes, is added.
pub const NOW: u64 = 0x4e4f_5700_0000_0000;
const MINUTES: u64 = 1 << 40;
/// A lease in a step: half of the seed with which it was opened.
pub const SEED: i64 = 0x5345_4544_0000_0000;

/// An elector that traps as soon as it is told of something that has this word in it, does
/// nothing otherwise.
pub fn fearing(word: [u8; 8]) -> Vec<u8> {
    let word = i64::from_le_bytes(word);
    let handle = format!(
        r#"(local $at i32)
        (local.set $at (i32.const {HEAP}))
        (loop $on
            (if (i64.eq (i64.load (local.get $at)) (i64.const {word}))
                (then unreachable))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br_if $on (i32.lt_u (local.get $at) (global.get $free))))
        (memory.fill (i32.const {HEAP}) (i32.const 0)
            (i32.sub (global.get $free) (i32.const {HEAP})))
        (global.set $free (i32.const {HEAP}))
        i32.const {STEPS}"#
    );
    of_text(256, HEAP, "", "", &handle)
}

/// An elector in WebAssembly's text format: it has so many pages of memory, free from `free` on,
/// and other items, and does this when it is opened and when it handles events.
fn of_text(pages: u32, free: usize, items: &str, open: &str, handle: &str) -> Vec<u8> {
    of_elector(
        &format!(
            r#"(module
            (import "[export]incumbent:election/elector@0.1.0" "[resource-new]elector"
                (func $new (param i32) (result i32)))
            (memory (export "memory") {pages})
            (global $free (mut i32) (i32.const {free}))
            {items}
            {REALLOC}
            (func (export "incumbent:election/elector@0.1.0#[static]elector.open")
                (param i64 i64 i64 i64 i64 i64) (result i32)
                {open}
                (i32.store (i32.const 4) (call $new (i32.const 0)))
                i32.const 0)
            (func (export "incumbent:election/elector@0.1.0#[method]elector.handle")
                (param i32 i64 i32 i32) (result i32)
                {handle}))"#
        ),
        "",
    )
}

/// The same component with so little memory for each of its modules, in pages of 64 KiB.
/// Panics if it is no component whose modules have one memory at most, without a limit.
pub fn cramped(component: &[u8], pages: u8) -> Vec<u8> {
    const MODULE: u8 = 1;
    const MEMORY: u8 = 5;
    rewritten(component, |section, contents| match section {
        MODULE => rewritten(contents, |section, contents| match section {
            MEMORY => {
                let [1, 0, least @ ..] = contents else { panic!("{contents:?}") };
                [&[1, 1][..], least, &[pages | 0x80, 0]].concat()
            }
            _ => contents.into(),
        }),
        _ => contents.into(),
    })
}

/// A binary whose sections have other contents.
fn rewritten(binary: &[u8], change: impl Fn(u8, &[u8]) -> Vec<u8>) -> Vec<u8> {
    let (header, mut rest) = binary.split_at(8);
    let mut whole = header.to_vec();
    while let [section, after @ ..] = rest {
        let digits = after.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let size =
            after[..digits].iter().rev().fold(0, |size, byte| size << 7 | (byte & 0x7f) as usize);
        let (contents, others) = after[digits..].split_at(size);
        let contents = change(*section, contents);
        whole.push(*section);
        // Of fixed length, which is allowed.
        let size = contents.len();
        whole.extend((0..5).map(|digit| {
            let more = if digit < 4 { 0x80 } else { 0 };
            (size >> (7 * digit)) as u8 & 0x7f | more
        }));
        whole.extend(contents);
        rest = others;
    }
    whole
}

fn saying(steps: &[Step], after: &str) -> Vec<u8> {
    let image = image(steps);
    let data: String = image.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let (end, many) = (image.len().next_multiple_of(8), steps.len().max(1));
    let words = image.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
    let filled_in: String = (0..)
        .step_by(8)
        .zip(words)
        .filter_map(|(at, word): (u32, u64)| {
            let added = word.checked_sub(NOW).filter(|added| *added < MINUTES);
            let value = match added {
                Some(added) => format!("(i64.add (local.get 1) (i64.const {added}))"),
                None if word == SEED.cast_unsigned() => "(global.get $seed)".into(),
                None => return None,
            };
            Some(format!("(i64.store (i32.const {at}) {value})"))
        })
        .collect();
    let items = format!(
        r#"(global $next (mut i32) (i32.const 0))
        (global $seed (mut i64) (i64.const 0))
        (data (i32.const 0) "{data}")
        (func $again (call $again))"#
    );
    let handle = format!(
        r"(local $step i32)
        (global.set $free (i32.const {end}))
        (if (i32.eq (global.get $next) (i32.const {many})) (then {after}))
        {filled_in}
        (local.set $step
            (i32.add (i32.const {STEPS}) (i32.mul (global.get $next) (i32.const {APART}))))
        (global.set $next (i32.add (global.get $next) (i32.const 1)))
        local.get $step"
    );
    of_text(64, end, &items, "(global.set $seed (local.get 3))", &handle)
}

/// A memory that holds these steps, as a component would return them. To find out, a
/// component is given them as arguments, and asked for its memory.
fn image(steps: &[Step]) -> Vec<u8> {
    static MEMORY: LazyLock<Component> = LazyLock::new(memory);
    let component = &*MEMORY;
    let engine = component.engine();
    let mut store = Store::new(engine, ());
    let instance = Linker::new(engine).instantiate(&mut store, component).expect("starts");
    let memory = instance.get_export_index(&mut store, None, "incumbent:test/memory");
    let named = |store: &mut Store<()>, name| {
        instance.get_export_index(store, memory.as_ref(), name).expect("is exported")
    };
    let (hold, all) = (named(&mut store, "hold"), named(&mut store, "all"));
    let hold = instance.get_typed_func::<(&Step,), ()>(&mut store, hold).expect("fits");
    let all = instance.get_typed_func::<(), (Vec<u8>,)>(&mut store, all).expect("fits");
    for step in steps {
        hold.call(&mut store, (step,)).expect("holds");
    }
    all.call(&mut store, ()).expect("tells").0
}

/// A component that holds the steps that it is given.
fn memory() -> Component {
    let module = format!(
        r#"(module
        (memory (export "memory") 64)
        (global $free (mut i32) (i32.const {HEAP}))
        (global $next (mut i32) (i32.const {STEPS}))
        {REALLOC}
        (func (export "incumbent:test/memory#hold") (param i32 i32 i32 i64)
            (i32.store (global.get $next) (local.get 0))
            (i32.store offset=4 (global.get $next) (local.get 1))
            (i32.store8 offset=8 (global.get $next) (local.get 2))
            (i64.store offset=16 (global.get $next) (local.get 3))
            (global.set $next (i32.add (global.get $next) (i32.const {APART}))))
        (func (export "incumbent:test/memory#all") (result i32)
            (i32.store (i32.const 0) (i32.const 0))
            (i32.store (i32.const 4) (global.get $free))
            i32.const 0))"#
    );
    let wit = "package incumbent:test;
        interface memory {
            use incumbent:election/types@0.1.0.{step};
            hold: func(step: step);
            all: func() -> list<u8>;
        }
        world test {
            export incumbent:election/types@0.1.0;
            export memory;
        }";
    Component::new(&Engine::default(), of_world(&module, wit)).expect("loads")
}
