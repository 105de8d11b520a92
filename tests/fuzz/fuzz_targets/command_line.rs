#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

static PROGRAM: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::var_os("INCUMBENT_PROGRAM").expect("just fuzz names it").into());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    incumbent_tests::properties::command_line::check(bytes, &PROGRAM);
});
