//! What wasmtime's bindgen makes of `wit/`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    clippy::all,
    clippy::restriction,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

wasmtime::component::bindgen!({
    path: "wit",
    world: "election",
    additional_derives: [PartialEq, Eq, Hash, Clone],
});
