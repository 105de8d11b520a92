//! Compiles the elector's component to machine code, so that no start of a program has to: any
//! processor of the target's kind can run it.

use std::process::ExitCode;

#[cfg(feature = "precompiled")]
#[path = "src/elector/settings.rs"]
mod settings;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "precompiled")]
    if let Err(sentence) = machine_code::make() {
        println!("cargo::error={sentence}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[cfg(feature = "precompiled")]
mod machine_code {
    use std::env::var;
    use std::fs;
    use std::path::Path;

    use wasmtime::Engine;

    use super::settings;

    /// Leaves it in `OUT_DIR`: what `INCUMBENT_MACHINE_CODE` names, else made here.
    pub fn make() -> Result<(), String> {
        println!("cargo::rerun-if-changed=src/elector/settings.rs");
        println!("cargo::rerun-if-env-changed=INCUMBENT_MACHINE_CODE");
        let code = match var("INCUMBENT_MACHINE_CODE") {
            Ok(given) => {
                println!("cargo::rerun-if-changed={given}");
                read(&given)?
            }
            Err(_) => {
                let component = variable("DEP_INCUMBENT_COMPONENT_WASM")?;
                println!("cargo::rerun-if-changed={component}");
                compile(&component, &variable("TARGET")?)?.unwrap_or_default()
            }
        };
        fs::write(Path::new(&variable("OUT_DIR")?).join("incumbent.cwasm"), code)
            .map_err(|error| format!("the machine code cannot be written: {error}"))
    }

    /// None where this build's wasmtime has no compiler for the target: the library then compiles
    /// at its first start.
    fn compile(component: &str, target: &str) -> Result<Option<Vec<u8>>, String> {
        let mut settings = settings::settings();
        if settings.target(target).is_err() {
            return Ok(None);
        }
        let Ok(engine) = Engine::new(&settings) else {
            return Ok(None);
        };
        engine
            .precompile_component(&read(component)?)
            .map(Some)
            .map_err(|error| format!("the component {component} does not compile: {error:#}"))
    }

    fn read(file: &str) -> Result<Vec<u8>, String> {
        fs::read(file).map_err(|error| format!("{file} is not readable: {error}"))
    }

    fn variable(name: &str) -> Result<String, String> {
        var(name).map_err(|_| format!("cargo has not set {name}"))
    }
}
