#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| incumbent_simulation::properties::events::check(bytes));
