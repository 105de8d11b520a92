//! Components around a core module that is written as text.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{PackageId, Resolve, WorldId, WorldItem};

/// The export by which a module is given memory, from its global `$free` on. It is never
/// taken back.
pub(crate) const REALLOC: &str = r#"
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
        (global.set $free (i32.add (local.get $at) (local.get 3)))
        local.get $at)"#;

/// A component of the elector's world, and of the one in the package `wit` if there is one.
/// Panics if they do not go together.
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

/// A component of the world in the package `wit`, which may use the project's own. Its module
/// finds each function that the world imports as `$function`, or `$resource.method`.
pub(crate) fn of_world(module: &str, wit: &str) -> Vec<u8> {
    let (mut resolve, _) = project();
    let package = resolve.push_str("more.wit", wit).expect("the WIT parses");
    let world = resolve.select_world(&[package], None).expect("has a world");
    let module = module.replacen("(module", &format!("(module {}", imports(&resolve, world)), 1);
    let mut module = wat::parse_str(module).expect("the module parses");
    embed(&mut module, &resolve, package, None);
    encoded(&module)
}

fn imports(resolve: &Resolve, world: WorldId) -> String {
    let mut imports = String::new();
    for item in resolve.worlds[world].imports.values() {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = resolve.id_of(*id).expect("has a name");
        for (name, function) in &resolve.interfaces[*id].functions {
            let called = name.trim_start_matches("[method]");
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            let parameters = declared("param", &signature.params);
            let results = declared("result", &signature.results);
            imports += &format!(
                r#"(import "{interface}" "{name}" (func ${called} {parameters} {results}))"#
            );
        }
    }
    imports
}

/// Parameters or results of a function, in WebAssembly's text format.
pub(crate) fn declared(what: &str, types: &[WasmType]) -> String {
    let names = types.iter().map(|ty| match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => " i32",
        WasmType::I64 | WasmType::PointerOrI64 => " i64",
        WasmType::F32 => " f32",
        WasmType::F64 => " f64",
    });
    if types.is_empty() { String::new() } else { format!("({what}{})", names.collect::<String>()) }
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
