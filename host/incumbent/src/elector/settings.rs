//! How the component is compiled, when the library is built (`build.rs` takes this
//! file in) and when it runs: machine code is only taken with equal settings.

use wasmtime::Config;

/// Fuel, unlike a watching thread, stops the same history at the same instruction
/// everywhere.
pub fn settings() -> Config {
    let mut settings = Config::new();
    settings.concurrency_support(false).consume_fuel(true);
    settings
}
