//! The end of leases that are not renewed.
//!
//! A lease lives at least from the sending of its grant or renewal on. Its end is noted when a
//! watch tells it, and that time must be over then: so a slow machine causes no breach. If it
//! was too slow to prove anything, the check runs again, and is skipped in the end.

use std::time::Duration;

use super::listener::{Listener, of_all, of_key};
use super::stores::{Handle, Stores, guard_of, new_lease, one, put};
use super::verdict::{Stop, TOO_SLOW, Verdict, names};
use incumbent::Mark;
use incumbent::types::{Change, Entry, Response};

/// The shortest requested lease, in nanoseconds.
const SHORT: u64 = 1_000_000_000;
/// How long after its time a lease may still be there.
const SOON: u64 = 10_000_000_000;
/// How often the end of a lease is checked during its time.
const STEPS: u64 = 10;
/// A watch tells a change within this, where a test moves the clock.
const MOMENT: Duration = Duration::from_millis(5);

/// A lease that will be over soon.
struct Short {
    id: i64,
    ttl: u64,
    /// When it was last requested.
    sent: Mark,
    /// When that was last answered.
    answered: Mark,
}

fn too_slow() -> Stop {
    Stop::Skip(TOO_SLOW.into())
}

impl Short {
    async fn grant(stores: &Stores, handle: &Handle) -> Verdict<Self> {
        let (id, sent) = (new_lease(), stores.place.now());
        let answer = handle.grant(id, SHORT).await?;
        expect!(answer, Response::Granted(ttl), "a lease of a second is granted");
        Ok(Self { id, ttl, sent, answered: stores.place.now() })
    }

    /// Until when it lives at least.
    fn lives_until(&self) -> Mark {
        self.sent.saturating_add(self.ttl)
    }

    /// Claims a free key under it.
    async fn claim_free_key(&self, stores: &Stores, key: &str) -> Verdict<Entry> {
        let answer = stores.here.claim(key, self.id).await?;
        if answer == Response::Expired && stores.place.now() >= self.lives_until() {
            return Err(too_slow());
        }
        expect!(answer, Response::Claimed(of), "a key that is not there is claimed");
        Ok(of.entry)
    }

    /// Checks that it may have ended by now.
    fn may_be_gone(&self, now: Mark, what: &str) -> Verdict {
        ensure!(
            now >= self.lives_until(),
            "a lease lives for the time that was granted, {} ns, but after {} ns {what}",
            self.ttl,
            now.saturating_sub(self.sent)
        );
        Ok(())
    }
}

pub(super) async fn a_lease_lives_as_long_as_granted_and_ends(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("guard").await?);
    let mut listener = stores.there.listening(of_all(1, "k")).await?;
    let lease = Short::grant(&stores, &stores.here).await?;
    let mut last = 0;
    for key in ["k1", "k2", "kept"] {
        last = lease.claim_free_key(&stores, key).await?.created;
        listener.put(1, key, last).await?;
    }
    last = stores.here.applied(&guard, vec![put("kept", "off the lease")]).await?.max(last);
    // The keys may have gone before that was written.
    if stores.place.now() >= lease.lives_until() {
        return Err(too_slow());
    }
    listener.put(1, "kept", last).await?;

    // Without any request: the watch has to tell by itself.
    let mut gone = Vec::new();
    while gone.len() < 2 {
        let watched = next_in_time(&stores, &mut listener, &lease).await?;
        lease.may_be_gone(stores.place.now(), "its keys were gone")?;
        expect!(watched, Change::Deleted(deletion), "the keys of a lease end with it");
        gone.push(deletion);
    }
    gone.sort_by(|one, other| one.key.cmp(&other.key));
    let keys = gone.iter().map(|deletion| &*deletion.key);
    let at = gone.first().map_or(0, |deletion| deletion.at);
    ensure!(
        keys.eq([&b"k1"[..], b"k2"]) && gone.iter().all(|deletion| deletion.at == at) && at > last,
        "the keys of a lease end in one revision, after {last}, but it was {gone:?}"
    );
    let found = stores.here.read(vec![one("k1"), one("k2"), one("kept")]).await?.found.concat();
    ensure!(
        names(&found) == "kept",
        "a lease ends with its keys, and no others, but `{}` of `k1 k2 kept` was there then",
        names(&found)
    );

    for handle in stores.handles() {
        let answer = handle.keep_alive(lease.id).await?;
        expect!(answer, Response::Expired, "a lease that is gone is not renewed");
        let answer = handle.revoke(lease.id).await?;
        expect!(answer, Response::Expired, "a lease that is gone is not revoked");
        let answer = handle.claim("k1", lease.id).await?;
        expect!(answer, Response::Expired, "nothing is claimed under a lease that is gone");
    }
    let again = stores.there.leader("k1").await?;
    ensure!(
        again.created > at,
        "a key that is claimed again has a greater epoch than its end, {at}, but it has {}",
        again.created
    );
    Ok(())
}

