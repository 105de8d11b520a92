//! When something is due.

use alloc::vec::Vec;

use crate::context::WatchId;
use crate::farewell::FarewellId;
use crate::types::{Duration, ElectionId, LeaseId, Mark, RequestId};

/// A thousandth of a second.
pub const MILLISECOND: Duration = 1_000_000;
/// A second.
pub const SECOND: Duration = 1_000 * MILLISECOND;

/// Marks and spans beyond this are cut down to it, so that sums stay in range.
/// It is 73 years.
pub const FAR: u64 = u64::MAX / 8;

/// What can fall due. Each is set at most once at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The lease's leaderships end, unless a renewal comes before.
    Deadline,
    /// A call has waited long enough.
    GiveUp(RequestId),
    /// Half of the lease's time is over, and renewals fail.
    Endangered,
    /// The next keep-alive.
    Renewal,
    /// A lease that is not renewed any more has run out by itself.
    LeaseEnd,
    /// A lease that nobody needed for a while is given back.
    GiveBack,
    /// The next try to get a lease.
    Grant,
    /// The next try to give a lease back.
    Revoke(LeaseId),
    /// What an election waits for: its next try, or the deadline of a term that
    /// ended and has not yielded.
    Election(ElectionId),
    /// The next try to remove a key.
    Farewell(FarewellId),
    /// A watch that broke is opened again.
    Rewatch(WatchId),
    /// The watches are not to be trusted blindly.
    Recheck,
}

/// All that is due some day, in one table: few enough to be looked through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timers {
    /// The next one is the last.
    due: Vec<(Mark, Timer)>,
}

impl Timers {
    /// Sets a timer, whether or not it was set before.
    pub fn set(&mut self, timer: Timer, mark: Mark) {
        self.cancel(timer);
        let index = self.due.partition_point(|&other| other > (mark, timer));
        self.due.insert(index, (mark, timer));
    }

    /// Stops a timer, if it runs.
    pub fn cancel(&mut self, timer: Timer) {
        if let Some(index) = self.due.iter().rposition(|&(_, other)| other == timer) {
            self.due.remove(index);
        }
    }

    /// Whether a timer runs.
    pub fn is_set(&self, timer: Timer) -> bool {
        self.due.iter().any(|&(_, other)| other == timer)
    }

    /// Takes the first timer that is due at `now`.
    pub fn pop_due(&mut self, now: Mark) -> Option<Timer> {
        self.due.pop_if(|&mut (mark, _)| mark <= now).map(|(_, timer)| timer)
    }

    /// When the next timer is due.
    pub fn next(&self) -> Option<Mark> {
        self.due.last().map(|&(mark, _)| mark)
    }
}
