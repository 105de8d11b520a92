//! Components that are programs, for `incumbent run --component`: small, and as bad as a
//! test wants them.

use crate::text_component::{REALLOC, of_world};

/// What of WASI they use.
const WASI: &str = r"
    package incumbent:job;
    world job {
        import wasi:cli/environment@0.2.12;
        import wasi:cli/exit@0.2.12;
        import wasi:cli/stdin@0.2.12;
        import wasi:cli/stdout@0.2.12;
        import wasi:clocks/monotonic-clock@0.2.12;
        import wasi:filesystem/preopens@0.2.12;
        import wasi:random/random@0.2.12;
        export wasi:cli/run@0.2.12;
    }
    package wasi:cli@0.2.12 {
        interface environment {
            get-environment: func() -> list<tuple<string, string>>;
            get-arguments: func() -> list<string>;
        }
        interface exit { exit-with-code: func(status-code: u8); }
        interface run { run: func() -> result; }
        interface stdin {
            use wasi:io/streams@0.2.12.{input-stream};
            get-stdin: func() -> input-stream;
        }
        interface stdout {
            use wasi:io/streams@0.2.12.{output-stream};
            get-stdout: func() -> output-stream;
        }
    }
    package wasi:clocks@0.2.12 {
        interface monotonic-clock {
            use wasi:io/poll@0.2.12.{pollable};
            now: func() -> u64;
            subscribe-duration: func(when: u64) -> pollable;
        }
    }
    package wasi:filesystem@0.2.12 {
        interface types {
            use wasi:io/streams@0.2.12.{output-stream};
            enum error-code {
                access, would-block, already, bad-descriptor, busy, deadlock, quota, exist,
                file-too-large, illegal-byte-sequence, in-progress, interrupted, invalid, io,
                is-directory, loop, too-many-links, message-size, name-too-long, no-device,
                no-entry, no-lock, insufficient-memory, insufficient-space, not-directory,
                not-empty, not-recoverable, unsupported, no-tty, no-such-device, overflow,
                not-permitted, pipe, read-only, invalid-seek, text-file-busy, cross-device,
            }
            flags path-flags { symlink-follow }
            flags open-flags { create, directory, exclusive, truncate }
            flags descriptor-flags {
                read, write, file-integrity-sync, data-integrity-sync, requested-write-sync,
                mutate-directory,
            }
            resource descriptor {
                append-via-stream: func() -> result<output-stream, error-code>;
                open-at: func(path-flags: path-flags, path: string, open-flags: open-flags,
                    %flags: descriptor-flags) -> result<descriptor, error-code>;
            }
        }
        interface preopens {
            use types.{descriptor};
            get-directories: func() -> list<tuple<descriptor, string>>;
        }
    }
    package wasi:random@0.2.12 {
        interface random { get-random-bytes: func(len: u64) -> list<u8>; }
    }
    package wasi:io@0.2.12 {
        interface error { resource error; }
        interface poll { resource pollable { block: func(); } }
        interface streams {
            use error.{error};
            variant stream-error { last-operation-failed(error), closed }
            resource input-stream {
                blocking-read: func(len: u64) -> result<list<u8>, stream-error>;
            }
            resource output-stream {
                check-write: func() -> result<u64, stream-error>;
                write: func(contents: list<u8>) -> result<_, stream-error>;
                blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
            }
        }
    }";

/// What they work with. Answers are written to address 0.
const TOOLS: &str = r#"
    (memory (export "memory") 64)
    (global $free (mut i32) (i32.const 65536))
    (global $out (mut i32) (i32.const -1))
    (data (i32.const 1024) "at work\n")
    (data (i32.const 1032) "=\n")
    (data (i32.const 1040) "trace")
    (data (i32.const 1048) "jobs/last")
    (data (i32.const 1064) "done")
    (data (i32.const 1072) "told\n")
    (func $write-all (param $to i32) (param $at i32) (param $len i32) (param $answer i32)
        (call $output-stream.blocking-write-and-flush
            (local.get $to) (local.get $at) (local.get $len) (local.get $answer)))
    ;; Prints some bytes.
    (func $print (param $at i32) (param $len i32)
        (if (i32.eq (global.get $out) (i32.const -1)) (then (global.set $out (call $get-stdout))))
        (call $write-all (global.get $out) (local.get $at) (local.get $len) (i32.const 0)))
    (func $at-work (call $print (i32.const 1024) (i32.const 8)))
    ;; Prints the strings that a list is made of: where the list is is at 0.
    (func $print-strings (param $between i32) (param $in-line i32)
        (local $next i32) (local $many i32) (local $is-nth i32)
        (local.set $next (i32.load (i32.const 0)))
        (local.set $many (i32.load (i32.const 4)))
        (local.set $is-nth (local.get $in-line))
        (block $done (loop $more
            (br_if $done (i32.eqz (local.get $many)))
            (call $print (i32.load (local.get $next)) (i32.load offset=4 (local.get $next)))
            (local.set $is-nth (i32.sub (local.get $is-nth) (i32.const 1)))
            (if (local.get $is-nth)
                (then (call $print (i32.const 1032) (i32.const 1)))
                (else
                    (call $print (i32.const 1033) (i32.const 1))
                    (local.set $is-nth (local.get $in-line))
                    (local.set $many (i32.sub (local.get $many) (i32.const 1)))))
            (local.set $next (i32.add (local.get $next) (i32.const 8)))
            (br $more))))
    ;; A stream that appends to the file `trace` in the first directory; traps without one.
    (func $trace (result i32)
        (call $get-directories (i32.const 0))
        (if (i32.eqz (i32.load (i32.const 4))) (then unreachable))
        (call $descriptor.open-at (i32.load (i32.load (i32.const 0))) (i32.const 0)
            (i32.const 1040) (i32.const 5) (i32.const 1) (i32.const 2) (i32.const 0))
        (if (i32.load8_u (i32.const 0)) (then unreachable))
        (call $descriptor.append-via-stream (i32.load (i32.const 4)) (i32.const 0))
        (if (i32.load8_u (i32.const 0)) (then unreachable))
        (i32.load (i32.const 4)))
