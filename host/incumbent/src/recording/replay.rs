//! Has the component say again what it said.

use std::collections::BTreeMap;

use super::action::HostAction;
use super::line::Line;
use crate::elector::{Component, ComponentError, Elector};
use crate::types::Step;

/// How many electors of one process are run at once; each may take 256 MiB, and takes 2.
const AT_ONCE: usize = 16;

/// Runs the electors of a recording anew, and compares what they say. They have the limits that
/// they always have, so that no recording can make them take more.
#[derive(Debug)]
pub struct Replay {
    component: Component,
    /// None if lines are missing, up to the next elector.
    electors: BTreeMap<u32, Option<Elector>>,
}

/// What the comparison of a line has shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Compared {
    /// There was nothing to compare.
    Nothing,
    /// The elector said the same.
    Same,
    /// The elector said something else: this, or it broke off with this error.
    Differs(Result<Step, String>),
    /// The elector cannot be run, because lines before are missing.
    Incomparable,
}

impl Replay {
    /// Runs this component.
    pub fn new(component: Component) -> Self {
        Self { component, electors: BTreeMap::new() }
    }

    /// Gives the next line to its elector.
    pub fn compare(&mut self, line: &Line) -> Compared {
        match line {
            Line::Head(_) => Compared::Nothing,
            Line::Open { elector, now, config, error } => {
                let opened = Elector::open(&self.component, *config, *now);
                let (opened, said) = match opened {
                    Ok(opened) => (Some(opened), Ok(None)),
                    Err(ComponentError::Config(refused)) => (None, Ok(Some(refused))),
                    Err(broken) => (None, Err(broken)),
                };
                self.electors.remove(elector);
                // A further one is not run, so that no recording takes all of the memory.
                if self.electors.len() < AT_ONCE {
                    self.electors.insert(*elector, opened);
                }
                match said {
                    Ok(said) if said == *error => Compared::Same,
                    Ok(said) => Compared::Differs(Err(match said {
                        Some(refused) => ComponentError::Config(refused).to_string(),
                        None => "the elector is opened".into(),
                    })),
                    Err(broken) => Compared::Differs(Err(told(&broken))),
                }
            }
            Line::Step { elector, now, events, step } => {
                let Some(running) = self.electors.get_mut(elector).and_then(Option::as_mut) else {
                    return Compared::Incomparable;
                };
                match (running.handle(*now, events), step) {
                    (Ok(said), Some(step)) if said == *step => Compared::Same,
                    (Err(_), None) => Compared::Same,
                    (said, _) => Compared::Differs(said.map_err(|error| told(&error))),
                }
            }
            Line::Host { elector, action, .. } => {
                match action {
                    HostAction::Gap(_) => drop(self.electors.insert(*elector, None)),
                    HostAction::Closed => drop(self.electors.remove(elector)),
                    HostAction::Clock(_)
                    | HostAction::Broke(_)
                    | HostAction::Yielded(_)
                    | HostAction::GaveBack(_)
                    | HostAction::Expired(_)
                    | HostAction::Elections(_) => {}
                }
                Compared::Nothing
            }
        }
    }
}

/// The error and its cause.
fn told(error: &ComponentError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
