//! Many calls at once on one store, which it may do together: each means what it means alone.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::listener::of_all;
use super::stores::{Handle, Stores, absent, all, claim, guard_of, guarded, new_lease, one, put};
use super::verdict::{Stop, Verdict, names};
use incumbent::Failure;
use incumbent::types::{
    Answer, Change, Claim, Entry, Guard, Operation, Order, Response, Selection,
};

/// How many calls of a kind are made at once.
const AT_ONCE: usize = 60;
/// More than any store takes in one write.
const TOO_LARGE: usize = 4_000_000;

/// Makes all of these calls at once, in this order.
async fn all_at_once(handle: &Handle, operations: Vec<Operation>) -> Verdict<Vec<Answer>> {
    let calls = operations.into_iter().map(|operation| handle.outcome(operation, handle.timeout));
    join_all(calls).await.into_iter().collect()
}

/// So many names with this prefix, in their order: none begins with another one.
fn names_of(prefix: &str, many: usize) -> Vec<String> {
    (0..many).map(|number| format!("{prefix}/{number:03}")).collect()
}

pub(super) async fn calls_at_once_answer_for_themselves(stores: Stores) -> Verdict {
    let handle = &stores.here;
    let lease = handle.lease().await?;
    let mut listener = stores.there.listening(of_all(1, "w/")).await?;
    // A term a write, which guards it, and a key a read.
    let mut terms = Vec::new();
    for key in names_of("terms", AT_ONCE) {
        terms.push(handle.claimed(&key, lease).await?);
    }
    let (claimed, written) = (names_of("w/claimed", AT_ONCE), names_of("w/written", AT_ONCE));
    let mut asked = Vec::new();
    for ((key, to), term) in claimed.iter().zip(&written).zip(&terms) {
        let term_key = String::from_utf8_lossy(&term.key).into_owned();
        asked.push(claim(key, lease));
        asked.push(guarded(&guard_of(term), vec![absent(to)], vec![put(to, to)]));
        asked.push(Operation::Read(vec![one(&term_key), Selection { limit: 2, ..all(key) }]));
    }
    let answers = all_at_once(handle, asked).await?;

    let mut made: BTreeSet<(i64, Vec<u8>)> = BTreeSet::new();
    let keys = claimed.iter().zip(&written).zip(&terms);
    for (((key, to), term), answers) in keys.zip(answers.chunks_exact(3)) {
        let [first, second, third] = answers else { continue };
        expect!(first, Ok(Response::Claimed(of)), "`{key}`, which is not there, is claimed");
        ensure!(
            of.entry.key == key.as_bytes()
                && of.entry.lease == lease
                && (of.entry.created, of.entry.modified) == (of.at, of.at),
            "a claim of `{key}` is answered by what it made, but it was {of:?}"
        );
        expect!(second, Ok(Response::Applied(at)), "a write whose guard holds is applied");
        expect!(third, Ok(Response::Snapshot(snapshot)), "a read is answered by a snapshot");
        let there = if snapshot.at >= of.at { vec![of.entry.clone()] } else { Vec::new() };
        ensure!(
            snapshot.found == [vec![term.clone()], there],
            "a read of {term:?} and `{key}` at {}, where {of:?} was claimed, finds what was there, \
             but it was {:?}",
            snapshot.at,
            snapshot.found
        );
        made.extend([(of.at, key.as_bytes().to_vec()), (at, to.as_bytes().to_vec())]);
    }
    // The revisions that were named are those that a watch sees, and each change is made once.
    let mut last = 0;
    while let Some((at, _)) = made.first().cloned() {
        let watched = listener.next().await?;
        expect!(watched.change, Change::Put(entry), "claims and puts make keys");
        ensure!(
            entry.created == entry.modified && entry.modified >= last,
            "each key is made once, in the order of revisions, but after {last} came {entry:?}"
        );
        last = entry.modified;
        ensure!(
            made.remove(&(entry.modified, entry.key.clone())),
            "a watch sees a change at the revision that its answer named, the next at {at}, but it \
             saw {entry:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_call_that_fails_fails_alone(stores: Stores) -> Verdict {
    let handle = &stores.here;
    let leader = handle.leader("leader").await?;
    let taken = handle.claimed("taken", leader.lease).await?;
    let guard = guard_of(&leader);
    let stale = Guard { epoch: guard.epoch + 1_000_000, ..guard.clone() };
    let large = Claim { key: b"x/large".into(), value: vec![b'v'; TOO_LARGE], lease: leader.lease };
    let write = |guard: &Guard, expect, key: &str| guarded(guard, expect, vec![put(key, "once")]);
    let invalid = vec![put("x/twice", "one"), put("x/twice", "two")];
    // One that fails is among those that do not, in each place that it can have.
    for round in 0..3 {
        let fails = [
            (claim("x/without-lease", new_lease()), Fails::With(Response::Expired)),
            (claim("taken", leader.lease), Fails::Taken),
            (write(&stale, vec![], "x/stale"), Fails::With(Response::Stale)),
            (write(&guard, vec![absent("taken")], "x/conflict"), Fails::With(Response::Conflict)),
            (guarded(&guard, vec![], invalid.clone()), Fails::Invalid),
            (Operation::Claim(large.clone()), Fails::OrNot),
        ];
        let done = names_of(&format!("done/{round}"), AT_ONCE);
        let mut asked: Vec<Operation> = done
            .iter()
            .enumerate()
            .map(|(number, key)| match number % 2 {
                0 => claim(key, leader.lease),
                _ => write(&guard, vec![absent(key)], key),
            })
            .collect();
        let each = AT_ONCE / fails.len();
        for (number, (operation, _)) in fails.iter().enumerate() {
            asked.insert(number * (each + 1) + round * each / 2, operation.clone());
        }
        let mut answers = all_at_once(handle, asked).await?;
        for (number, (operation, how)) in fails.iter().enumerate().rev() {
            let answer = answers.remove(number * (each + 1) + round * each / 2);
            how.judge(operation, &answer, &taken)?;
        }
        for (key, answer) in done.iter().zip(&answers) {
            ensure!(
                matches!(answer, Ok(Response::Claimed(_) | Response::Applied(_))),
                "what fails among calls at once fails alone, but that of `{key}` was answered by \
                 {answer:?}"
            );
        }
        let found = handle.read(vec![all(&format!("done/{round}/")), all("x/")]).await?.found;
        let [there, failed] = &found[..] else { continue };
        ensure!(
            names_are(there, &done) && there.iter().all(|entry| entry.created == entry.modified),
            "what does not fail is done once, but there is {}",
            names(there)
        );
        let large = |entry: &&Entry| entry.key == b"x/large";
        ensure!(
            failed.iter().all(|entry| large(&entry)),
            "what fails changes nothing, but there is {}",
            names(failed)
        );
    }
    Ok(())
}

fn names_are(found: &[Entry], names: &[String]) -> bool {
    found.iter().map(|entry| &*entry.key).collect::<BTreeSet<_>>()
        == names.iter().map(String::as_bytes).collect::<BTreeSet<_>>()
}

/// How a call fails.
enum Fails {
    With(Response),
    Taken,
    Invalid,
    /// Some stores take as much.
    OrNot,
}

impl Fails {
    fn judge(&self, operation: &Operation, answer: &Answer, taken: &Entry) -> Verdict {
        let is_right = match self {
            Self::With(response) => answer.as_ref() == Ok(response),
            Self::Taken => matches!(answer, Ok(Response::Taken(of)) if of.entry == *taken),
            Self::Invalid => matches!(answer, Err(Failure::Invalid(_))),
            Self::OrNot => true,
        };
        ensure!(
            is_right,
            "a {} that fails is told so for its own reason, but it was {answer:?}",
            operation.name()
        );
        Ok(())
    }
}

pub(super) async fn of_claims_at_once_one_wins(stores: Stores) -> Verdict {
    let handle = &stores.here;
    let lease = handle.lease().await?;
    let keys = names_of("k", AT_ONCE);
    // Each key twice, one right after the other.
    let asked = keys.iter().flat_map(|key| [claim(key, lease), claim(key, lease)]).collect();
    let answers = all_at_once(handle, asked).await?;
    let mut winners = Vec::new();
    for (key, answers) in keys.iter().zip(answers.chunks_exact(2)) {
        let ([Ok(Response::Claimed(won)), Ok(Response::Taken(lost))]
        | [Ok(Response::Taken(lost)), Ok(Response::Claimed(won))]) = answers
        else {
            return Err(Stop::Breach(format!(
                "of two claims of `{key}` at once one wins, and the other finds it taken, but they \
                 were answered by {answers:?}"
            )));
        };
        ensure!(
            lost.entry == won.entry && lost.at >= won.at && won.entry.key == key.as_bytes(),
            "who finds `{key}` taken is told by what, {won:?}, but was told {lost:?}"
        );
        winners.push(won.entry.clone());
    }
    let by_key = Selection { order: Order::ByKey, ..all("k/") };
    let found = stores.there.read(vec![by_key]).await?.found.concat();
    ensure!(found == winners, "what was claimed is there, {winners:?}, but there is {found:?}");
    Ok(())
}
