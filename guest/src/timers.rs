//! When something is due.

use crate::ids::{DeletionId, WatchId};
use crate::table::Table;
use crate::types::{Duration, ElectionId, LeaseId, Mark, RequestId};

/// A thousandth of a second.
pub const MILLISECOND: Duration = 1_000_000;
/// A second.
pub const SECOND: Duration = 1_000 * MILLISECOND;

/// Marks and spans beyond this are cut down to it, so that sums stay in range.
/// It is 73 years.
pub const FAR: u64 = u64::MAX / 8;

/// What can fall due. Each is set at most once at a time. Of those due at one mark, the first in
/// this order comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The terms on the lease end, unless a renewal comes before.
    Deadline,
    /// A call got no answer in time.
    GiveUp(RequestId),
    /// Renewals fail, and half of the lease's time is over.
    Endangered,
    /// The next keep-alive.
    Renewal,
    /// A lease that is not renewed any more has expired.
    LeaseEnd,
    /// A lease that was not needed for a while is given back.
    GiveBack,
    /// The next try to get a lease.
    Grant,
    /// The next try to give a lease back.
    Revoke(LeaseId),
    /// An election's next try, or the deadline of its term that ended and has not
    /// yielded.
    Election(ElectionId),
    /// A candidate's next try to write the wish that it has for itself.
    Wish(ElectionId),
    /// A leader with a lower priority has led for long enough.
    Preempt(ElectionId),
    /// A candidate may make room again for those with a higher priority.
    Room(ElectionId),
    /// The next look for somebody else in line, where it is limited how much a session leads.
    Share,
    /// The next try to delete a key.
    Cleanup(DeletionId),
    /// A watch that broke is opened again.
    Rewatch(WatchId),
    /// The next check of watches that may be silent.
    Recheck,
    /// The next look for wishes that were not heard.
    MissedWishes,
}

/// All timers that run, by mark and by timer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timers {
    order: Table<(Mark, Timer), ()>,
    marks: Table<Timer, Mark>,
}

impl Timers {
    /// Sets a timer, whether or not it was set before.
    pub fn set(&mut self, timer: Timer, mark: Mark) {
        self.cancel(timer);
        self.order.insert((mark, timer), ());
        self.marks.insert(timer, mark);
    }

    /// Stops a timer, if it runs.
    pub fn cancel(&mut self, timer: Timer) {
        if let Some(mark) = self.marks.remove(&timer) {
            self.order.remove(&(mark, timer));
        }
    }

    /// Whether a timer runs.
    pub fn is_set(&self, timer: Timer) -> bool {
        self.marks.contains_key(&timer)
    }

    /// Takes the first timer that is due at `now`.
    pub fn pop_due(&mut self, now: Mark) -> Option<Timer> {
        let ((mark, timer), ()) = self.order.first()?;
        if mark > now {
            return None;
        }
        self.cancel(timer);
        Some(timer)
    }

    /// When the next timer is due.
    pub fn next(&self) -> Option<Mark> {
        self.order.first().map(|((mark, _), ())| mark)
    }
}
