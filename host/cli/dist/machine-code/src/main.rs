//! Compiles the elector to machine code for a processor other than the build's:
//! `incumbent-machine-code TARGET FILE`. The library's build script takes the file by
//! `INCUMBENT_MACHINE_CODE`.

#[path = "../../../../incumbent/src/elector/settings.rs"]
mod settings;

use std::env::args;
use std::error::Error;
use std::fs;

use wasmtime::Engine;

fn main() -> Result<(), Box<dyn Error>> {
    let [_, target, file] = &args().collect::<Vec<_>>()[..] else {
        return Err("two arguments are needed: the target's triple, and the file to write".into());
    };
    let mut settings = settings::settings();
    settings.target(target)?;
    fs::write(file, Engine::new(&settings)?.precompile_component(incumbent_component::BYTES)?)?;
    Ok(())
}
