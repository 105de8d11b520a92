//! How much memory and how many files a component may use: without bounds it could starve the
//! session, and so end the leadership.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wasmtime::ResourceLimiter;

/// How many bytes a component hands over to the host in one call.
pub const HANDED_OVER: usize = 2 << 20;

/// How many random bytes it gets in one call. A host call is not interrupted, and WASI's 64 MiB
/// take longer than the last moment of a leadership.
pub const RANDOM: u64 = 64 << 10;

/// How many files, sockets, streams and the like it holds at a time.
pub const HANDLES: usize = 512;

/// How many files and sockets this process may open, with those of the component.
const ROOM: u64 = 4096;

/// How many elements all its tables have together.
const ELEMENTS: usize = 1 << 20;

/// What a run may still use, in all of its memories and tables.
#[derive(Debug)]
pub struct Quota {
    /// Bytes that are left.
    memory: usize,
    /// Elements that are left.
    elements: usize,
}

impl Quota {
    /// `memory` in bytes.
    pub fn new(memory: usize) -> Self {
        Self { memory, elements: ELEMENTS }
    }
}

/// Takes the growth from what is left, if that is enough.
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

/// Lets this process open as many files as it and a component may need, as far as the system
/// allows it.
pub fn make_room() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(ROOM, |maximum| maximum.min(ROOM));
    if current.is_some_and(|current| current < wanted) {
        // If it fails, a component has fewer files.
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
