//! A small platform. It runs WebAssembly components, each in an election of its own, and
//! only while it leads that election. Start it on two machines, or twice on one, and stop
//! the first.
//!
//! ```text
//! INCUMBENT_STORE=local cargo run --example platform -- \
//!     platform-1 reports=reports.wasm invoices=invoices.wasm
//! ```
//!
//! An application is a command of WASI 0.2 (it exports `wasi:cli/run`), and may import
//! `incumbent:election/leadership`: see `wit/leadership.wit`. Its keys begin with
//! `data/NAME/`. `INCUMBENT_STORE` names the store; the default is
//! `etcd://127.0.0.1:2379`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use incumbent::{Leadership, Options, Session};
use incumbent_plugin::{LeadershipCtx, LeadershipCtxView, LeadershipView};
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::error::Context;
use wasmtime::{Config, Engine, Error, ResourceLimiter, Result, Store, UpdateDeadline};
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

const USAGE: &str = "usage: platform ID NAME=COMPONENT.wasm…";
/// How often a component that computes is looked at.
const TICK: Duration = Duration::from_millis(10);
/// In bytes, for each application: all its memories and tables together.
const MEMORY: usize = 64 << 20;
/// How many instances, memories and tables an application has, of each at most.
const PARTS: usize = 64;
/// How many handles an application holds: streams, things to wait for, terms.
const HANDLES: usize = 256;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let identity = arguments.next().context(USAGE)?;
    let store = std::env::var("INCUMBENT_STORE");
    let store = store.unwrap_or_else(|_| "etcd://127.0.0.1:2379".into());

    let platform = Platform::new()?;
    let applications = arguments
        .map(|argument| {
            let (name, file) = argument.split_once('=').context(USAGE)?;
            platform.load(name, file).with_context(|| format!("{file} cannot be run"))
        })
        .collect::<Result<Vec<_>>>()?;

    // One lease for all of them.
    let session = Session::connect(&store, Options { identity, ..Options::default() }).await?;
    for application in applications {
        let election = session.election(&application.name);
        tokio::spawn(async move {
            let led = election.lead(|leadership| application.run(leadership)).await;
            if let Err(error) = led {
                eprintln!("{} does not take part any more: {error}", application.name);
            }
        });
    }
    tokio::signal::ctrl_c().await?;
    // The components are stopped, and other platforms lead at once.
    session.close().await?;
    Ok(())
}

/// What all applications share: the compiler, and what they may import.
struct Platform {
    engine: Engine,
    linker: Linker<State>,
}

impl Platform {
    fn new() -> Result<Self> {
        // An engine of the applications' own: the epochs that interrupt are an engine's, and
        // the elector has another.
        let engine = Engine::new(Config::new().epoch_interruption(true))?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        incumbent_plugin::add_to_linker_async(&mut linker)?;
        let ticking = engine.weak();
        thread::spawn(move || {
            while let Some(engine) = ticking.upgrade() {
                engine.increment_epoch();
                drop(engine);
                thread::sleep(TICK);
            }
        });
        Ok(Self { engine, linker })
    }

    /// Compiles a component, and sees whether all that it imports is there.
    fn load(&self, name: &str, file: &str) -> Result<Arc<Application>> {
        let component = Component::from_file(&self.engine, file)?;
        let command = CommandPre::new(self.linker.instantiate_pre(&component)?)?;
        Ok(Arc::new(Application { name: name.into(), command }))
    }
}

/// A component, and the election that decides where it runs.
struct Application {
    name: String,
    command: CommandPre<State>,
}

impl Application {
    /// Runs it in one term. `lead` drops this future in time when the term comes to its
    /// end, and with it the component, whatever that is waiting for.
    fn run(self: &Arc<Self>, leadership: Leadership) -> impl Future<Output = ()> + Send + use<> {
        let application = Arc::clone(self);
        async move {
            let (name, epoch) = (application.name.clone(), leadership.epoch());
            println!("{name} runs in epoch {epoch}");
            match application.call(&leadership).await {
                Ok(()) => println!("{name} is done in epoch {epoch}"),
                Err(error) => println!("{name} failed in epoch {epoch}: {error:#}"),
            }
        }
    }

    async fn call(&self, leadership: &Leadership) -> Result<()> {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        let state = State {
            // What it prints is the platform's own output. Where nobody reads that, printing
            // blocks the thread, and the platform with it: one that runs strangers' components
            // gives them streams of their own, with bounded room.
            wasi: WasiCtx::builder().inherit_stdout().inherit_stderr().build(),
            table,
            leadership: LeadershipCtx::of_term(leadership).grant(format!("data/{}/", self.name)),
            limits: Limits { left: MEMORY },
        };
        let mut store = Store::new(self.command.engine(), state);
        store.limiter(|state| &mut state.limits);
        // One that computes without end lets others have their turn, and `lead` drop it, at
        // each tick; and does not go on beyond its term even if `lead` comes late.
        store.set_epoch_deadline(1);
        let fence = leadership.fence();
        store.epoch_deadline_callback(move |_| {
            let stands = fence.is_valid();
            Ok(if stands { UpdateDeadline::Yield(1) } else { UpdateDeadline::Interrupt })
        });
        let command = self.command.instantiate_async(&mut store).await?;
        let done = command.wasi_cli_run().call_run(&mut store).await?;
        done.map_err(|()| Error::msg("it says so"))
    }
}

/// What belongs to a running application.
struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    leadership: LeadershipCtx,
    limits: Limits,
}

/// Bounds what all the parts of an application take together: wasmtime's own `StoreLimits`
/// bound each memory by itself.
struct Limits {
    /// In bytes.
    left: usize,
}

impl Limits {
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, now: usize, then: usize, _: Option<usize>) -> Result<bool> {
        Ok(self.take(then.saturating_sub(now)))
    }

    fn table_growing(&mut self, now: usize, then: usize, _: Option<usize>) -> Result<bool> {
        let elements = then.saturating_sub(now);
        Ok(self.take(elements.saturating_mul(size_of::<usize>())))
    }

    fn instances(&self) -> usize {
        PARTS
    }

    fn memories(&self) -> usize {
        PARTS
    }

    fn tables(&self) -> usize {
        PARTS
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl LeadershipView for State {
    fn leadership(&mut self) -> LeadershipCtxView<'_> {
        LeadershipCtxView { ctx: &mut self.leadership, table: &mut self.table }
    }
}
