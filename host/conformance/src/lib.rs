//! What a store has to pass: the contract of [`Store`], checked.
//!
//! A store of another kind needs ten lines. It says how a handle is opened, and each
//! check gets a place of its own, so that all run side by side:
//!
//! ```
//! use std::sync::Arc;
//!
//! use incumbent_conformance::Place;
//! use incumbent::{MemoryStore, Store};
//!
//! struct Memory(MemoryStore);
//!
//! impl Place for Memory {
//!     async fn open(&self) -> Arc<dyn Store> {
//!         Arc::new(self.0.clone())
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let report = incumbent_conformance::check(|| async { Memory(MemoryStore::default()) }).await;
//! println!("{report}");
//! assert!(report.conforms());
//! # }
//! ```
//!
//! [`Place`] has more methods for what a kind of store can do beyond that: whose clock its
//! leases live by, how history is forgotten, how it is kept from answering. Checks that need
//! more than the store can do are reported as skipped.
//!
//! A check finds only faults that happen while it runs: one with many tasks at once may pass a
//! store that is wrong once in a thousand times. A reported breach is real, however slow the
//! machine.

use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::{sleep, timeout};

use self::stores::Stores;
use self::verdict::{Stop, TOO_SLOW, Verdict};
use incumbent::{BootClock, Clock, Mark, Revision, Store};

#[macro_use]
mod verdict;
mod claims;
mod expiry;
mod guards;
mod history;
mod leases;
mod listener;
mod load;
mod lost;
mod reads;
mod stores;
mod together;
mod watches;

/// How often a check runs for which the machine is too slow.
const TRIES: u32 = 5;

/// How many times a place's time-out a whole check may take.
const TIMEOUTS: u32 = 6;

/// Where a store of some kind keeps its leases and keys: a file, a prefix in a cluster,
/// the memory of a process. Nothing is in it before the first handle is opened.
pub trait Place: Send + Sync + 'static {
    /// Opens another handle, as another process would: all handles are of the same place.
    ///
    /// If that is not possible it panics, and the check has failed.
    fn open(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// The clock that leases live by, in nanoseconds since any origin. Unless a place
    /// says otherwise, the machine's.
    fn now(&self) -> Mark {
        BootClock.now()
    }

    /// Lets time pass. Unless a place says otherwise, by waiting for it; one whose clock
    /// the test moves takes no time.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send {
        sleep(time)
    }

    /// Forgets the history before `revision`, and says whether it can. Other places may be
    /// affected: no other check runs meanwhile.
    fn compact(&self, revision: Revision) -> impl Future<Output = bool> + Send {
        let _ = revision;
        ready(false)
    }

    /// Keeps the store from answering, or lets it go on, and says whether it can: a
    /// paused server, a lock that is held. Other places may be affected: no other check runs
    /// meanwhile.
    fn stall(&self, stalled: bool) -> impl Future<Output = bool> + Send {
        let _ = stalled;
        ready(false)
    }

    /// How long the store may take to answer, or a watch to tell, before that is a
    /// breach. Be generous: only a check that fails waits for it.
    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Checks a kind of store: `place` makes an empty place of it each time.
///
/// All checks run, even if others fail, as tasks of tokio's runtime: the more threads it has,
/// the more happens at once. They take a few times as long as a store's shortest lease.
///
/// Not cancel safe: checks that have started run on as tasks.
pub async fn check<P, F>(place: impl Fn() -> F) -> Report
where
    P: Place,
    F: Future<Output = P> + Send + 'static,
{
    run(|_| true, place).await
}

/// Runs one check by its name in a report, for example while a store that fails it is being mended.
///
/// Not cancel safe, as [`check`] is not.
///
/// # Panics
///
/// If no check has this name.
pub async fn check_one<P, F>(name: &str, place: impl Fn() -> F) -> Report
where
    P: Place,
    F: Future<Output = P> + Send + 'static,
{
    let report = run(|check| check.name == name, place).await;
    assert!(!report.results.is_empty(), "there is no check {name}: a report names them all");
    report
}

async fn run<P, F>(is_selected: impl Fn(&Check) -> bool, place: impl Fn() -> F) -> Report
where
    P: Place,
    F: Future<Output = P> + Send + 'static,
{
    let judge = async |check: &Check| {
        let mut result = judged(*check, place()).await;
        for _ in 1..TRIES {
            if !matches!(&result.1, Outcome::Skipped(reason) if reason == TOO_SLOW) {
                break;
            }
            result = judged(*check, place()).await;
        }
        result
    };
    let side_by_side = SIDE_BY_SIDE.iter().filter(|check| is_selected(check));
    let mut results = join_all(side_by_side.map(judge)).await;
    for check in ALONE.iter().filter(|check| is_selected(check)) {
        results.push(judge(check).await);
    }
    Report { results }
}

/// Runs one check in a task of its own, on a place of its own.
async fn judged<P: Place>(
    check: Check,
    place: impl Future<Output = P> + Send + 'static,
) -> (&'static str, Outcome) {
    let verdict = tokio::spawn(async move {
        let place = place.await;
        let at_most = place.timeout() * TIMEOUTS;
        let checking = async { (check.run)(Stores::new(Arc::new(place)).await).await };
        let verdict = timeout(at_most, checking).await;
        verdict.unwrap_or_else(|_| {
            Err(Stop::Breach(format!("the check was not over within {at_most:?}")))
        })
    });
    let result = match verdict.await {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Stop::Breach(sentence))) => Outcome::Failed(readable(&sentence)),
        Ok(Err(Stop::Skip(reason))) => Outcome::Skipped(reason),
        Err(error) => Outcome::Failed(format!("the store, or its place, panicked: {error}")),
    };
    (check.name, result)
}

