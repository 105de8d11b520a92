//! What is done while leading.

use std::ffi::OsString;

use futures_util::Stream;
use incumbent::{Event, Leadership};

use super::component::Runner;
use super::guard::lease::Lease;
use super::outcome::Outcome;
use super::supervisor::Supervisor;
use crate::event::Teller;
use crate::signals::{Asked, Signals};

/// The work, term after term.
#[derive(Debug)]
pub enum Duty {
    Command(Supervisor),
    Component(Runner),
}

impl Duty {
    /// As people call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Component(_) => "component",
        }
    }

    pub fn signals(&mut self) -> &mut Signals {
        match self {
            Self::Command(supervisor) => &mut supervisor.signals,
            Self::Component(runner) => &mut runner.signals,
        }
    }

    /// Between terms: waits for a signal that asks us to end. Cancel safe.
    pub async fn asked(&mut self) -> Asked {
        match self {
            Self::Command(supervisor) => supervisor.asked().await,
            Self::Component(runner) => runner.signals.next().await,
        }
    }

    /// One term. Returns when nothing of the work is left, or nothing can be waited for.
    pub async fn term(
        &mut self,
        leadership: &Leadership,
        environment: &[(&'static str, OsString)],
        lease: Lease,
        events: &mut (impl Stream<Item = Event> + Unpin),
        teller: &Teller,
    ) -> Outcome {
        match self {
            Self::Command(supervisor) => {
                supervisor.term(leadership, environment, lease, events, teller).await
            }
            // It leaves nobody behind who could give the lease back.
            Self::Component(runner) => runner.term(leadership, environment, events, teller).await,
        }
    }
}
