//! The elector that a process has in it: the native one, or the component.

use incumbent_guest::Elector;
use incumbent_guest::types::{Config, Event, Mark, Step};

use super::laws::Broken;

/// An elector.
pub trait Machine {
    /// As `handle` of the WIT interface.
    ///
    /// # Errors
    ///
    /// If the component says something else than the native elector.
    fn handle(&mut self, now: Mark, events: Vec<Event>) -> Result<Step, Broken>;
}

/// Opens electors of one kind.
pub type Open<'a> = &'a dyn Fn(Config, Mark) -> Box<dyn Machine>;

/// Opens a native elector.
pub fn native(config: Config, now: Mark) -> Box<dyn Machine> {
    Box::new(open(config, now))
}

fn open(config: Config, now: Mark) -> Elector {
    Elector::open(config, now).expect("the configuration leaves time to lead")
}

impl Machine for Elector {
    fn handle(&mut self, now: Mark, events: Vec<Event>) -> Result<Step, Broken> {
        Ok(Elector::handle(self, now, events))
    }
}

#[cfg(feature = "component")]
pub use component::component;

#[cfg(feature = "component")]
mod component {
    use incumbent::Component;

    use super::{Broken, Config, Elector, Event, Machine, Mark, Step, open};
    use crate::laws::Law;
    use crate::transcript::Texts;

    /// The component, and the native elector beside it: each step of the one has to
    /// be the other's, to the letter.
    struct Both {
        native: Elector,
        component: incumbent::Elector,
    }

    /// Opens the component that the library carries.
    pub fn component(config: Config, now: Mark) -> Box<dyn Machine> {
        let component = Component::embedded().expect("the component loads");
        let wasm = incumbent::types::Config {
            lease_ttl: config.lease_ttl,
            safety_margin: config.safety_margin,
            request_timeout: config.request_timeout,
            seed: config.seed,
        };
        Box::new(Both {
            native: open(config, now),
            component: incumbent::Elector::open(&component, wasm, now).expect("it opens"),
        })
    }

    impl Machine for Both {
        fn handle(&mut self, now: Mark, events: Vec<Event>) -> Result<Step, Broken> {
            let texts: Vec<String> = events.iter().map(crate::transcript::written).collect();
            let step = self.native.handle(now, events);
            let events = Texts::events(&texts).expect("what was written can be read");
            let said = self.component.handle(now, &events).map_err(|error| {
                Law::SameSteps.broken(format!("the component broke off: {error}"))
            })?;
            let (said, expected) = (Texts::component(&said), Texts::native(&step));
            if said != expected {
                return Err(Law::SameSteps.broken(format!("{said:?} instead of {expected:?}")));
            }
            Ok(step)
        }
    }
}
