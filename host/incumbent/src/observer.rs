//! Who leads, for users that only watch.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::driver::{Observed, Registration};
use crate::error::Error;
use crate::event::Participant;

/// A stream of leaders: the present one, then one for each change; none for a gap, in
/// which nobody leads.
///
/// Epochs never go back. Terms shorter than a round trip may be passed over, and
/// so may the oldest of 256 sightings that were not read. The stream ends with an
/// error if the store refuses, and after that, or with its session, for good.
/// Dropping it ends the observation.
pub struct Leaders {
    sightings: BoxStream<'static, Result<Option<Participant>, Error>>,
    _registration: Registration,
}

impl Leaders {
    pub(crate) fn new(
        sightings: broadcast::Receiver<Observed>,
        registration: Registration,
    ) -> Self {
        Self {
            sightings: received(sightings).map(|sighted| sighted.map_err(Error::Withdrawn)).boxed(),
            _registration: registration,
        }
    }
}

impl Stream for Leaders {
    type Item = Result<Option<Participant>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.sightings.poll_next_unpin(context)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}

/// What comes through a channel; what was too slow to be taken is passed over.
pub(crate) fn received<T: Clone + Send + 'static>(
    channel: broadcast::Receiver<T>,
) -> BoxStream<'static, T> {
    stream::unfold(channel, |mut channel| async {
        loop {
            match channel.recv().await {
                Ok(item) => return Some((item, channel)),
                Err(RecvError::Lagged(passed_over)) => passed(passed_over),
                Err(RecvError::Closed) => return None,
            }
        }
    })
    .boxed()
}

/// Says that a reader was too slow, for this many events.
pub(crate) fn passed(passed_over: u64) {
    tracing::warn!(passed_over, "a stream of events is not read fast enough");
}
