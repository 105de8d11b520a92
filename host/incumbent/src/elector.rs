//! The elector as a component, in a sandbox that it cannot leave, with limits
//! on its memory and its time.

use std::error;
use std::fmt;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use wasmtime::component::{Linker, ResourceAny};
use wasmtime::{Engine, Store};

use self::limits::{HostCalls, Limits};
use self::settings::settings;
use crate::bindings::{Election, ElectionPre};
use crate::types::{Config, ConfigError, Event, Mark, Step};

mod limits;
mod settings;
pub(crate) mod size;
#[cfg(feature = "wasi")]
mod wasi;

/// How many bytes one step may hand over.
const HANDED_OVER: usize = 64 << 20;

/// The library's own elector.
static LOADED: OnceLock<Component> = OnceLock::new();

/// A compiled elector. Cheap to clone.
///
/// Other hosts and tests drive the elector like this; for all others a
/// [`Session`](crate::Session) does it.
///
/// ```
/// use incumbent::{Component, Elector};
/// use incumbent::types::{Config, Event};
///
/// # fn main() -> Result<(), incumbent::ComponentError> {
/// let component = Component::embedded()?;
/// let config = Config {
///     lease_ttl: 10_000_000_000,
///     safety_margin: 0,
///     request_timeout: 5_000_000_000,
///     seed: (1, 2),
/// };
/// let mut elector = Elector::open(&component, config, 0)?;
/// let step = elector.handle(1_000, &[Event::Wake])?;
/// assert!(step.commands.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Component {
    bindings: ElectionPre<HostState>,
    /// It may call functions that could wait, so its calls need a stack of their own.
    imports: bool,
}

impl Component {
    /// The elector that the library carries, for other hosts: written to a file it is what
    /// `just component` builds, to the byte. It bears its name and version
    /// (`wasm-tools metadata show`).
    pub const EMBEDDED: &[u8] = incumbent_component::BYTES;

    /// The SHA-256 of [`EMBEDDED`](Self::EMBEDDED), in hexadecimal digits.
    pub const SHA256: &str = incumbent_component::SHA256;

    /// The elector that the library carries, loaded once in a process. Without the
    /// feature `precompiled`, or on another architecture than the build's, the first
    /// time takes some 100 ms of computing, and 1 ms otherwise.
    ///
    /// # Errors
    ///
    /// [`ComponentError::Unfit`], if the library was built around something that
    /// is no elector.
    pub fn embedded() -> Result<Self, ComponentError> {
        if let Some(loaded) = Self::loaded() {
            return Ok(loaded);
        }
        let loaded = match precompiled() {
            Some(component) => Self::link(component).map_err(unfit)?,
            None => Self::from_bytes(Self::EMBEDDED)?,
        };
        Ok(LOADED.get_or_init(|| loaded).clone())
    }

    /// The same, if it is loaded by now.
    pub(crate) fn loaded() -> Option<Self> {
        LOADED.get().cloned()
    }

    /// Whether the library carries the elector's machine code for this processor, and so need not
    /// compile it.
    pub fn has_machine_code() -> bool {
        precompiled().is_some()
    }

    /// Another elector of the same WIT world: a WebAssembly component, as bytes
    /// or as text. With the feature `wasi` it may bring imports of WASI 0.2 along,
    /// and reaches nothing with them.
    ///
    /// # Errors
    ///
    /// [`ComponentError::Unfit`], if the bytes are no component, import something
    /// else, or export no elector.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ComponentError> {
        let load = || Self::link(wasmtime::component::Component::new(&engine()?, bytes)?);
        load().map_err(unfit)
    }

    fn link(component: wasmtime::component::Component) -> wasmtime::Result<Self> {
        let engine = component.engine();
        let imports = component.component_type().imports(engine).len() > 0;
        let bindings = ElectionPre::new(linker(engine)?.instantiate_pre(&component)?)?;
        Ok(Self { bindings, imports })
    }
}

