//! The store's own parts: its clock, its watches, its history. `fidelity` compares its answers
//! with etcd's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::poll_fn;

use super::*;
use crate::clock::ManualClock;
use crate::types::{Change, Claim, Failure, Grant, Response, Watch, Watched};

const SECOND: u64 = 1_000_000_000;

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    (MemoryStore::new(Arc::new(clock.clone())), clock)
}

fn grant(store: &MemoryStore, lease: i64, ttl: u64) -> Response {
    store.perform(&Operation::Grant(Grant { lease, ttl })).expect("answers")
}

fn claim(store: &MemoryStore, key: &str, lease: i64) {
    let claim = Claim { key: key.into(), value: Vec::new(), lease };
    let claimed = store.perform(&Operation::Claim(claim)).expect("answers");
    assert!(matches!(claimed, Response::Claimed(_)), "{claimed:?}");
}

fn watch(id: u64, key: &str, since: Option<i64>) -> Watch {
    Watch { id, key: key.into(), prefix: false, since }
}

/// A waker, and how often it was used.
fn counting() -> (Waker, Arc<Count>) {
    let count = Arc::new(Count::default());
    (Waker::from(Arc::clone(&count)), count)
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The next change that is told by now.
fn told(watches: &mut Box<dyn Watches>) -> Option<Watched> {
    poll_fn(|context| watches.poll_next(context)).now_or_never()
}

#[test]
fn it_grants_what_is_asked_for_but_no_less_than_a_second() {
    let (store, _) = store();
    assert_eq!(grant(&store, 1, 1), Response::Granted(SECOND));
    assert_eq!(grant(&store, 2, SECOND + 1), Response::Granted(SECOND + 1));
}

/// In whole seconds, and two of them at least.
#[test]
fn where_leases_are_rounded_they_are_rounded_up() {
    let mut contents = Contents::new(Rules { shortest: 2 * SECOND, unit: SECOND });
    let mut grant = |lease, ttl| contents.perform(0, &Operation::Grant(Grant { lease, ttl }));
    assert_eq!(grant(1, SECOND), Ok(Response::Granted(2 * SECOND)));
    assert_eq!(grant(2, 3 * SECOND + 1), Ok(Response::Granted(4 * SECOND)));
    let keep_alive = Operation::KeepAlive(2);
    assert_eq!(contents.perform(4 * SECOND, &keep_alive), Ok(Response::Expired));
    let last = contents.perform(4 * SECOND - 1, &keep_alive);
    assert_eq!(last, Ok(Response::Renewed(4 * SECOND)));
}

#[test]
fn it_refuses_what_etcd_refuses() {
    const LONGEST: u64 = 9_000_000_000 * SECOND;
    let (store, _) = store();
    assert_eq!(grant(&store, 1, LONGEST), Response::Granted(LONGEST));
    let longer = store.perform(&Operation::Grant(Grant { lease: 2, ttl: LONGEST + 1 }));
    assert!(matches!(longer, Err(Failure::Invalid(_))), "{longer:?}");
    store.shared.state.lock().contents.full = true;
    let full = store.perform(&Operation::Grant(Grant { lease: 2, ttl: SECOND }));
    assert!(matches!(full, Err(Failure::Other(_))), "{full:?}");
}

#[test]
fn what_changes_nothing_has_no_revision() {
    let (store, _) = store();
    let before = store.revision();
    store.delete("job");
    assert_eq!(store.revision(), before);
}

#[test]
fn a_lease_ends_by_the_clock_and_whoever_watches_is_woken() {
    let (store, clock) = store();
    let mut watches = store.watches();
    watches.open(watch(7, "job", None));
    assert!(matches!(told(&mut watches), Some(Watched { id: 7, change: Change::Started(1) })));

    let (waker, wakes) = counting();
    assert!(watches.poll_next(&mut Context::from_waker(&waker)).is_pending());
    // It has to be awake earlier than before.
    grant(&store, 1, 10 * SECOND);
    assert!(wakes.0.load(Ordering::Relaxed) > 0);
    claim(&store, "job", 1);
    assert!(matches!(told(&mut watches), Some(Watched { change: Change::Put(_), .. })));
    assert!(watches.poll_next(&mut Context::from_waker(&waker)).is_pending());

    clock.advance(Duration::from_nanos(10 * SECOND - 1));
    assert_eq!(told(&mut watches), None);
    assert!(watches.poll_next(&mut Context::from_waker(&waker)).is_pending());
    wakes.0.store(0, Ordering::Relaxed);
    clock.advance(Duration::from_nanos(1));
    assert!(wakes.0.load(Ordering::Relaxed) > 0);
    assert!(matches!(told(&mut watches), Some(Watched { change: Change::Deleted(_), .. })));
    assert_eq!(told(&mut watches), None);
}

#[test]
fn a_watcher_is_woken_for_its_changes_and_for_the_earliest_end() {
    let (store, clock) = store();
    let mut watches = store.watches();
    watches.open(watch(7, "job", None));
    while told(&mut watches).is_some() {}
    let (waker, wakes) = counting();
    let mut is_woken = || {
        let before = wakes.0.swap(0, Ordering::Relaxed);
        while watches.poll_next(&mut Context::from_waker(&waker)).is_ready() {}
        before > 0
    };
    is_woken();
    store.put("other", "");
    assert!(!is_woken());
    store.put("job", "1");
    assert!(is_woken());
    grant(&store, 1, 10 * SECOND);
    assert!(is_woken());
    grant(&store, 2, SECOND);
    assert!(is_woken());
    clock.advance(Duration::from_secs(1));
    assert!(is_woken());
    drop(watches);
    assert!(store.shared.state.lock().watching.is_empty());
}

#[test]
fn a_lease_that_nobody_watches_is_over_all_the_same() {
    let (store, clock) = store();
    grant(&store, 1, SECOND);
    claim(&store, "job", 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(store.perform(&Operation::KeepAlive(1)), Ok(Response::Expired));
    grant(&store, 2, SECOND);
    claim(&store, "job", 2);
}

#[test]
fn a_watch_of_the_past_is_told_all_in_order_and_another_one_nothing() {
    let (store, _) = store();
    store.put("job", "1");
    let since = store.revision();
    store.put("other", "");
    store.delete("job");
    let mut watches = store.watches();
    watches.open(watch(1, "job", Some(since.into())));
    watches.open(watch(2, "job", None));
    store.put("job", "2");
    let mut seen = Vec::new();
    while let Some(Watched { id, change }) = told(&mut watches) {
        seen.push((
            id,
            match change {
                Change::Started(_) => "started",
                Change::Put(_) => "put",
                Change::Deleted(_) => "deleted",
                Change::Ended(_) => "ended",
            },
        ));
    }
    seen.sort_by_key(|(id, _)| *id);
    let first = [(1, "started"), (1, "put"), (1, "deleted"), (1, "put")];
    assert_eq!(seen[..4], first);
    assert_eq!(seen[4..], [(2, "started"), (2, "put")]);
}

#[test]
fn a_watch_that_is_closed_tells_nothing_of_what_it_has_seen() {
    let (store, _) = store();
    let mut watches = store.watches();
    watches.open(watch(1, "job", None));
    store.put("job", "1");
    watches.close(1);
    store.put("job", "2");
    assert_eq!(told(&mut watches), None);
}

#[test]
fn what_is_forgotten_cannot_be_watched() {
    let (store, _) = store();
    let before = store.revision();
    for number in 0..2 * HISTORY {
        store.put("job", number.to_string());
    }
    assert!(store.shared.state.lock().contents.log.len() < 2 * HISTORY);
    let mut watches = store.watches();
    watches.open(watch(1, "job", Some(before.into())));
    let ended = told(&mut watches).expect("is told").change;
    let Change::Ended(Failure::Compacted(oldest)) = ended else { panic!("{ended:?}") };
    watches.open(watch(2, "job", Some(oldest)));
    assert!(matches!(told(&mut watches), Some(Watched { id: 2, change: Change::Started(_) })));
    let last = store.revision();
    watches.open(watch(3, "job", Some(last.into())));
    let mut seen = Vec::new();
    while let Some(told) = told(&mut watches) {
        seen.extend((told.id == 3).then_some(told.change));
    }
    let [Change::Started(_), Change::Put(put)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(put.modified, i64::from(last));
    assert!(store.compact(last));
    assert!(!store.compact(last));
    assert!(!store.compact(oldest.into()));
}

#[test]
fn clones_are_one_store_and_others_are_others() {
    let (store, _) = store();
    grant(&store, 1, SECOND);
    claim(&store.clone(), "job", 1);
    assert!(store.revoke(1.into()));
    assert!(!store.revoke(1.into()));
    assert_eq!(MemoryStore::default().revision(), Revision::from(1));
}
