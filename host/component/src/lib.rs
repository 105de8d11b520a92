#![doc = include_str!("../README.md")]
#![no_std]

/// The component.
pub const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/incumbent.wasm"));

/// The SHA-256 of [`BYTES`], in hexadecimal digits.
pub const SHA256: &str = env!("INCUMBENT_COMPONENT_SHA256");

/// The SHA-256 of the sources in this package. A component that `INCUMBENT_COMPONENT` named at the
/// build need not be made of them.
pub const SOURCE_SHA256: &str = env!("INCUMBENT_COMPONENT_SOURCE");
