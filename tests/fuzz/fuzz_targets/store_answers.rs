#![no_main]

use incumbent_tests::properties::store_answers::check;

// Without libfuzzer's hook, which ends the process at panics that are caught as well.
libfuzzer_sys::fuzz_target!(init: drop(std::panic::take_hook()), |bytes: &[u8]| check(bytes));
