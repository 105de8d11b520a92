//! What must hold whatever happens. Each property takes bytes and reads from them what
//! happens, so that `tests/properties.rs` draws them at random, and `just fuzz` lets a
//! fuzzer look for those that lead somewhere new.

pub mod command_line;
#[cfg(feature = "component")]
pub mod component;
pub mod elections;
pub mod events;
#[cfg(feature = "component")]
mod panics;
#[cfg(feature = "component")]
pub mod steps;
#[cfg(feature = "etcd")]
pub mod store_answers;

/// Included once for the native elector's types and once for the component's, which are
/// the same in all but the path.
macro_rules! anything {
    ($name:ident, $types:path) => {
        mod $name {
            use $types as types;
            include!("properties/anything.rs");
        }
    };
}

anything!(native, incumbent_guest::types);
#[cfg(feature = "component")]
anything!(embedded, incumbent::types);
