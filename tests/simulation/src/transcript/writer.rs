//! Events and configurations of the native elector as lines of a transcript.

use std::fmt::Write as _;

use incumbent_guest::types::*;

use super::native_codec::{changes, failed, found, term_text};
use super::text::{quote, seconds};

/// The line that opens an elector.
pub fn opened(config: Config) -> String {
    format!(
        "config ttl={} margin={} timeout={} seed={},{}",
        seconds(config.lease_ttl),
        seconds(config.safety_margin),
        seconds(config.request_timeout),
        config.seed.0,
        config.seed.1
    )
}

/// An event, with its leases as they are.
pub fn written(event: &Event) -> String {
    match event {
        Event::Wake => "wake".into(),
        Event::Campaign(candidacy) => {
            let rejoin = if candidacy.rejoin { " rejoin" } else { "" };
            let mut preference = String::new();
            if candidacy.priority != 0 {
                let _ = write!(preference, " priority {}", candidacy.priority);
            }
            if let Some(after) = candidacy.preempt_after {
                let _ = write!(preference, " preempt {}", seconds(after));
            }
            format!(
                "campaign {} {} {} {}{rejoin}{preference}",
                candidacy.election,
                quote(candidacy.name.as_bytes()),
                contest(candidacy.contest),
                quote(&candidacy.value)
            )
        }
        Event::Observe(observation) => format!("observe {}", observed(observation)),
        Event::Inspect(observation) => format!("inspect {}", observed(observation)),
        Event::Proclaim(proclamation) => format!(
            "proclaim {} ticket {} {}",
            proclamation.election,
            proclamation.ticket,
            quote(&proclamation.value)
        ),
        Event::Write(write) => format!(
            "write {} ticket {}{}",
            term_text(&write.term),
            write.ticket,
            changes(&write.expect, &write.mutations)
        ),
        Event::Resign(term) => format!("resign {}", term_text(term)),
        Event::Yielded(term) => format!("yielded {}", term_text(term)),
        Event::Leave(election) => format!("leave {election}"),
        Event::Limit(Some(Limit { at_most: 0, is_fair: false, at_once })) => {
            format!("drain {at_once}")
        }
        Event::Limit(Some(Limit { at_most, is_fair, at_once })) => {
            format!("limit {at_most}{} at once {at_once}", if *is_fair { " fair" } else { "" })
        }
        Event::Limit(None) => "limit none".into(),
        Event::Close => "close".into(),
        Event::Reply(reply) => {
            let outcome = match &reply.outcome {
                Ok(response) => answered(response),
                Err(failure) => failed(failure),
            };
            format!("#{} {outcome}", reply.id)
        }
        Event::Watched(watched) => {
            let change = match &watched.change {
                Change::Started(at) => format!("started at {at}"),
                Change::Put(entry) => format!("put {}", found(entry)),
                Change::Deleted(deletion) => {
                    format!("deleted {} at {}", quote(&deletion.key), deletion.at)
                }
                Change::Ended(failure) => format!("ended {}", failed(failure)),
            };
            format!("~{} {change}", watched.id)
        }
    }
}

fn observed(observation: &Observation) -> String {
    format!(
        "{} {} {}",
        observation.election,
        quote(observation.name.as_bytes()),
        contest(observation.contest)
    )
}

fn contest(contest: Contest) -> &'static str {
    match contest {
        Contest::Queue => "queue",
        Contest::Race => "race",
    }
}

fn answered(response: &Response) -> String {
    match response {
        Response::Granted(ttl) => format!("granted {}", seconds(*ttl)),
        Response::Exists => "exists".into(),
        Response::Renewed(ttl) => format!("renewed {}", seconds(*ttl)),
        Response::Expired => "expired".into(),
        Response::Revoked => "revoked".into(),
        Response::Claimed(claimed) => {
            format!("claimed {} at {}", found(&claimed.entry), claimed.at)
        }
        Response::Taken(claimed) => format!("taken {} at {}", found(&claimed.entry), claimed.at),
        Response::Snapshot(snapshot) => {
            let mut text = format!("found at {}", snapshot.at);
            for entries in &snapshot.found {
                let entries: Vec<String> = entries.iter().map(found).collect();
                text += &format!(" {{{}}}", entries.join(" "));
            }
            text
        }
        Response::Applied(at) => format!("applied at {at}"),
        Response::Stale => "stale".into(),
        Response::Conflict => "conflict".into(),
    }
}
