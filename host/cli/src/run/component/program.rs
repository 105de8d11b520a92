//! The component itself: read, checked and compiled before other candidates wait for us.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use incumbent_plugin::{LeadershipCtx, LeadershipCtxView, LeadershipView};
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Config, Engine};
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::limit::Limit;
use super::quota::{HANDLES, Quota};
use crate::exit::{End, bad_input};

/// A component that can be run.
pub struct Program {
    pub engine: Engine,
    pub command: CommandPre<State>,
    /// It imports `leadership`, so it hears that it has to stop.
    pub hears: bool,
}

/// The interface that tells a component about its leadership.
const LEADERSHIP: &str = "incumbent:election/leadership@";

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

/// The data of one run.
pub struct State {
    granted: Reach,
    nothing: Reach,
    leadership: LeadershipCtx,
    pub limit: Arc<Limit>,
    pub quota: Quota,
}

/// What the component can use, and what of it is open.
struct Reach {
    context: WasiCtx,
    resources: ResourceTable,
}

impl Program {
    /// Takes seconds for some megabytes.
    pub fn load(file: &Path) -> Result<Self, End> {
        let fault = |fault: String| bad_input(format!("--component {}{fault}", file.display()));
        let unread =
            |error: io::Error| fault(format!(" cannot be read ({error}): give a file that can"));
        // Other things may never end.
        if !fs::metadata(file).map_err(unread)?.is_file() {
            return Err(fault(
                " is not a file: give the file that a build for wasm32-wasip2 makes".into(),
            ));
        }
        let bytes = fs::read(file).map_err(unread)?;
        let is_wrong = match bytes.as_slice() {
            [b'\0', b'a', b's', b'm', _, _, 1, 0, ..] => return Self::compile(&bytes, fault),
            [b'\0', b'a', b's', b'm', _, _, 0, 0, ..] => {
                " is a core module, not a component: build it for wasm32-wasip2, or make it one with \
                 `wasm-tools component new`"
            }
            _ => " is not WebAssembly: give the file that a build for wasm32-wasip2 makes",
        };
        Err(fault(is_wrong.into()))
    }

    fn compile(bytes: &[u8], fault: impl Fn(String) -> End) -> Result<Self, End> {
        let is_broken =
            |error| fault(format!(" does not compile ({}): is the file whole?", one_line(&error)));
        let wants_more = |error| {
            fault(format!(
                " has an import that does not exist here ({}): it may import WASI 0.2 as a \
                 program does (world wasi:cli/command), and incumbent:election/leadership",
                one_line(&error)
            ))
        };
        let has_no_run = |error| {
            fault(format!(
                " is not a program ({}): build one that exports wasi:cli/run, as in the world \
                 wasi:cli/command",
                one_line(&error)
            ))
        };
        // Its own engine, because an interruption interrupts everything that runs on an engine.
        let mut settings = Config::new();
        settings.concurrency_support(false).epoch_interruption(true);
        let engine = Engine::new(&settings).map_err(is_broken)?;
        let component = Component::new(&engine, bytes).map_err(is_broken)?;
        let mut linker = Linker::new(&engine);
        let linked = wasmtime_wasi::p2::add_to_linker_async(&mut linker)
            .and_then(|()| incumbent_plugin::add_to_linker_async(&mut linker));
        let hears = component
            .component_type()
            .imports(&engine)
            .any(|(name, _)| name.starts_with(LEADERSHIP));
        let instance = linked.and_then(|()| linker.instantiate_pre(&component));
        let command = CommandPre::new(instance.map_err(wants_more)?).map_err(has_no_run)?;
        Ok(Self { engine, command, hears })
    }
}

/// wasmtime's error with its causes.
pub fn one_line(error: &wasmtime::Error) -> String {
    format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ")
}

impl State {
    pub fn new(
        granted: WasiCtx,
        leadership: LeadershipCtx,
        limit: Arc<Limit>,
        quota: Quota,
    ) -> Self {
        let mut nothing = WasiCtx::builder();
        nothing.allow_tcp(false).allow_udp(false).max_random_size(0);
        let nothing = nothing.build();
        let [granted, nothing] = [granted, nothing].map(Reach::new);
        Self { granted, nothing, leadership, limit, quota }
    }
}

impl Reach {
    fn new(context: WasiCtx) -> Self {
        let mut resources = ResourceTable::new();
        resources.set_max_capacity(HANDLES);
        Self { context, resources }
    }
}

/// Called at each host call: when the time is over, the component reaches nothing any more.
impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let reach = if self.limit.is_over() { &mut self.nothing } else { &mut self.granted };
        WasiCtxView { ctx: &mut reach.context, table: &mut reach.resources }
    }
}

impl LeadershipView for State {
    fn leadership(&mut self) -> LeadershipCtxView<'_> {
        let reach = if self.limit.is_over() { &mut self.nothing } else { &mut self.granted };
        LeadershipCtxView { ctx: &mut self.leadership, table: &mut reach.resources }
    }
}
