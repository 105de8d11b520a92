//! How much of its host an elector may use.
//!
//! Fuel bounds its time, and not a thread that interrupts it: so the same history stops at the
//! same instruction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wasmtime::ResourceLimiter;

use super::size;
use crate::types::Event;

/// In bytes, for all memories together. 10,000 candidates with the longest names and values
/// take 120 MB.
const MEMORY: usize = 256 << 20;
/// For all tables together.
const TABLE_ELEMENTS: usize = 100_000;
/// A component is a few core instances, also one from a language with a runtime.
const INSTANCES: usize = 64;

/// In instructions, for one call: to start, and what any step may take.
const FUEL: u64 = 40_000_000;
/// For each event that a step is given, and for each byte of these.
const FUEL_PER_EVENT: u64 = 80_000;
const FUEL_PER_BYTE: u64 = 4;

/// After how many instructions an elector that calls its host is polled again; and how many
/// polls the largest step of a driver takes, with some to spare.
pub(super) const FUEL_BETWEEN_POLLS: u64 = 20_000;
pub(super) const POLLS: usize = 20_000;
/// How many calls of the host a step may make. Between two polls it may make more.
const HOST_CALLS: usize = 2_000;

/// For a step with these events.
pub(super) fn fuel(events: &[Event]) -> u64 {
    let fuel = |event| {
        let bytes = u64::try_from(size::event(event)).unwrap_or(u64::MAX);
        FUEL_PER_EVENT.saturating_add(FUEL_PER_BYTE.saturating_mul(bytes))
    };
    events.iter().map(fuel).fold(FUEL, u64::saturating_add)
}

/// What the elector uses. wasmtime's own limits are for each memory and each table.
#[derive(Default)]
pub(super) struct Limits {
    memory: usize,
    table_elements: usize,
    pub(super) host_calls: HostCalls,
}

/// How often it has called the host in this step.
#[derive(Clone, Default)]
pub(super) struct HostCalls(Arc<AtomicUsize>);

impl HostCalls {
    pub(super) fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    #[cfg(feature = "wasi")]
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) > HOST_CALLS
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(grow(&mut self.memory, current, desired, MEMORY))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(grow(&mut self.table_elements, current, desired, TABLE_ELEMENTS))
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        INSTANCES
    }

    fn memories(&self) -> usize {
        INSTANCES
    }
}

/// Growth that another limit refuses after this counts all the same.
fn grow(taken: &mut usize, current: usize, desired: usize, limit: usize) -> bool {
    let grown = taken.saturating_add(desired.saturating_sub(current));
    let fits = grown <= limit;
    if fits {
        *taken = grown;
    }
    fits
}
