//! What wasmtime's bindgen makes of `wit/leadership.wit`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    clippy::all,
    clippy::restriction,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

/// What `leadership.wit` uses of `types.wit`.
pub mod types {
    pub use ::incumbent::types::{Entry, Expectation, Put};
    pub use ::incumbent::{Failure, Reason};

    pub type Duration = u64;
    pub type Epoch = i64;
    pub type Revision = i64;
}

wasmtime::component::bindgen!({
    path: "wit",
    interfaces: "import incumbent:election/leadership@0.1.0;",
    imports: {
        "incumbent:election/leadership.elected": async | trappable,
        "incumbent:election/leadership.[method]term.changed": async | trappable,
        "incumbent:election/leadership.[method]term.get": async | trappable,
        "incumbent:election/leadership.[method]term.put": async | trappable,
        "incumbent:election/leadership.[method]term.delete": async | trappable,
        "incumbent:election/leadership.[method]term.write": async | trappable,
        "incumbent:election/leadership.[method]term.proclaim": async | trappable,
        default: trappable,
    },
    with: {
        "incumbent:election/types": crate::bindings::types,
        "incumbent:election/leadership.term": ::incumbent::Fence,
    },
});
