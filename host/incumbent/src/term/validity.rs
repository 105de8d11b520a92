//! How long the terms on one lease stand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::clock::Clock;
use crate::types::{LeaseId, Mark};

/// How long the terms on one lease stand. They share it, so that a renewal moves one
/// deadline, however many terms there are.
#[derive(Debug)]
pub(crate) struct Validity {
    /// Its number in the session.
    pub(super) serial: u64,
    pub(super) lease: LeaseId,
    /// The deadline, as extended; with [`PASSED`] from the moment at which somebody saw that
    /// it has passed. Nothing revives it then: later terms on the lease get another one.
    limit: AtomicU64,
    /// Tells of extensions.
    pub(super) extended: watch::Sender<()>,
    pub(super) clock: Arc<dyn Clock>,
}

/// No mark is as late as this, after 292 years.
const PASSED: u64 = 1 << 63;

impl Validity {
    pub(super) fn new(
        serial: u64,
        lease: LeaseId,
        valid_until: Mark,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limit = AtomicU64::new(valid_until.min(PASSED - 1));
        Self { serial, lease, limit, extended: watch::Sender::default(), clock }
    }

    /// As extended; never taken back.
    pub(crate) fn deadline(&self) -> Mark {
        self.limit.load(Ordering::Acquire) & !PASSED
    }

    /// False is final.
    pub(super) fn is_valid(&self) -> bool {
        self.is_valid_at(self.clock.now())
    }

    /// The same, for a caller that has just read the clock.
    pub(super) fn is_valid_at(&self, now: Mark) -> bool {
        let mut limit = self.limit.load(Ordering::Acquire);
        loop {
            if limit & PASSED != 0 {
                return false;
            }
            if now < limit {
                return true;
            }
            let passed = limit | PASSED;
            match self.limit.compare_exchange(limit, passed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return false,
                Err(extended) => limit = extended,
            }
        }
    }

    /// False if the extension comes too late.
    #[must_use]
    pub(crate) fn extend(&self, valid_until: Mark) -> bool {
        let valid_until = valid_until.min(PASSED - 1);
        loop {
            if !self.is_valid() {
                return false;
            }
            let limit = self.limit.load(Ordering::Acquire);
            if limit & PASSED == 0 && valid_until <= limit {
                return true;
            }
            let moved = self.limit.compare_exchange(
                limit & !PASSED,
                valid_until,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if moved.is_ok() {
                self.extended.send_replace(());
                return true;
            }
        }
    }
}
