//! Reads: all at one revision, and nothing old.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::bench::{Bench, Handle, Verdict, all, guard_of, names, one, put};
use crate::types::{Entry, Order, Revision, Selection};

/// How often a writer writes while others read.
const WRITES: usize = 40;

pub(super) async fn a_read_finds_what_it_selects(bench: Bench) -> Verdict {
    let lead = bench.here.leader("lead").await?;
    let guard = guard_of(&lead);
    // Not in the order of their names; the last change is of the oldest.
    let mut middle = 0;
    for key in ["q/3", "q/1", "q/2", "q", "q0", "q/3"] {
        let at = bench.here.applied(&guard, vec![put(key, "v")]).await?;
        if key == "q/2" {
            middle = at;
        }
    }
    let of = |order, limit, created_before| Selection { order, limit, created_before, ..all("q/") };
    let (old, new) = (Order::OldestFirst, Order::NewestFirst);
    let cases = [
        (of(old, 0, None), "q/3 q/1 q/2"),
        (of(new, 0, None), "q/2 q/1 q/3"),
        (of(old, 1, None), "q/3"),
        (of(new, 1, None), "q/2"),
        (of(new, 2, None), "q/2 q/1"),
        (of(old, 100, None), "q/3 q/1 q/2"),
        (of(new, 1, Some(middle)), "q/1"),
        (of(new, 0, Some(middle)), "q/1 q/3"),
        (of(old, 0, Some(middle + 1)), "q/3 q/1 q/2"),
        (of(old, 0, Some(1)), ""),
        (of(old, 0, Some(0)), ""),
        (one("q/1"), "q/1"),
        (Selection { created_before: Some(middle), ..one("q/1") }, "q/1"),
        (Selection { created_before: Some(middle), ..one("q/2") }, ""),
        (one("none"), ""),
        (one("q/"), ""),
        (all("none"), ""),
        (all("q"), "q/3 q/1 q/2 q q0"),
        (all(""), "lead q/3 q/1 q/2 q q0"),
    ];
    for handle in bench.handles() {
        let asked = cases.iter().map(|(selection, _)| selection.clone()).collect();
        let snapshot = handle.read(asked).await?;
        for ((selection, expected), found) in cases.iter().zip(&snapshot.found) {
            ensure!(
                names(found) == *expected,
                "{selection:?} finds `{expected}`, but it found `{}`",
                names(found)
            );
        }
        let newest = snapshot.found.iter().flatten().map(|entry| entry.modified).max();
        ensure!(
            newest.is_some_and(|newest| snapshot.at >= newest),
            "a read is at a revision that has all that it found, but it was at {}, and found \
             one of {newest:?}",
            snapshot.at
        );
        let nothing = handle.read(vec![]).await?;
        ensure!(
            nothing.at >= snapshot.at,
            "a read of nothing is at the present revision, {}, but it was at {}",
            snapshot.at,
            nothing.at
        );
        let found = handle.get("q/3").await?;
        let as_written = |entry: &Entry| {
            entry.value == b"v"
                && entry.lease == 0
                && entry.created < middle
                && entry.modified > middle
        };
        ensure!(
            found.as_ref().is_some_and(as_written),
            "a key has its value, the revision that made it, and that of its last change, \
             but it was {found:?}"
        );
        let led = handle.get("lead").await?;
        ensure!(
            led.as_ref() == Some(&lead),
            "a key is as it was made, {lead:?}, but a read found {led:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_read_is_at_one_revision(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("lead").await?);
    bench.here.applied(&guard, vec![put("k/1", "0"), put("k/2", "0")]).await?;
    let act = move |handle: Handle, number| {
        let guard = guard.clone();
        async move {
            let mut last: Revision = 0;
            for write in 1..=WRITES {
                tokio::task::yield_now().await;
                if number < 2 {
                    // Either both keys have it, or none.
                    let value = format!("{number}.{write}");
                    handle.applied(&guard, vec![put("k/1", &value), put("k/2", &value)]).await?;
                    continue;
                }
                let snapshot = handle.read(vec![one("k/1"), all("k/"), one("k/2")]).await?;
                let found = snapshot.found.concat();
                let alike = |entry: &Entry| {
                    found.first().is_some_and(|first| {
                        entry.value == first.value && entry.modified == first.modified
                    })
                };
                ensure!(
                    found.len() == 4 && found.iter().all(alike),
                    "all that a read finds was true at one revision, but two keys that are only \
                     written together differed: {found:?}"
                );
                ensure!(
                    snapshot.at >= last && found.iter().all(|entry| entry.modified <= snapshot.at),
                    "reads after one another are at rising revisions, none before what they \
                     found, but after {last} came {}, with {found:?}",
                    snapshot.at
                );
                last = snapshot.at;
            }
            Ok(())
        }
    };
    bench.at_once(6, act).await?;
    Ok(())
}

pub(super) async fn a_read_shows_what_was_acknowledged(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("lead").await?);
    let acknowledged = Arc::new(AtomicI64::new(0));
    let known = Arc::clone(&acknowledged);
    let act = move |handle: Handle, number| {
        let (guard, known) = (guard.clone(), Arc::clone(&known));
        async move {
            for _ in 0..WRITES {
                tokio::task::yield_now().await;
                if number < 2 {
                    let at = handle.applied(&guard, vec![put("k", "v")]).await?;
                    known.fetch_max(at, Ordering::SeqCst);
                    continue;
                }
                let expected = known.load(Ordering::SeqCst);
                let snapshot = handle.read(vec![one("k")]).await?;
                let found = snapshot.found.concat().first().map_or(0, |entry| entry.modified);
                ensure!(
                    snapshot.at >= expected && found >= expected,
                    "a read shows what was acknowledged to anyone before it was sent, here \
                     revision {expected}, but it was at {} and found {found}",
                    snapshot.at
                );
            }
            Ok(())
        }
    };
    bench.at_once(6, act).await?;

    // One after the other, what one handle did is there for the other one.
    let guard = guard_of(&bench.there.leader("other").await?);
    for number in 0..20 {
        let value = number.to_string();
        let at = bench.handle(number).applied(&guard, vec![put("l", &value)]).await?;
        let found = bench.handle(number + 1).get("l").await?.map(|entry| entry.modified);
        ensure!(
            found == Some(at),
            "a write that was acknowledged at {at} shows through another handle, but it found \
             {found:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_peek_finds_the_key_in_the_end(bench: Bench) -> Verdict {
    let entry = bench.here.leader("k").await?;
    for handle in bench.handles() {
        let none = handle.peek("none").await?;
        ensure!(none.is_none(), "nothing is found where nothing ever was, but it was {none:?}");
        let see = async {
            loop {
                let peeked = handle.peek("k").await?;
                if peeked.as_ref() == Some(&entry) {
                    return Ok(());
                }
                // Old, but not wrong.
                ensure!(
                    peeked.is_none(),
                    "a peek finds the key as it was once, {entry:?}, but it was {peeked:?}"
                );
                tokio::task::yield_now().await;
            }
        };
        let seen = tokio::time::timeout(bench.patience(), see).await;
        ensure!(seen.is_ok(), "a peek finds a key in the end, but it never did");
        seen.unwrap_or(Ok(()))?;
    }
    Ok(())
}
