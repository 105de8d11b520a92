//! What must hold whatever happens. Each property takes bytes and reads from them what
//! happens, so that `tests/properties.rs` draws them at random, and `just fuzz` lets a
//! fuzzer look for those that lead somewhere new.

pub mod elections;
pub mod events;

/// Included once for the native elector's types and once for the component's, which are
/// the same in all but the path.
macro_rules! anything {
    ($name:ident, $types:path) => {
        #[expect(missing_docs, reason = "the names say what is read from the bytes")]
        pub mod $name {
            use $types as types;
            include!("properties/anything.rs");
        }
    };
}

anything!(native, incumbent_guest::types);
#[cfg(feature = "component")]
anything!(embedded, crate::component_types);
