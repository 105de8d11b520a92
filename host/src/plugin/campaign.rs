//! A component that takes one term after the other.

use tokio::sync::watch;

use crate::candidate::{Candidate, Stage};
use crate::driver::Handle;
use crate::election::Election;
use crate::error::Error;
use crate::leadership::{Fence, Leadership};

#[derive(Debug)]
pub(super) struct Campaign {
    election: Election,
    /// In line, since the component has asked for a term.
    candidate: Option<Candidate>,
    /// The term that it was given, until it says that its work has stopped.
    held: Option<Leadership>,
    /// The same, for the platform.
    given: watch::Sender<Option<Fence>>,
    /// The candidacy of that term, and of nothing else: it has to be over before another one
    /// of this name begins.
    last: Option<watch::Receiver<Stage>>,
}

impl Campaign {
    pub(super) fn new(election: Election) -> Self {
        let given = watch::Sender::default();
        Self { election, candidate: None, held: None, given, last: None }
    }

    pub(super) fn handle(&self) -> &Handle {
        self.election.handle()
    }

    /// The term that the component was given, until it says that its work has stopped.
    pub(super) fn given(&self) -> watch::Receiver<Option<Fence>> {
        self.given.subscribe()
    }

    /// The term in which the component leads, or its next one. Says that the work of an
    /// earlier one that is over has stopped. Cancel safe: in line from the first poll on.
    pub(super) async fn elected(&mut self) -> Result<Fence, Error> {
        if let Some(leadership) = &self.held
            && leadership.is_valid()
        {
            return Ok(leadership.fence());
        }
        self.let_go();
        loop {
            if let Some(stage) = &mut self.last {
                // An error means that the driver is gone, which the next one is told.
                let _ = stage.wait_for(|stage| matches!(stage, Stage::Over(_))).await;
                self.last = None;
            }
            let candidate = self.candidate.get_or_insert_with(|| {
                let candidate = self.election.candidate(false);
                let handle = self.election.handle();
                handle.runtime().spawn(give_back(candidate.stage(), handle.clone()));
                candidate
            });
            let elected = candidate.elected().await;
            let Some(candidate) = self.candidate.take() else { continue };
            match elected {
                Ok(leadership) => {
                    self.last = Some(candidate.stage());
                    let leadership = leadership.with_candidate(candidate);
                    let fence = leadership.fence();
                    self.held = Some(leadership);
                    self.given.send_replace(Some(fence.clone()));
                    return Ok(fence);
                }
                Err(Error::Closed) if candidate.was_in_line() => {}
                Err(error) => {
                    // Whoever asks again is told again.
                    self.candidate = Some(candidate);
                    return Err(error);
                }
            }
        }
    }

    /// The work of its term has stopped, if it has one.
    pub(super) fn let_go(&mut self) {
        self.held = None;
        self.given.send_replace(None);
    }
}

/// Gives the term of a candidacy back that nobody has asked for in the time of one lease:
/// from its beginning to its first deadline. That ends the candidacy.
async fn give_back(mut stages: watch::Receiver<Stage>, handle: Handle) {
    let mut first = None;
    loop {
        let stage = stages.borrow_and_update().clone();
        let unclaimed = match stage {
            Stage::Joining | Stage::Waiting => None,
            Stage::Leading(term) => {
                let deadline = *first.get_or_insert_with(|| term.deadline());
                Some((term, handle.clock().sleep_until(deadline)))
            }
            Stage::Over(_) => return,
        };
        match unclaimed {
            None => {
                if stages.changed().await.is_err() {
                    return;
                }
            }
            Some((term, time)) => tokio::select! {
                news = stages.changed() => if news.is_err() { return },
                () = time => {
                    if term.take() {
                        drop(Leadership::new(term, handle));
                    }
                    return;
                }
            },
        }
    }
}
