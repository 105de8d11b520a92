//! A value, and those who wait for it to change.
//!
//! Like tokio's `watch`, whose channel takes 400 bytes, because it spreads its waiters over eight
//! lists. A term and a candidate have one value each, and 10,000 of them have few waiters.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Debug)]
pub(crate) struct Observable<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Observable<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.value.lock())
    }

    /// Wakes those who wait, if the value was changed.
    pub(crate) fn change_if(&self, change: impl FnOnce(&mut T) -> bool) {
        let changed = change(&mut self.value.lock());
        if changed {
            self.changed.notify_waiters();
        }
    }

    /// Ends with the next change after this call, however late it is awaited.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the value is as wanted, and returns what was found in it. Cancel safe.
    pub(crate) async fn wait_for<R>(&self, mut find: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            let changed = self.changed();
            if let Some(found) = self.read(&mut find) {
                return found;
            }
            changed.await;
        }
    }
}
