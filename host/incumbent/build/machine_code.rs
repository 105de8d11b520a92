//! Compiles the component to machine code, with the settings of
//! `host/incumbent/src/elector.rs`, so that no start of the program has to.

use std::fs;
use std::path::Path;

use wasmtime::Engine;

#[path = "../src/elector/settings.rs"]
mod settings;

/// Compiles `component` for any processor of the `target`. None where this build's
/// wasmtime has no compiler for it: the library then compiles at its first start.
pub fn compile(component: &Path, target: &str) -> Result<Option<Vec<u8>>, String> {
    let bytes = fs::read(component).map_err(|error| {
        format!("the component {} is not readable: {error}", component.display())
    })?;
    let mut settings = settings::settings();
    if settings.target(target).is_err() {
        return Ok(None);
    }
    let Ok(engine) = Engine::new(&settings) else {
        return Ok(None);
    };
    engine.precompile_component(&bytes).map(Some).map_err(|error| {
        format!("the component {} does not compile: {error:#}", component.display())
    })
}