"#;

/// The same, for those who want to know of their leadership.
const TERM: &str = r#"
    ;; The term.
    (func $term (result i32)
        (call $leading (i32.const 0))
        (if (i32.eqz (i32.load8_u (i32.const 0))) (then unreachable))
        (i32.load (i32.const 4)))
    ;; How a term stands once it is not firm any more: 1 endangered, 2 over.
    (func $shaken (param $term i32) (result i32)
        (call $term.changed (local.get $term)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 0) (i64.const 0) (i32.const 0))
        (i32.load8_u (i32.const 0)))
    ;; Writes `done` to the key `jobs/last`: 0, or 1 + the case of its refusal.
    (func $done (param $term i32) (result i32)
        (call $term.put (local.get $term)
            (i32.const 1048) (i32.const 9) (i32.const 1064) (i32.const 4)
            (i32.const 0) (i64.const 0) (i32.const 0))
        (if (result i32) (i32.load8_u (i32.const 0))
            (then (i32.add (i32.const 1) (i32.load8_u (i32.const 8))))
            (else (i32.const 0))))
"#;

/// A program that does this, in WebAssembly's text format, and then returns. It imports
/// leadership if it asks for its `$term`. Panics if that is no WebAssembly.
pub fn doing(deed: &str) -> Vec<u8> {
    let module = |tools: &str| {
        format!(
            r#"(module {TOOLS} {REALLOC} {tools}
                (func (export "wasi:cli/run@0.2.12#run") (result i32)
                    (local $kept i32) (local $standing i32)
                    {deed}
                    (i32.const 0)))"#
        )
    };
    if deed.contains("(call $term)") {
        of_world(&module(TERM), &importing("incumbent:election/leadership@0.1.0"))
    } else {
        of_world(&module(""), WASI)
    }
}

/// What they use of WASI, and this interface.
fn importing(interface: &str) -> String {
    WASI.replacen("import", &format!("import {interface}; import"), 1)
}

/// Prints its arguments and variables, a line each.
pub const TELLS: &str = "
    (call $get-arguments (i32.const 0))
    (call $print-strings (i32.const 1032) (i32.const 1))
    (call $get-environment (i32.const 0))
    (call $print-strings (i32.const 1032) (i32.const 2))";

/// Says that it is at work, and computes without end.
pub const LOOPS: &str = "(call $at-work) (loop (br 0))";

/// Asks the host for the time without end.
pub const CALLS: &str = "(call $at-work) (loop (drop (call $now)) (br 0))";

/// Asks the host for as many random bytes as it may, without end.
pub const RANDOM: &str = "
    (call $at-work)
    (loop
        (global.set $free (i32.const 65536))
        (call $get-random-bytes (i64.const 65536) (i32.const 0))
        (br 0))";

/// Sleeps for twenty seconds, in one call.
pub const SLEEPS: &str =
    "(call $at-work) (call $pollable.block (call $subscribe-duration (i64.const 20000000000)))";

/// Fills a gigabyte of memory without end: an instruction each time.
pub const FILLS: &str = "
    (drop (memory.grow (i32.const 16320)))
    (call $at-work)
    (loop
        (memory.fill (i32.const 65536) (i32.const 1) (i32.const 1073676288))
        (br 0))";

/// Reads from standard input, in one call.
pub const READS: &str = "
    (call $at-work)
    (call $input-stream.blocking-read (call $get-stdin) (i64.const 1) (i32.const 0))";

/// Appends a byte to the file `trace` without end.
pub const WRITES: &str = "
    (local.set $kept (call $trace))
    (call $at-work)
    (loop
        (call $write-all (local.get $kept) (i32.const 1024) (i32.const 1) (i32.const 0))
        (br 0))";

/// Prints without end.
pub const PRINTS: &str = "(loop (call $at-work) (br 0))";

/// Waits until its term stands firmly no more, says so, writes a last key, and ends with a
/// status:
/// 11 if it was endangered and the key was written; 21 if the term was over; and more by
/// the case of the refusal.
pub const LISTENS: &str = "
    (local.set $kept (call $term))
    (call $at-work)
    (local.set $standing (call $shaken (local.get $kept)))
    (call $print (i32.const 1072) (i32.const 5))
    (call $exit-with-code (i32.add
        (i32.add (i32.const 1) (i32.mul (i32.const 10) (local.get $standing)))
        (call $done (local.get $kept))))";

/// A program that wants an interface that nobody has. Panics if that has no name of an
/// interface.
pub fn wanting(interface: &str) -> Vec<u8> {
    let (package, name) = interface.split_once('/').expect("PACKAGE/NAME@VERSION");
    let (name, version) = name.split_once('@').expect("PACKAGE/NAME@VERSION");
    let package =
        format!("package {package}@{version} {{ interface {name} {{ use-it: func(); }} }}");
    let module = format!(
        r#"(module {TOOLS} {REALLOC}
            (func (export "wasi:cli/run@0.2.12#run") (result i32) (call $use-it) (i32.const 0)))"#
    );
    of_world(&module, &(importing(interface) + &package))
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_of_them_are_components() {
        for deed in ["", super::TELLS, super::WRITES, super::READS] {
            wasmparser::validate(&super::doing(deed)).unwrap();
        }
    }
}
