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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use clap::Parser;
    use futures_util::FutureExt;
    use futures_util::future::{self, BoxFuture};
    use incumbent::types::Operation;
    use incumbent::{Clock, MemoryStore, Watches};

    use super::*;
    use crate::args::Common;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        common: Common,
    }

    /// A clock that only the store's answers move.
    #[derive(Debug, Default)]
    struct Moved(AtomicU64);

    impl Clock for Moved {
        fn now(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn sleep_until(&self, _: u64) -> BoxFuture<'static, ()> {
            future::pending().boxed()
        }
    }

    /// A store that takes its time, by the clock of its leases.
    #[derive(Debug)]
    struct Slow {
        clock: Arc<Moved>,
        store: MemoryStore,
        /// In nanoseconds.
        there: u64,
    }

    impl Store for Slow {
        fn call(&self, operation: Operation, within: Duration) -> BoxFuture<'static, Answer> {
            self.clock.0.fetch_add(self.there, Ordering::Relaxed);
            self.store.call(operation, within)
        }

        fn watches(&self) -> Box<dyn Watches> {
            self.store.watches()
        }
    }

    #[tokio::test]
    async fn slow_round_trips_do_not_end_the_lease_that_is_measured_with() {
        let clock = Arc::new(Moved::default());
        let store = MemoryStore::new(Arc::clone(&clock) as _);
        let slow = Slow { clock, store, there: 1_200_000_000 };
        let common = Line::parse_from(["incumbent"]).common;
        let (trial, found) = Trial::start(&slow, &common, None).await;
        let trial = trial.unwrap_or_else(|| panic!("{found:?}"));
        let measured = measure(&slow, &trial, Duration::MAX).await.unwrap();
        assert_eq!(measured.renewals.len(), ROUNDS);
        assert!(trial.end(&slow, Duration::MAX).await.is_none());
    }
}
