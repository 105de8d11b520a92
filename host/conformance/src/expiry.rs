//! The end of leases that nobody renews.
//!
//! A lease lives from the sending of its grant or renewal on, at least: what is gone is
//! noted when it is told, and then that time must be over. So a slow machine is no
//! breach; where it was so slow that nothing is proved, the check is skipped.

use std::time::Duration;

use super::bench::{Bench, Handle, Stop, Verdict, guard_of, names, new_lease, one, put};
use super::ear::{Ear, of_all, of_key};
use incumbent::types::{Change, LeaseId, Mark, Response};

/// The shortest lease that is asked for, in nanoseconds.
const SHORT: u64 = 1_000_000_000;
/// How long after its time a lease may still be there.
const SOON: u64 = 10_000_000_000;
/// How often the time of a lease is looked at.
const STEPS: u64 = 10;
/// What a watch has to tell it tells within this, where the clock is moved by a test.
const MOMENT: Duration = Duration::from_millis(5);

/// A lease that will be over soon.
struct Short {
    id: LeaseId,
    ttl: u64,
    /// When it was last asked for.
    sent: Mark,
    /// When that was last answered.
    answered: Mark,
}

impl Short {
    async fn grant(bench: &Bench, handle: &Handle) -> Verdict<Self> {
        let (id, sent) = (new_lease(), bench.now());
        let answer = handle.grant(id, SHORT).await?;
        expect!(answer, Response::Granted(ttl), "a lease of a second is granted");
        Ok(Self { id, ttl, sent, answered: bench.now() })
    }

    /// Until when it lives at least.
    fn lives_until(&self) -> Mark {
        self.sent.saturating_add(self.ttl)
    }

    /// That it had this end, and no earlier one.
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

pub(super) async fn a_lease_lives_as_long_as_granted_and_ends(bench: Bench) -> Verdict {
    let guard = guard_of(&bench.here.leader("guard").await?);
    let mut ear = bench.there.ear();
    ear.listen(of_all(1, "k")).await?;
    let lease = Short::grant(&bench, &bench.here).await?;
    let mut last = 0;
    for key in ["k1", "k2", "kept"] {
        last = bench.here.claimed(key, lease.id).await?.created;
        ear.put(1, key, last).await?;
    }
    last = bench.here.applied(&guard, vec![put("kept", "off the lease")]).await?.max(last);
    ear.put(1, "kept", last).await?;

    // Nobody asks for anything: the watch has to tell by itself.
    let mut gone = Vec::new();
    while gone.len() < 2 {
        let watched = next_in_time(&bench, &mut ear, &lease).await?;
        lease.may_be_gone(bench.now(), "its keys were gone")?;
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
    let found = bench.here.read(vec![one("k1"), one("k2"), one("kept")]).await?.found.concat();
    ensure!(
        names(&found) == "kept",
        "a lease ends with its keys, and no others, but `{}` of `k1 k2 kept` was there then",
        names(&found)
    );

    for handle in bench.handles() {
        let answer = handle.keep_alive(lease.id).await?;
        expect!(answer, Response::Expired, "a lease that is gone is not renewed");
        let answer = handle.revoke(lease.id).await?;
        expect!(answer, Response::Expired, "a lease that is gone is not revoked");
        let answer = handle.claim("k1", lease.id).await?;
        expect!(answer, Response::Expired, "nothing is claimed under a lease that is gone");
    }
    let again = bench.there.leader("k1").await?;
    ensure!(
        again.created > at,
        "a key that is claimed again has a greater epoch than its end, {at}, but it has {}",
        again.created
    );
    Ok(())
}

pub(super) async fn a_renewed_lease_lives_on(bench: Bench) -> Verdict {
    let mut ear = bench.there.ear();
    ear.listen(of_key(1, "k")).await?;
    let mut lease = Short::grant(&bench, &bench.here).await?;
    let claimed = bench.here.claimed("k", lease.id).await?;
    ear.put(1, "k", claimed.created).await?;

    // Beyond its first time, through either handle.
    for round in 0..2 {
        bench.pass(lease.ttl / 2).await;
        let sent = bench.now();
        let answer = bench.handle(round).keep_alive(lease.id).await?;
        let answered = bench.now();
        if matches!(answer, Response::Expired) {
            if answered >= lease.lives_until() {
                return Err(Stop::Skip("the machine was too slow to keep a lease alive".into()));
            }
            lease.may_be_gone(answered, "it was not renewed")?;
        }
        expect!(answer, Response::Renewed(ttl), "a lease that lives is renewed");
        (lease.ttl, lease.sent, lease.answered) = (ttl, sent, answered);
    }
    let deletion = next_in_time(&bench, &mut ear, &lease).await?;
    lease.may_be_gone(bench.now(), "since its last renewal its key was gone")?;
    expect!(deletion, Change::Deleted(_), "the key of a lease ends with it");
    Ok(())
}

pub(super) async fn a_lease_that_is_over_is_not_renewed(bench: Bench) -> Verdict {
    let lease = Short::grant(&bench, &bench.here).await?;
    bench.here.claimed("k", lease.id).await?;
    // Right after its time, however long the store takes to notice.
    while bench.now() <= lease.answered.saturating_add(lease.ttl) {
        bench.pass(lease.ttl / STEPS).await;
    }
    for handle in [&bench.there, &bench.here] {
        let answer = handle.keep_alive(lease.id).await?;
        expect!(answer, Response::Expired, "a lease whose time is over is not renewed");
    }
    // And it ends nevertheless, also where nobody watches.
    loop {
        let Some(entry) = bench.there.get("k").await? else { return Ok(()) };
        ensure!(
            bench.now() < lease.answered.saturating_add(lease.ttl + SOON),
            "a lease ends soon after its time, but after {SOON} ns there was still {entry:?}"
        );
        bench.pass(lease.ttl / STEPS).await;
    }
}

/// What a watch tells next, at the latest soon after the time of a lease.
async fn next_in_time(bench: &Bench, ear: &mut Ear, lease: &Short) -> Verdict<Change> {
    loop {
        if let Some(watched) = ear.within(MOMENT).await {
            return Ok(watched.change);
        }
        ensure!(
            bench.now() < lease.answered.saturating_add(lease.ttl + SOON),
            "a lease ends soon after its time, and a watch tells that, but after {SOON} ns more \
             it had told nothing"
        );
        tokio::select! {
            watched = ear.told() => return Ok(watched.change),
            () = bench.pass(lease.ttl / STEPS) => {}
        }
    }
}
