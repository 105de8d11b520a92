//! Watches: each change once, in order.
//!
//! Silence is proved by the next change, which has to be told next.

use std::collections::BTreeSet;

use super::listener::{of_all, of_key};
use super::stores::{Stores, delete, guard_of, put};
use super::verdict::Verdict;
use incumbent::types::{Change, Watch};

pub(super) async fn a_watch_starts_and_tells_each_change(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let before = stores.here.applied(&guard, vec![put("k", "0")]).await?;
    let mut listener = stores.there.listener();
    let started = listener.listen(of_key(5, "k")).await?;
    ensure!(
        started >= before,
        "a watch from now on starts at the present revision, {before} or later, but it was \
         {started}"
    );
    for (number, handle) in stores.handles().into_iter().enumerate() {
        let value = format!("{number}");
        let at = handle.applied(&guard, vec![put("k", &value), put("kk", &value)]).await?;
        let entry = listener.put(5, "k", at).await?;
        ensure!(
            entry.value == value.as_bytes() && entry.created == before && entry.lease == 0,
            "a watch tells a key as it is now, with its epoch {before} and value {value}, but it \
             told {entry:?}"
        );
    }
    // Its end and its return.
    let gone = stores.here.applied(&guard, vec![delete("k")]).await?;
    listener.deleted(5, "k", gone).await?;
    let again = stores.here.leader("k").await?;
    let told = listener.put(5, "k", again.created).await?;
    ensure!(told == again, "a watch tells a key as it was made, {again:?}, but it told {told:?}");
    let gone = stores.here.applied(&guard_of(&again), vec![delete("k")]).await?;
    listener.deleted(5, "k", gone).await?;
    Ok(())
}

