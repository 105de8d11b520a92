//! What takes its time, and hardly any of the processor's: the tests of these rooms wait
//! side by side.

mod cluster;
mod crowd;
mod soak;
mod steady_state;
