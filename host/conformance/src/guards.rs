//! Guarded writes: all or nothing, in the transaction that compares the guard.

use super::listener::of_all;
use super::stores::{Handle, Stores, absent, all, claim, delete, guard_of, guarded, one, put};
use super::verdict::{Stop, Verdict, name, names};
use incumbent::Failure;
use incumbent::types::{Change, Entry, Expectation, Guard, Mutation, Operation, Response};

pub(super) async fn a_guarded_write_is_applied_or_stale_or_conflict(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let of_epoch = |epoch| Guard { epoch, ..guard.clone() };
    let both = || vec![put("k", "1"), put("l", "1")];
    let answer = stores.here.write(&guard, vec![absent("k"), absent("l")], both()).await?;
    expect!(answer, Response::Applied(at), "a write whose guard and expectations hold is applied");
    let found = stores.there.read(vec![all("")]).await?.found.concat();
    let as_written =
        |entry: &Entry| entry.value == b"1" && (entry.created, entry.modified) == (at, at);
    ensure!(
        names(&found) == "lead k l" && found.iter().skip(1).all(as_written),
        "what is applied at {at} is there with that revision, but it was {found:?}"
    );

    // Writes that must change nothing.
    let change = || vec![put("k", "2"), delete("l"), put("m", "2")];
    let is = |key: &str, modified| Expectation { key: key.into(), modified };
    let refused = [
        (&guard, vec![absent("k")], Response::Conflict),
        (&guard, vec![is("k", at + 1)], Response::Conflict),
        (&guard, vec![is("k", at), is("none", at)], Response::Conflict),
        (&of_epoch(guard.epoch + 1), vec![], Response::Stale),
        (&of_epoch(guard.epoch - 1), vec![], Response::Stale),
        // Where neither holds, the guard is what counts.
        (&of_epoch(guard.epoch + 1), vec![absent("k")], Response::Stale),
        (&Guard { key: b"none".to_vec(), ..guard.clone() }, vec![], Response::Stale),
    ];
    for (number, (guard, expect, expected)) in refused.into_iter().enumerate() {
        let answer = stores.handle(number).write(guard, expect.clone(), change()).await?;
        ensure!(
            answer == expected,
            "under {guard:?} and {expect:?}, with `k` of revision {at} and no key `none`, a write \
             is {expected:?}, but the store said {answer:?}"
        );
        let left = stores.there.read(vec![all("")]).await?.found.concat();
        ensure!(left == found, "a refused write changes nothing, but {found:?} became {left:?}");
    }

    // Expectations that hold, and a deletion of a key that does not exist.
    let mutations = vec![delete("k"), delete("none")];
    let answer = stores.there.write(&guard, vec![is("k", at), absent("none")], mutations).await?;
    expect!(answer, Response::Applied(_), "a write whose guard and expectations hold is applied");
    // Nothing to change is a question: does the guard hold?
    stores.here.applied(&guard, vec![]).await?;
    let answer = stores.here.write(&of_epoch(guard.epoch + 1), vec![], vec![]).await?;
    expect!(answer, Response::Stale, "a guard that does not hold is stale, whatever is asked");
    // The guard's own key can be deleted under it.
    stores.here.applied(&guard, vec![delete("lead"), put("m", "last")]).await?;
    for handle in stores.handles() {
        let answer = handle.write(&guard, vec![], vec![put("m", "late")]).await?;
        expect!(answer, Response::Stale, "a guard whose key is gone is stale");
    }
    let found = stores.there.read(vec![all("")]).await?.found.concat();
    ensure!(
        names(&found) == "l m" && found.iter().all(|entry| entry.value != b"late"),
        "only what was applied has happened, and `l m` are left, but it was {found:?}"
    );
    Ok(())
}

pub(super) async fn a_guard_with_a_lease_sees_the_lease(stores: Stores) -> Verdict {
    let lead = stores.here.leader("lead").await?;
    let other = stores.here.leader("other").await?;
    let guard = guard_of(&lead);
    let with = |lease| Guard { lease: Some(lease), ..guard.clone() };
    stores.there.applied(&with(lead.lease), vec![put("k", "1")]).await?;
    let answer = stores.there.write(&with(other.lease), vec![], vec![put("k", "2")]).await?;
    expect!(answer, Response::Stale, "a guard with another lease than the key's is stale");
    // Taken off its lease, under another guard.
    stores.here.applied(&guard_of(&other), vec![put("lead", "taken off")]).await?;
    let answer = stores.there.write(&with(lead.lease), vec![], vec![put("k", "2")]).await?;
    expect!(answer, Response::Stale, "a guard with a lease is stale once the key has none");
    stores.there.applied(&guard, vec![put("k", "3")]).await?;
    Ok(())
}

