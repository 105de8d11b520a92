//! Incumbent's elector: leader election as a pure state machine.
//!
//! The crate has two faces. Natively it is a plain Rust library, so that it can
//! be model checked, fuzzed and mutated. For wasm it is the component that hosts
//! embed. Both speak the types that `wit/` declares, and neither reads a clock,
//! draws a random number or does any input or output: time and a seed are
//! arguments, and all that follows from an event is in the returned
//! [`types::Step`].

#![no_std]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

mod backoff;
mod bindings;
#[cfg(target_family = "wasm")]
mod cabi;
mod candidate;
#[cfg(target_family = "wasm")]
mod component;
mod context;
mod elector;
mod farewell;
mod layout;
mod look;
mod observer;
mod random;
mod session;
mod table;
mod timers;

pub use bindings::exports::incumbent::election::types;
pub use elector::Elector;

/// The program on the page of a job.
#[cfg(doctest)]
#[doc = include_str!("../../examples/job/README.md")]
struct Job;
