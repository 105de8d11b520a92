// Included by `transcript.rs`, with `types` in scope, once for each set of types.

use super::text::{Leases, Words, hex, quote, seconds};
use types::*;

pub fn config(config: super::Config) -> Config {
    Config {
        lease_ttl: config.ttl,
        safety_margin: config.margin,
        request_timeout: config.timeout,
        seed: config.seed,
    }
}

pub fn refused(error: &ConfigError) -> String {
    match error {
        ConfigError::MarginExceedsTtl => "margin-exceeds-ttl".into(),
        ConfigError::Other(text) => format!("other {text:?}"),
    }
}

pub fn events(lines: &[String], leases: &Leases) -> Result<Vec<Event>, String> {
    lines
        .iter()
        .map(|line| {
            let resolved = leases.resolve(line.clone());
            let mut words = Words::of(&resolved);
            let event = event(&mut words).map_err(|error| format!("`{line}`: {error}"))?;
            if words.is_empty() { Ok(event) } else { Err(format!("`{line}`: too long")) }
        })
        .collect()
}

/// What an elector says, a line each, with names for its leases.
pub fn step(step: &Step, leases: &mut Leases) -> Vec<String> {
    for command in &step.commands {
        if let Command::Call(Call { operation: Operation::Grant(grant), .. }) = command {
            leases.note(grant.lease);
        }
    }
    let wake = match step.deadline {
        Some(mark) => format!("wake at {}", seconds(mark)),
        None => "idle".into(),
    };
    step.commands
        .iter()
        .map(command)
        .chain([wake])
        .map(|line| leases.name(line))
        .collect()
}

// Events.

fn event(words: &mut Words<'_>) -> Result<Event, String> {
    if words.eat("#") {
        let id = words.number()?;
        return Ok(Event::Reply(Reply { id, outcome: outcome(words)? }));
    }
    if words.eat("~") {
        let id = words.number()?;
        return Ok(Event::Watched(Watched { id, change: change(words)? }));
    }
    Ok(match words.word()? {
        "wake" => Event::Wake,
        "campaign" => Event::Campaign(Candidacy {
            election: words.number()?,
            name: words.string()?,
            contest: contest(words)?,
            value: words.bytes()?,
            rejoin: words.eat("rejoin"),
            priority: if words.eat("priority") { words.number()? } else { 0 },
            preempt_after: if words.eat("preempt") { Some(words.duration()?) } else { None },
        }),
        "observe" => Event::Observe(observation(words)?),
        "inspect" => Event::Inspect(observation(words)?),
        "proclaim" => Event::Proclaim(Proclamation {
            election: words.number()?,
            ticket: ticket(words)?,
            value: words.bytes()?,
        }),
        "write" => {
            let mut write = GuardedWrite {
                term: term(words)?,
                ticket: ticket(words)?,
                expect: Vec::new(),
                mutations: Vec::new(),
            };
            while !words.is_empty() {
                match words.word()? {
                    "expect" => {
                        let key = words.bytes()?;
                        words.want("=")?;
                        write.expect.push(Expectation { key, modified: words.number()? });
                    }
                    "put" => {
                        let key = words.bytes()?;
                        words.want("=")?;
                        write.mutations.push(Mutation::Put(Put { key, value: words.bytes()? }));
                    }
                    "delete" => write.mutations.push(Mutation::Delete(words.bytes()?)),
                    "proclaim" => write.mutations.push(Mutation::Proclaim(words.bytes()?)),
                    word => return Err(format!("`{word}` is no change")),
                }
            }
            Event::Write(write)
        }
        "resign" => Event::Resign(term(words)?),
        "yielded" => Event::Yielded(term(words)?),
        "leave" => Event::Leave(words.number()?),
        "drain" => {
            Event::Limit(Some(Limit { at_most: 0, is_fair: false, at_once: words.number()? }))
        }
        "limit" => Event::Limit(limit(words)?),
        "close" => Event::Close,
        word => return Err(format!("`{word}` is no event")),
    })
}

/// `none`, or `MOST [fair] at once MANY`.
fn limit(words: &mut Words<'_>) -> Result<Option<Limit>, String> {
    if words.eat("none") {
        return Ok(None);
    }
    let at_most = words.number()?;
    let is_fair = words.eat("fair");
    words.want("at once")?;
    Ok(Some(Limit { at_most, is_fair, at_once: words.number()? }))
}

fn contest(words: &mut Words<'_>) -> Result<Contest, String> {
    match words.word()? {
        "queue" => Ok(Contest::Queue),
        "race" => Ok(Contest::Race),
        word => Err(format!("`{word}` is no contest")),
    }
}

