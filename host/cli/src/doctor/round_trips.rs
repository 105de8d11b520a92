//! How long the store takes to answer.

use std::time::{Duration, Instant};

use incumbent::types::{Answer, Response};
use incumbent::{Failure, Store, StoreUrl};
use serde_json::json;

use super::super::exit::End;
use super::trial::{Trial, expect};
use super::{Finding, milliseconds, where_to_look};

/// How many of each kind are measured.
const ROUNDS: usize = 10;

/// How long each answer took, in ascending order.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    reads: Vec<Duration>,
    writes: Vec<Duration>,
    renewals: Vec<Duration>,
}

/// Asks one thing after the other. Each round renews the trial's lease, so slow round trips do not
/// end it.
pub(super) async fn measure(
    store: &dyn Store,
    trial: &Trial,
    within: Duration,
) -> Answer<RoundTrips> {
    let mut measured = RoundTrips::default();
    for round in 0..=ROUNDS {
        for (times, operation) in [
            (&mut measured.reads, trial.read()),
            (&mut measured.writes, trial.write()),
            (&mut measured.renewals, trial.renewal()),
        ] {
            let sent = Instant::now();
            expect(store, operation, within, is_done).await?;
            // The first one may have to open a stream.
            if round > 0 {
                times.push(sent.elapsed());
            }
        }
    }
    for times in [&mut measured.reads, &mut measured.writes, &mut measured.renewals] {
        times.sort();
    }
    Ok(measured)
}

/// A claim under a lease that was never granted is refused, after all was done that takes time.
fn is_done(response: &Response) -> bool {
    !matches!(response, Response::Stale | Response::Conflict)
}

pub(super) fn failed(store: &StoreUrl, whose: &str, failure: &Failure) -> Finding {
    let text = format!(
        "{whose} stopped answering while it was measured ({failure}): {}",
        where_to_look(store)
    );
    Finding::fault("round-trips", End::from(failure.clone()).status, text)
}

impl RoundTrips {
    pub(super) fn add(&mut self, more: &Self) {
        for (all, more) in [
            (&mut self.reads, &more.reads),
            (&mut self.writes, &more.writes),
            (&mut self.renewals, &more.renewals),
        ] {
            all.extend(more);
            all.sort();
        }
    }

    /// The longest of all.
    pub(super) fn worst(&self) -> Duration {
        self.kinds()
            .into_iter()
            .filter_map(|(_, times)| times.last())
            .max()
            .copied()
            .unwrap_or_default()
    }

    /// What a question takes that one member can answer.
    pub(super) fn typical(&self) -> Duration {
        median(&self.renewals)
    }

    pub(super) fn finding(&self, whose: &str) -> Finding {
        let [reads, writes, renewals] = self.kinds().map(|(name, times)| {
            let [min, median, worst] = spread(times).map(milliseconds);
            (
                format!("{name} {min}, {median}, {worst} ms"),
                json!({ "min": min, "median": median, "worst": worst }),
            )
        });
        let text = format!(
            "round trips to {whose} in ms (shortest, median, longest of {ROUNDS}): {}; {}, with the \
             sync to disk; {}",
            reads.0, writes.0, renewals.0
        );
        Finding::fine("round-trips", text)
            .with("address", whose)
            .with("reads_ms", reads.1)
            .with("writes_ms", writes.1)
            .with("renewals_ms", renewals.1)
    }

    fn kinds(&self) -> [(&'static str, &[Duration]); 3] {
        [("reads", &self.reads), ("writes", &self.writes), ("renewals", &self.renewals)]
    }
}

fn spread(times: &[Duration]) -> [Duration; 3] {
    let [first, last] = [times.first(), times.last()].map(|one| one.copied().unwrap_or_default());
    [first, median(times), last]
}

fn median(times: &[Duration]) -> Duration {
    times.get(times.len() / 2).copied().unwrap_or_default()
}
