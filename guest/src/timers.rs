//! When something is due.

use core::cmp::Ordering;

use crate::context::WatchId;
use crate::farewell::FarewellId;
use crate::table::Table;
use crate::types::{Duration, ElectionId, LeaseId, Mark, RequestId};

/// A thousandth of a second.
pub const MILLISECOND: Duration = 1_000_000;
/// A second.
pub const SECOND: Duration = 1_000 * MILLISECOND;

/// Marks and spans beyond this are cut down to it, so that sums stay in range.
/// It is 73 years.
pub const FAR: u64 = u64::MAX / 8;

/// What can fall due. Each is set at most once at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Timer {
    /// What tells it from others, and comes first of what is due at one time.
    fn order(&self) -> (u8, u64) {
        match *self {
            Timer::Deadline => (0, 0),
            Timer::GiveUp(id) => (1, id),
            Timer::Endangered => (2, 0),
            Timer::Renewal => (3, 0),
            Timer::LeaseEnd => (4, 0),
            Timer::GiveBack => (5, 0),
            Timer::Grant => (6, 0),
            Timer::Revoke(lease) => (7, lease as u64),
            Timer::Election(election) => (8, election.into()),
            Timer::Farewell(id) => (9, id),
            Timer::Rewatch(watch) => (10, watch),
            Timer::Recheck => (11, 0),
        }
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Timer) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All that is due some day: in the order of time, and by what it is.
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
