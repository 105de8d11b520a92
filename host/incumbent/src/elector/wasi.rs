//! WASI for other electors: all functions exist, and reach nothing.

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView};

/// How many random bytes it is given at once.
const RANDOM: u64 = 64 << 10;
/// How many resources of the host's it may hold.
const RESOURCES: usize = 1_000;

/// No files, no network, no environment, no standard streams.
pub(super) struct Nothing {
    context: WasiCtx,
    resources: ResourceTable,
}

impl Default for Nothing {
    fn default() -> Self {
        let mut context = WasiCtx::builder();
        context.allow_tcp(false).allow_udp(false).max_random_size(RANDOM);
        let mut resources = ResourceTable::new();
        resources.set_max_capacity(RESOURCES);
        Self { context: context.build(), resources }
    }
}

impl Nothing {
    pub(super) fn view(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.context, table: &mut self.resources }
    }
}
