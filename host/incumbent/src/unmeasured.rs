//! In place of `metrics`, without that feature: nothing is counted.

use std::time::Duration;

use crate::types::{Epoch, Failure, Reason, Response};

pub(crate) fn joined(_: &str) {}
pub(crate) fn elected(_: &str, _: Epoch) {}
pub(crate) fn ended(_: &str, _: &Reason) {}
pub(crate) fn endangered(_: &str) {}
pub(crate) fn answered(_: &'static str, _: &Result<Response, Failure>, _: Duration) {}
pub(crate) fn fenced() {}
pub(crate) fn replaced() {}
