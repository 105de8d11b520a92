//! The elector that a process has in it: the native one, or the component.

use incumbent_guest::Elector;
use incumbent_guest::types::{Config, Event, Mark, Step};

use super::laws::Broken;

/// An elector.
pub trait Machine {
    /// As `handle` of the WIT interface.
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
    use super::{Broken, Config, Elector, Event, Machine, Mark, Step, open};
    use crate::laws::Law;
    use crate::transcript::{self, Leases, Subject, Wasm, said, written};

    /// The component, and the native elector beside it: each step of the one has to
    /// be the other's, to the letter.
    struct Both {
        native: Elector,
        component: Wasm,
        leases: Leases,
    }

    /// Opens the component that the library carries.
    pub fn component(config: Config, now: Mark) -> Box<dyn Machine> {
        let mut component = Wasm::embedded().expect("the component loads");
        let Config { lease_ttl: ttl, safety_margin: margin, request_timeout: timeout, seed } =
            config;
        let opened = component.open(transcript::Config { ttl, margin, timeout, seed });
        opened.expect("it opens");
        Box::new(Both { native: open(config, now), component, leases: Leases::default() })
    }

    impl Machine for Both {
        fn handle(&mut self, now: Mark, events: Vec<Event>) -> Result<Step, Broken> {
            let texts: Vec<String> = events.iter().map(written).collect();
            let step = self.native.handle(now, events);
            let told = self.component.handle(now, &texts).map_err(|error| {
                Law::SameSteps.broken(format!("the component broke off: {error}"))
            })?;
            let expected = said(&step, &mut self.leases);
            if told != expected {
                return Err(Law::SameSteps.broken(format!("{told:?} instead of {expected:?}")));
            }
            Ok(step)
        }
    }
}
