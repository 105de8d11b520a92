//! Calls whose answers are lost: the operation happened once or not at all, and a caller that
//! asks again is told what is true.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::time::timeout;

use super::listener::{Listener, of_all};
use super::stores::{
    HOUR, Handle, Stores, absent, all, claim, guard_of, guarded, new_lease, one, put,
};
use super::verdict::{Stop, Verdict, name};
use incumbent::Failure;
use incumbent::types::{Change, Grant, Guard, Operation, Response};

/// How many calls are given up, each at another moment.
const CALLS: u32 = 24;
/// Between one moment and the next.
const MOMENT: Duration = Duration::from_micros(150);
/// How many claims are made while the store does not answer.
const CLAIMS: usize = 10;
/// The time-out of a call that gets no answer.
const SHORT: Duration = Duration::from_millis(200);

pub(super) async fn what_was_given_up_happened_once_or_never(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let lease = stores.here.lease().await?;
    let mut listener = stores.there.listening(of_all(1, "g/")).await?;
    for moment in 0..CALLS {
        let handle = stores.handle(moment as usize);
        // A grant, and what is claimed under it.
        let own = new_lease();
        let grant = Operation::Grant(Grant { lease: own, ttl: HOUR });
        give_up(handle, grant, moment).await;
        let answer = handle.grant(own, HOUR).await?;
        ensure!(
            matches!(answer, Response::Granted(_) | Response::Exists),
            "a grant that was given up is asked for again, and the lease granted or there, but \
             the store said {answer:?}"
        );
        let key = format!("g/claim/{moment}");
        give_up(handle, claim(&key, own), moment).await;
        asked_again(handle, &key, own).await?;

        // A write that must not happen twice.
        let key = format!("g/write/{moment}");
        let write = || guarded(&guard, vec![absent(&key)], vec![put(&key, "v")]);
        give_up(handle, write(), moment).await;
        let answer = handle.ask(write()).await?;
        ensure!(
            matches!(answer, Response::Applied(_) | Response::Conflict),
            "a write that was given up is asked for again, and applied or in conflict with \
             itself, but the store said {answer:?}"
        );

        // A renewal, and an end.
        give_up(handle, Operation::KeepAlive(lease), moment).await;
        let answer = handle.keep_alive(lease).await?;
        expect!(answer, Response::Renewed(_), "a renewal that was given up does no harm");
        give_up(handle, Operation::Read(vec![one("lead")]), moment).await;
        give_up(handle, Operation::Revoke(own), moment).await;
        let answer = handle.revoke(own).await?;
        ensure!(
            matches!(answer, Response::Revoked | Response::Expired),
            "a revocation that was given up is asked for again, and the lease revoked or gone, \
             but the store said {answer:?}"
        );
        let left = stores.there.get(&format!("g/claim/{moment}")).await?;
        ensure!(left.is_none(), "no key outlives its lease, but {left:?} did");
    }
    let made = |moment| [format!("g/claim/{moment}"), format!("g/write/{moment}")];
    once_each(&stores, &mut listener, &guard, (0..CALLS).flat_map(made).collect()).await
}

pub(super) async fn a_call_without_time_ends(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let lease = stores.here.lease().await?;
    let mut listener = stores.there.listening(of_all(1, "g/")).await?;
    for (moment, within) in (0..).zip([0, 1, 50, 1_000, 5_000]) {
        let handle = stores.handle(moment);
        let within = Duration::from_micros(within);
        let key = format!("g/{moment}");
        let operations = [
            Operation::KeepAlive(lease),
            Operation::Read(vec![one("lead")]),
            claim(&key, lease),
            guarded(&guard, vec![], vec![]),
        ];
        for operation in operations {
            let outcome = handle.outcome(operation.clone(), within).await?;
            let is_one = match &outcome {
                Ok(Response::Renewed(_)) => matches!(operation, Operation::KeepAlive(_)),
                Ok(Response::Snapshot(_)) => matches!(operation, Operation::Read(_)),
                Ok(Response::Claimed(_)) => matches!(operation, Operation::Claim(_)),
                Ok(Response::Applied(_)) => matches!(operation, Operation::Guarded(_)),
                outcome => matches!(outcome, Err(Failure::Timeout | Failure::Unavailable)),
            };
            ensure!(
                is_one,
                "within {within:?} there is an answer or none in time, but to {operation:?} the \
                 store said {outcome:?}"
            );
        }
        asked_again(handle, &key, lease).await?;
    }
    let made = (0..5).map(|moment| format!("g/{moment}"));
    once_each(&stores, &mut listener, &guard, made.collect()).await
}

