//! The types and glue that wit-bindgen generates from `wit/`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unsafe_code,
    unused_qualifications,
    clippy::all,
    clippy::restriction,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

wit_bindgen::generate!({
    path: "wit",
    world: "election",
    additional_derives: [PartialEq, Eq, Hash, Clone],
    std_feature,
    pub_export_macro: true,
    default_bindings_module: "crate::bindings",
});
