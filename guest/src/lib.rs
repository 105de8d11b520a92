//! Incumbent's elector: leader election as a pure state machine.
//!
//! The crate has two faces. Natively it is a plain Rust library, because model checking,
//! fuzzing and mutation testing need one. For wasm it is the component that hosts embed. Both
//! speak the types that `wit/` declares. Neither reads a clock, draws a random number or does
//! any input or output: time and a seed are arguments, and the returned [`types::Step`] says
//! all that follows from an event.
//!
//! A module imports only from modules above it in this list:
//!
//! 1. `bindings` (as `types`), `ids`, `table`, `text`
//! 2. `timers`, `random`, `backoff`: time, and how long to wait
//! 3. `layout`: the meaning of keys; `search`: finding one candidate's key among other data; `wish`:
//!    what an operator wishes
//! 4. `context`: the step in the making, with its commands, calls and watches
//! 5. `session`: the lease; `cleanup`: keys that have to go
//! 6. `candidate` (its `common`, then its states, then itself), `observer`, `inspection`
//! 7. `elector`: hands each event to the part that it concerns
//! 8. `component`, `cabi`: the export to wasm

#![no_std]
#![deny(clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod backoff;
mod bindings;
#[cfg(target_family = "wasm")]
mod cabi;
mod candidate;
mod cleanup;
#[cfg(target_family = "wasm")]
mod component;
mod context;
mod elector;
mod ids;
mod inspection;
mod layout;
mod observer;
mod random;
mod search;
mod session;
mod share;
mod table;
mod text;
mod timers;
mod wish;

pub use bindings::exports::incumbent::election::types;
pub use elector::Elector;