pub(super) async fn a_renewed_lease_lives_on(stores: Stores) -> Verdict {
    let mut listener = stores.there.listening(of_key(1, "k")).await?;
    let mut lease = Short::grant(&stores, &stores.here).await?;
    let claimed = lease.claim_free_key(&stores, "k").await?;
    listener.put(1, "k", claimed.created).await?;

    // Beyond its first time, through either handle.
    for round in 0..2 {
        stores.place.pass(lease.ttl / 2).await;
        let sent = stores.place.now();
        let answer = stores.handle(round).keep_alive(lease.id).await?;
        let answered = stores.place.now();
        if matches!(answer, Response::Expired) {
            if answered >= lease.lives_until() {
                return Err(too_slow());
            }
            lease.may_be_gone(answered, "it was not renewed")?;
        }
        expect!(answer, Response::Renewed(ttl), "a lease that lives is renewed");
        (lease.ttl, lease.sent, lease.answered) = (ttl, sent, answered);
    }
    let deletion = next_in_time(&stores, &mut listener, &lease).await?;
    lease.may_be_gone(stores.place.now(), "since its last renewal its key was gone")?;
    expect!(deletion, Change::Deleted(_), "the key of a lease ends with it");
    Ok(())
}

pub(super) async fn a_lease_that_is_over_is_not_renewed(stores: Stores) -> Verdict {
    let lease = Short::grant(&stores, &stores.here).await?;
    lease.claim_free_key(&stores, "k").await?;
    // Right after its time, however long the store takes to notice.
    while stores.place.now() <= lease.answered.saturating_add(lease.ttl) {
        stores.place.pass(lease.ttl / STEPS).await;
    }
    for handle in [&stores.there, &stores.here] {
        let answer = handle.keep_alive(lease.id).await?;
        expect!(answer, Response::Expired, "a lease whose time is over is not renewed");
    }
    // And it ends nevertheless, also without a watch.
    loop {
        let Some(entry) = stores.there.get("k").await? else { return Ok(()) };
        ensure!(
            stores.place.now() < lease.answered.saturating_add(lease.ttl + SOON),
            "a lease ends soon after its time, but after {SOON} ns there was still {entry:?}"
        );
        stores.place.pass(lease.ttl / STEPS).await;
    }
}

/// The next change that a watch tells, soon after the time of a lease at the latest.
async fn next_in_time(stores: &Stores, listener: &mut Listener, lease: &Short) -> Verdict<Change> {
    loop {
        if let Some(watched) = listener.within(MOMENT).await {
            return Ok(watched.change);
        }
        ensure!(
            stores.place.now() < lease.answered.saturating_add(lease.ttl + SOON),
            "a lease ends soon after its time, and a watch tells that, but after {SOON} ns more \
             it had told nothing"
        );
        tokio::select! {
            watched = listener.told() => return Ok(watched.change),
            () = stores.place.pass(lease.ttl / STEPS) => {}
        }
    }
}
