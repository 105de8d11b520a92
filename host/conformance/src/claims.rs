//! Claims: a key is made once.

use super::stores::{Handle, Stores, delete, guard_of, put};
use super::verdict::Verdict;
use incumbent::types::Response;

pub(super) async fn a_key_is_claimed_once(stores: Stores) -> Verdict {
    let (mine, other) = (stores.here.lease().await?, stores.there.lease().await?);
    let answer = stores.here.claim("k", mine).await?;
    expect!(answer, Response::Claimed(first), "a key that is not there is claimed");
    let entry = &first.entry;
    ensure!(
        entry.key == b"k"
            && entry.value == format!("by {mine}").into_bytes()
            && entry.lease == mine
            && (entry.created, entry.modified) == (first.at, first.at)
            && entry.created > 0,
        "a claim makes the key with its value and lease, at a revision, but it made {first:?}"
    );
    // Again, by the same lease and by another one: the first answer may have been lost.
    for (handle, lease) in [(&stores.here, mine), (&stores.there, other), (&stores.there, mine)] {
        let answer = handle.claim("k", lease).await?;
        expect!(answer, Response::Taken(taken), "a key that is there is taken");
        ensure!(
            taken.entry == first.entry && taken.at >= first.at,
            "a claim of a key that is there changes nothing, but of {first:?} it made {taken:?}"
        );
    }
    for handle in stores.handles() {
        let found = handle.get("k").await?;
        ensure!(
            found.as_ref() == Some(&first.entry),
            "what was claimed is there, {first:?}, but a read found {found:?}"
        );
    }
    // A key without a lease is taken as well.
    let guard = guard_of(&first.entry);
    stores.here.applied(&guard, vec![put("free", "of a lease")]).await?;
    let answer = stores.there.claim("free", mine).await?;
    expect!(answer, Response::Taken(taken), "a key that is there is taken");
    ensure!(
        taken.entry.lease == 0 && taken.entry.value == b"of a lease",
        "who claims a key that is there is told what it is, but was told {taken:?}"
    );
    Ok(())
}

pub(super) async fn of_many_claims_one_wins(stores: Stores) -> Verdict {
    for round in 0..4 {
        let key = format!("k{round}");
        let act = move |handle: Handle, _| {
            let key = key.clone();
            async move {
                let lease = handle.lease().await?;
                tokio::task::yield_now().await;
                Ok((lease, handle.claim(&key, lease).await?))
            }
        };
        let mut claimed = Vec::new();
        let mut told = Vec::new();
        for (lease, answer) in stores.at_once(16, act).await? {
            if let Response::Claimed(of) = &answer {
                claimed.push((lease, of.entry.clone()));
            }
            let (Response::Claimed(of) | Response::Taken(of)) = answer else {
                ensure!(false, "a claim gives a key or its owner, but it was {answer:?}");
                continue;
            };
            told.push(of.entry);
        }
        ensure!(
            claimed.len() == 1,
            "of many claims of one key one wins, but these did: {claimed:?}"
        );
        let all_know = claimed.iter().all(|(lease, winner)| {
            winner.lease == *lease && told.iter().all(|entry| entry == winner)
        });
        ensure!(all_know, "all who claim are told of the one who won, but it was {told:?}");
    }
    Ok(())
}

pub(super) async fn epochs_rise(stores: Stores) -> Verdict {
    let lease = stores.here.lease().await?;
    let mut last: i64 = 0;
    for round in 0..6 {
        let handle = stores.handle(round);
        // Under the same lease, and under others.
        let own = if round < 3 { lease } else { handle.lease().await? };
        let entry = handle.claimed("k", own).await?;
        ensure!(
            entry.created > last,
            "a key that is made again has a greater epoch than all before, but after {last} \
             came {}",
            entry.created
        );
        if last != 0 {
            let mut old = guard_of(&entry);
            old.epoch = last;
            let answer = handle.write(&old, vec![], vec![put("written", "late")]).await?;
            expect!(answer, Response::Stale, "the guard of an ended epoch is stale");
        }
        last = entry.created;
        // Gone by a deletion, or with its lease.
        let other = stores.handle(round + 1);
        if round.is_multiple_of(2) {
            last = other.applied(&guard_of(&entry), vec![delete("k")]).await?.max(last);
        } else if own == lease {
            last = other.applied(&guard_of(&entry), vec![put("l", ""), delete("k")]).await?;
        } else {
            expect!(other.revoke(own).await?, Response::Revoked, "a lease that lives is revoked");
        }
    }
    Ok(())
}
