//! One term after the other, for an application that asks for each of them.

use std::sync::Arc;

use tokio::sync::watch;

use crate::candidate::Candidate;
use crate::driver::{Handle, Stage, over};
use crate::election::Election;
use crate::error::Error;
use crate::leadership::{Fence, Leadership};
use crate::observable::Observable;

/// One term after the other, each asked for by [`next`](Self::next).
///
/// It is in line from the moment at which a term is asked for until that term is over. A term
/// that nobody asks for within about a lease time is given back. Dropping it leaves the
/// election: the work must have stopped.
///
/// One for each election of a session: the session has one candidate of a name.
#[derive(Debug)]
pub struct Terms {
    election: Election,
    /// In line, since a term was asked for.
    candidate: Option<Candidate>,
    /// The term that was handed out, until its work is said to have stopped.
    held: Option<Leadership>,
    /// The same, for watchers.
    given: watch::Sender<Option<Fence>>,
    /// The candidacy of that term, and of nothing else: it has to be over before another one
    /// of this name begins.
    last: Option<Arc<Observable<Stage>>>,
}

impl Election {
    /// One term after the other, for an application that asks for each of them.
    pub fn terms(&self) -> Terms {
        let given = watch::Sender::default();
        Terms { election: self.clone(), candidate: None, held: None, given, last: None }
    }
}

impl Terms {
    /// The election.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// The term that was handed out, also if it is over, until its work is said to have stopped.
    pub fn given(&self) -> watch::Receiver<Option<Fence>> {
        self.given.subscribe()
    }

    /// The term that stands, or the next one. To ask for a term says that the work of an
    /// earlier one that is over has stopped. Cancel safe: in line from the first poll on.
    ///
    /// # Errors
    ///
    /// As for [`Election::campaign`], and the same again for each further call.
    pub async fn next(&mut self) -> Result<Fence, Error> {
        if let Some(leadership) = &self.held
            && leadership.is_valid()
        {
            return Ok(leadership.fence());
        }
        self.let_go();
        loop {
            if let Some(stage) = &self.last {
                // The next candidacy says what went wrong.
                let _ = over(stage).await;
                self.last = None;
            }
            let candidate = self.candidate.get_or_insert_with(|| {
                let candidate = self.election.candidate(false);
                let handle = candidate.handle();
                handle.runtime.spawn(give_back(candidate.stage(), handle.clone()));
                candidate
            });
            let elected = candidate.elected().await;
            let Some(candidate) = self.candidate.take() else { continue };
            match elected {
                Ok(leadership) => {
                    self.last = Some(candidate.stage());
                    let leadership = candidate.tie_to(leadership);
                    let fence = leadership.fence();
                    self.held = Some(leadership);
                    self.given.send_replace(Some(fence.clone()));
                    return Ok(fence);
                }
                Err(Error::Closed) if candidate.was_in_line() => {}
                Err(error) => {
                    // The next call gets the same error.
                    self.candidate = Some(candidate);
                    return Err(error);
                }
            }
        }
    }

    /// The work of the term that was handed out has stopped: the term is resigned.
    pub fn let_go(&mut self) {
        self.held = None;
        self.given.send_replace(None);
    }
}

/// Gives back a term that nobody asks for within the time of one lease: from its beginning
/// to its first deadline. That ends the candidacy.
async fn give_back(stage: Arc<Observable<Stage>>, handle: Handle) {
    let begun = stage.wait_for(|stage| match stage {
        Stage::Joining | Stage::Waiting => None,
        Stage::Leading(term) => Some(Some(term.clone())),
        Stage::Over(_) => Some(None),
    });
    let Some(term) = begun.await else { return };
    tokio::select! {
        _ = over(&stage) => {}
        () = handle.clock.sleep_until(term.deadline()) => if term.take() {
            drop(Leadership::new(term, handle));
        }
    }
}
