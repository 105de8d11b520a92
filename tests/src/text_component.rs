//! Components around a core module that is written as text.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{PackageId, Resolve};

/// The export by which a module is given memory, from its global `$free` on. It is never
/// taken back.
pub(crate) const REALLOC: &str = r#"
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
        (global.set $free (i32.add (local.get $at) (local.get 3)))
        local.get $at)"#;

/// A component of the elector's world, and of the one in the package `wit` if there is
/// one.
///
/// # Panics
///
/// If they do not go together.
pub fn of_elector(module: &str, wit: &str) -> Vec<u8> {
    let (mut resolve, ours) = project();
    let mut module = wat::parse_str(module).expect("the module parses");
    embed(&mut module, &resolve, ours, Some("election"));
    if !wit.is_empty() {
        let package = resolve.push_str("more.wit", wit).expect("the WIT parses");
        embed(&mut module, &resolve, package, None);
    }
    encoded(&module)
}

/// A component of the world in the package `wit`, which may use the project's own.
pub(crate) fn of_world(module: &str, wit: &str) -> Vec<u8> {
    let (mut resolve, _) = project();
    let package = resolve.push_str("more.wit", wit).expect("the WIT parses");
    let mut module = wat::parse_str(module).expect("the module parses");
    embed(&mut module, &resolve, package, None);
    encoded(&module)
}

/// The project's own WIT.
pub(crate) fn project() -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let wit = concat!(env!("CARGO_MANIFEST_DIR"), "/../wit");
    let (package, _) = resolve.push_dir(wit).expect("the WIT parses");
    (resolve, package)
}

fn embed(module: &mut Vec<u8>, resolve: &Resolve, package: PackageId, world: Option<&str>) {
    let world = resolve.select_world(&[package], world).expect("has the world");
    embed_component_metadata(module, resolve, world, StringEncoding::UTF8).expect("fits");
}

fn encoded(module: &[u8]) -> Vec<u8> {
    let mut encoder = ComponentEncoder::default();
    let encoder = encoder.module(module).expect("fits");
    encoder.validate(true).encode().expect("is a component")
}
