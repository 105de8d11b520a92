//! What a process counts and measures of its elections, through the facade
//! [`metrics`](https://docs.rs/metrics) (feature `metrics`).
//!
//! Install a recorder first, for example the one of `metrics-exporter-prometheus`, and then call
//! [`describe`]. Without a recorder nothing is counted.
//!
//! | metric | labels | |
//! | --- | --- | --- |
//! | `incumbent_is_leader` | `election` | how many candidates of this process lead |
//! | `incumbent_epoch` | `election` | the epoch that this process leads, or led last |
//! | `incumbent_transitions_total` | `reason` | terms that began (`elected`) and ended (the other reasons) |
//! | `incumbent_renewals_total` | `result` | renewals of leases: `ok`, `failed`, or `lost` where the lease was gone |
//! | `incumbent_renewal_duration_seconds` | | how long the store took for a renewal |
//! | `incumbent_store_requests_total` | `operation`, `result` | requests of the elector: `ok`, or the kind of failure |
//! | `incumbent_store_request_duration_seconds` | `operation` | how long they took |
//! | `incumbent_fence_rejections_total` | | guarded writes that were refused because their term was over |
//! | `incumbent_elector_replacements_total` | | electors that broke one of their rules, and were replaced |
//! | `leader_election_master_status` | `name` | the same as `incumbent_is_leader`, as Kubernetes' controller-runtime names it |
//! | `leader_election_slowpath_total` | `name` | elections whose lease could not be renewed at once, likewise |
//!
//! The first 100 elections of a process have series of their own, and all others share one whose
//! election is `(others)`: see [`set_election_limit`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::metrics::{
    SharedString, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use parking_lot::Mutex;

use crate::types::{Epoch, Failure, Operation, Reason, Response};

/// The name that elections without series of their own share.
const OTHERS: &str = "(others)";

static LIMIT: AtomicUsize = AtomicUsize::new(100);

/// The elections with series of their own.
static ELECTIONS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// How many elections of this process have series of their own, 100 unless set. Those that have
/// them already keep them.
pub fn set_election_limit(limit: usize) {
    LIMIT.store(limit, Ordering::Relaxed);
}

/// Tells the recorder what each metric means. Call it once, after the recorder was installed.
pub fn describe() {
    describe_gauge!("incumbent_is_leader", "How many candidates of this process lead.");
    describe_gauge!("incumbent_epoch", "The epoch that this process leads, or led last.");
    describe_counter!("incumbent_transitions_total", "Terms that began, and terms that ended.");
    describe_counter!("incumbent_renewals_total", "Renewals of leases, by their result.");
    describe_histogram!(
        "incumbent_renewal_duration_seconds",
        "How long the store took to renew a lease."
    );
    describe_counter!("incumbent_store_requests_total", "Requests to the store, by their result.");
    describe_histogram!(
        "incumbent_store_request_duration_seconds",
        "How long the store took for a request."
    );
    describe_counter!(
        "incumbent_fence_rejections_total",
        "Guarded writes that were refused because their term was over."
    );
    describe_counter!(
        "incumbent_elector_replacements_total",
        "Electors that broke one of their rules, and were replaced."
    );
    describe_gauge!(
        "leader_election_master_status",
        "Whether this process leads: 1, or 0 if it does not."
    );
    describe_counter!(
        "leader_election_slowpath_total",
        "How often the lease could not be renewed at once."
    );
    // What has not happened yet is 0, not absent.
    counter!("incumbent_fence_rejections_total").increment(0);
    counter!("incumbent_elector_replacements_total").increment(0);
}

/// The label of an election.
fn label(election: &str) -> SharedString {
    let mut elections = ELECTIONS.lock();
    if !elections.contains(election) {
        if elections.len() >= LIMIT.load(Ordering::Relaxed) {
            return OTHERS.into();
        }
        elections.insert(election.to_owned());
    }
    drop(elections);
    election.to_owned().into()
}

/// A candidate takes part.
pub(crate) fn joined(election: &str) {
    let name = label(election);
    gauge!("incumbent_is_leader", "election" => name.clone()).increment(0);
    gauge!("leader_election_master_status", "name" => name.clone()).increment(0);
    counter!("leader_election_slowpath_total", "name" => name).increment(0);
}

/// A term begins.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a float; 2^53 changes of a store are far"
)]
pub(crate) fn elected(election: &str, epoch: Epoch) {
    let name = label(election);
    gauge!("incumbent_is_leader", "election" => name.clone()).increment(1);
    gauge!("leader_election_master_status", "name" => name.clone()).increment(1);
    if &*name != OTHERS {
        gauge!("incumbent_epoch", "election" => name).set(i64::from(epoch) as f64);
    }
    counter!("incumbent_transitions_total", "reason" => "elected").increment(1);
}

/// A term has ended.
pub(crate) fn ended(election: &str, reason: &Reason) {
    let name = label(election);
    gauge!("incumbent_is_leader", "election" => name.clone()).decrement(1);
    gauge!("leader_election_master_status", "name" => name).decrement(1);
    counter!("incumbent_transitions_total", "reason" => reason.name()).increment(1);
}

/// Renewals of the lease of this leader fail.
pub(crate) fn endangered(election: &str) {
    counter!("leader_election_slowpath_total", "name" => label(election)).increment(1);
}

/// The store has answered a request of the elector, or has not.
pub(crate) fn answered(
    operation: &'static str,
    outcome: &Result<Response, Failure>,
    span: Duration,
) {
    let result = outcome.as_ref().map_or_else(Failure::name, |_| "ok");
    counter!("incumbent_store_requests_total", "operation" => operation, "result" => result)
        .increment(1);
    histogram!("incumbent_store_request_duration_seconds", "operation" => operation).record(span);
    if operation == Operation::KeepAlive(0).name() {
        let result = match outcome {
            Ok(Response::Renewed(time)) if *time > 0 => "ok",
            Ok(_) => "lost",
            Err(_) => "failed",
        };
        counter!("incumbent_renewals_total", "result" => result).increment(1);
        histogram!("incumbent_renewal_duration_seconds").record(span);
    }
}

/// A guarded write was refused.
pub(crate) fn fenced() {
    counter!("incumbent_fence_rejections_total").increment(1);
}

/// An elector broke.
pub(crate) fn replaced() {
    counter!("incumbent_elector_replacements_total").increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_bounded_whatever_the_number_of_elections() {
        let names = || (0..10_000).map(|number| label(&format!("bounded-{number}")));
        let own: BTreeSet<String> = names().map(|name| name.to_string()).collect();
        assert!(own.len() <= 101 && own.contains(OTHERS), "{}", own.len());
        let again: BTreeSet<String> = names().map(|name| name.to_string()).collect();
        assert_eq!(again, own);
    }
}
