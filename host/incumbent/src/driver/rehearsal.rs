//! What a test directs a driver by: it asks when there is nothing left to do, and has the
//! driver stand still.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{mpsc, oneshot};

use crate::deadlines::Deadlines;

/// The driver's side. Nobody directs the default one.
#[derive(Default)]
pub(crate) struct Rehearsal {
    cues: Option<mpsc::UnboundedReceiver<Cue>>,
    /// They wait until there is nothing to do.
    asked: Vec<oneshot::Sender<u64>>,
    /// How often there was something to do.
    turns: u64,
    paused: bool,
}

/// The test's side. It does not keep the driver alive.
#[derive(Clone, Debug)]
pub(crate) struct Director {
    cues: mpsc::UnboundedSender<Cue>,
    deadlines: Arc<Deadlines>,
}

#[derive(Debug)]
enum Cue {
    /// Answered, with the number of turns, as soon as there is nothing to do.
    Rest(oneshot::Sender<u64>),
    Pause(bool),
}

impl Rehearsal {
    pub(crate) fn new(deadlines: Arc<Deadlines>) -> (Self, Director) {
        let (sender, cues) = mpsc::unbounded_channel();
        let rehearsal = Self { cues: Some(cues), ..Self::default() };
        (rehearsal, Director { cues: sender, deadlines })
    }

    /// Takes the cues. Whether the driver has to stand still.
    pub(super) fn is_paused(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(cues) = &mut self.cues {
            while let Poll::Ready(Some(cue)) = cues.poll_recv(context) {
                match cue {
                    Cue::Rest(asked) => self.asked.push(asked),
                    Cue::Pause(pause) => self.paused = pause,
                }
            }
        }
        if self.paused {
            self.looked(false);
        }
        self.paused
    }

    /// The driver has looked for something to do.
    pub(super) fn looked(&mut self, news: bool) {
        if news {
            self.turns += 1;
            return;
        }
        for asked in mem::take(&mut self.asked) {
            // Whoever asked may have gone.
            let _ = asked.send(self.turns);
        }
    }
}

impl Director {
    /// Asks for the number of the driver's turns until it has nothing left to do. The
    /// answer fails where the driver has ended.
    pub(crate) fn ask(&self) -> oneshot::Receiver<u64> {
        let (asked, answer) = oneshot::channel();
        // One that has ended drops it.
        let _ = self.cues.send(Cue::Rest(asked));
        answer
    }

    /// Whether the driver is still there.
    pub(crate) fn is_needed(&self) -> bool {
        !self.cues.is_closed()
    }

    /// Waits until what hangs on the ends that are due has been called.
    pub(crate) async fn ends_told(&self) {
        self.deadlines.settled().await;
    }

    /// Has the driver, and the thread of the deadlines, stand still or go on.
    pub(crate) fn pause(&self, pause: bool) {
        self.deadlines.pause(pause);
        // One that has ended stands still.
        let _ = self.cues.send(Cue::Pause(pause));
    }
}
