//! A sender, or several of one channel, and any number of receivers, each of which gets everything from
//! its beginning on.
//!
//! Like tokio's channel of this name, which sets its room aside beforehand: 12 KB for each
//! candidate, whether anybody listens or not. Here a message takes room once it is sent, and
//! until it has to give way to newer ones.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many messages wait for a reader.
const ROOM: usize = 256;

/// The sender. Without any the channel is closed.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Open<T>>);

/// Gives receivers as long as there is a sender.
#[derive(Debug)]
pub(crate) struct WeakSender<T>(Weak<Open<T>>);

/// The messages from its beginning on.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    channel: Arc<Channel<T>>,
    /// The number of the next message.
    next: u64,
}

#[derive(Debug)]
struct Open<T>(Arc<Channel<T>>);

#[derive(Debug)]
struct Channel<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    messages: VecDeque<T>,
    /// How many are no longer here.
    dropped: u64,
    receivers: usize,
    closed: bool,
}

/// A channel with its first receiver.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { messages: VecDeque::new(), dropped: 0, receivers: 0, closed: false };
    let channel = Arc::new(Channel { state: Mutex::new(state), changed: Notify::new() });
    let sender = Sender(Arc::new(Open(channel)));
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// Sends a message to all receivers. Without any, it is gone.
    pub(crate) fn send(&self, message: T) {
        let channel = &self.0.0;
        {
            let mut state = channel.state.lock();
            if state.receivers == 0 {
                return;
            }
            if state.messages.len() == ROOM {
                state.messages.pop_front();
                state.dropped += 1;
            }
            state.messages.push_back(message);
        }
        channel.changed.notify_waiters();
    }

    pub(crate) fn has_receivers(&self) -> bool {
        self.0.0.state.lock().receivers > 0
    }

    /// A receiver of what is sent from now on.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let channel = Arc::clone(&self.0.0);
        let mut state = channel.state.lock();
        state.receivers += 1;
        let next = state.next();
        drop(state);
        Receiver { channel, next }
    }

    pub(crate) fn downgrade(&self) -> WeakSender<T> {
        WeakSender(Arc::downgrade(&self.0))
    }
}

impl<T> WeakSender<T> {
    pub(crate) fn upgrade(&self) -> Option<Sender<T>> {
        self.0.upgrade().map(Sender)
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<T> Drop for Open<T> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_waiters();
    }
}

impl<T: Clone> Receiver<T> {
    /// The next message; none once there is no sender and nothing is left. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        let channel = Arc::clone(&self.channel);
        loop {
            let mut changed = pin!(channel.changed.notified());
            changed.as_mut().enable();
            {
                let state = channel.state.lock();
                if let Some(passed_over) = state.dropped.checked_sub(self.next)
                    && passed_over > 0
                {
                    tracing::warn!(passed_over, "a stream of events is not read fast enough");
                    self.next = state.dropped;
                }
                let index = usize::try_from(self.next - state.dropped).ok();
                if let Some(message) = index.and_then(|index| state.messages.get(index)) {
                    self.next += 1;
                    return Some(message.clone());
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.channel.state.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            state.dropped = state.next();
            state.messages = VecDeque::new();
        }
    }
}

impl<T> State<T> {
    /// The number of the next message that is sent.
    fn next(&self) -> u64 {
        self.dropped + self.messages.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_receiver_gets_everything_from_its_beginning_on() {
        let (sender, mut first) = channel();
        sender.send(1);
        let mut second = sender.subscribe();
        sender.send(2);
        let all = |receiver: &mut Receiver<i32>| {
            std::iter::from_fn(|| receiver.recv().now_or_never()).collect::<Vec<_>>()
        };
        assert_eq!(all(&mut second), [Some(2)]);
        assert_eq!(all(&mut first), [Some(1), Some(2)]);
        let later = sender.downgrade();
        assert!(later.upgrade().is_some());
        sender.send(3);
        drop(sender);
        assert!(later.upgrade().is_none());
        assert_eq!(first.recv().now_or_never(), Some(Some(3)));
        assert_eq!(first.recv().now_or_never(), Some(None));
    }

    #[test]
    fn the_oldest_messages_give_way() {
        let (sender, mut receiver) = channel();
        (0..=ROOM).for_each(|number| sender.send(number));
        assert_eq!(receiver.recv().now_or_never(), Some(Some(1)));
        assert!(sender.has_receivers());
        drop(receiver);
        assert!(!sender.has_receivers());
        sender.send(0);
        assert_eq!(sender.0.0.state.lock().messages.len(), 0);
        assert_eq!(sender.subscribe().recv().now_or_never(), None);
    }

    #[tokio::test]
    async fn a_receiver_waits_for_the_next_message_and_for_the_end() {
        let (sender, mut receiver) = channel();
        let received = tokio::spawn(async move { (receiver.recv().await, receiver.recv().await) });
        tokio::task::yield_now().await;
        sender.send(1);
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(received.await.unwrap(), (Some(1), None));
    }
}
