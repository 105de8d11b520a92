//! Puts the elector's component into `OUT_DIR`, for the crate to hold: the one that
//! `INCUMBENT_COMPONENT` names, else the one in the package, else one built here from `source/`,
//! with its name and version. The one in the package counts as long as it was made of what is in
//! `source/` now.

use std::env::{home_dir, var_os, vars_os};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use sha2::{Digest, Sha256};

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
    println!("cargo::rerun-if-changed={}", packaged.display());
    let source = Source(package.join("source"));
    println!("cargo::rerun-if-changed={}", source.0.display());
    let version = variable("CARGO_PKG_VERSION")?.to_string_lossy().into_owned();
    let made_of = source.digest(&version)?;
    let from_source = var_os("CARGO_FEATURE_FROM_SOURCE").is_some();
    let (from, is_new) = if let Some(given) = var_os("INCUMBENT_COMPONENT").map(PathBuf::from) {
        println!("cargo::rerun-if-changed={}", given.display());
        (given, false)
    } else if !from_source && made_of == read(&package.join("incumbent.wasm.source"))?.trim_end() {
        (packaged, false)
    } else {
        // Its sources are watched and it is not: it is younger than the start of this program,
        // which would run anew each time.
        (source.build()?, true)
    };
    let mut component = fs::read(&from)
        .map_err(|error| format!("the component {} is not readable: {error}", from.display()))?;
    if is_new {
        component = [without_names(&component)?, label(&version)].concat();
    }
    let held = Path::new(&variable("OUT_DIR")?).join("incumbent.wasm");
    put(&held, &component)?;
    println!("cargo::metadata=wasm={}", held.display());
    println!("cargo::rustc-env=INCUMBENT_COMPONENT_SHA256={:x}", Sha256::digest(&component));
    println!("cargo::rustc-env=INCUMBENT_COMPONENT_SOURCE={made_of}");
    Ok(())
}

/// Everything that the component is made of. In a package these are files of its own, and in a
/// checkout they are links.
struct Source(PathBuf);

impl Source {
    /// A hash of the guest, its interface and its version. The versions of its few dependencies
    /// are not in it: the file that has them changes with every other dependency, and
    /// `just component --check` notices.
    fn digest(&self, version: &str) -> Result<String, String> {
        let mut hash = Sha256::new_with_prefix(version);
        for part in ["guest", "guest.toml", "wit"] {
            for (name, content) in files(&self.0, Path::new(part))? {
                hash.update(name.as_os_str().as_encoded_bytes());
                hash.update(content.len().to_le_bytes());
                hash.update(content);
            }
        }
        Ok(format!("{:x}", hash.finalize()))
    }

    /// Builds the guest with a cargo of its own, and says where the component is.
    fn build(&self) -> Result<PathBuf, String> {
        let out = PathBuf::from(variable("OUT_DIR")?);
        // Beside `debug` and `release`: one build serves all profiles.
        let target_dir =
            out.ancestors().nth(4).ok_or("OUT_DIR is not where cargo puts it")?.join("component");
        let workspace = target_dir.join("workspace");
        self.lay_out(&workspace)?;
        let toolchain = Toolchain::find()?;

        let mut cargo = Command::new(variable("CARGO")?);
        for (name, _) in vars_os().filter(|(name, _)| concerns_outer_build(name)) {
            cargo.env_remove(name);
        }
        cargo
            .current_dir(&workspace)
            .args(["rustc", "--package=incumbent-guest", "--lib"])
            .args(["--crate-type=cdylib", "--profile=component", "--target", TARGET])
            .arg("--target-dir")
            .arg(&target_dir)
            .env("RUSTC", &toolchain.rustc)
            .env("CARGO_ENCODED_RUSTFLAGS", toolchain.flags(&workspace, &target_dir));
        if toolchain.builds_core {
            cargo.arg("-Zbuild-std=core,alloc").env("RUSTC_BOOTSTRAP", "1");
        }
        let status = cargo.status().map_err(|error| format!("cargo does not run: {error}"))?;
        if !status.success() {
            return Err("the guest does not build as a component: see below".into());
        }
        Ok(target_dir.join(TARGET).join("component/incumbent_guest.wasm"))
    }