fn observation(words: &mut Words<'_>) -> Result<Observation, String> {
    Ok(Observation {
        election: words.number()?,
        name: words.string()?,
        contest: contest(words)?,
    })
}

fn term(words: &mut Words<'_>) -> Result<Term, String> {
    let election = words.number()?;
    words.want("@")?;
    Ok(Term { election, epoch: words.number()? })
}

fn ticket(words: &mut Words<'_>) -> Result<Ticket, String> {
    words.want("ticket")?;
    words.number()
}

fn outcome(words: &mut Words<'_>) -> Result<Result<Response, Failure>, String> {
    Ok(Ok(match words.word()? {
        "granted" => Response::Granted(words.duration()?),
        "exists" => Response::Exists,
        "renewed" => Response::Renewed(words.duration()?),
        "expired" => Response::Expired,
        "revoked" => Response::Revoked,
        "claimed" => Response::Claimed(claimed(words)?),
        "taken" => Response::Taken(claimed(words)?),
        "found" => {
            let at = revision(words)?;
            let mut found = Vec::new();
            while words.eat("{") {
                let mut entries = Vec::new();
                while !words.eat("}") {
                    entries.push(entry(words)?);
                }
                found.push(entries);
            }
            Response::Snapshot(Snapshot { at, found })
        }
        "applied" => Response::Applied(revision(words)?),
        "stale" => Response::Stale,
        "conflict" => Response::Conflict,
        word => return Ok(Err(failure(word, words)?)),
    }))
}

fn failure(word: &str, words: &mut Words<'_>) -> Result<Failure, String> {
    Ok(match word {
        "timeout" => Failure::Timeout,
        "unavailable" => Failure::Unavailable,
        "compacted" => Failure::Compacted(words.number()?),
        "denied" => Failure::Denied(words.string()?),
        "invalid" => Failure::Invalid(words.string()?),
        "other" => Failure::Other(words.string()?),
        _ => return Err(format!("`{word}` is no answer")),
    })
}

fn change(words: &mut Words<'_>) -> Result<Change, String> {
    Ok(match words.word()? {
        "started" => Change::Started(revision(words)?),
        "put" => Change::Put(entry(words)?),
        "deleted" => Change::Deleted(Deletion { key: words.bytes()?, at: revision(words)? }),
        "ended" => {
            let word = words.word()?;
            Change::Ended(failure(word, words)?)
        }
        word => return Err(format!("`{word}` is no change")),
    })
}

fn claimed(words: &mut Words<'_>) -> Result<Claimed, String> {
    Ok(Claimed { entry: entry(words)?, at: revision(words)? })
}

fn revision(words: &mut Words<'_>) -> Result<i64, String> {
    words.want("at")?;
    words.number()
}

fn entry(words: &mut Words<'_>) -> Result<Entry, String> {
    words.want("[")?;
    let key = words.bytes()?;
    words.want("=")?;
    let value = words.bytes()?;
    let lease = words.lease()?;
    let (created, modified) = (words.number()?, words.number()?);
    words.want("]")?;
    Ok(Entry { key, value, lease, created, modified })
}

// Steps.

fn command(command: &Command) -> String {
    match command {
        Command::Call(call) => {
            format!("call #{} {} by {}", call.id, operation(&call.operation), seconds(call.give_up))
        }
        Command::Watch(watch) => {
            let prefix = if watch.prefix { "*" } else { "" };
            let since = watch.since.map_or("now".into(), |since| since.to_string());
            format!("watch ~{} {}{prefix} from {since}", watch.id, quote(&watch.key))
        }
        Command::Unwatch(id) => format!("unwatch ~{id}"),
        Command::Notify(notice) => format!("tell {}", tell(notice)),
    }
}

fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Grant(grant) => format!("grant {} {}", hex(grant.lease), seconds(grant.ttl)),
        Operation::KeepAlive(lease) => format!("keep-alive {}", hex(*lease)),
        Operation::Revoke(lease) => format!("revoke {}", hex(*lease)),
        Operation::Claim(claim) => format!(
            "claim {}={} {}",
            quote(&claim.key),
            quote(&claim.value),
            hex(claim.lease)
        ),
        Operation::Read(selections) => {
            let selections: Vec<String> = selections.iter().map(selection).collect();
            format!("read {}", selections.join(" "))
        }
        Operation::Guarded(guarded) => {
            let guard = &guarded.guard;
            let lease = guard.lease.map_or(String::new(), |lease| format!(" {}", hex(lease)));
            format!(
                "guarded [{}{lease} {}]{}",
                quote(&guard.key),
                guard.epoch,
                changes(&guarded.expect, &guarded.mutations)
            )
        }
    }
}