/// The embedded elector's machine code, if it was compiled when the library was, and
/// fits this machine.
#[cfg(feature = "precompiled")]
fn precompiled() -> Option<wasmtime::component::Component> {
    const CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/incumbent.cwasm"));
    let engine = engine().ok()?;
    #[expect(unsafe_code, reason = "machine code is run as it is; nobody but build.rs made it")]
    // SAFETY: the bytes are `Engine::precompile_component`'s, embedded by the build.
    let component = unsafe { wasmtime::component::Component::deserialize(&engine, CODE) };
    component.inspect_err(|error| tracing::debug!("the elector has to be compiled: {error:#}")).ok()
}

#[cfg(not(feature = "precompiled"))]
fn precompiled() -> Option<wasmtime::component::Component> {
    None
}

fn unfit(error: wasmtime::Error) -> ComponentError {
    ComponentError::Unfit(error.into())
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").finish_non_exhaustive()
    }
}

/// One elector in a sandbox of its own.
pub struct Elector {
    store: Store<HostState>,
    bindings: Election,
    resource: ResourceAny,
    imports: bool,
    /// What the last step might have taken.
    fuel: u64,
    /// The latest mark it was given. It ignores lower ones.
    latest: Mark,
    /// After a trap its memory cannot be trusted.
    failed: bool,
}

impl Elector {
    /// Opens an elector at the time `now`. All later marks must be of the same clock.
    ///
    /// # Errors
    ///
    /// [`ComponentError::Config`] if the elector refuses the configuration,
    /// [`ComponentError::Trap`] if it does not start.
    pub fn open(component: &Component, config: Config, now: Mark) -> Result<Self, ComponentError> {
        let state = HostState {
            limits: Limits::default(),
            #[cfg(feature = "wasi")]
            wasi: wasi::Nothing::default(),
        };
        let pre = &component.bindings;
        let imports = component.imports;
        let mut store = Store::new(pre.engine(), state);
        store.limiter(|state| &mut state.limits);
        store.set_hostcall_fuel(HANDED_OVER);

        let calls = store.data().host_calls();
        let mut start = || {
            if imports {
                store.fuel_async_yield_interval(Some(limits::FUEL_BETWEEN_POLLS))?;
            }
            store.set_fuel(limits::fuel(&[]))?;
            let bindings = if imports {
                at_once(pre.instantiate_async(&mut store), &calls)
            } else {
                pre.instantiate(&mut store)
            }?;
            let open = bindings.incumbent_election_elector().elector().func_open();
            let (opened,) = if imports {
                at_once(open.call_async(&mut store, (config, now)), &calls)
            } else {
                open.call(&mut store, (config, now))
            }?;
            Ok((bindings, opened))
        };
        let (bindings, opened) =
            start().map_err(|error: wasmtime::Error| ComponentError::Trap(error.into()))?;
        let resource = opened.map_err(ComponentError::Config)?;
        Ok(Self { store, bindings, resource, imports, fuel: 0, latest: now, failed: false })
    }

    /// Lets time pass to `now`, hands over the events, and returns what the host has to do.
    /// Read the clock right before.
    ///
    /// What it may compute grows with the number and size of the events. A
    /// [`Session`](crate::Session) gives 256 of them at once, and few large ones, so
    /// that none holds up its thread for long.
    ///
    /// # Errors
    ///
    /// [`ComponentError::Trap`] if the elector trapped, ran out of memory or
    /// time, or wanted to wait, and [`ComponentError::Step`] if it said what
    /// cannot be. It is useless then: drop all that is under way, and open another one.
    pub fn handle(&mut self, now: Mark, events: &[Event]) -> Result<Step, ComponentError> {
        if self.failed {
            return Err(ComponentError::Step("it has failed before".into()));
        }
        let step = self.call(now, events).and_then(|step| self.check(now, step));
        self.failed = step.is_err();
        step
    }

    fn call(&mut self, now: Mark, events: &[Event]) -> Result<Step, ComponentError> {
        self.fuel = limits::fuel(events);
        let store = &mut self.store;
        let elector = self.bindings.incumbent_election_elector().elector();
        let calls = store.data().host_calls();
        let call = || {
            store.set_fuel(self.fuel)?;
            let handle = elector.func_handle();
            let arguments = (self.resource, now, events);
            let (step,) = if self.imports {
                at_once(handle.call_async(store, arguments), &calls)
            } else {
                handle.call(store, arguments)
            }?;
            Ok(step)
        };
        call().map_err(|error: wasmtime::Error| ComponentError::Trap(error.into()))
    }

