//! No circle of modules: of the children of one module, none uses what uses it.
//!
//! A child may use what its parent itself defines. Macros' arguments are not read.
//!
//! And no module decides by the wall clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree, Visibility};

/// A module, by the names on the way to it from the root of its crate.
type Module = Vec<String>;

const CRATES: [&str; 6] =
    ["guest", "host/incumbent", "host/plugin", "host/conformance", "host/cli", "host/demo"];

#[test]
fn no_module_is_in_a_circle() {
    let circles: Vec<_> = CRATES.iter().flat_map(|name| circles(&read(name))).collect();
    assert!(circles.is_empty(), "circles of modules:\n{}", circles.join("\n"));
}

/// Row 3 of the edge cases: a jump of the wall clock changes nothing but the times that the
/// program prints with its events. The store in PostgreSQL compares it with the database's: where they
/// differ, neither counts (row 59).
#[test]
fn no_module_decides_by_the_wall_clock() {
    let is_wall_clock = |name: &String| ["SystemTime", "Realtime"].contains(&name.as_str());
    let readers = CRATES.iter().flat_map(|name| {
        let modules = read(name).into_iter();
        let readers = modules.filter(|(_, uses)| uses.paths.iter().flatten().any(is_wall_clock));
        readers.map(move |(module, _)| format!("{name}: {}", module.join("::")))
    });
    let known = ["host/incumbent: store::postgres::sightings", "host/cli: event"];
    assert_eq!(readers.collect::<Vec<_>>(), known);
}

#[test]
fn a_circle_is_found() {
    let circles_of = |files: &[(&str, &str)]| {
        let modules = files.iter().map(|(path, text)| (module_of(Path::new(path)), text));
        circles(&modules.map(|(module, text)| (module, Uses::of(text))).collect())
    };
    let root = ("lib.rs", "mod a; mod b; pub use b::deep::Thing;");
    let b = ("b.rs", "mod deep; use deep::Thing;");
    // By a name that the root exports, from within a group, and by a path in an expression.
    let a = ("a.rs", "use crate::{Thing, other}; #[cfg(test)] mod tests { use crate::b; }");
    for deep in ["use super::super::a::Item;", "pub struct Thing; fn f() { crate::a::g(); }"] {
        let circles = circles_of(&[root, a, b, ("b/deep.rs", deep)]);
        assert_eq!(circles, ["a -> b -> a"], "{deep}");
    }
    assert_eq!(circles_of(&[root, a, b, ("b/deep.rs", "use super::Own;")]), Vec::<String>::new());
}

/// What each module of a crate uses.
fn read(name: &str) -> BTreeMap<Module, Uses> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let sources = workspace.join(name).join("src");
    let mut modules = BTreeMap::new();
    let mut folders = vec![sources.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
            {
                let text = fs::read_to_string(&path).expect("a source");
                let module = module_of(path.strip_prefix(&sources).expect("it is in there"));
                modules.insert(module, Uses::of(&text));
            }
        }
    }
    assert!(modules.len() > 2, "{} has sources", sources.display());
    modules
}

fn module_of(path: &Path) -> Module {
    let path: PathBuf = path.with_extension("");
    let names = path.iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !matches!(name.as_str(), "lib" | "main")).collect()
}

/// The paths in one file, as they are written there.
#[derive(Default)]
struct Uses {
    paths: BTreeSet<Vec<String>>,
    /// The names that it hands on, and where they are from.
    exports: BTreeMap<String, Vec<String>>,
}

impl Uses {
    fn of(text: &str) -> Self {
        let mut uses = Self::default();
        uses.visit_file(&syn::parse_file(text).expect("it compiles"));
        uses
    }

    fn tree(&mut self, tree: &UseTree, before: &[String], exported: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name) = match tree {
            UseTree::Path(path) => return self.tree(&path.tree, &with(&path.ident), exported),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.tree(tree, before, exported));
            }
            UseTree::Name(name) => (with(&name.ident), name.ident.to_string()),
            UseTree::Rename(rename) => (with(&rename.ident), rename.rename.to_string()),
            UseTree::Glob(_) => (before.to_vec(), String::new()),
        };
        if exported {
            self.exports.insert(name, path);
        } else {
            self.paths.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_test = |attribute: &Attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test")
        };
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|one| one.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// The module in which a path ends that is written in `module`, if that is in this crate.
fn target(modules: &BTreeMap<Module, Uses>, module: &[String], path: &[String]) -> Option<Module> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        child => {
            let child = [module, &[child.to_owned()]].concat();
            return modules.contains_key(&child).then_some(child);
        }
    };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            name => {
                let child = [at.as_slice(), &[name.to_owned()]].concat();
                if modules.contains_key(&child) {
                    at = child;
                } else {
                    let export = modules.get(&at)?.exports.get(name);
                    return export.and_then(|path| target(modules, &at, path)).or(Some(at));
                }
            }
        }
    }
    Some(at)
}

/// A circle for each module whose children use each other in one.
fn circles(modules: &BTreeMap<Module, Uses>) -> Vec<String> {
    let mut siblings: BTreeMap<&[String], BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, uses) in modules {
        for path in &uses.paths {
            let Some(used) = target(modules, module, path) else { continue };
            let shared = module.iter().zip(&used).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (module.get(shared), used.get(shared)) {
                let graph = siblings.entry(&module[..shared]).or_default();
                graph.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    let in_each = siblings.iter().filter_map(|(parent, graph)| {
        let circle = graph.keys().find_map(|start| way(graph, start, start, &mut BTreeSet::new()));
        let full = |name: String| [parent, &[name][..]].concat().join("::");
        circle.map(|circle| circle.into_iter().map(full).collect::<Vec<_>>().join(" -> "))
    });
    in_each.collect()
}

/// A way from one module to another.
fn way(
    graph: &BTreeMap<String, BTreeSet<String>>,
    from: &String,
    to: &String,
    seen: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    graph.get(from)?.iter().find_map(|next| {
        if next == to {
            return Some(vec![from.clone(), to.clone()]);
        }
        let rest = seen.insert(next.clone()).then(|| way(graph, next, to, seen))??;
        Some([vec![from.clone()], rest].concat())
    })
}
