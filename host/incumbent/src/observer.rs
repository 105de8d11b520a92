//! Who leads, for users that only watch.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};

use crate::driver::{Observed, Registration, broadcast};
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

/// What comes through a channel.
pub(crate) fn received<T: Clone + Send + 'static>(
    channel: broadcast::Receiver<T>,
) -> BoxStream<'static, T> {
    stream::unfold(channel, async |mut channel| Some((channel.recv().await?, channel))).boxed()
}
