//! Watches: each change once, in order.
//!
//! Silence is proved by what comes next: another change is made that has to be told.

use std::collections::BTreeSet;

use super::bench::{Bench, Verdict, delete, guard_of, put};
use super::ear::{of_all, of_key};
use incumbent::types::{Change, Revision, Watch};

pub(super) async fn a_watch_starts_and_tells_each_change(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("lead").await?);
    let before = bench.here.applied(&guard, vec![put("k", "0")]).await?;
    let mut ear = bench.there.ear();
    let started = ear.listen(of_key(5, "k")).await?;
    ensure!(
        started >= before,
        "a watch from now on starts at the present revision, {before} or later, but it was \
         {started}"
    );
    for (number, handle) in bench.handles().into_iter().enumerate() {
        let value = format!("{number}");
        let at = handle.applied(&guard, vec![put("k", &value), put("kk", &value)]).await?;
        let entry = ear.put(5, "k", at).await?;
        ensure!(
            entry.value == value.as_bytes() && entry.created == before && entry.lease == 0,
            "a watch tells a key as it is now, with its epoch {before} and value {value}, but it \
             told {entry:?}"
        );
    }
    // Its end and its return.
    let gone = bench.here.applied(&guard, vec![delete("k")]).await?;
    ear.deleted(5, "k", gone).await?;
    let again = bench.here.leader("k").await?;
    let told = ear.put(5, "k", again.created).await?;
    ensure!(told == again, "a watch tells a key as it was made, {again:?}, but it told {told:?}");
    let gone = bench.here.applied(&guard_of(&again), vec![delete("k")]).await?;
    ear.deleted(5, "k", gone).await?;
    Ok(())
}

pub(super) async fn a_watch_begins_at_its_revision(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("lead").await?);
    let mut written = Vec::new();
    for number in 0..4 {
        written.push(bench.here.applied(&guard, vec![put("k", &number.to_string())]).await?);
    }
    let mut ear = bench.there.ear();
    let since = |id, since| Watch { since: Some(since), ..of_key(id, "k") };
    // From each of them on, and the ones after it.
    for (id, first) in (1..).zip(&written) {
        let started = ear.listen(since(id, *first)).await?;
        ensure!(
            started < *first,
            "what a watch since {first} tells comes after the revision at which it starts, but \
             that was {started}"
        );
        for at in written.iter().filter(|at| *at >= first) {
            ear.put(id, "k", *at).await?;
        }
        ear.close(id);
    }
    // From the beginning on there was no other change of this key. (Of a cluster that is
    // older, it may be forgotten.)
    let start = written.first().map_or(0, |first| first - 1);
    ear.listen(since(10, start)).await?;
    for at in &written {
        ear.put(10, "k", *at).await?;
    }
    ear.close(10);

    // From now on, nothing of the past; from a future revision on, nothing before it.
    ear.listen(of_key(11, "k")).await?;
    let next = bench.here.applied(&guard, vec![put("k", "next")]).await?;
    ear.put(11, "k", next).await?;
    ear.close(11);
    let future = next + 1_000;
    let started = ear.listen(since(12, future)).await?;
    ensure!(
        started < future,
        "what a watch since {future} tells comes after the revision at which it starts, but that \
         was {started}"
    );
    let before = bench.here.applied(&guard, vec![put("k", "before")]).await?;
    ear.listen(of_key(13, "l")).await?;
    let other = bench.here.applied(&guard, vec![put("l", "after it")]).await?;
    if other < future {
        let told = ear.next().await?;
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

pub(super) async fn a_watch_sees_its_keys_alone(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("lead").await?);
    let mut ear = bench.there.ear();
    ear.listen(of_all(1, "a/")).await?;
    ear.listen(of_key(2, "a")).await?;
    let mut at = Vec::new();
    for key in ["b", "a0", "a", "A/1", "a/1", "a/"] {
        at.push(bench.here.applied(&guard, vec![put(key, "v")]).await?);
    }
    let [.., a, _, first, second] = at[..] else { return Ok(()) };
    // Watches of a set may be told in any order among themselves.
    let mut told = BTreeSet::new();
    for _ in 0..3 {
        let watched = ear.next().await?;
        expect!(watched.change, Change::Put(entry), "a watch tells the puts of its keys");
        told.insert((watched.id, entry.modified));
    }
    let expected = BTreeSet::from([(1, first), (1, second), (2, a)]);
    ensure!(
        told == expected,
        "watches tell the changes of their keys alone, {expected:?}, but they told {told:?}"
    );
    // All keys there are.
    let mut ear = bench.here.ear();
    ear.listen(of_all(3, "")).await?;
    let at = bench.there.applied(&guard, vec![put("\u{10ffff}", "last")]).await?;
    ear.put(3, "\u{10ffff}", at).await?;
    Ok(())
}

pub(super) async fn a_closed_watch_is_silent(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("lead").await?);
    let mut ear = bench.there.ear();
    for id in [1, 2] {
        ear.listen(of_key(id, "k")).await?;
    }
    let at = bench.here.applied(&guard, vec![put("k", "0")]).await?;
    let first = ear.next().await?;
    expect!(first.change, Change::Put(entry), "a watch tells the puts of its key");
    ensure!(entry.modified == at, "the put at {at} is told first, but it was {entry:?}");
    // What the other one has seen already is not told any more.
    let other = if first.id == 1 { 2 } else { 1 };
    ear.close(other);
    ear.close(99);
    for value in 1..4 {
        let at = bench.here.applied(&guard, vec![put("k", &value.to_string())]).await?;
        ear.put(first.id, "k", at).await?;
    }
    ear.close(first.id);
    // A set goes on when its last watch is closed.
    ear.listen(of_key(3, "l")).await?;
    let at = bench.here.applied(&guard, vec![put("k", "unheard"), put("l", "heard")]).await?;
    ear.put(3, "l", at).await?;
    Ok(())
}

pub(super) async fn many_watches_are_told(bench: Bench) -> Verdict {
    const MANY: u64 = 500;
    let guard = guard_of(&bench.here.leader("lead").await?);
    let mut ear = bench.there.ear();
    for id in 0..MANY {
        ear.open(of_key(id, &format!("k{id}")));
    }
    let mut started = BTreeSet::new();
    for _ in 0..MANY {
        let watched = ear.next().await?;
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
        let at = bench.here.applied(&guard, vec![put(&key, "v")]).await?;
        ear.put(id, &key, at).await?;
    }
    Ok(())
}

pub(super) async fn sets_of_watches_are_separate(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("lead").await?);
    let write = async |value: &str| -> Verdict<Revision> {
        bench.here.applied(&guard, vec![put("k", value)]).await
    };
    // The same id in each of them.
    let mut one = bench.here.ear();
    let mut two = bench.here.ear();
    let mut far = bench.there.ear();
    for ear in [&mut one, &mut two, &mut far] {
        ear.listen(of_key(1, "k")).await?;
    }
    let at = write("all").await?;
    for ear in [&mut one, &mut two, &mut far] {
        ear.put(1, "k", at).await?;
    }
    // Closed, or gone, it is that one alone; what it has not told yet included.
    write("unheard by one").await?;
    one.close(1);
    drop(one);
    let mut one = bench.here.ear();
    one.listen(of_key(1, "l")).await?;
    let at = write("also").await?;
    for ear in [&mut two, &mut far] {
        let before = ear.next().await?;
        expect!(before.change, Change::Put(_), "what one set closes the others still tell");
        ear.put(1, "k", at).await?;
    }
    let at = bench.there.leader("l").await?.created;
    one.put(1, "l", at).await?;
    Ok(())
}
