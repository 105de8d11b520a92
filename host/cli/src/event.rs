//! Events, as a line for people or as one JSON object.

use std::time::{Duration, SystemTime};

use incumbent::{Clock, Event, Failure, Mark, Participant, Reason};
use serde::Serialize;

use super::args::Form;
use super::output::{Gap, Output};
use super::text::{Bytes, json, shown, shown_bytes};

/// Prints the events of one election, in each form to its target.
#[derive(Clone, Debug)]
pub struct Reporter {
    election: String,
    id: String,
    targets: Vec<(Form, Output)>,
    /// The key of the last leadership: the event of its end does not name it.
    key: Vec<u8>,
}

impl Reporter {
    pub fn new(election: &str, id: &str, targets: Vec<(Form, Output)>) -> Self {
        Self { election: election.to_owned(), id: id.to_owned(), targets, key: Vec::new() }
    }

    pub fn report(&mut self, event: &Event, clock: &dyn Clock) {
        if let Event::Elected(term) = event {
            self.key.clone_from(&term.key);
        }
        let now = clock.now();
        for (form, output) in &self.targets {
            match form {
                Form::People => {
                    if let Some(line) = self.line(event, now) {
                        output.line(line);
                    }
                }
                Form::Json => output.line(self.object(event, now)),
            }
        }
    }

    /// A sentence that is not an event, for people only.
    pub fn remark(&self, sentence: &str) {
        for (form, output) in &self.targets {
            match form {
                Form::People => output.line(format!("incumbent: {sentence}")),
                Form::Json => {}
            }
        }
    }

    /// Waits until the last lines are written.
    pub async fn flush(&self) {
        for (_, output) in &self.targets {
            output.flush().await;
        }
    }

    /// None for renewals: people do not want a line for each.
    fn line(&self, event: &Event, now: Mark) -> Option<String> {
        let election = shown_bytes(self.election.as_bytes());
        Some(match event {
            Event::Joined { key, .. } => {
                format!("joined {election} as {}", shown_bytes(key))
            }
            Event::Elected(term) => format!(
                "elected: leading {election} in epoch {}, for {} and as long as renewed",
                term.epoch,
                in_seconds(left(term.valid_until, now))
            ),
            Event::Extended(_) => return None,
            Event::Endangered(term) => format!(
                "endangered: renewals fail, epoch {} of {election} ends in {}",
                term.epoch,
                in_seconds(left(term.valid_until, now))
            ),
            Event::Demoted { epoch, reason } => {
                format!("demoted: epoch {epoch} of {election} is over: {reason}")
            }
            Event::Leader(leader) => leader_line(&self.election, leader.as_ref()),
            Event::Trouble(failure) => {
                format!("trouble: {}", shown(&failure.to_string()))
            }
            Event::Withdrawn(cause) => {
                let cause = cause.as_ref().map(|failure| shown(&format!(": {failure}")));
                format!(
                    "withdrawn: no candidate of {election} any more{}",
                    cause.unwrap_or_default()
                )
            }
            other => format!("{other:?}"),
        })
    }

    fn object(&self, event: &Event, now: Mark) -> String {
        let details = match event {
            Event::Joined { key, .. } => Details::Joined { key: Bytes("key", key) },
            Event::Elected(term) | Event::Extended(term) | Event::Endangered(term) => {
                Details::Term {
                    epoch: term.epoch.into(),
                    key: Bytes("key", &term.key),
                    lease: term.lease.to_string(),
                    remaining_ms: left(term.valid_until, now).as_millis(),
                }
            }
            Event::Demoted { epoch, reason } => Details::Demoted {
                epoch: (*epoch).into(),
                key: Bytes("key", &self.key),
                reason: reason_name(reason),
                detail: match reason {
                    Reason::Other(detail) => Some(detail),
                    Reason::Resigned
                    | Reason::Expired
                    | Reason::LeaseLost
                    | Reason::Deposed
                    | Reason::Fenced => None,
                },
            },
            Event::Leader(leader) => {
                Details::Leader { leader: leader.as_ref().map(ParticipantObject::from) }
            }
            Event::Trouble(failure) | Event::Withdrawn(Some(failure)) => {
                Details::Failure { failure: failure_name(failure), detail: failure.to_string() }
            }
            Event::Withdrawn(None) | _ => Details::Nothing {},
        };
        object(name(event), &self.election, &self.id, details)
    }
}

