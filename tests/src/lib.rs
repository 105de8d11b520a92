//! What the tests share: transcripts, and the tools around a real etcd.

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "etcd")]
pub mod relay;
pub mod simulation;
pub mod transcript;
