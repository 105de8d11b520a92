//! What requests and answers are called where people read of them.

use crate::types::{Operation, Response};

pub(crate) fn operation(operation: &Operation) -> &'static str {
    match operation {
        Operation::Grant(_) => "grant",
        Operation::KeepAlive(_) => "keep-alive",
        Operation::Revoke(_) => "revoke",
        Operation::Claim(_) => "claim",
        Operation::Read(_) => "read",
        Operation::Guarded(_) => "guarded",
    }
}

pub(crate) fn response(response: &Response) -> &'static str {
    match response {
        Response::Granted(_) => "granted",
        Response::Exists => "exists",
        Response::Renewed(_) => "renewed",
        Response::Expired => "expired",
        Response::Revoked => "revoked",
        Response::Claimed(_) => "claimed",
        Response::Taken(_) => "taken",
        Response::Snapshot(_) => "snapshot",
        Response::Applied(_) => "applied",
        Response::Stale => "stale",
        Response::Conflict => "conflict",
    }
}
