//! The size of what an elector is told, in bytes, with the overhead of each piece.

use crate::types::{
    Change, Entry, Event, Expectation, Failure, GuardedWrite, Mutation, Response, Snapshot,
};

/// For each piece: the record in the elector's memory, and its allocations.
const PIECE: usize = 128;

pub(crate) fn event(event: &Event) -> usize {
    let contents = match event {
        Event::Campaign(candidacy) => candidacy.name.len() + candidacy.value.len(),
        Event::Observe(observation) | Event::Inspect(observation) => observation.name.len(),
        Event::Proclaim(proclamation) => proclamation.value.len(),
        Event::Write(write) => guarded_write(write),
        Event::Reply(reply) => outcome(&reply.outcome),
        Event::Watched(watched) => change(&watched.change),
        Event::Wake
        | Event::Resign(_)
        | Event::Leave(_)
        | Event::Yielded(_)
        | Event::Limit(_)
        | Event::Close => 0,
    };
    PIECE + contents
}

pub(crate) fn outcome(outcome: &Result<Response, Failure>) -> usize {
    match outcome {
        Ok(Response::Claimed(claimed) | Response::Taken(claimed)) => entry(&claimed.entry),
        Ok(Response::Snapshot(Snapshot { found, .. })) => {
            found.iter().map(|found| PIECE + found.iter().map(entry).sum::<usize>()).sum()
        }
        Ok(
            Response::Granted(_)
            | Response::Exists
            | Response::Renewed(_)
            | Response::Expired
            | Response::Revoked
            | Response::Applied(_)
            | Response::Stale
            | Response::Conflict,
        ) => 0,
        Err(error) => failure(error),
    }
}

pub(crate) fn change(change: &Change) -> usize {
    match change {
        Change::Started(_) => 0,
        Change::Put(put) => entry(put),
        Change::Deleted(deletion) => deletion.key.len(),
        Change::Ended(error) => failure(error),
    }
}

fn guarded_write(write: &GuardedWrite) -> usize {
    let expected = |expected: &Expectation| PIECE + expected.key.len();
    let mutated = |mutation: &Mutation| {
        PIECE
            + match mutation {
                Mutation::Put(put) => put.key.len() + put.value.len(),
                Mutation::Proclaim(bytes) | Mutation::Delete(bytes) => bytes.len(),
            }
    };
    write.expect.iter().map(expected).sum::<usize>()
        + write.mutations.iter().map(mutated).sum::<usize>()
}

fn entry(entry: &Entry) -> usize {
    PIECE + entry.key.len() + entry.value.len()
}

fn failure(failure: &Failure) -> usize {
    match failure {
        Failure::Timeout | Failure::Unavailable | Failure::Compacted(_) => 0,
        Failure::Denied(text) | Failure::Invalid(text) | Failure::Other(text) => text.len(),
    }
}
