//! Leader election on etcd, or on one machine: fenced, portable, embeddable.
//!
//! Of all instances of an application that campaign in an [`Election`], one
//! leads at a time. Each of its terms has an epoch, which rises from one to the
//! next, and a deadline, which moves ahead while the lease is renewed. Work that
//! stops by the deadline, and writes through the term's [`Fence`], is never done
//! by two.
//!
//! ```
//! use incumbent::{Options, Session};
//!
//! # async fn work(fence: incumbent::Fence) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), incumbent::Error> {
//! let options = Options { identity: "worker-1".into(), ..Options::default() };
//! let session = Session::connect("memory:", options).await?; // or "etcd://127.0.0.1:2379"
//! let election = session.election("my-service");
//!
//! let leadership = election.campaign().await?;
//! println!("leading in epoch {}", leadership.epoch());
//! tokio::select! {
//!     reason = leadership.lost() => eprintln!("demoted: {reason}"),
//!     () = work(leadership.fence()) => leadership.resign().await?,
//! }
//! session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Session`]: one identity and one lease. [`Election::campaign`] for one
//!   term, [`Election::lead`] for work in every term,
//!   [`Election::join`] for everything else, [`Election::observe`] to watch.
//!   [`Election::terms`] gives one [term](Terms) after the other, and [`Standing`] says how one
//!   stands.
//! - [`Leadership`]: one term. [`Leadership::is_valid`] asks the clock;
//!   [`Leadership::on_end`] is called in time even where the runtime is starved.
//! - [`admin`]: for users without a session: fenced writes, and an operator's orders.
//! - [`StoreUrl`]: the names of the stores, which [`connect`] opens. [`Store`]: the contract for
//!   your own, in terms of [`types`].
//! - `testing` (feature `testing`): a store and a clock that a test directs, to take the
//!   leadership away from your own code at any line.
//! - `recording` (feature `record`): what the elector was told and said, in files, and run again.
//! - The crate `incumbent-plugin` is for platforms on wasmtime whose components use leadership,
//!   the crate `incumbent-conformance` for authors of stores.
//! - [`Component`] and [`Elector`]: the elector itself, for other hosts and for
//!   tests.
//! - [`Backoff`]: the pauses between attempts, as the library and its program make them.
//!
//! | feature | brings |
//! | --- | --- |
//! | `etcd` (on) | the store on etcd; building it needs `protoc` |
//! | `sqlite` (on) | the store in a file, for the processes of one machine |
//! | `precompiled` (on) | the elector's machine code, made when the library is built |
//! | `record` | `recording` |
//! | `metrics` | what is counted and measured, through the facade `metrics` |
//! | `testing` | `testing` |
//! | `wasi` | electors of others that import WASI |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admin;
mod backoff;
mod bindings;
mod candidate;
mod clock;
mod connect;
mod drain;
mod driver;
mod election;
mod elector;
mod error;
mod event;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "sqlite"))]
mod explained;
mod leadership;
mod limit;
#[cfg(feature = "metrics")]
pub mod metrics;
mod observable;
mod observer;
mod options;
#[cfg(feature = "postgres")]
mod postgres_fence;
#[cfg(feature = "record")]
pub mod recording;
mod session;
mod store;
mod term;
mod terms;
#[cfg(feature = "testing")]
pub mod testing;
pub mod types;
#[cfg(not(feature = "metrics"))]
mod unmeasured;
#[cfg(not(feature = "metrics"))]
use unmeasured as metrics;
#[cfg(not(feature = "record"))]
mod unrecorded;
#[cfg(not(feature = "record"))]
use unrecorded as recording;
mod write;

pub use backoff::Backoff;
pub use bindings::exports::incumbent::election::types::{Contest, Failure, Mark, Reason};
pub use candidate::Candidate;
pub use clock::{BootClock, Clock, ManualClock, Notifier};
pub use connect::connect;
pub use election::Election;
pub use elector::{Component, ComponentError, Elector};
pub use error::Error;
pub use event::{Event, KeyValue, Participant, TermInfo};
pub use leadership::{Fence, Leadership};
pub use limit::Limit;
pub use observer::Leaders;
pub use options::Options;
#[cfg(feature = "postgres")]
pub use postgres_fence::PostgresFence;
pub use session::Session;
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub use store::connect_error::ConnectError;
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub use store::credentials::Credentials;
#[cfg(feature = "etcd")]
pub use store::etcd::{EtcdStore, ListedMember, MemberStatus};
pub use store::memory::MemoryStore;
#[doc(hidden)]
pub use store::memory::{Contents, Rules};
#[cfg(feature = "postgres")]
pub use store::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use store::sqlite::{SharedWith, SqliteError, SqliteStore};
pub use store::url::{EtcdUrl, PostgresUrl, StoreUrl, StoreUrlError};
pub use store::{LeaseLeft, Store, Watches};
pub use term::Standing;
pub use terms::Terms;
pub use types::numbers::{Epoch, LeaseId, Revision};
pub use write::{Write, WriteError};

/// The examples of the library's page.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
