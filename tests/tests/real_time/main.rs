//! Tests that take long and hardly use the processor: they wait side by side.

mod cluster;
mod crowd;
mod many_elections;
mod soak;
mod steady_state;
