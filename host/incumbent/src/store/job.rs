//! An operation that waits to be done by a task or thread of the store.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::limits;
use crate::types::{Answer, Failure, Operation};

/// How many operations share a transaction at most.
pub(crate) const TOGETHER: usize = 512;
/// And how many bytes they put, unless one alone puts more.
pub(crate) const TOGETHER_BYTES: usize = 4 << 20;

/// An operation, and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) operation: Operation,
    /// Not to be started after that, if there is a limit.
    pub(crate) give_up: Option<Instant>,
    reply: oneshot::Sender<Answer>,
}

impl Job {
    /// Sends an operation to who does it, and waits for the answer.
    pub(crate) async fn ask<E>(
        operation: Operation,
        within: Duration,
        send: impl FnOnce(Self) -> Result<(), E>,
    ) -> Answer {
        limits::check(&operation)?;
        let (reply, answered) = oneshot::channel();
        let renewal = matches!(operation, Operation::KeepAlive(_));
        let job = Self { operation, give_up: Instant::now().checked_add(within), reply };
        if send(job).is_err() {
            return Err(Failure::Unavailable);
        }
        let answer = answered.map(|answer| answer.unwrap_or(Err(Failure::Unavailable)));
        if renewal {
            // A renewal that was started in time counts, however late its answer is.
            answer.await
        } else {
            timeout(within, answer).await.unwrap_or(Err(Failure::Timeout))
        }
    }

    /// Its caller is gone, or has waited long enough.
    pub(crate) fn is_given_up(&self, now: Instant) -> bool {
        self.reply.is_closed() || self.give_up.is_some_and(|give_up| give_up <= now)
    }

    /// How many bytes it puts.
    pub(crate) fn bytes(&self) -> usize {
        limits::put(&self.operation).unwrap_or_default()
    }

    pub(crate) fn answer(self, answer: Answer) {
        // Its caller may have given up.
        let _ = self.reply.send(answer);
    }
}
