//! Leadership for WebAssembly: what a platform on wasmtime adds to its linker, so that the
//! components it runs can ask whether they lead, and write as leaders.
//!
//! The components import `incumbent:election/leadership` (`wit/leadership.wit`, which says
//! what each function means to them). The platform holds the session and campaigns; each
//! component has a [`LeadershipCtx`] in its store, made from what the library has given
//! the platform:
//!
//! - [`LeadershipCtx::of_term`], from a [`Leadership`], for a component that runs in one
//!   term. The platform starts it when it is elected, and ends it when the term is over;
//!   it holds the leadership meanwhile, and drops it once the component has ended.
//! - [`LeadershipCtx::of_election`], from an [`Election`], for a component that runs all
//!   the time, and takes its turns by itself. Its end leaves the election.
//!
//! ```no_run
//! use incumbent_plugin::{LeadershipCtx, LeadershipCtxView, LeadershipView};
//! use incumbent::{Options, Session};
//! use wasmtime::component::{Component, Linker, ResourceTable};
//! use wasmtime::{Engine, Store};
//!
//! struct State {
//!     leadership: LeadershipCtx,
//!     table: ResourceTable,
//! }
//!
//! impl LeadershipView for State {
//!     fn leadership(&mut self) -> LeadershipCtxView<'_> {
//!         LeadershipCtxView { ctx: &mut self.leadership, table: &mut self.table }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::default();
//! let mut linker = Linker::<State>::new(&engine);
//! incumbent_plugin::add_to_linker_async(&mut linker)?;
//!
//! let session = Session::connect("memory:", Options::default()).await?; // or "etcd://127.0.0.1:2379"
//! let leadership = session.election("jobs").campaign().await?;
//! let state = State {
//!     leadership: LeadershipCtx::of_term(&leadership).grant("jobs-data/"),
//!     table: ResourceTable::new(),
//! };
//! let mut store = Store::new(&engine, state);
//! let component = Component::from_file(&engine, "job.wasm")?;
//! let instance = linker.instantiate_async(&mut store, &component).await?;
//! let work = instance.get_typed_func::<(), (i64,)>(&mut store, "epoch")?;
//! tokio::select! {
//!     done = work.call_async(&mut store, ()) => assert_eq!(leadership.epoch(), done?.0.into()),
//!     reason = leadership.lost() => println!("demoted: {reason}"),
//! }
//! drop(store); // the work has stopped ...
//! leadership.resign().await?; // ... so another one may lead
//! # session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A component waits in a blocking function, not for a pollable. So the interface needs no WIT of
//! others, and a component cannot wait for a socket at the same time.
//!
//! # What the platform sees to
//!
//! **That the work stops.** A component that is told that its term is over need not
//! listen. One that is suspended, in a call of its own or in what it waits for, is stopped
//! by dropping the future of `call_async`, as above. One that computes without end is
//! stopped by wasmtime's epochs (`Config::epoch_interruption`), which belong to an engine:
//! give applications an engine of their own. `examples/platform.rs` does both.
//!
//! In a context [of an election](LeadershipCtx::of_election) the term is the component's, and
//! the platform bounds it from outside:
//!
//! ```
//! # use std::time::Duration;
//! # use incumbent_plugin::LeadershipView;
//! # use wasmtime::component::TypedFunc;
//! # use wasmtime::{Store, UpdateDeadline};
//! # type Work = TypedFunc<(), ()>;
//! # async fn run<T: LeadershipView>(mut store: Store<T>, work: Work) -> wasmtime::Result<()> {
//! // One that computes lets others have their turn at each tick of the engine's epochs.
//! store.set_epoch_deadline(1);
//! store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
//! let overstayed = store.data_mut().leadership().ctx.overstayed(Duration::from_millis(50));
//! tokio::select! {
//!     done = work.call_async(&mut store, ()) => done?,
//!     term = overstayed => println!("stopped: it did not heed the end of {}", term.epoch()),
//! }
//! drop(store); // It has stopped, and leaves the election.
//! # Ok(())
//! # }
//! ```
//!
//! **Which keys.** None, unless [granted](LeadershipCtx::grant). Whatever a prefix covers, a
//! component never writes the election's own keys: the election's name, and all keys below
//! `NAME/`, where etcd's own tools take any key for a candidate. Nor does it read a candidate's
//! key. The keys of other elections have to lie outside of what is granted.
//!
//! **Limits.** A component has one call under way, because its code waits for the
//! answer. One write is of [`MOST_BYTES`] and [`MOST_CHANGES`] at most, and a component
//! holds [`MOST_HANDLES`] of terms at most. How often it asks is limited by the time that
//! the store takes to answer. What one call hands over to the host is limited by
//! `Store::set_hostcall_fuel`.
//!
//! # Blocking
//!
//! With [`add_to_linker_sync`] a component that waits blocks its thread, which must not be
//! the only one of a runtime: call it on a thread of its own, or from
//! `tokio::task::spawn_blocking`. A blocked component cannot be interrupted. But no
//! function of a term outlasts the term's deadline, nor does `elected` in a context
//! [of a term](LeadershipCtx::of_term): interruption by epochs waits no longer than that.
//! That holds while somebody drives the session's runtime: one of a current thread, outside
//! of its `block_on`, answers nobody, and a component that waits for it waits for ever. Closing
//! the session ends the wait of a component that waits in `elected` for its turn.

