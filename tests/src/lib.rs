//! What the tests share: properties of the host, and the tools around a real etcd.

/// The program on the page of a job.
#[cfg(doctest)]
#[doc = include_str!("../../examples/job/README.md")]
struct Job;

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
#[cfg(feature = "etcd")]
pub mod floor;
#[cfg(feature = "component")]
pub mod hostile;
#[cfg(feature = "component")]
pub mod job;
#[cfg(feature = "etcd")]
pub mod line_process;
#[cfg(feature = "component")]
pub mod load;
#[cfg(feature = "component")]
pub mod model;
#[cfg(feature = "etcd")]
pub mod netns;
#[cfg(feature = "component")]
pub mod operations;
#[cfg(feature = "etcd")]
pub mod postgres;
#[cfg(feature = "etcd")]
pub mod program;
pub mod properties;
#[cfg(feature = "etcd")]
pub mod relay;
#[cfg(feature = "etcd")]
pub mod soak;
#[cfg(feature = "component")]
pub mod steps;
#[cfg(feature = "component")]
pub mod stores;
#[cfg(feature = "component")]
pub mod text_component;
#[cfg(feature = "component")]
pub mod wait;
pub use incumbent_simulation::transcript;

/// With `RUST_LOG` set, everything is logged: for one test at a time.
#[cfg(feature = "etcd")]
pub fn log() {
    if let Ok(filter) = std::env::var("RUST_LOG") {
        // Another test may have done it.
        let _ = tracing_subscriber::fmt().with_env_filter(filter).try_init();
    }
}
