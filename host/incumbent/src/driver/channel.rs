//! The channel from the driver to a candidate: its stage, and its events.

use std::sync::Arc;

use super::broadcast;
use crate::event::Event;
use crate::observable::Observable;
use crate::term::Term;
use crate::types::Failure;

/// How far a candidate has come, as its users see it.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Not in line yet.
    Joining,
    /// Was in line; perhaps on its way back there.
    Waiting,
    Leading(Term),
    Over(Option<Failure>),
}

/// An event, and the term that begins with it. Extensions are not sent: the reader sees them
/// in that term.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: Event,
    pub(crate) begun: Option<Term>,
}

/// The driver's end.
#[derive(Debug)]
pub(crate) struct CandidateSender {
    pub(super) stage: Arc<Observable<Stage>>,
    events: broadcast::Sender<Arc<Told>>,
}

/// The user's end.
#[derive(Debug)]
pub(crate) struct CandidateReceiver {
    pub(crate) stage: Arc<Observable<Stage>>,
    /// Everything from the start on.
    pub(crate) events: broadcast::Receiver<Arc<Told>>,
    /// Gives further receivers while the driver keeps its end.
    pub(crate) sender: broadcast::WeakSender<Arc<Told>>,
}

pub(crate) fn channel() -> (CandidateSender, CandidateReceiver) {
    let stage = Arc::new(Observable::new(Stage::Joining));
    let (sender, events) = broadcast::channel();
    let receiver =
        CandidateReceiver { stage: Arc::clone(&stage), events, sender: sender.downgrade() };
    (CandidateSender { stage, events: sender }, receiver)
}

impl CandidateSender {
    pub(super) fn send(&self, event: Event, begun: Option<Term>) {
        self.events.send(Arc::new(Told { event, begun }));
    }
}

/// Without its driver, a candidacy is over.
impl Drop for CandidateSender {
    fn drop(&mut self) {
        self.stage.change_if(|stage| {
            let goes_on = !matches!(stage, Stage::Over(_));
            if goes_on {
                *stage = Stage::Over(None);
            }
            goes_on
        });
    }
}

/// Waits for the end of a candidacy.
pub(crate) async fn over(stage: &Observable<Stage>) -> Result<(), Failure> {
    let cause = stage.wait_for(|stage| match stage {
        Stage::Over(cause) => Some(cause.clone()),
        Stage::Joining | Stage::Waiting | Stage::Leading(_) => None,
    });
    cause.await.map_or(Ok(()), Err)
}
