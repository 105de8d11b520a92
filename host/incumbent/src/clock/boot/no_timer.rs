//! Where the kernel has no timers that count suspended time.

use std::future::ready;

use crate::clock::Bell;
use crate::types::Mark;

/// There is none.
#[derive(Debug, Default)]
pub(in crate::clock) struct Alarm;

impl Alarm {
    pub(in crate::clock) fn ring(&self) {}
}

pub(in crate::clock) fn expired(_: Mark) -> impl Future<Output = Option<()>> {
    ready(None)
}

pub(in crate::clock) fn wait(_: Mark, _: &Bell) -> Option<()> {
    None
}
