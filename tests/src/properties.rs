//! What the host does whatever happens, each from bytes, as in the simulation's crate:
//! `tests/nonsense.rs` draws them at random, and `just fuzz` lets a fuzzer look.

pub mod command_line;
#[cfg(feature = "component")]
pub mod component;
#[cfg(feature = "component")]
mod panics;
#[cfg(feature = "component")]
pub mod steps;
#[cfg(feature = "etcd")]
pub mod store_answers;