    /// What the last step took, in instructions: the same for the same history, on any
    /// machine. A step may take some 40 million, and more for what it is told.
    pub fn fuel_spent(&self) -> u64 {
        self.fuel - self.store.get_fuel().unwrap_or_default()
    }

    /// A deadline that is not ahead would make the host spin.
    fn check(&mut self, now: Mark, step: Step) -> Result<Step, ComponentError> {
        self.latest = self.latest.max(now);
        match step.deadline {
            Some(deadline) if deadline <= self.latest => Err(ComponentError::Step(format!(
                "its deadline {deadline} is not after {}",
                self.latest
            ))),
            Some(_) | None => Ok(step),
        }
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("latest", &self.latest)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// What is wrong with an elector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComponentError {
    /// These bytes are no elector.
    #[error(
        "this component is no elector of the world incumbent:election/election@0.1.0: give one that \
         is built for it, or none"
    )]
    Unfit(#[source] Box<dyn error::Error + Send + Sync>),
    /// The elector refuses its configuration.
    #[error("{}", refusal(.0))]
    Config(ConfigError),
    /// There are no random numbers to seed it with.
    #[error("the system gives no random numbers: {0}")]
    Random(#[source] Box<dyn error::Error + Send + Sync>),
    /// The elector broke off: a trap, or a limit of memory or time.
    #[error("the elector broke off")]
    Trap(#[source] Box<dyn error::Error + Send + Sync>),
    /// The elector said what cannot be.
    #[error("the elector is not to be trusted: {0}")]
    Step(String),
}

fn refusal(error: &ConfigError) -> String {
    match error {
        ConfigError::MarginExceedsTtl => {
            "the margin leaves nothing of the lease time: make it shorter, or the lease longer"
                .into()
        }
        ConfigError::Other(sentence) => sentence.clone(),
    }
}

/// What the host keeps for each elector.
struct HostState {
    limits: Limits,
    #[cfg(feature = "wasi")]
    wasi: wasi::Nothing,
}

impl HostState {
    fn host_calls(&self) -> HostCalls {
        self.limits.host_calls.clone()
    }
}

#[cfg(feature = "wasi")]
impl wasmtime_wasi::WasiView for HostState {
    fn ctx(&mut self) -> wasmtime_wasi::WasiCtxView<'_> {
        self.limits.host_calls.count();
        self.wasi.view()
    }
}

/// Nothing but WASI may be imported, and that with the feature only.
fn linker(engine: &Engine) -> wasmtime::Result<Linker<HostState>> {
    #[cfg_attr(not(feature = "wasi"), expect(unused_mut, reason = "nothing is added"))]
    let mut linker = Linker::new(engine);
    #[cfg(feature = "wasi")]
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    Ok(linker)
}

/// One engine for all electors of the process.
fn engine() -> wasmtime::Result<Engine> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(engine.clone());
    }
    let engine = Engine::new(&settings())?;
    Ok(ENGINE.get_or_init(|| engine).clone())
}

/// Runs a call of an elector, which never waits, and calls its host now and then. One that is
/// not done after some polls, in each of which it could compute a while, is broken, and must
/// not block the host's thread.
fn at_once<T>(
    call: impl Future<Output = wasmtime::Result<T>>,
    calls: &HostCalls,
) -> wasmtime::Result<T> {
    calls.begin();
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..limits::POLLS {
        if let Poll::Ready(outcome) = call.as_mut().poll(&mut context) {
            return outcome;
        }
        if calls.are_too_many() {
            return Err(wasmtime::Error::msg("it calls its host too often"));
        }
    }
    Err(wasmtime::Error::msg("it waits for something"))
}

#[cfg(all(test, feature = "precompiled"))]
mod tests {
    #[test]
    fn the_machine_code_of_the_build_is_taken() {
        assert!(super::precompiled().is_some());
    }
}