/// The same with keys and values as text, which print as lists of numbers.
fn readable(sentence: &str) -> String {
    let as_text = |piece: &str| {
        let (list, rest) = piece.split_once(']')?;
        let numbers = list.split(", ").filter(|number| !number.is_empty());
        let bytes: Option<Vec<u8>> = numbers.map(|number| number.parse().ok()).collect();
        Some(format!("{:?}{rest}", String::from_utf8_lossy(&bytes?)))
    };
    let mut text = String::new();
    for piece in sentence.split_inclusive('[') {
        let before = text.strip_suffix('[').map(str::to_owned);
        match before.filter(|before| before.ends_with("key: ") || before.ends_with("value: ")) {
            Some(before) => match as_text(piece) {
                Some(piece) => text = before + &piece,
                None => text += piece,
            },
            None => text += piece,
        }
    }
    text
}

/// The outcomes of all checks, in the order of the contract.
#[derive(Clone, Debug)]
pub struct Report {
    /// By the names of the checks.
    results: Vec<(&'static str, Outcome)>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

impl Report {
    /// Whether no check has failed.
    pub fn conforms(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The checks that have failed, each with a sentence that says what the contract demands
    /// and what the store did.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.results.iter().filter_map(|(check, outcome)| match outcome {
            Outcome::Failed(sentence) => Some((*check, &**sentence)),
            Outcome::Passed | Outcome::Skipped(_) => None,
        })
    }

    /// The checks that were skipped, and why.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.results.iter().filter_map(|(check, outcome)| match outcome {
            Outcome::Skipped(reason) => Some((*check, &**reason)),
            Outcome::Passed | Outcome::Failed(_) => None,
        })
    }

    /// The names of the checks that have passed.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        let passed = self.results.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Passed));
        passed.map(|(check, _)| *check)
    }
}

/// A line a check.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (check, outcome) in &self.results {
            match outcome {
                Outcome::Passed => writeln!(f, "passed   {check}")?,
                Outcome::Skipped(reason) => writeln!(f, "skipped  {check}: {reason}")?,
                Outcome::Failed(sentence) => writeln!(f, "FAILED   {check}: {sentence}")?,
            }
        }
        let (passed, skipped) = (self.passed().count(), self.skipped().count());
        write!(f, "{passed} passed, {skipped} skipped, {} failed", self.failed().count())
    }
}

/// A check by its name.
#[derive(Clone, Copy)]
struct Check {
    name: &'static str,
    run: fn(Stores) -> BoxFuture<'static, Verdict>,
}

macro_rules! checks {
    ($($module:ident::$name:ident,)+) => {
        &[$(Check { name: stringify!($name), run: |stores| $module::$name(stores).boxed() }),+]
    };
}

/// The checks that do not affect one another.
const SIDE_BY_SIDE: &[Check] = checks! {
    leases::a_lease_is_granted_once,
    leases::any_time_to_live_is_an_answer,
    leases::a_lease_is_renewed_through_any_handle,
    leases::a_lease_that_is_not_there_is_expired,
    leases::a_revoked_lease_takes_its_keys_along,
    leases::no_key_outlives_its_lease,
    expiry::a_lease_lives_as_long_as_granted_and_ends,
    expiry::a_renewed_lease_lives_on,
    expiry::a_lease_that_is_over_is_not_renewed,
    claims::a_key_is_claimed_once,
    claims::of_many_claims_one_wins,
    claims::epochs_rise,
    reads::a_read_finds_what_it_selects,
    reads::a_list_is_read_from_a_key_on,
    reads::a_read_of_keys_tells_no_values,
    reads::a_read_is_at_one_revision,
    reads::a_read_shows_what_was_acknowledged,
    reads::a_peek_finds_the_key_in_the_end,
    guards::a_guarded_write_is_applied_or_stale_or_conflict,
    guards::a_guard_with_a_lease_sees_the_lease,
    guards::a_put_takes_the_lease_off,
    guards::a_proclamation_keeps_the_lease,
    guards::a_write_is_one_revision_or_none,
    guards::an_impossible_write_is_invalid,
    guards::expectations_count_without_a_loss,
    guards::nothing_lands_after_the_guard_is_gone,
    watches::a_watch_starts_and_tells_each_change,
    watches::a_watch_begins_at_its_revision,
    watches::a_watch_sees_its_keys_alone,
    watches::a_closed_watch_is_silent,
    watches::many_watches_are_told,
    watches::sets_of_watches_are_separate,
    load::watches_under_load_miss_and_repeat_nothing,
    together::calls_at_once_answer_for_themselves,
    together::a_call_that_fails_fails_alone,
    together::of_claims_at_once_one_wins,
    lost::what_was_given_up_happened_once_or_never,
    lost::a_call_without_time_ends,
};

/// The checks that may affect others.
const ALONE: &[Check] = checks! {
    history::what_is_forgotten_is_told,
    lost::a_stalled_call_gives_up_and_can_be_asked_again,
};
