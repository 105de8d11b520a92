//! How fast the store's clock runs, by that of this machine.
//!
//! etcd tells what is left of a lease in whole seconds, by the clock of its leader. The moment at
//! which the number changes lies between the question that was still answered by the old one and the
//! answer with the new one. Between two changes etcd's clock has counted whole seconds exactly, so
//! two such moments bound its rate, whatever the network does. The end of a lease would tell less:
//! etcd looks for leases that are over twice a second.

use std::time::Duration;

use incumbent::types::{Answer, Grant, Operation, Response};
use incumbent::{BootClock, Clock, EtcdStore, Store};

use super::super::args::Lease;
use super::super::exit::Status;
use super::Finding;
use super::trial::{any_lease, expect};

const SECOND: u64 = 1_000_000_000;
/// How long the measurement may take, in seconds, where answers are slow.
const LONGEST: u64 = 10;
/// The error that the measurement is to have, if it can: half of the least margin.
const PRECISION: f64 = 0.005;
/// Slower than this, a lease lives much longer than it should.
const SLOW: f64 = 0.9;

/// How many seconds the store's clock counts in a second of ours: no less, and no more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    least: f64,
    most: f64,
    /// How long was measured.
    seconds: u64,
}

/// Bounds of a moment, in nanoseconds of our clock.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    earliest: u64,
    latest: u64,
}

impl Rate {
    /// Measures it with an etcd that answers in a `typical` time. None if the countdown was
    /// disturbed: by a change of etcd's leader, for example.
    pub(super) async fn of(
        store: &EtcdStore,
        typical: Duration,
        within: Duration,
    ) -> Answer<Option<Self>> {
        // Each of the two moments is known to two round trips.
        let seconds = (typical.as_secs_f64() * 4.0 / PRECISION).ceil().clamp(1.0, LONGEST as f64);
        let seconds = seconds as u64;
        let lease = any_lease();
        let grant = Operation::Grant(Grant { lease, ttl: (seconds + 5) * SECOND });
        expect(store, grant, within, |it| matches!(it, Response::Granted(_))).await?;
        let left = async || {
            let left = store.lease_left(lease, within).await?;
            Ok(left.map(|it| it.left.as_secs()))
        };
        let rate = Self::of_countdown(&BootClock, seconds, left).await;
        // Otherwise it runs out by itself.
        let _ = store.call(Operation::Revoke(lease), within).await;
        rate
    }

    /// Of a lease that was granted just now.
    async fn of_countdown(
        clock: &dyn Clock,
        seconds: u64,
        left: impl AsyncFn() -> Answer<Option<u64>>,
    ) -> Answer<Option<Self>> {
        let asked = clock.now();
        let Some(start) = left().await? else { return Ok(None) };
        let mut last = Reading { left: start, asked };
        // The first number lasts a second. Up to shortly before its end.
        clock.sleep_until(asked + SECOND * 8 / 10).await;
        let Some(first) = change(clock, start, &mut last, &left).await? else { return Ok(None) };
        clock.sleep_until(first.earliest + seconds * SECOND * 9 / 10).await;
        let number = start.saturating_sub(seconds);
        let Some(second) = change(clock, number, &mut last, &left).await? else { return Ok(None) };
        let rate = |elapsed: u64| (seconds * SECOND) as f64 / elapsed as f64;
        Ok(Some(Self {
            least: rate(second.latest - first.earliest),
            most: rate(second.earliest.saturating_sub(first.latest)),
            seconds,
        }))
    }
}

/// What was left, in whole seconds, to a question asked then.
#[derive(Clone, Copy, Debug)]
struct Reading {
    left: u64,
    asked: u64,
}

/// When less than `number` is left. None if that was so already at the last reading, the lease is
/// gone, or more of it is left than before.
async fn change(
    clock: &dyn Clock,
    number: u64,
    last: &mut Reading,
    left: &impl AsyncFn() -> Answer<Option<u64>>,
) -> Answer<Option<Bounds>> {
    while last.left >= number {
        let asked = clock.now();
        let Some(left) = left().await?.filter(|left| *left <= last.left) else { return Ok(None) };
        let before = std::mem::replace(last, Reading { left, asked });
        if left < number {
            return Ok(Some(Bounds { earliest: before.asked, latest: clock.now() }));
        }
    }
    Ok(None)
}

pub(super) fn finding(rate: Answer<Option<Rate>>, lease: &Lease) -> Finding {
    let again = "run this again when etcd is quiet";
    match rate {
        Ok(Some(rate)) => judge(rate, lease),
        Ok(None) => Finding::warning(
            "clock",
            format!(
                "the rate of etcd's clock was not measured, because a lease was counted down anew, as \
             after a change of etcd's leader: {again}"
            ),
        ),
        Err(failure) => Finding::warning(
            "clock",
            format!("the rate of etcd's clock was not measured ({failure}): {again}"),
        ),
    }
}

