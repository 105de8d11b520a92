//! The time-outs that follow from a lease time, and which lease time to choose.

use std::time::Duration;

use humantime::format_duration;
use incumbent::types::{Answer, Grant, Operation, Response};
use incumbent::{Failure, Store, StoreUrl};

use super::super::args;
use super::super::exit::{End, Status};
use super::trial::{LEASE_TIME, any_lease, take};
use super::{Finding, milliseconds, where_to_look};

/// A renewal gets its answer within this part of the lease time, or is tried again.
const RENEWAL: u32 = 6;
/// How much longer that is than the longest round trip that was measured: a short look finds none
/// of the slow moments of a day.
const RESERVE: u32 = 10;

/// What the store grants for `--ttl`. A store that grants more than was asked for has a least time,
/// so a short lease shows it, and one that an end in the middle leaves behind is soon over.
pub(super) async fn granted(
    store: &dyn Store,
    lease: &args::Lease,
    within: Duration,
) -> Answer<Duration> {
    let id = any_lease();
    let ttl = u64::try_from(lease.ttl.as_nanos()).unwrap_or(u64::MAX).min(LEASE_TIME);
    let grant = Operation::Grant(Grant { lease: id, ttl });
    let granted = take(store, grant, within, |it| {
        if let Response::Granted(ttl) = it { Some(Duration::from_nanos(*ttl)) } else { None }
    });
    let granted = granted.await?;
    store.call(Operation::Revoke(id), within).await?;
    Ok(granted.max(lease.ttl))
}

/// The shortest lease time to choose where round trips are quick, and why.
pub(super) struct Least(pub(super) Duration, pub(super) &'static str);

/// Judges `--ttl` by the longest round trip.
pub(super) fn finding(
    store: &StoreUrl,
    granted: Answer<Duration>,
    lease: &args::Lease,
    worst: Duration,
    least: &Least,
) -> Finding {
    let asked = format_duration(lease.ttl);
    let ttl = match granted {
        Ok(granted) => granted,
        Err(failure) => {
            let mend = if matches!(failure, Failure::Invalid(_)) {
                "give another one"
            } else {
                where_to_look(store)
            };
            let text = format!("the store does not grant --ttl {asked} ({failure}): {mend}");
            return Finding::fault("lease", End::from(failure).status, text);
        }
    };
    let needed = worst * (RENEWAL * RESERVE);
    // Whole seconds, as etcd grants them.
    let needed = Duration::from_secs(needed.as_secs() + u64::from(needed.subsec_nanos() > 0));
    let choose = needed.max(least.0);
    let why = if needed > least.0 {
        "a renewal has a sixth of the lease, and that should be ten times the longest round trip"
    } else {
        least.1
    };
    let (timeout, term) = (ttl / RENEWAL, ttl.saturating_sub(lease.margin_of(ttl)));
    let measured = format!("the longest round trip took {} ms", milliseconds(worst));
    let advice = format!("the shortest to choose is {}, because {why}", format_duration(choose));
    let times = format!(
        "a renewal is sent every {} s and has {} s, and a term ends {} s after its last renewal",
        seconds(ttl / 3),
        seconds(timeout),
        seconds(term),
    );
    let given = if ttl > lease.ttl {
        format!("--ttl {asked}, for which {} is granted,", format_duration(ttl))
    } else {
        format!("--ttl {asked}")
    };
    let finding = if worst > timeout {
        let text = format!("{given} is too short: {measured}, {times}; {advice}");
        Finding::fault("lease", Status::BadInput, text)
    } else if ttl < choose {
        Finding::warning(
            "lease",
            format!("{given} leaves little reserve: {measured}, {times}; {advice}"),
        )
    } else {
        Finding::fine("lease", format!("{given} fits: {measured}, {times}; {advice}"))
    };
    finding
        .with("granted_s", seconds(ttl))
        .with("renewal_timeout_s", seconds(timeout))
        .with("term_s", seconds(term))
        .with("choose_s", choose.as_secs())
}

/// For people and programs.
fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn the_longest_round_trip_tells_how_long_a_lease_has_to_be() {
        let least = Least(Duration::from_secs(5), "of something");
        for (granted, worst, choose, grade) in [
            (10, 1, 5, Grade::Fine),
            (10, 83, 5, Grade::Fine),
            (10, 150, 9, Grade::Fine),
            (10, 167, 11, Grade::Warning),
            (3, 1, 5, Grade::Warning),
            (3, 501, 31, Grade::Fault(Status::BadInput)),
        ] {
            let granted = Duration::from_secs(granted);
            let lease = args::Lease { ttl: granted, margin: None };
            let store = StoreUrl::default();
            let found = finding(&store, Ok(granted), &lease, Duration::from_millis(worst), &least);
            assert_eq!(found.grade, grade, "{worst} ms: {found:?}");
            assert!(
                found.text.contains(&format!("; the shortest to choose is {choose}s,")),
                "{found:?}"
            );
            assert_eq!(found.text.contains("of something"), choose == 5, "{found:?}");
        }
    }
}
