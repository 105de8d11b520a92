//! Reads: all selections at one revision, and no old answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::stores::{Handle, Stores, all, guard_of, one, put};
use super::verdict::{Verdict, names};
use incumbent::types::{Entry, Mutation, Order, Put, Selection};

/// How often a writer writes while others read.
const WRITES: usize = 40;

pub(super) async fn a_read_finds_what_it_selects(stores: Stores) -> Verdict {
    let lead = stores.here.leader("lead").await?;
    let guard = guard_of(&lead);
    // Not in the order of their names; the last change is of the oldest.
    let mut middle = 0;
    for key in ["q/3", "q/1", "q/2", "q", "q0", "q/3"] {
        let at = stores.here.applied(&guard, vec![put(key, "v")]).await?;
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
    for handle in stores.handles() {
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

pub(super) async fn a_list_is_read_from_a_key_on(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let mut middle = 0;
    for key in ["p/c", "p/a", "p/e", "p", "p/b", "p0", "p/d"] {
        let at = stores.here.applied(&guard, vec![put(key, "v")]).await?;
        if key == "p/b" {
            middle = at;
        }
    }
    // Beyond the last key that begins with a letter.
    for key in [vec![0xff], vec![0xff, b'a'], vec![0xff, 0xff]] {
        let put = Mutation::Put(Put { key, value: vec![] });
        stores.here.applied(&guard, vec![put]).await?;
    }
    let of = |order, limit| Selection { order, limit, ..all("p/") };
    let from = |from: &str, selection| Selection { from: Some(from.into()), ..selection };
    let high = |from: Option<&[u8]>| Selection {
        key: vec![0xff],
        from: from.map(<[u8]>::to_vec),
        ..of(Order::ByKey, 0)
    };
    let (old, new, by_key) = (Order::OldestFirst, Order::NewestFirst, Order::ByKey);
    let cases = [
        (of(by_key, 0), "p/a p/b p/c p/d p/e"),
        (of(by_key, 2), "p/a p/b"),
        (from("p/b", of(by_key, 0)), "p/b p/c p/d p/e"),
        (from("p/b", of(by_key, 2)), "p/b p/c"),
        (from("p/bb", of(by_key, 2)), "p/c p/d"),
        (from("p/b", of(old, 0)), "p/c p/e p/b p/d"),
        (from("p/b", of(old, 1)), "p/c"),
        (from("p/b", of(new, 2)), "p/d p/b"),
        // Those that began before the list begin with it.
        (from("", of(by_key, 0)), "p/a p/b p/c p/d p/e"),
        (from("lead", of(by_key, 1)), "p/a"),
        (from("p", of(old, 1)), "p/c"),
        // Nothing is behind its end.
        (from("p/e", of(by_key, 0)), "p/e"),
        (from("p/ee", of(by_key, 0)), ""),
        (from("p0", of(by_key, 0)), ""),
        (from("zz", of(new, 0)), ""),
        (Selection { created_before: Some(middle), ..from("p/b", of(by_key, 1)) }, "p/c"),
        (Selection { created_before: Some(middle), ..from("p/b", of(by_key, 0)) }, "p/c p/e"),
        (from("p/c", one("p/c")), "p/c"),
        (from("a", one("p/c")), "p/c"),
        (from("", one("p/c")), "p/c"),
        (from("p/d", one("p/c")), ""),
        (from("p/cc", one("p/c")), ""),
        (from("p/d", Selection { order: by_key, limit: 3, ..all("") }), "p/d p/e p0"),
        (from("p1", Selection { order: by_key, limit: 1, ..all("") }), "\u{fffd}"),
        (high(None), "\u{fffd} \u{fffd}a \u{fffd}\u{fffd}"),
        (high(Some(&[0xff, b'b'])), "\u{fffd}\u{fffd}"),
        (high(Some(&[0xff, 0xff, 0])), ""),
    ];
    for handle in stores.handles() {
        // Each by itself as well: a store may have another way for one.
        let asked: Vec<_> = cases.iter().map(|(selection, _)| selection.clone()).collect();
        let together = handle.read(asked.clone()).await?.found;
        for ((selection, expected), together) in cases.iter().zip(together) {
            let alone = handle.read(vec![selection.clone()]).await?.found.concat();
            for found in [together, alone] {
                ensure!(
                    names(&found) == *expected,
                    "{selection:?} finds `{expected}`, but it found `{}`",
                    names(&found)
                );
            }
        }
        for limit in 1..=6 {
            let mut pages: Vec<Entry> = Vec::new();
            // One more than there are keys, for a store that never comes to an end.
            for _ in 0..=5 {
                let next = pages.last().map(|last| [last.key.as_slice(), &[0]].concat());
                let page = Selection { from: next, ..of(by_key, limit) };
                let found = handle.read(vec![page]).await?.found.concat();
                if found.is_empty() {
                    break;
                }
                pages.extend(found);
            }
            ensure!(
                names(&pages) == "p/a p/b p/c p/d p/e",
                "the pages of a list are the list, but with {limit} on a page they were `{}`",
                names(&pages)
            );
        }
    }
    Ok(())
}

pub(super) async fn a_read_of_keys_tells_no_values(stores: Stores) -> Verdict {
    let lead = stores.here.leader("k/lead").await?;
    for key in ["k/2", "k/1", "k/3"] {
        stores.here.applied(&guard_of(&lead), vec![put(key, "v")]).await?;
    }
    let mut asked = vec![one("k/2"), one("k/lead"), Selection { limit: 1, ..all("k/") }];
    for order in [Order::OldestFirst, Order::NewestFirst, Order::ByKey] {
        for created_before in [None, Some(lead.created + 2)] {
            asked.push(Selection { order, created_before, ..all("k/") });
        }
    }
    for handle in stores.handles() {
        for whole in &asked {
            let keys = Selection { keys_only: true, ..whole.clone() };
            let snapshot = handle.read(vec![whole.clone(), keys.clone()]).await?;
            let [told, named] = &snapshot.found[..] else { continue };
            ensure!(
                !told.is_empty() && told.iter().all(|entry| !entry.value.is_empty()),
                "{whole:?} finds keys and their values, but it found {told:?}"
            );
            let bare: Vec<_> =
                told.iter().map(|entry| Entry { value: vec![], ..entry.clone() }).collect();
            ensure!(
                *named == bare,
                "{keys:?} finds the same without the values, {bare:?}, but it found {named:?}"
            );
        }
    }
    Ok(())
}

pub(super) async fn a_read_is_at_one_revision(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    stores.here.applied(&guard, vec![put("k/1", "0"), put("k/2", "0")]).await?;
    let act = move |handle: Handle, number| {
        let guard = guard.clone();
        async move {
            let mut last: i64 = 0;
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
    stores.at_once(6, act).await?;
    Ok(())
}

pub(super) async fn a_read_shows_what_was_acknowledged(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
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
    stores.at_once(6, act).await?;

    // One after the other, what one handle did is there for the other one.
    let guard = guard_of(&stores.there.leader("other").await?);
    for number in 0..20 {
        let value = number.to_string();
        let at = stores.handle(number).applied(&guard, vec![put("l", &value)]).await?;
        let found = stores.handle(number + 1).get("l").await?.map(|entry| entry.modified);
        ensure!(
            found == Some(at),
            "a write that was acknowledged at {at} shows through another handle, but it found \
             {found:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_peek_finds_the_key_in_the_end(stores: Stores) -> Verdict {
    let entry = stores.here.leader("k").await?;
    for handle in stores.handles() {
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
        let seen = tokio::time::timeout(stores.here.timeout, see).await;
        ensure!(seen.is_ok(), "a peek finds a key in the end, but it never did");
        seen.unwrap_or(Ok(()))?;
    }
    Ok(())
}
