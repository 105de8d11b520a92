//! `incumbent version`: prints which build this is.

use std::env::consts::{ARCH, OS};

use incumbent::Component;
use serde_json::Value;

use super::args::{Common, Form};
use super::exit::{End, Status};
use super::output::print;
use super::text::{field, json};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The package of the WIT interface, as the component exports it.
const INTERFACE: &str = "incumbent:election@0.1.0";

/// How the C library is linked tells the packages apart.
const LIBC: &str = if cfg!(target_env = "musl") { "musl" } else { "gnu" };

/// The features that the program was built with.
fn features() -> Vec<&'static str> {
    if cfg!(feature = "precompiled") { vec!["precompiled"] } else { Vec::new() }
}

pub fn version(common: &Common) -> Result<Status, End> {
    print(match common.output {
        Form::People => format!(
            "incumbent {VERSION}\ncomponent {INTERFACE} sha256:{}\nbuilt for {ARCH}-{OS}-{LIBC}, {}",
            Component::SHA256,
            if Component::has_machine_code() {
                "with the elector's machine code inside"
            } else {
                "without the elector's machine code: each start compiles it"
            }
        ),
        Form::Json => json(&Value::from_iter([
            field("version", VERSION),
            field(
                "component",
                Value::from_iter([
                    field("sha256", Component::SHA256),
                    field("bytes", Component::EMBEDDED.len()),
                    field("interface", INTERFACE),
                ]),
            ),
            field("machine_code", Component::has_machine_code()),
            field("features", features()),
            field("target", format!("{ARCH}-{OS}-{LIBC}")),
        ])),
    })
}
