//! How long the store takes to answer.

use std::time::{Duration, Instant};

use incumbent::types::{Answer, Operation, Response};
use incumbent::{Failure, Store};
use serde_json::json;

use super::super::exit::End;
use super::trial::{Trial, expect};
use super::{Finding, milliseconds};

/// How many of each kind are measured.
const ROUNDS: usize = 10;

/// How long each answer took, in ascending order.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    reads: Vec<Duration>,
    writes: Vec<Duration>,
    renewals: Vec<Duration>,
}

/// Asks one thing after the other.
pub(super) async fn measure(
    store: &dyn Store,
    trial: &Trial,
    within: Duration,
) -> Answer<RoundTrips> {
    Ok(RoundTrips {
        reads: times(store, || trial.read(), within).await?,
        writes: times(store, || trial.write(), within).await?,
        renewals: times(store, || trial.renewal(), within).await?,
    })
}

async fn times(
    store: &dyn Store,
    operation: impl Fn() -> Operation,
    within: Duration,
) -> Answer<Vec<Duration>> {
    // The first one may have to open a stream.
    expect(store, operation(), within, is_done).await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let sent = Instant::now();
        expect(store, operation(), within, is_done).await?;
        times.push(sent.elapsed());
    }
    times.sort();
    Ok(times)
}

/// A claim under a lease that was never granted is refused, after all was done that takes time.
fn is_done(response: &Response) -> bool {
    !matches!(response, Response::Stale | Response::Conflict)
}

pub(super) fn failed(whose: &str, failure: &Failure) -> Finding {
    let text = format!(
        "{whose} stopped answering while it was measured ({failure}): look into its log, and at its \
         disk and the network to it"
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
