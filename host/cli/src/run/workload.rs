//! What runs while we lead.

use futures_util::Stream;
use incumbent::Event;

use super::component::Runner;
use super::outcome::{Assignment, Outcome};
use super::supervisor::Supervisor;
use crate::signals::{Asked, Signals};

/// A command or a component, term after term.
#[derive(Debug)]
pub enum Workload {
    Command(Supervisor),
    Component(Runner),
}

impl Workload {
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
        assignment: Assignment<'_>,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Outcome {
        match self {
            Self::Command(supervisor) => supervisor.term(assignment, events).await,
            Self::Component(runner) => runner.term(assignment, events).await,
        }
    }
}