pub(super) async fn a_watch_begins_at_its_revision(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let mut written = Vec::new();
    for number in 0..4 {
        written.push(stores.here.applied(&guard, vec![put("k", &number.to_string())]).await?);
    }
    let mut listener = stores.there.listener();
    let since = |id, since| Watch { since: Some(since), ..of_key(id, "k") };
    // From each of them on, and the ones after it.
    for (id, first) in (1..).zip(&written) {
        let started = listener.listen(since(id, *first)).await?;
        ensure!(
            started < *first,
            "what a watch since {first} tells comes after the revision at which it starts, but \
             that was {started}"
        );
        for at in written.iter().filter(|at| *at >= first) {
            listener.put(id, "k", *at).await?;
        }
        listener.close(id);
    }
    // From the beginning on there was no other change of this key. (Of a cluster that is
    // older, it may be forgotten.)
    let start = written.first().map_or(0, |first| first - 1);
    listener.listen(since(10, start)).await?;
    for at in &written {
        listener.put(10, "k", *at).await?;
    }
    listener.close(10);

    // From now on, nothing of the past; from a future revision on, nothing before it.
    listener.listen(of_key(11, "k")).await?;
    let next = stores.here.applied(&guard, vec![put("k", "next")]).await?;
    listener.put(11, "k", next).await?;
    listener.close(11);
    let future = next + 1_000;
    let started = listener.listen(since(12, future)).await?;
    ensure!(
        started < future,
        "what a watch since {future} tells comes after the revision at which it starts, but that \
         was {started}"
    );
    let before = stores.here.applied(&guard, vec![put("k", "before")]).await?;
    listener.listen(of_key(13, "l")).await?;
    let other = stores.here.applied(&guard, vec![put("l", "after it")]).await?;
    if other < future {
        let told = listener.next().await?;
        let is_the_other =
            matches!(&told.change, Change::Put(entry) if told.id == 13 && entry.modified == other);
        ensure!(
            is_the_other,
            "a watch since {future} tells nothing of {before}, but the next thing told was \
             {told:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_watch_sees_its_keys_alone(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let mut listener = stores.there.listening(of_all(1, "a/")).await?;
    listener.listen(of_key(2, "a")).await?;
    let mut at = Vec::new();
    for key in ["b", "a0", "a", "A/1", "a/1", "a/"] {
        at.push(stores.here.applied(&guard, vec![put(key, "v")]).await?);
    }
    let [.., a, _, first, second] = at[..] else { return Ok(()) };
    // Watches of a set may be told in any order among themselves.
    let mut told = BTreeSet::new();
    for _ in 0..3 {
        let watched = listener.next().await?;
        expect!(watched.change, Change::Put(entry), "a watch tells the puts of its keys");
        told.insert((watched.id, entry.modified));
    }
    let expected = BTreeSet::from([(1, first), (1, second), (2, a)]);
    ensure!(
        told == expected,
        "watches tell the changes of their keys alone, {expected:?}, but they told {told:?}"
    );
    // All keys there are.
    let mut listener = stores.here.listening(of_all(3, "")).await?;
    let at = stores.there.applied(&guard, vec![put("\u{10ffff}", "last")]).await?;
    listener.put(3, "\u{10ffff}", at).await?;
    Ok(())
}

pub(super) async fn a_closed_watch_is_silent(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let mut listener = stores.there.listener();
    for id in [1, 2] {
        listener.listen(of_key(id, "k")).await?;
    }
    let at = stores.here.applied(&guard, vec![put("k", "0")]).await?;
    let first = listener.next().await?;
    expect!(first.change, Change::Put(entry), "a watch tells the puts of its key");
    ensure!(entry.modified == at, "the put at {at} is told first, but it was {entry:?}");
    // What the other one has seen already is not told any more.
    let other = if first.id == 1 { 2 } else { 1 };
    listener.close(other);
    listener.close(99);
    for value in 1..4 {
        let at = stores.here.applied(&guard, vec![put("k", &value.to_string())]).await?;
        listener.put(first.id, "k", at).await?;
    }
    listener.close(first.id);
    // A set goes on when its last watch is closed.
    listener.listen(of_key(3, "l")).await?;
    let at = stores.here.applied(&guard, vec![put("k", "unheard"), put("l", "heard")]).await?;
    listener.put(3, "l", at).await?;
    Ok(())
}

pub(super) async fn many_watches_are_told(stores: Stores) -> Verdict {
    const MANY: u64 = 500;
    let guard = guard_of(&stores.here.leader("lead").await?);
    let mut listener = stores.there.listener();
    for id in 0..MANY {
        listener.open(of_key(id, &format!("k{id}")));
    }
    let mut started = BTreeSet::new();
    for _ in 0..MANY {
        let watched = listener.next().await?;
        expect!(watched.change, Change::Started(_), "a watch tells first that it has started");
        started.insert(watched.id);
    }
    ensure!(
        started.len() as u64 == MANY,
        "each of {MANY} watches starts once, but {} different ones did",
        started.len()
    );
    for id in [0, MANY / 2, MANY - 1] {
        let key = format!("k{id}");
        let at = stores.here.applied(&guard, vec![put(&key, "v")]).await?;
        listener.put(id, &key, at).await?;
    }
    Ok(())
}

pub(super) async fn sets_of_watches_are_separate(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let write = async |value: &str| -> Verdict<i64> {
        stores.here.applied(&guard, vec![put("k", value)]).await
    };
    // The same id in each of them.
    let mut one = stores.here.listener();
    let mut two = stores.here.listener();
    let mut far = stores.there.listener();
    for listener in [&mut one, &mut two, &mut far] {
        listener.listen(of_key(1, "k")).await?;
    }
    let at = write("all").await?;
    for listener in [&mut one, &mut two, &mut far] {
        listener.put(1, "k", at).await?;
    }
    // Closed, or gone, it is that one alone; what it has not told yet included.
    write("unheard by one").await?;
    one.close(1);
    drop(one);
    let mut one = stores.here.listening(of_key(1, "l")).await?;
    let at = write("also").await?;
    for listener in [&mut two, &mut far] {
        let before = listener.next().await?;
        expect!(before.change, Change::Put(_), "what one set closes the others still tell");
        listener.put(1, "k", at).await?;
    }
    let at = stores.there.leader("l").await?.created;
    one.put(1, "l", at).await?;
    Ok(())
}
