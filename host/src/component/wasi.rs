//! WASI for other electors: all of it is there, and nothing can be reached with it.

use wasmtime::Engine;
use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::State;

pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    Ok(linker)
}

/// No files, no network, no environment, no standard streams.
pub(super) struct Nothing {
    context: WasiCtx,
    resources: ResourceTable,
}

impl Default for Nothing {
    fn default() -> Self {
        let context = WasiCtx::builder().allow_tcp(false).allow_udp(false).build();
        Self { context, resources: ResourceTable::new() }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi.context, table: &mut self.wasi.resources }
    }
}