pub(super) async fn a_stalled_call_gives_up_and_can_be_asked_again(stores: Stores) -> Verdict {
    let guard = guard_of(&stores.here.leader("lead").await?);
    let lease = stores.here.lease().await?;
    let mut listener = stores.there.listening(of_all(1, "g/")).await?;
    if !stores.place.stall(true).await {
        return Err(Stop::Skip("this place cannot be kept from answering".into()));
    }
    let renewal = stores.here.call(Operation::KeepAlive(lease), SHORT);
    let renewal = tokio::spawn(renewal);
    let stalled = stores
        .at_once(CLAIMS + 4, move |handle, number| async move {
            // Not everything that stops writers stops readers.
            let operation = match number {
                CLAIMS.. => Operation::Read(vec![one("lead")]),
                _ => claim(&format!("g/{number}"), lease),
            };
            let since = Instant::now();
            match handle.outcome(operation, SHORT).await? {
                Ok(Response::Snapshot(_)) => Ok((Err(Failure::Timeout), SHORT)),
                outcome => Ok((outcome, since.elapsed())),
            }
        })
        .await;
    stores.place.stall(false).await;
    for (outcome, after) in stalled? {
        ensure!(
            outcome == Err(Failure::Timeout) && after >= SHORT,
            "a call that gets no answer ends with `timeout` after its {SHORT:?}, but after \
             {after:?} it was {outcome:?}"
        );
    }
    let made: Vec<_> = (0..CLAIMS).map(|number| format!("g/{number}")).collect();
    for (number, key) in made.iter().enumerate() {
        asked_again(stores.handle(number), key, lease).await?;
    }
    // The answer to a renewal still counts; or the call ends because none can come.
    let late = timeout(stores.here.timeout, renewal).await;
    ensure!(
        matches!(late, Ok(Ok(Ok(Response::Renewed(_)) | Err(_)))),
        "a renewal that is late is answered, or ends, but it was {late:?}"
    );
    once_each(&stores, &mut listener, &guard, made).await
}

/// Makes a call, and drops it: before the first poll, after it, or a moment later.
async fn give_up(handle: &Handle, operation: Operation, moment: u32) {
    let mut call = handle.call(operation, Duration::from_secs(1));
    match moment {
        0 => {}
        1 => {
            poll_fn(|context| {
                let _ = call.poll_unpin(context);
                Poll::Ready(())
            })
            .await;
        }
        later => {
            let _ = timeout(MOMENT * (later - 2), call).await;
        }
    }
}

/// The key of a claim that was given up belongs to the caller that asks again.
async fn asked_again(handle: &Handle, key: &str, lease: i64) -> Verdict {
    expect!(
        handle.claim(key, lease).await?,
        (Response::Claimed(of) | Response::Taken(of)),
        "a claim that was given up is asked for again, and gives the key or its owner"
    );
    ensure!(
        of.entry.lease == lease,
        "a claim that was given up is asked for again, and the key is the caller's, but it \
         was {of:?}"
    );
    Ok(())
}

/// Checks that a watch told one put of each of these keys, until now.
async fn once_each(
    stores: &Stores,
    listener: &mut Listener,
    guard: &Guard,
    keys: Vec<String>,
) -> Verdict {
    // A call that was given up may still happen, but changes nothing more.
    let end = stores.there.applied(guard, vec![put("g/end", "")]).await?;
    let mut puts: Vec<(String, i64)> = Vec::new();
    loop {
        let watched = listener.next().await?;
        match watched.change {
            Change::Put(entry) if entry.modified == end => break,
            Change::Put(entry) => puts.push((name(&entry.key), entry.modified)),
            Change::Deleted(_) | Change::Started(_) | Change::Ended(_) => {}
        }
    }
    for key in keys {
        let made = puts.iter().filter(|(put, _)| *put == key).count();
        ensure!(
            made == 1,
            "what is asked for again happens once, but `{key}` was put {made} times: {puts:?}"
        );
    }
    let found = stores.here.read(vec![all("g/")]).await?.at;
    ensure!(found >= end, "revisions never go back, but after {end} came {found}");
    Ok(())
}
