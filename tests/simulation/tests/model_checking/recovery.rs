//! What becomes of a world in which faults have ended: everything is answered and
//! told at once, in one order, and work stops when it is told to.

use incumbent_guest::types::{Duration, Mark};
use incumbent_simulation::store::EXPIRY_TICK;

use crate::view::print;
use crate::world::{Action, Budget, World, in_steps};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Somebody leads, after so long.
    Led(Duration),
    /// Nobody wants to lead.
    Deserted,
    /// Nobody leads until the end.
    Failed,
}

impl World {
    /// Whether somebody leads within `bound`. `known` gives what is known of a world,
    /// and `note` takes what comes out.
    pub fn recovers(
        mut self,
        bound: Duration,
        known: impl Fn(u64) -> Option<Duration>,
        mut note: impl FnMut(u64, Duration),
    ) -> Recovery {
        // What is out of the ordinary has ended.
        self.left = Budget::NONE;
        self.come_to_rest();
        let begun = self.now;
        let mut passed: Vec<(u64, Mark)> = Vec::new();
        let led = loop {
            if self.is_led() {
                break self.now;
            }
            if self.candidates.iter().all(|candidate| candidate.withdrawn || candidate.dead) {
                return Recovery::Deserted;
            }
            let seen = print(&self);
            if let Some(left) = known(seen) {
                break self.now + left;
            }
            passed.push((seen, self.now));
            let tick = self.store.next_end().map(|end| in_steps(end + EXPIRY_TICK));
            let next = self.next_mark().into_iter().chain(tick).min();
            let Some(next) = next.filter(|mark| *mark <= begun + bound) else {
                return Recovery::Failed;
            };
            self.pass(next);
            if !self.come_to_rest() {
                return Recovery::Failed;
            }
        };
        for (seen, at) in passed {
            note(seen, led - at);
        }
        if led - begun <= bound { Recovery::Led(led - begun) } else { Recovery::Failed }
    }

    /// Does all that can be done and delivered, until only time can pass. Whether that took a
    /// reasonable number of steps.
    fn come_to_rest(&mut self) -> bool {
        // The store looks for leases that are over as late as it may.
        let tick = self.now.saturating_sub(EXPIRY_TICK);
        std::sync::Arc::make_mut(&mut self.store).tick(tick);
        let mut actions = Vec::new();
        (0..1_000).any(|_| {
            actions.clear();
            self.actions(&mut actions);
            match actions.first() {
                None | Some(Action::Pass | Action::Tick) => true,
                Some(action) => {
                    self.make(action);
                    false
                }
            }
        })
    }
}
