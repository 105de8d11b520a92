//! The elector's own names for what it keeps: the host never sees them.

/// Names one watch, however often it is opened again.
pub type WatchId = u64;

/// Names one pending deletion.
pub type DeletionId = u64;
