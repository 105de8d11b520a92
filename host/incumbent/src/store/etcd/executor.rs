//! Where the parts of a connection run: all in one task.
//!
//! A request passes several of them. Were each a task of its own, as tonic has it, then each could
//! wake another thread, which takes longer than its work.

use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Hands the parts of one connection to its task.
pub(super) struct OneTask(UnboundedSender<Part>);

impl OneTask {
    /// The task ends when the connection has no parts any more.
    pub(super) fn start() -> Self {
        let (sender, parts) = unbounded_channel();
        tokio::spawn(run(parts));
        Self(sender)
    }
}

impl Executor<Part> for OneTask {
    fn execute(&self, part: Part) {
        // The runtime may have ended.
        let _ = self.0.send(part);
    }
}

async fn run(mut parts: UnboundedReceiver<Part>) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            part = parts.recv() => match part {
                Some(part) => running.push(part),
                None => return,
            },
            Some(()) = running.next() => {}
        }
    }
}
