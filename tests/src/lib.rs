//! What the tests share: transcripts, properties, and the tools around a real etcd.

#[cfg(feature = "component")]
pub mod application;
#[cfg(feature = "etcd")]
pub mod certificates;
#[cfg(feature = "etcd")]
pub mod cluster;
#[cfg(feature = "etcd")]
pub mod counter;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "component")]
pub mod hostile;
#[cfg(feature = "component")]
pub mod job;
#[cfg(feature = "etcd")]
pub mod netns;
pub mod properties;
#[cfg(feature = "etcd")]
pub mod relay;
pub mod simulation;
#[cfg(feature = "etcd")]
pub mod soak;
#[cfg(feature = "component")]
pub mod steps;
pub mod transcript;