/// What a write expects and changes, as `write` and `guarded` both have it.
pub fn changes(expect: &[Expectation], mutations: &[Mutation]) -> String {
    let mut text = String::new();
    for expect in expect {
        text += &format!(" expect {}={}", quote(&expect.key), expect.modified);
    }
    for mutation in mutations {
        text += &match mutation {
            Mutation::Put(put) => format!(" put {}={}", quote(&put.key), quote(&put.value)),
            Mutation::Proclaim(value) => format!(" proclaim {}", quote(value)),
            Mutation::Delete(key) => format!(" delete {}", quote(key)),
        };
    }
    text
}

fn selection(selection: &Selection) -> String {
    let mut text = quote(&selection.key);
    if selection.prefix {
        text += "*";
    }
    if let Some(from) = &selection.from {
        text += &format!(" from {}", quote(from));
    }
    if let Some(created) = selection.created_before {
        text += &format!(" before {created}");
    }
    if selection.limit != 0 {
        let order = match selection.order {
            Order::OldestFirst => "oldest",
            Order::NewestFirst => "newest",
            Order::ByKey => "first",
        };
        text += &format!(" {order} {}", selection.limit);
    }
    if selection.keys_only {
        text += " keys";
    }
    format!("({text})")
}

fn tell(notice: &Notice) -> String {
    match notice {
        Notice::Joined(joined) => {
            format!("{} joined {} {}", joined.election, quote(&joined.key), joined.created)
        }
        Notice::Elected(leadership) => format!("elected {}", leads(leadership)),
        Notice::Extended(extension) => {
            format!("extended {} until {}", hex(extension.lease), seconds(extension.valid_until))
        }
        Notice::Endangered(leadership) => format!("endangered {}", leads(leadership)),
        Notice::HandOver(term) => format!("hand over {}", term_text(term)),
        Notice::Demoted(demotion) => {
            format!("demoted {}: {}", term_text(&demotion.term), reason(&demotion.reason))
        }
        Notice::Leader(sighting) => {
            let leader = sighting.leader.as_ref().map_or("nobody".into(), found);
            format!("{} leader {leader}", sighting.election)
        }
        Notice::Listed(listing) => {
            let candidates = listing.candidates.iter().map(found).collect::<Vec<_>>().join(" ");
            let listed = if candidates.is_empty() { "nobody" } else { &candidates };
            format!("{} listed {listed}", listing.election)
        }
        Notice::Written(written) => format!("ticket {} {}", written.ticket, became(&written.outcome)),
        Notice::Withdrawn(withdrawal) => {
            let cause = withdrawal.cause.as_ref().map_or("as asked".into(), failed);
            format!("{} withdrawn: {cause}", withdrawal.election)
        }
        Notice::Trouble(trouble) => {
            let whom = trouble.election.map_or("all".into(), |election| election.to_string());
            format!("{whom} trouble: {}", failed(&trouble.failure))
        }
        Notice::Closed => "closed".into(),
    }
}

fn leads(leadership: &Leadership) -> String {
    format!(
        "{} {} {} until {}",
        term_text(&leadership.term),
        quote(&leadership.key),
        hex(leadership.lease),
        seconds(leadership.valid_until)
    )
}

pub fn term_text(term: &Term) -> String {
    format!("{}@{}", term.election, term.epoch)
}

fn reason(reason: &Reason) -> String {
    match reason {
        Reason::Resigned => "resigned".into(),
        Reason::Expired => "expired".into(),
        Reason::LeaseLost => "lease-lost".into(),
        Reason::Deposed => "deposed".into(),
        Reason::Fenced => "fenced".into(),
        Reason::Other(text) => format!("other {text:?}"),
    }
}

fn became(outcome: &WriteOutcome) -> String {
    match outcome {
        WriteOutcome::Applied(at) => format!("applied at {at}"),
        WriteOutcome::Stale => "stale".into(),
        WriteOutcome::Conflict => "conflict".into(),
        WriteOutcome::Unknown => "unknown".into(),
        WriteOutcome::Failed(failure) => format!("failed: {}", failed(failure)),
    }
}

pub fn failed(failure: &Failure) -> String {
    match failure {
        Failure::Timeout => "timeout".into(),
        Failure::Unavailable => "unavailable".into(),
        Failure::Compacted(at) => format!("compacted {at}"),
        Failure::Denied(text) => format!("denied {text:?}"),
        Failure::Invalid(text) => format!("invalid {text:?}"),
        Failure::Other(text) => format!("other {text:?}"),
    }
}

pub fn found(entry: &Entry) -> String {
    let lease = if entry.lease == 0 { "-".into() } else { hex(entry.lease) };
    format!(
        "[{}={} {lease} {} {}]",
        quote(&entry.key),
        quote(&entry.value),
        entry.created,
        entry.modified
    )
}