mod bindings;
mod blocking;
mod suspending;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use incumbent::{Clock, Election, Epoch, Fence, Leadership, Terms};
use tokio::runtime::Handle;
/// The version that this crate goes with.
pub use wasmtime;
use wasmtime::component::{HasData, Linker, ResourceTable};

use self::bindings::incumbent::election::leadership;

/// How many bytes of keys and values one write has at most.
pub const MOST_BYTES: usize = 1 << 20;
/// How many changes and expectations one write has at most.
pub const MOST_CHANGES: usize = 128;
/// How many handles of terms a component holds at most. One that wants more is trapped.
pub const MOST_HANDLES: usize = 128;

/// What one component knows of its election, and what it may do there. Lives in the state
/// of the component's [`Store`](wasmtime::Store); its end is the end of the component's
/// work.
#[derive(Debug)]
pub struct LeadershipCtx {
    part: Part,
    election: String,
    id: String,
    clock: Arc<dyn Clock>,
    /// The session's.
    runtime: Handle,
    /// The prefixes of the keys that it may touch.
    granted: Vec<Vec<u8>>,
    /// It was said that it was refused a key.
    is_told: bool,
    /// The epochs of the handles of terms that it holds.
    handles: Vec<Epoch>,
}

/// How the component takes part.
#[derive(Debug)]
enum Part {
    /// In one term, which the platform holds.
    Term(Fence),
    /// In one term after the other.
    Terms(Box<Terms>),
}

impl LeadershipCtx {
    /// For a component that runs in one term. What becomes of the term is the platform's
    /// business, who holds the leadership; a component that resigns ends it, for all stores
    /// that have a context of it, and the platform is told by [`Leadership::lost`].
    pub fn of_term(leadership: &Leadership) -> Self {
        let fence = leadership.fence();
        Self {
            election: leadership.election().to_owned(),
            id: fence.identity().to_owned(),
            clock: Arc::clone(fence.clock()),
            runtime: fence.runtime().clone(),
            part: Part::Term(fence),
            granted: Vec::new(),
            is_told: false,
            handles: Vec::new(),
        }
    }

