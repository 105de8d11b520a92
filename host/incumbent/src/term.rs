//! One term, as the driver, its holder and the deadline thread share it.

use std::ops::Deref;
use std::sync::Arc;

use crate::types::{self, Reason};

mod deadlines;
mod state;
mod validity;

pub(crate) use deadlines::Deadlines;
pub use state::Standing;
use state::TermState;
pub(crate) use validity::Validity;

/// One term, and the thread that ends it in time. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    state: Arc<TermState>,
    deadlines: Arc<Deadlines>,
}

impl Deref for Term {
    type Target = TermState;

    fn deref(&self) -> &TermState {
        &self.state
    }
}

impl Term {
    /// A term begins: the thread keeps its deadline from now on.
    pub(crate) fn begin(
        election: &str,
        id: types::Term,
        key: Vec<u8>,
        validity: Arc<Validity>,
        deadlines: &Arc<Deadlines>,
    ) -> Self {
        let state = Arc::new(TermState::new(election, id, key, validity));
        deadlines.begin(&state);
        Self { state, deadlines: Arc::clone(deadlines) }
    }

    /// Ends it, unless it is over, and returns the reason of its end: the driver and the
    /// deadline thread may both end it, and the first one is right.
    pub(crate) fn end(&self, reason: Reason) -> Reason {
        let reason = self.conclude(reason);
        self.deadlines.ended(&self.state);
        reason
    }

    pub(crate) fn on_end(&self, ending: impl FnOnce(Reason) + Send + 'static) {
        self.add_ending(Box::new(ending));
        if self.is_over() {
            self.deadlines.ended(&self.state);
        }
    }

    /// How it stands at this moment, by the clock.
    pub(crate) fn standing(&self) -> Standing {
        if self.is_valid() {
            self.said.read(|said| self.as_extended(&said.standing))
        } else {
            Standing::Over(self.end(Reason::Expired))
        }
    }

    /// Waits until it stands otherwise, or is over.
    pub(crate) async fn changed(&self, last: &Standing) -> Standing {
        loop {
            let changed = self.said.changed();
            let deadline = self.deadline();
            let standing = self.standing();
            if standing != *last || matches!(standing, Standing::Over(_)) {
                return standing;
            }
            tokio::select! {
                () = changed => {}
                _ = self.extended(deadline) => {}
                () = self.sleep_until(deadline) => {}
            }
        }
    }
}
