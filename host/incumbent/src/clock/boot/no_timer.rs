//! Where the kernel has no timers that count suspended time.

use std::future::ready;

use crate::types::Mark;

/// Nothing to set.
#[derive(Debug, Default)]
pub(in crate::clock) struct Alarm;

impl Alarm {
    pub(in crate::clock) fn go_off(&self) {}
}

pub(in crate::clock) fn expired(_: Mark) -> impl Future<Output = Option<()>> {
    ready(None)
}

pub(in crate::clock) fn wait(_: Mark, _: &Alarm, _: impl Fn() -> bool) -> Option<()> {
    None
}