fn judge(rate: Rate, lease: &Lease) -> Finding {
    let Rate { least, most, seconds } = rate;
    let allowed = lease.margin_of(lease.ttl).as_secs_f64() / lease.ttl.as_secs_f64();
    let margin = format!("--margin allows for {}%", percent(allowed));
    let error = (most - 1.0).max(1.0 - least);
    let finding = if least - 1.0 > allowed {
        Finding::fault(
            "clock",
            Status::BadInput,
            format!(
                "the clock of etcd's leader runs faster than this machine's by {}% at least, and {margin}: \
             a leader would believe for too long that it leads; correct the clocks, or give more \
             --margin",
                percent(least - 1.0)
            ),
        )
    } else if most < SLOW {
        Finding::warning(
            "clock",
            format!(
                "the clock of etcd's leader runs slower than this machine's by {}% at least: leases live \
             that much longer, and so does the wait for the next leader; correct the clocks",
                percent(1.0 - most)
            ),
        )
    } else if most - 1.0 > allowed {
        Finding::warning(
            "clock",
            format!(
                "over this link an error of the clocks' rates below {} cannot be seen in {seconds} s, and \
             {margin}: make sure that both machines' clocks are disciplined (chronyc tracking)",
                if error.is_finite() { format!("{}%", percent(error)) } else { "any size".into() }
            ),
        )
    } else {
        Finding::fine(
            "clock",
            format!(
                "the clock of etcd's leader and this machine's run alike to {}% or better, as far as \
             {seconds} s can tell, and {margin}",
                percent(error)
            ),
        )
    };
    finding
        .with("least_rate", least)
        .with("most_rate", Some(most).filter(|most| most.is_finite()))
        .with("allowed", allowed)
}

/// Rounded up.
fn percent(part: f64) -> f64 {
    (part * 1e4).ceil() / 100.0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::super::Grade;
    use super::*;

    /// A clock that goes on when somebody waits, or asks etcd.
    #[derive(Debug, Default)]
    struct Waited(AtomicU64);

    impl Clock for Waited {
        fn now(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn sleep_until(&self, mark: u64) -> BoxFuture<'static, ()> {
            self.0.fetch_max(mark, Ordering::Relaxed);
            std::future::ready(()).boxed()
        }
    }

    /// Measures an etcd whose clock has this rate, over a link that takes so long there and back.
    async fn measured(rate: f64, there: u64, back: u64, seconds: u64) -> Rate {
        let clock = Waited::default();
        let left = async || {
            clock.0.fetch_add(there, Ordering::Relaxed);
            let left = 20.0 - clock.now() as f64 / SECOND as f64 * rate;
            clock.0.fetch_add(back, Ordering::Relaxed);
            Ok(Some(left as u64))
        };
        Rate::of_countdown(&clock, seconds, left).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn the_rate_lies_between_the_bounds() {
        for rate in [0.5, 0.98, 0.995, 1.0, 1.004, 1.02, 1.5] {
            for (there, back) in [(100_000, 100_000), (1, 5_000_000), (40_000_000, 7)] {
                let found = measured(rate, there, back, 2).await;
                let error = 5.0 * (there + back) as f64 / SECOND as f64 / 2.0;
                println!("{rate} {there} {back}: {found:?}");
                assert!(found.least <= rate && rate <= found.most, "{rate}: {found:?}");
                // A clock that is far too fast is missed at the second moment, which costs precision.
                assert!(rate > 1.1 || found.most - found.least < error, "{rate}: {found:?}");
            }
        }
    }

    #[tokio::test]
    async fn it_is_judged_by_the_margin() {
        let lease = |margin| Lease { ttl: Duration::from_secs(10), margin };
        let quick = async |rate| measured(rate, 100_000, 100_000, 2).await;
        let wide = Some(Duration::from_millis(300));
        let fault = Grade::Fault(Status::BadInput);
        for (rate, margin, grade, says) in [
            (quick(1.0).await, None, Grade::Fine, "alike to 0.0"),
            (quick(1.02).await, None, fault, "faster than this machine's by 1.9"),
            (quick(1.02).await, wide, Grade::Fine, "allows for 3%"),
            (quick(0.97).await, None, Grade::Fine, "alike to 3."),
            (quick(0.8).await, None, Grade::Warning, "slower than this machine's by 19."),
            (
                measured(1.0, 20_000_000, 20_000_000, 2).await,
                None,
                Grade::Warning,
                "cannot be seen",
            ),
        ] {
            let found = judge(rate, &lease(margin));
            assert_eq!(found.grade, grade, "{found:?}");
            assert!(found.text.contains(says), "{found:?}");
        }
    }

    #[tokio::test]
    async fn a_countdown_that_begins_anew_tells_nothing() {
        let clock = Waited::default();
        let left = async || {
            let now = clock.0.fetch_add(SECOND / 4, Ordering::Relaxed) / SECOND;
            Ok((now < 12).then_some(if now < 3 { 8 - now } else { 14 - now }))
        };
        assert_eq!(Rate::of_countdown(&clock, 4, left).await, Ok(None));
    }
}
