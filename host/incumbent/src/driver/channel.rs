//! The channel from the driver to a candidate: its stage, and its events.

use std::sync::Arc;

use tokio::sync::watch;

use super::broadcast;
use crate::event::Event;
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
    pub(super) stage: watch::Sender<Stage>,
    events: broadcast::Sender<Arc<Told>>,
}

/// The user's end.
#[derive(Debug)]
pub(crate) struct CandidateReceiver {
    pub(crate) stage: watch::Receiver<Stage>,
    /// Everything from the start on.
    pub(crate) events: broadcast::Receiver<Arc<Told>>,
    /// Gives further receivers while the driver keeps its end.
    pub(crate) sender: broadcast::WeakSender<Arc<Told>>,
}

pub(crate) fn channel() -> (CandidateSender, CandidateReceiver) {
    let (stage, stages) = watch::channel(Stage::Joining);
    let (sender, events) = broadcast::channel();
    let receiver = CandidateReceiver { stage: stages, events, sender: sender.downgrade() };
    (CandidateSender { stage, events: sender }, receiver)
}

impl CandidateSender {
    pub(super) fn send(&self, event: Event, begun: Option<Term>) {
        self.events.send(Arc::new(Told { event, begun }));
    }
}

/// Waits for the end of a candidacy. Without its driver it is over as well.
pub(crate) async fn over(stage: &mut watch::Receiver<Stage>) -> Result<(), Failure> {
    match stage.wait_for(|stage| matches!(stage, Stage::Over(_))).await.as_deref() {
        Ok(Stage::Over(Some(failure))) => Err(failure.clone()),
        Ok(Stage::Joining | Stage::Waiting | Stage::Leading(_) | Stage::Over(None)) | Err(_) => {
            Ok(())
        }
    }
}
