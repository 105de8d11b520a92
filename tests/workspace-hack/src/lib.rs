//! Nothing: this crate's dependencies are what matters.
//!
//! Cargo builds a crate twice, once for build scripts and once for the program, if the two want
//! different features of it, or of any crate below it. The library's build script has wasmtime, a
//! compiler, to make the elector's machine code, and the library has it to run that. With the same
//! features everywhere below it, wasmtime is built once, which saves minutes of a first build.
//!
//! After an upgrade of wasmtime, `cargo tree --duplicates --edges features --all-features` shows
//! what differs. Where something does, everything still works, and takes longer to build.