/// One object: what all events have, and what this one has.
#[derive(Serialize)]
struct Object<'a> {
    event: &'a str,
    election: &'a str,
    id: &'a str,
    time: String,
    #[serde(flatten)]
    details: Details<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Details<'a> {
    Joined {
        #[serde(flatten)]
        key: Bytes<'a>,
    },
    Term {
        epoch: i64,
        #[serde(flatten)]
        key: Bytes<'a>,
        lease: String,
        remaining_ms: u128,
    },
    Demoted {
        epoch: i64,
        #[serde(flatten)]
        key: Bytes<'a>,
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
    Leader {
        leader: Option<ParticipantObject<'a>>,
    },
    Failure {
        failure: &'static str,
        detail: String,
    },
    Missed {
        lines: u64,
    },
    Nothing {},
}

#[derive(Serialize)]
pub struct ParticipantObject<'a> {
    #[serde(flatten)]
    key: Bytes<'a>,
    #[serde(flatten)]
    value: Bytes<'a>,
    epoch: i64,
    lease: String,
}

impl<'a> From<&'a Participant> for ParticipantObject<'a> {
    fn from(participant: &'a Participant) -> Self {
        Self {
            key: Bytes("key", &participant.key),
            value: Bytes("value", &participant.value),
            epoch: participant.epoch.into(),
            lease: participant.lease.to_string(),
        }
    }
}

fn object(event: &str, election: &str, id: &str, details: Details<'_>) -> String {
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    json(&Object { event, election, id, time, details })
}

/// Makes the line in place of lines that were left out, because nobody read them in time.
pub fn missed(form: Form, election: &str, id: &str) -> Gap {
    let [election, id] = [election, id].map(ToOwned::to_owned);
    match form {
        Form::People => Box::new(|many| {
            format!("incumbent: lines are missing here, because they were not read in time: {many}")
        }),
        Form::Json => {
            Box::new(move |lines| object("missed", &election, &id, Details::Missed { lines }))
        }
    }
}

/// The leader, as one line for people.
pub fn leader_line(election: &str, leader: Option<&Participant>) -> String {
    let election = shown_bytes(election.as_bytes());
    match leader {
        Some(leader) => format!(
            "{} leads {election} in epoch {} ({})",
            shown_bytes(&leader.value),
            leader.epoch,
            shown_bytes(&leader.key)
        ),
        None => format!("nobody leads {election}"),
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Joined { .. } => "joined",
        Event::Elected(_) => "elected",
        Event::Extended(_) => "extended",
        Event::Endangered(_) => "endangered",
        Event::Demoted { .. } => "demoted",
        Event::Leader(_) => "leader",
        Event::Trouble(_) => "trouble",
        Event::Withdrawn(_) => "withdrawn",
        _ => "other",
    }
}

/// Its name in JSON.
fn reason_name(reason: &Reason) -> &'static str {
    match reason {
        Reason::Resigned => "resigned",
        Reason::Expired => "expired",
        Reason::LeaseLost => "lease-lost",
        Reason::Deposed => "deposed",
        Reason::Fenced => "fenced",
        Reason::Other(_) => "other",
    }
}

fn failure_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::Timeout => "timeout",
        Failure::Unavailable => "unavailable",
        Failure::Compacted(_) => "compacted",
        Failure::Denied(_) => "denied",
        Failure::Invalid(_) => "invalid",
        Failure::Other(_) => "other",
    }
}

fn left(valid_until: Mark, now: Mark) -> Duration {
    Duration::from_nanos(valid_until.saturating_sub(now))
}

/// To a tenth of a second.
pub fn in_seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
