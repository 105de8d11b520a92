//! The operations that an election needs, tried with the store.
//!
//! Without a name, in a scratch election whose name nobody else has, on a short lease: an end in the
//! middle leaves nothing for longer than that. With a name, on the keys of that election, without
//! any change: no key is made that its candidates would count or wait for. In place of a claim that
//! succeeds there is one under a lease that was never granted. etcd checks for it the rights to read
//! and to write, takes it through its log and onto its disks, and refuses it for the lease.

use std::future::poll_fn;
use std::time::Duration;

use incumbent::types::{
    Answer, Change, Claim, Grant, Guard, Guarded, Mutation, Operation, Response, Selection, Watch,
};
use incumbent::{Failure, Store, StoreUrl};
use tokio::time::timeout;

use super::super::args::{Common, Contest};
use super::super::exit::{End, Status};
use super::super::text::word;
use super::{Finding, where_to_look};

/// In nanoseconds: long enough for a slow round trip, and short if nobody gives it back.
pub(super) const LEASE_TIME: u64 = 10_000_000_000;

/// A trial that has begun. Its caller renews the lease, and [`end`](Self::end) gives it back.
#[derive(Debug)]
pub(super) struct Trial {
    lease: i64,
    read: Selection,
    write: Write,
}

#[derive(Debug)]
enum Write {
    /// Of the key of the scratch election's leader, which keeps its lease.
    Proclamation(Guard),
    /// Changes nothing.
    Refused(Claim),
}

/// The keys of an election.
struct Keys<'a> {
    name: &'a str,
    contest: Contest,
}

impl Trial {
    /// Tries it, and tells how it went. None if it failed.
    pub(super) async fn start(
        store: &dyn Store,
        common: &Common,
        election: Option<&str>,
    ) -> (Option<Self>, Finding) {
        let within = common.command_timeout;
        let lease = any_lease();
        let scratch = format!("incumbent-doctor-{:x}", any_lease());
        // In a file, all elections need the same rights.
        let named = election.filter(|_| matches!(common.store(), StoreUrl::Etcd(_)));
        let keys = Keys { name: named.unwrap_or(&scratch), contest: common.contest };
        match attempt(store, &keys, lease, named.is_none(), within).await {
            Ok(write) => {
                let text = match named {
                    Some(name) => format!(
                        "the rights for the election {name} are there: it can be read, watched, \
                         claimed and written (its candidates noticed nothing of the check)"
                    ),
                    None => {
                        "an election can be held: a scratch election was read, watched, claimed \
                             and written, on a lease that was granted and renewed"
                            .into()
                    }
                };
                let trial = Self { lease, read: keys.below(), write };
                (Some(trial), Finding::fine("rights", text))
            }
            Err((deed, failure)) => {
                // What is left goes with the lease.
                let _ = store.call(Operation::Revoke(lease), within).await;
                (None, fault(common, named, &keys, deed, failure))
            }
        }
    }

    pub(super) fn read(&self) -> Operation {
        Operation::Read(vec![self.read.clone()])
    }

    pub(super) fn renewal(&self) -> Operation {
        Operation::KeepAlive(self.lease)
    }

    /// What goes onto the store's disk, as a claim does.
    pub(super) fn write(&self) -> Operation {
        match &self.write {
            Write::Proclamation(guard) => {
                guarded(guard, Mutation::Proclaim(b"incumbent doctor".into()))
            }
            Write::Refused(claim) => Operation::Claim(claim.clone()),
        }
    }

    /// Leaves the scratch election, and gives the lease back. Tells if that did not succeed.
    pub(super) async fn end(self, store: &dyn Store, within: Duration) -> Option<Finding> {
        let leave = async {
            if let Write::Proclamation(guard) = &self.write {
                let deletion = guarded(guard, Mutation::Delete(guard.key.clone()));
                expect(store, deletion, within, |it| matches!(it, Response::Applied(_))).await?;
            }
            let revocation = Operation::Revoke(self.lease);
            expect(store, revocation, within, |it| matches!(it, Response::Revoked)).await
        };
        let failure = leave.await.err()?;
        let text = format!(
            "the lease of the check was not given back ({failure}), and runs out by itself within \
             10 s: an election that ends would leave its successor waiting for its lease time"
        );
        Some(Finding::warning("rights", text))
    }
}

/// Does all of it, or tells at which deed it failed.
async fn attempt(
    store: &dyn Store,
    keys: &Keys<'_>,
    lease: i64,
    is_scratch: bool,
    within: Duration,
) -> Result<Write, (&'static str, Failure)> {
    let grant = Operation::Grant(Grant { lease, ttl: LEASE_TIME });
    let answer = expect(store, grant, within, |it| matches!(it, Response::Granted(_))).await;
    answer.map_err(|failure| ("grant a lease", failure))?;
    let renewal = Operation::KeepAlive(lease);
    let answer = expect(store, renewal, within, |it| matches!(it, Response::Renewed(_))).await;
    answer.map_err(|failure| ("renew a lease", failure))?;
    let read = Operation::Read(keys.reads());
    let answer = expect(store, read, within, |it| matches!(it, Response::Snapshot(_))).await;
    answer.map_err(|failure| ("read", failure))?;
    let watched = timeout(within, watch(store, keys.watch())).await;
    watched.unwrap_or(Err(Failure::Timeout)).map_err(|failure| ("watch", failure))?;

    if !is_scratch {
        let never_granted = any_lease();
        let claim = keys.claim(never_granted);
        let answer = expect(store, Operation::Claim(claim.clone()), within, |it| {
            matches!(it, Response::Expired | Response::Taken(_))
        });
        answer.await.map_err(|failure| ("claim", failure))?;
        return Ok(Write::Refused(claim));
    }
    let claim = Operation::Claim(keys.claim(lease));
    let answer = take(store, claim, within, |it| {
        if let Response::Claimed(claimed) = it { Some(claimed.entry.clone()) } else { None }
    });
    let entry = answer.await.map_err(|failure| ("claim", failure))?;
    let guard = Guard { key: entry.key, epoch: entry.created, lease: Some(lease) };
    let write = guarded(&guard, Mutation::Proclaim(b"incumbent doctor".into()));
    let answer = expect(store, write, within, |it| matches!(it, Response::Applied(_))).await;
    answer.map_err(|failure| ("write", failure))?;
    Ok(Write::Proclamation(guard))
}

