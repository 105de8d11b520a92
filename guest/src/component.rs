//! The export: an [`Elector`](crate::Elector) behind the resource of `wit/`.

#![allow(unsafe_code, reason = "what export! expands to")]

use alloc::vec::Vec;
use core::cell::RefCell;

use crate::bindings::exports::incumbent::election::elector;
use crate::types::{Config, ConfigError, Event, Step};

struct Component;

/// Exported methods take `&self`, but the elector takes `&mut self`. The borrow never
/// fails, because a host does not re-enter.
struct Resource(RefCell<crate::Elector>);

impl elector::Guest for Component {
    type Elector = Resource;
}

impl elector::GuestElector for Resource {
    fn open(config: Config, now: u64) -> Result<elector::Elector, ConfigError> {
        crate::Elector::open(config, now)
            .map(|elector| elector::Elector::new(Resource(RefCell::new(elector))))
    }

    fn handle(&self, now: u64, events: Vec<Event>) -> Step {
        self.0.borrow_mut().handle(now, events)
    }
}

crate::bindings::export!(Component with_types_in crate::bindings);
