//! The data that crosses the boundary between elector, driver and store: what
//! `wit/types.wit` declares.

pub use crate::bindings::exports::incumbent::election::types::*;

impl Operation {
    /// Its name, for logs and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Grant(_) => "grant",
            Self::KeepAlive(_) => "keep-alive",
            Self::Revoke(_) => "revoke",
            Self::Claim(_) => "claim",
            Self::Read(_) => "read",
            Self::Guarded(_) => "guarded",
        }
    }
}

impl Response {
    /// Its name, for logs and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Exists => "exists",
            Self::Renewed(_) => "renewed",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Claimed(_) => "claimed",
            Self::Taken(_) => "taken",
            Self::Snapshot(_) => "snapshot",
            Self::Applied(_) => "applied",
            Self::Stale => "stale",
            Self::Conflict => "conflict",
        }
    }
}
