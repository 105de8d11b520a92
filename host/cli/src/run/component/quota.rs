//! How much of the machine a component may take: what it takes without end would take the
//! session, and so the leadership, with it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wasmtime::ResourceLimiter;

/// How many bytes a component hands over to the host in one call.
pub const HANDED_OVER: usize = 2 << 20;

/// How many random bytes it gets in one call. A call of the host's is not interrupted, and
/// the 64 MiB that WASI would give take longer than a component has after its last moment.
pub const RANDOM: u64 = 64 << 10;

/// How many files, sockets, streams and the like it holds at a time.
pub const HANDLES: usize = 512;

/// How many files and sockets of its own this process is to have room for beside them.
const ROOM: u64 = 4096;

/// How many elements its tables have, all of them.
const ELEMENTS: usize = 1 << 20;

/// How much memory a run has, all of its memories, and how many of what takes some.
#[derive(Debug)]
pub struct Quota {
    /// In bytes, what is left.
    memory: usize,
    /// What is left.
    elements: usize,
}

impl Quota {
    /// `memory` in bytes.
    pub fn new(memory: usize) -> Self {
        Self { memory, elements: ELEMENTS }
    }
}

/// Takes what is wanted from what is left, if that is enough.
fn take(left: &mut usize, current: usize, desired: usize) -> bool {
    let rest = left.checked_sub(desired.saturating_sub(current));
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

impl ResourceLimiter for Quota {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(take(&mut self.memory, current, desired))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(take(&mut self.elements, current, desired))
    }

    fn instances(&self) -> usize {
        256
    }

    fn tables(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        64
    }
}

/// Lets this process open as many files as a component may, and its own beside them, as
/// far as the system allows it.
pub fn make_room() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(ROOM, |maximum| maximum.min(ROOM));
    if current.is_some_and(|current| current < wanted) {
        // Without it there is less room, and no harm done yet.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_share_what_there_is() {
        let mut quota = Quota::new(100);
        assert!(quota.memory_growing(0, 60, None).unwrap());
        assert!(!quota.memory_growing(0, 50, None).unwrap());
        assert!(quota.memory_growing(60, 100, None).unwrap());
        assert!(!quota.memory_growing(100, 101, None).unwrap());
        assert!(!quota.table_growing(0, ELEMENTS + 1, None).unwrap());
    }
}