pub(super) async fn a_put_takes_the_lease_off(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("guard").await?);
    let leased = stores.here.leader("k").await?;
    let at = stores.there.applied(&guard, vec![put("k", "free")]).await?;
    let expected = Entry { value: b"free".to_vec(), lease: 0, modified: at, ..leased.clone() };
    let found = stores.here.get("k").await?;
    ensure!(
        found.as_ref() == Some(&expected),
        "a key has the lease of its last put, here none, and keeps its epoch: {expected:?}, but \
         it was {found:?}"
    );
    stores.here.revoke(leased.lease).await?;
    let left = stores.there.get("k").await?;
    ensure!(left == found, "a key goes with its own lease only, but {found:?} became {left:?}");
    Ok(())
}

pub(super) async fn a_proclamation_keeps_the_lease(stores: Stores) -> Verdict {
    let lead = stores.here.leader("lead").await?;
    let guard = Guard { lease: Some(lead.lease), ..guard_of(&lead) };
    let proclaim = || vec![Mutation::Proclaim(b"new".to_vec())];
    let at = stores.there.applied(&guard, proclaim()).await?;
    let expected = Entry { value: b"new".to_vec(), modified: at, ..lead.clone() };
    let found = stores.here.get("lead").await?;
    ensure!(
        found.as_ref() == Some(&expected),
        "a proclamation changes the value of the guarded key alone: {expected:?}, but it was \
         {found:?}"
    );
    // So it goes with its lease, and then there is nothing to proclaim.
    stores.here.revoke(lead.lease).await?;
    let answer = stores.there.write(&guard, vec![], proclaim()).await?;
    expect!(answer, Response::Stale, "a proclamation on a key that is gone is stale");
    let left = stores.there.get("lead").await?;
    ensure!(left.is_none(), "a proclaimed key goes with its lease, but there was {left:?}");
    // On a key without a lease it stays without.
    let other = stores.here.leader("other").await?;
    stores.here.applied(&guard_of(&other), vec![put("other", "free")]).await?;
    stores.here.applied(&guard_of(&other), proclaim()).await?;
    let found = stores.there.get("other").await?;
    ensure!(
        found.as_ref().is_some_and(|entry| entry.lease == 0 && entry.value == b"new"),
        "a proclamation on a key without a lease leaves it without, but it was {found:?}"
    );
    Ok(())
}

pub(super) async fn a_write_is_one_revision_or_none(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let before = stores.here.applied(&guard, vec![put("a", "0"), put("b", "0")]).await?;
    let mut listener = stores.there.listening(of_all(1, "")).await?;
    let mutations = vec![
        put("a", "1"),
        delete("b"),
        delete("none"),
        put("c", "1"),
        Mutation::Proclaim(b"1".to_vec()),
    ];
    let at = stores.here.applied(&guard, mutations).await?;
    ensure!(
        at > before,
        "each transaction that changes something has a greater revision than all before, but \
         after {before} came {at}"
    );
    let mut told = Vec::new();
    for _ in 0..4 {
        let change = listener.next().await?.change;
        let (key, revision) = match &change {
            Change::Put(entry) => (&entry.key, entry.modified),
            Change::Deleted(deletion) => (&deletion.key, deletion.at),
            Change::Started(_) | Change::Ended(_) => {
                return Err(Stop::Breach(format!("a watch tells changes, but it told {change:?}")));
            }
        };
        told.push((name(key), revision));
    }
    told.sort();
    let expected = ["a", "b", "c", "lead"].map(|key| (key.to_owned(), at));
    ensure!(
        told == expected,
        "all that one transaction changes is of its revision: {expected:?}, but a watch told \
         {told:?}"
    );
    // What changes nothing has no revision of its own, and is not told.
    stores.here.applied(&guard, vec![delete("none")]).await?;
    let now = stores.there.read(vec![]).await?.at;
    // Others may be at work in the same cluster, in other places.
    ensure!(now >= at, "revisions never go back, but after {at} came {now}");
    let next = stores.here.applied(&guard, vec![put("d", "1")]).await?;
    listener.put(1, "d", next).await?;
    Ok(())
}