    /// Makes a workspace of the guest alone, with the versions and the profile of the whole one. A
    /// file that has not changed keeps its time, so that cargo builds nothing anew.
    fn lay_out(&self, workspace: &Path) -> Result<(), String> {
        let manifest = read(&self.0.join("workspace.toml"))?;
        let manifest = manifest.lines().map(|line| match line.split_once(" = ") {
            Some(("members", _)) => "members = [\"guest\"]",
            Some(_) | None => line,
        });
        let manifest: Vec<&str> = manifest.collect();
        put(&workspace.join("Cargo.toml"), manifest.join("\n").as_bytes())?;
        // Cargo leaves out what the guest does not need.
        put(&workspace.join("Cargo.lock"), read(&self.0.join("workspace.lock"))?.as_bytes())?;
        let guest = workspace.join("guest");
        put(&guest.join("Cargo.toml"), read(&self.0.join("guest.toml"))?.as_bytes())?;
        mirror(&self.0.join("guest"), &guest.join("src"))?;
        mirror(&self.0.join("wit"), &guest.join("wit"))
    }
}

/// All files in the folder, or the file, that `name` is below `root`, in order.
fn files(root: &Path, name: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let path = root.join(name);
    if !path.is_dir() {
        return Ok(vec![(name.to_owned(), read(&path)?)]);
    }
    let mut all = Vec::new();
    for entry in names(&path)? {
        all.extend(files(root, &name.join(entry))?);
    }
    Ok(all)
}

/// What is in the folder, in order.
fn names(folder: &Path) -> Result<Vec<OsString>, String> {
    let unreadable = |error| format!("the folder {} is not readable: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        names.push(entry.map_err(unreadable)?.file_name());
    }
    names.sort();
    Ok(names)
}

/// Makes the folder `to` hold what `from` holds, and nothing else.
fn mirror(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|error| format!("{} cannot be made: {error}", to.display()))?;
    let wanted = names(from)?;
    for name in &wanted {
        let (from, to) = (from.join(name), to.join(name));
        if from.is_dir() { mirror(&from, &to)? } else { put(&to, read(&from)?.as_bytes())? }
    }
    for name in names(to)?.iter().filter(|name| !wanted.contains(name)) {
        let left = to.join(name);
        let removed =
            if left.is_dir() { fs::remove_dir_all(&left) } else { fs::remove_file(&left) };
        removed.map_err(|error| format!("{} cannot be removed: {error}", left.display()))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file)
        .map_err(|error| format!("the source {} is not readable: {error}", file.display()))
}

/// Writes the file, if it does not hold this already. Another build that reads it meanwhile finds
/// it whole.
fn put(file: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(file).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let new = file.with_extension(format!("{}.new", std::process::id()));
    file.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&new, content))
        .and_then(|()| fs::rename(&new, file))
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

/// The component without the names that the linker gave to its parts, which nobody looks for.
fn without_names(component: &[u8]) -> Result<Vec<u8>, String> {
    let (header, mut rest) = component.split_at_checked(8).unwrap_or((component, &[]));
    let mut kept = header.to_vec();
    while let [kind, sized @ ..] = rest {
        let digits = sized.iter().take_while(|byte| **byte > 127).count() + 1;
        let size = sized.iter().take(digits).rev();
        let size = size.fold(0, |size, byte| size << 7 | usize::from(byte & 127));
        let cut = "the component ends within a section: build it again";
        let (section, others) = rest.split_at_checked(1 + digits + size).ok_or(cut)?;
        let content = section.get(1 + digits..).unwrap_or_default();
        if *kind != 0 || !content.starts_with(b"\x0ecomponent-name") {
            kept.extend(section);
        }
        rest = others;
    }
    Ok(kept)
}

/// The component's name and version, in two sections at its end, where `wasm-tools metadata show`
/// looks for them.
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
                 run `rustup target add {TARGET}`, \
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
        // Inlined code is there once for each caller.
        let mut flags =
            OsString::from("-Clink-self-contained=no\x1f-Cllvm-args=-inline-threshold=0");
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
