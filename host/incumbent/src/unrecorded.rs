//! In place of `recording`, without the feature `record`: there is no recorder.

#![expect(dead_code, reason = "nothing is read of what is not recorded")]

use crate::types::{Config, ConfigError, Event, Mark, Step};

#[derive(Clone, Debug)]
pub(crate) enum Recorder {}

#[derive(Debug)]
pub(crate) enum Stream {}

pub(crate) enum HostAction {
    Broke(String),
    Yielded(NamedTerm),
    GaveBack(i64),
    Expired(NamedTerm),
}

pub(crate) struct NamedTerm {
    pub(crate) name: String,
    pub(crate) epoch: i64,
}

impl Recorder {
    pub(crate) fn stream(&self) -> Stream {
        match *self {}
    }

    pub(crate) fn did(&self, _: HostAction) {
        match *self {}
    }

    pub(crate) async fn flush(&self) {
        match *self {}
    }
}

impl Stream {
    pub(crate) fn opened(&self, _: Mark, _: Config, _: Option<ConfigError>) {
        match *self {}
    }

    pub(crate) fn stepped(&self, _: Mark, _: Vec<Event>, _: Option<Step>) {
        match *self {}
    }

    pub(crate) fn did(&self, _: HostAction) {
        match *self {}
    }

    pub(crate) fn close(&mut self) {
        match *self {}
    }
}