pub(super) async fn an_impossible_write_is_invalid(stores: Stores) -> Verdict {
    let lead = stores.here.leader("lead").await?;
    let guard = guard_of(&lead);
    let empty = Guard { key: Vec::new(), ..guard.clone() };
    let impossible = [
        ("puts a key twice", guarded(&guard, vec![], vec![put("k", "1"), put("k", "2")])),
        ("puts and deletes a key", guarded(&guard, vec![], vec![put("k", "1"), delete("k")])),
        (
            "puts and proclaims a key",
            guarded(&guard, vec![], vec![put("lead", "1"), Mutation::Proclaim(b"2".to_vec())]),
        ),
        ("puts a key without a name", guarded(&guard, vec![], vec![put("k", "1"), put("", "1")])),
        ("deletes a key without a name", guarded(&guard, vec![], vec![delete("")])),
        ("expects of a key without a name", guarded(&guard, vec![absent("")], vec![])),
        ("guards with a key without a name", guarded(&empty, vec![], vec![])),
        ("claims a key without a name", claim("", lead.lease)),
    ];
    for (number, (what, operation)) in impossible.into_iter().enumerate() {
        let answer = stores.handle(number).outcome(operation, stores.here.timeout).await?;
        ensure!(
            matches!(answer, Err(Failure::Invalid(_))),
            "a write that {what} is invalid, but the store said {answer:?}"
        );
    }
    let nameless = Operation::Read(vec![one("lead"), one("")]);
    let answer = stores.here.outcome(nameless, stores.here.timeout).await?;
    ensure!(
        matches!(answer, Err(Failure::Invalid(_))),
        "a read of a key without a name is invalid, but the store said {answer:?}"
    );
    let found = stores.there.read(vec![all("")]).await?.found.concat();
    ensure!(names(&found) == "lead", "what is invalid changes nothing, but there was {found:?}");
    Ok(())
}

/// Each task adds one to the count, expecting that no other did meanwhile.
pub(super) async fn expectations_count_without_a_loss(stores: Stores) -> Verdict {
    const TASKS: usize = 6;
    const EACH: usize = 6;
    let guard = guard_of(&stores.here.leader("lead").await?);
    let act = move |handle: Handle, _| {
        let guard = guard.clone();
        async move {
            let mut applied = 0;
            while applied < EACH {
                let found = handle.get("count").await?;
                let count: usize = found
                    .as_ref()
                    .and_then(|entry| String::from_utf8_lossy(&entry.value).parse().ok())
                    .unwrap_or(0);
                let modified = found.map_or(0, |entry| entry.modified);
                let expect = vec![Expectation { key: b"count".to_vec(), modified }];
                tokio::task::yield_now().await;
                let next = vec![put("count", &(count + 1).to_string())];
                let answer = handle.write(&guard, expect, next).await?;
                if let Response::Applied(_) = answer {
                    applied += 1;
                } else {
                    expect!(answer, Response::Conflict, "a write is applied or in conflict");
                }
            }
            Ok(())
        }
    };
    stores.at_once(TASKS, act).await?;
    let count = stores.here.get("count").await?.map(|entry| name(&entry.value));
    let expected = (TASKS * EACH).to_string();
    ensure!(
        count.as_ref() == Some(&expected),
        "where each of {expected} writes counts one on, if nobody did meanwhile, the count is \
         {expected}, but it was {count:?}"
    );
    Ok(())
}

/// Fencing: each write is before the end of the guard, or stale.
pub(super) async fn nothing_lands_after_the_guard_is_gone(stores: Stores) -> Verdict {
    for round in 0..6 {
        let lead = stores.here.leader(&format!("lead{round}")).await?;
        let guard = guard_of(&lead);
        let act = move |handle: Handle, number| {
            let (guard, lead) = (guard.clone(), lead.clone());
            async move {
                if number == 3 {
                    tokio::task::yield_now().await;
                    let at = handle.applied(&guard, vec![Mutation::Delete(lead.key)]).await?;
                    return Ok((number, Some(at)));
                }
                let mut last = None;
                for write in 0..10 {
                    tokio::task::yield_now().await;
                    let key = format!("{round}/{number}");
                    let put = vec![put(&key, &write.to_string())];
                    let answer = handle.write(&guard, vec![], put).await?;
                    if let Response::Applied(at) = answer {
                        last = Some(at);
                    } else {
                        expect!(answer, Response::Stale, "a write is applied or stale");
                        break;
                    }
                }
                Ok((number, last))
            }
        };
        let done = stores.at_once(6, act).await?;
        let end = done.iter().find(|(number, _)| *number == 3).and_then(|(_, at)| *at);
        let late = |(number, at): &&(usize, Option<_>)| *number != 3 && *at > end;
        let late: Vec<_> = done.iter().filter(late).collect();
        ensure!(
            late.is_empty(),
            "no write is applied after its guard is gone, at {end:?}, but these were: {late:?}"
        );
        let found = stores.there.read(vec![all(&format!("{round}/"))]).await?.found.concat();
        ensure!(
            found.iter().all(|entry| Some(entry.modified) < end),
            "nothing is written after its guard is gone, at {end:?}, but there was {found:?}"
        );
    }
    Ok(())
}