    /// For a component that runs all the time, and campaigns by itself: it is a candidate
    /// from the moment on that it asks for a term, until that is over, and again when it
    /// asks for another. A term that it does not ask for within about a lease time is given
    /// back, and it is out of line. One that it has got is renewed as long as the context is
    /// there, whose end leaves the election: so drop the store of a component that has ended
    /// or trapped.
    ///
    /// One context for each election of a session: of two, the component that asks second
    /// is told that it never leads.
    pub fn of_election(election: Election) -> Self {
        Self {
            election: election.name().to_owned(),
            id: election.identity().to_owned(),
            clock: Arc::clone(election.clock()),
            runtime: election.runtime().clone(),
            part: Part::Terms(Box::new(election.terms())),
            granted: Vec::new(),
            is_told: false,
            handles: Vec::new(),
        }
    }

    /// Grants the keys that begin with `prefix`, to be read and written, beside those
    /// granted before. Without any the component touches no keys. A prefix of a whole name
    /// ends where the name ends: `jobs/`, lest `jobs-of-others` is granted as well. The
    /// election's own keys stay closed: a write to `NAME` or below `NAME/` is `not-permitted`.
    #[must_use]
    pub fn grant(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.granted.push(prefix.into());
        self
    }

    /// The term in which the component may be at work: the one that it was given, also if
    /// that is over, until it says that its work has stopped.
    pub fn term(&self) -> Option<Fence> {
        match &self.part {
            Part::Term(fence) => Some(fence.clone()),
            Part::Terms(terms) => terms.given().borrow().clone(),
        }
    }

    /// Waits until the component has been told to stop and has not: until a term is over for
    /// `grace`, in which it [may still be at work](Self::term), and returns that term. Never
    /// ready after the context's end. To be run beside the component, which is then to be
    /// dropped.
    ///
    /// Others may lead from the end of the term on. They are safe from this component's
    /// writes in any case, and from all else that it does after the grace.
    pub fn overstayed(&self, grace: Duration) -> impl Future<Output = Fence> + Send + use<> {
        let clock = Arc::clone(&self.clock);
        let over = move |fence: Fence| {
            let clock = clock.clone();
            async move {
                fence.lost().await;
                clock.sleep_until(clock.now().saturating_add(suspending::nanoseconds(grace))).await;
                fence
            }
        };
        let mut given = match &self.part {
            Part::Term(fence) => return Either::Left(over(fence.clone())),
            Part::Terms(terms) => terms.given(),
        };
        Either::Right(async move {
            loop {
                let term = given.borrow_and_update().clone();
                let overstays =
                    term.map_or(Either::Right(pending()), |term| Either::Left(over(term)));
                tokio::select! {
                    biased;
                    news = given.changed() => if news.is_err() { pending::<()>().await },
                    fence = overstays => return fence,
                }
            }
        })
    }
}

/// A component's context, and the table of what the component holds.
#[derive(Debug)]
pub struct LeadershipCtxView<'a> {
    /// The context.
    pub ctx: &'a mut LeadershipCtx,
    /// The table, which may be that of WASI as well.
    pub table: &'a mut ResourceTable,
}

/// The state of a store whose component uses leadership.
pub trait LeadershipView: Send {
    /// The context, and the table beside it.
    fn leadership(&mut self) -> LeadershipCtxView<'_>;
}

/// What the bindings borrow.
#[derive(Debug)]
struct HasLeadership;

impl HasData for HasLeadership {
    type Data<'a> = LeadershipCtxView<'a>;
}

/// Adds `incumbent:election/leadership` to a linker. A component that waits is suspended:
/// it is to be instantiated and called by the `_async` functions, on a runtime of tokio's with
/// I/O and time enabled. That need not be the session's.
///
/// # Errors
///
/// If the linker has this interface already.
pub fn add_to_linker_async<T: LeadershipView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    leadership::add_to_linker::<T, HasLeadership>(linker, T::leadership)
}

/// The same for components that are called without `_async`: one that waits blocks its
/// thread.
///
/// # Errors
///
/// If the linker has this interface already.
///
/// # Panics
///
/// The calls of a component do, if they have to wait on the thread of a current-thread
/// runtime, which would never go on.
pub fn add_to_linker_sync<T: LeadershipView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    blocking::add_to_linker(linker)
}
