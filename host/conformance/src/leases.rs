//! Leases that do not expire during a check.

use super::listener::of_all;
use super::stores::{HOUR, Handle, Stores, all, guard_of, new_lease, put};
use super::verdict::{Verdict, names};
use incumbent::Failure;
use incumbent::types::{Change, Grant, Operation, Response};

pub(super) async fn a_lease_is_granted_once(stores: Stores) -> Verdict {
    let lease = new_lease();
    let answer = stores.here.grant(lease, HOUR).await?;
    expect!(answer, Response::Granted(ttl), "a lease of a new id is granted");
    ensure!(
        ttl >= HOUR,
        "a lease is granted for no less than what was asked for, but it was {ttl} ns of {HOUR}"
    );
    for handle in stores.handles() {
        expect!(handle.grant(lease, HOUR).await?, Response::Exists, "a lease that is there exists");
    }
    // Of many grants at once, one succeeds.
    let lease = new_lease();
    let ask = |handle: Handle, _| async move { handle.grant(lease, HOUR).await };
    let answers = stores.at_once(16, ask).await?;
    let granted = answers.iter().filter(|answer| matches!(answer, Response::Granted(_))).count();
    let exists = answers.iter().filter(|answer| matches!(answer, Response::Exists)).count();
    ensure!(
        (granted, exists) == (1, 15),
        "of 16 grants of one id, one is granted and the others exist, but {granted} were \
         granted, and {exists} existed"
    );
    Ok(())
}

pub(super) async fn any_time_to_live_is_an_answer(stores: Stores) -> Verdict {
    for ttl in [0, 1, 1_000_000_001] {
        let answer = stores.here.grant(new_lease(), ttl).await?;
        expect!(answer, Response::Granted(granted), "a lease of {ttl} ns is granted");
        ensure!(
            granted > 0 && granted >= ttl,
            "a lease of {ttl} ns is granted for no less, but it was {granted} ns"
        );
    }
    let longest = Operation::Grant(Grant { lease: new_lease(), ttl: u64::MAX });
    let answer = stores.here.outcome(longest, stores.here.timeout).await?;
    ensure!(
        matches!(answer, Ok(Response::Granted(_)) | Err(Failure::Invalid(_))),
        "a lease of 2^64 - 1 ns is granted or invalid, but the store said {answer:?}"
    );
    Ok(())
}

pub(super) async fn a_lease_is_renewed_through_any_handle(stores: Stores) -> Verdict {
    let lease = new_lease();
    let answer = stores.here.grant(lease, HOUR).await?;
    expect!(answer, Response::Granted(granted), "a lease of a new id is granted");
    for handle in [&stores.here, &stores.there, &stores.here] {
        let answer = handle.keep_alive(lease).await?;
        expect!(answer, Response::Renewed(ttl), "a lease that lives is renewed");
        ensure!(
            ttl == granted,
            "a lease is renewed for its full time, {granted} ns, but it was {ttl}"
        );
    }
    // Many at once are renewed as well.
    let ask = |handle: Handle, _| async move { handle.keep_alive(lease).await };
    for answer in stores.at_once(8, ask).await? {
        expect!(answer, Response::Renewed(_), "a lease is renewed by all who ask at once");
    }
    Ok(())
}

pub(super) async fn a_lease_that_is_not_there_is_expired(stores: Stores) -> Verdict {
    let never = new_lease();
    let revoked = stores.here.lease().await?;
    // A stream of renewals may know it already.
    stores.there.keep_alive(revoked).await?;
    stores.here.revoke(revoked).await?;
    for lease in [never, revoked] {
        for handle in stores.handles() {
            let answer = handle.keep_alive(lease).await?;
            expect!(answer, Response::Expired, "a lease that is not there is not renewed");
            let answer = handle.revoke(lease).await?;
            expect!(answer, Response::Expired, "a lease that is not there is not revoked");
            let answer = handle.claim("k", lease).await?;
            expect!(answer, Response::Expired, "nothing is claimed under a lease that is gone");
        }
    }
    // A new lease of that id lives.
    let answer = stores.here.grant(revoked, HOUR).await?;
    expect!(answer, Response::Granted(_), "the id of a lease that is gone is free again");
    for handle in stores.handles() {
        let answer = handle.keep_alive(revoked).await?;
        expect!(answer, Response::Renewed(_), "a new lease of an old id is renewed");
    }
    let key = stores.there.get("k").await?;
    ensure!(key.is_none(), "a claim under a lease that is gone makes no key, but it made {key:?}");
    Ok(())
}

pub(super) async fn a_revoked_lease_takes_its_keys_along(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("guard").await?);
    let lease = stores.here.lease().await?;
    for key in ["k1", "k2", "k3", "moved"] {
        stores.here.claimed(key, lease).await?;
    }
    stores.here.applied(&guard, vec![put("moved", "off the lease")]).await?;
    let mut listener = stores.there.listener();
    let before = listener.listen(of_all(1, "")).await?;

    expect!(stores.here.revoke(lease).await?, Response::Revoked, "a lease that lives is revoked");
    let found = stores.there.read(vec![all("")]).await?;
    ensure!(
        names(found.found.concat().as_slice()) == "guard moved",
        "a revoked lease is gone with its keys and no others, `guard moved` are left, but it was \
         `{}`",
        names(&found.found.concat())
    );
    let mut gone = Vec::new();
    for _ in 0..3 {
        let watched = listener.next().await?;
        expect!(watched.change, Change::Deleted(deletion), "each key of a lease is deleted");
        gone.push(deletion);
    }
    gone.sort_by(|one, other| one.key.cmp(&other.key));
    let keys = gone.iter().map(|deletion| &*deletion.key);
    ensure!(
        keys.eq([&b"k1"[..], b"k2", b"k3"])
            && gone.iter().all(|deletion| gone.first().is_some_and(|one| one.at == deletion.at))
            && gone.iter().all(|deletion| deletion.at > before && deletion.at <= found.at),
        "the keys of a lease are deleted in one revision, once each, but it was {gone:?} \
         between revision {before} and {}",
        found.at
    );

    // The id is free, and nothing of the old lease comes back.
    for handle in stores.handles() {
        expect!(handle.revoke(lease).await?, Response::Expired, "a lease is revoked once");
    }
    let answer = stores.there.grant(lease, HOUR).await?;
    expect!(answer, Response::Granted(_), "the id of a lease that is gone is free again");
    let entry = stores.here.get("k1").await?;
    ensure!(entry.is_none(), "a new lease of an old id has no keys, but there is {entry:?}");
    Ok(())
}

/// A claim and the end of its lease happen in one order or the other.
pub(super) async fn no_key_outlives_its_lease(stores: Stores) -> Verdict {
    for round in 0..8 {
        let lease = stores.here.lease().await?;
        let act = move |handle: Handle, number| async move {
            match number {
                3 => handle.revoke(lease).await,
                _ => handle.claim(&format!("{round}/{number}"), lease).await,
            }
        };
        for answer in stores.at_once(8, act).await? {
            ensure!(
                matches!(answer, Response::Claimed(_) | Response::Expired | Response::Revoked),
                "a claim beside the revocation of its lease is `claimed` or `expired`, \
                 but the store said {answer:?}"
            );
        }
        let left = stores.there.read(vec![all(&format!("{round}/"))]).await?.found.concat();
        ensure!(
            left.is_empty(),
            "no key outlives its lease, but `{}` did: claimed while it was revoked",
            names(&left)
        );
    }
    Ok(())
}