/// Why an election cannot be held, and what to do.
fn fault(
    common: &Common,
    named: Option<&str>,
    keys: &Keys<'_>,
    deed: &str,
    failure: Failure,
) -> Finding {
    let Failure::Denied(text) = &failure else {
        let sentence = format!(
            "the store does not {deed} ({failure}), which an election needs: {}",
            where_to_look(&common.store())
        );
        return Finding::fault("rights", End::from(failure).status, sentence);
    };
    let user = common.user.as_ref().map_or_else(|| "us".into(), |user| format!("the user {user}"));
    let sentence = match named {
        None => format!(
            "etcd denies {user} to {deed} where no role reaches ({text}): name your election, as in \
             `incumbent doctor my-service`, to have its rights checked"
        ),
        Some(name) => format!(
            "etcd denies {user} to {deed} in the election {name} ({text}): give its role the rights \
             of a candidate, by {}",
            keys.grants(common)
        ),
    };
    Finding::fault("rights", Status::Store, sentence)
}

impl Keys<'_> {
    /// As a candidate reads them: its own layout, and the other one's.
    fn reads(&self) -> Vec<Selection> {
        let itself = Selection::of_key(self.name);
        vec![self.below(), Selection { limit: 1, keys_only: true, ..itself }]
    }

    fn below(&self) -> Selection {
        let below = Selection::of_prefix(format!("{}/", self.name));
        Selection { limit: 1, keys_only: true, ..below }
    }

    fn watch(&self) -> Watch {
        let (key, prefix) = match self.contest {
            Contest::Queue => (format!("{}/", self.name), true),
            Contest::Race => (self.name.to_owned(), false),
        };
        Watch { id: 1, key: key.into_bytes(), prefix, since: None }
    }

    fn claim(&self, lease: i64) -> Claim {
        let key = match self.contest {
            Contest::Queue => format!("{}/{lease:x}", self.name),
            Contest::Race => self.name.to_owned(),
        };
        Claim { key: key.into_bytes(), value: b"incumbent doctor".into(), lease }
    }

    /// What a role needs, as commands of etcd.
    fn grants(&self, common: &Common) -> String {
        let prefix = if let StoreUrl::Etcd(url) = common.store() {
            url.prefix().to_owned()
        } else {
            String::new()
        };
        let (below, itself) = match self.contest {
            Contest::Queue => ("readwrite", "read"),
            Contest::Race => ("read", "readwrite"),
        };
        let grant = "etcdctl role grant-permission ROLE";
        let itself_named = word(&format!("{prefix}{}", self.name));
        let below_named = word(&format!("{prefix}{}/", self.name));
        format!(
            "`{grant} --prefix=true {below} {below_named}` and `{grant} {itself} {itself_named}`"
        )
    }
}

fn guarded(guard: &Guard, mutation: Mutation) -> Operation {
    let guard = guard.clone();
    Operation::Guarded(Guarded { guard, expect: Vec::new(), mutations: vec![mutation] })
}

/// Calls the store, and holds it to such an answer.
pub(super) async fn expect(
    store: &dyn Store,
    operation: Operation,
    within: Duration,
    is_such: fn(&Response) -> bool,
) -> Answer<()> {
    take(store, operation, within, |it| is_such(it).then_some(())).await
}

/// Calls the store, and takes what is looked for from its answer.
pub(super) async fn take<T>(
    store: &dyn Store,
    operation: Operation,
    within: Duration,
    pick: impl FnOnce(&Response) -> Option<T>,
) -> Answer<T> {
    let name = operation.name();
    // A renewal has no bound of its own.
    let answer = timeout(within, store.call(operation, within)).await;
    let response = answer.unwrap_or(Err(Failure::Timeout))?;
    pick(&response)
        .ok_or_else(|| Failure::Other(format!("it answers {} to {name}", response.name())))
}

/// Waits until a watch has started.
async fn watch(store: &dyn Store, watch: Watch) -> Answer<()> {
    let mut watches = store.watches();
    watches.open(watch);
    loop {
        match poll_fn(|context| watches.poll_next(context)).await.change {
            Change::Started(_) => return Ok(()),
            Change::Ended(failure) => return Err(failure),
            Change::Put(_) | Change::Deleted(_) => {}
        }
    }
}

/// The id of a lease that nobody has: any of 2^62.
pub(super) fn any_lease() -> i64 {
    let mut bytes = [0; 8];
    // Fails on systems without random numbers, where the time has to do.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = incumbent::Clock::now(&incumbent::BootClock).to_le_bytes();
    }
    (i64::from_le_bytes(bytes) >> 2).abs().max(1)
}
