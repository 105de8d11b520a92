//! Puts the elector's component into `OUT_DIR`, for the library to embed: the one
//! that `INCUMBENT_COMPONENT` names, else the one in the package, else one built
//! here from `guest/`, with its name and version. Beside it goes its machine code.

#[cfg(feature = "precompiled")]
#[path = "build/machine_code.rs"]
mod machine_code;

use std::env::{home_dir, var_os, vars_os};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const TARGET: &str = "wasm32-wasip2";
const NAME: &str = "incumbent-elector";

fn main() -> ExitCode {
    match component() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            println!("cargo::error={sentence}");
            ExitCode::FAILURE
        }
    }
}

fn component() -> Result<(), String> {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let packaged = package.join("incumbent.wasm");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=INCUMBENT_COMPONENT");
    let given = var_os("INCUMBENT_COMPONENT").map(PathBuf::from);
    let ready = given.or_else(|| packaged.exists().then_some(packaged));
    let (source, label) = if let Some(ready) = ready {
        println!("cargo::rerun-if-changed={}", ready.display());
        (ready, Vec::new())
    } else {
        // Its sources are watched and it is not: it is younger than the start of this program,
        // which would run anew each time.
        (build(&package)?, label(&variable("CARGO_PKG_VERSION")?.to_string_lossy()))
    };
    let embedded = Path::new(&variable("OUT_DIR")?).join("incumbent.wasm");
    fs::read(&source)
        .and_then(|component| fs::write(&embedded, [component, label].concat()))
        .map_err(|error| format!("the component {} cannot be copied: {error}", source.display()))?;
    #[cfg(feature = "precompiled")]
    {
        println!("cargo::rerun-if-changed=build");
        println!("cargo::rerun-if-changed=src/elector/settings.rs");
        let code = machine_code::compile(&embedded, &variable("TARGET")?.to_string_lossy())?;
        fs::write(embedded.with_extension("cwasm"), code.unwrap_or_default())
            .map_err(|error| format!("the machine code cannot be written: {error}"))?;
    }
    Ok(())
}

/// Builds the guest with a cargo of its own, and says where the component is.
fn build(package: &Path) -> Result<PathBuf, String> {
    let root = package.ancestors().nth(2).unwrap_or(package);
    for input in ["guest/src", "guest/Cargo.toml", "wit", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }
    let out = PathBuf::from(variable("OUT_DIR")?);
    // Beside `debug` and `release`: one build serves all profiles.
    let target_dir =
        out.ancestors().nth(4).ok_or("OUT_DIR is not where cargo puts it")?.join("component");
    let toolchain = Toolchain::find()?;

    let mut cargo = Command::new(variable("CARGO")?);
    for (name, _) in vars_os().filter(|(name, _)| concerns_outer_build(name)) {
        cargo.env_remove(name);
    }
    cargo
        .args(["rustc", "--locked", "--package=incumbent-guest", "--lib"])
        .args(["--crate-type=cdylib", "--profile=component", "--target", TARGET])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir)
        .env("RUSTC", &toolchain.rustc)
        .env("CARGO_ENCODED_RUSTFLAGS", toolchain.flags(root, &target_dir));
    if toolchain.builds_core {
        cargo.arg("-Zbuild-std=core,alloc").env("RUSTC_BOOTSTRAP", "1");
    }
    let status = cargo.status().map_err(|error| format!("cargo does not run: {error}"))?;
    if !status.success() {
        return Err("the guest does not build as a component: see below".into());
    }
    Ok(target_dir.join(TARGET).join("component/incumbent_guest.wasm"))
}

/// The component's name and version, in two sections at its end, where `wasm-tools metadata show`
/// looks for them. Written by hand, because `just component` compiles this file without crates.
fn label(version: &str) -> Vec<u8> {
    // The first kind of name in there is the component's own.
    let name = [vec![0], sized(&sized(NAME.as_bytes()))].concat();
    [section("component-name", &name), section("version", version.as_bytes())].concat()
}

/// A section of no meaning to a runtime.
fn section(name: &str, content: &[u8]) -> Vec<u8> {
    [vec![0], sized(&[&sized(name.as_bytes()), content].concat())].concat()
}

/// Bytes after their number, which is written as WebAssembly does: seven bits a byte.
fn sized(content: &[u8]) -> Vec<u8> {
    let mut size = content.len();
    let mut bytes = Vec::new();
    while size > 127 {
        bytes.push(size as u8 | 128);
        size >>= 7;
    }
    bytes.push(size as u8);
    bytes.extend(content);
    bytes
}

/// A compiler that can make the component.
struct Toolchain {
    rustc: OsString,
    sysroot: PathBuf,
    /// There is no library for the target, but its source.
    builds_core: bool,
}

impl Toolchain {
    /// The compiler of this build if rustup has given it the target or the
    /// library's source, else the distribution's.
    fn find() -> Result<Self, String> {
        let candidates = [variable("RUSTC")?, "/usr/bin/rustc".into()];
        candidates.into_iter().find_map(Self::of).ok_or_else(|| {
            format!(
                "there is no Rust library for {TARGET}, which the elector is compiled to: \
                 run ./setup.sh, or `rustup target add {TARGET}`, \
                 or set INCUMBENT_COMPONENT to a ready component"
            )
        })
    }

    fn of(rustc: OsString) -> Option<Self> {
        let print = |what: &str| {
            let output =
                Command::new(&rustc).args(["--print", what, "--target", TARGET]).output().ok()?;
            let path = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| PathBuf::from(path.trim_end()))
        };
        let sysroot = print("sysroot")?;
        let ready = print("target-libdir")?.is_dir();
        let source = sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").exists();
        (ready || source).then_some(Self { rustc, sysroot, builds_core: !ready })
    }

    /// Both kinds of toolchain link alike, and no path of this machine gets into
    /// the component.
    fn flags(&self, root: &Path, target_dir: &Path) -> OsString {
        let cargo_home = var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| home_dir().map(|home| home.join(".cargo")));
        let mut flags = OsString::from("-Clink-self-contained=no");
        // Of several that match, the last one counts.
        let remapped = [
            (Some(self.sysroot.as_path()), "/rust"),
            (Some(root), "/incumbent"),
            (cargo_home.as_deref(), "/cargo"),
            (Some(target_dir), "/target"),
        ];
        for (from, to) in remapped {
            if let Some(from) = from {
                flags.push("\x1f--remap-path-prefix=");
                flags.push(from);
                flags.push("=");
                flags.push(to);
            }
        }
        flags
    }
}

/// What the outer cargo says of its own build would mislead the inner one.
fn concerns_outer_build(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let users = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "RUSTUP_",
    ];
    let single =
        ["TARGET", "HOST", "OUT_DIR", "PROFILE", "OPT_LEVEL", "DEBUG", "NUM_JOBS", "MAKEFLAGS"];
    single.contains(&&*name) || starts(&["CARGO", "RUST"]) && !starts(&users)
}

fn variable(name: &str) -> Result<OsString, String> {
    var_os(name).ok_or_else(|| format!("cargo has not set {name}"))
}
