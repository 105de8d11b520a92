//! Events, as a line for people or as one JSON object.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{Stream, StreamExt};
use incumbent::{BootClock, Clock, Event, Failure, Mark, Participant, Reason};
use serde_json::Value;

use super::args::Form;
use super::instance::{Description, InstanceView};
use super::output::{Gap, Output};
use super::text::{Field, bytes_field, field, in_seconds, json, leader_line, shown, shown_bytes};

/// Prints the events of one election, in each form to its target, and keeps them for the HTTP
/// endpoint.
#[derive(Clone, Debug)]
pub struct Reporter {
    election: String,
    id: String,
    targets: Vec<(Form, Output)>,
    view: InstanceView,
    /// The key of the last leadership: the event of its end does not name it.
    key: Vec<u8>,
}

impl Reporter {
    pub fn new(view: &InstanceView, targets: Vec<(Form, Output)>) -> Self {
        let Description { election, id, .. } = &view.shared().description;
        let (election, id) = (election.clone(), id.clone());
        Self { election, id, targets, view: view.clone(), key: Vec::new() }
    }

    /// Prints all events of a candidate.
    pub async fn report_all(mut self, mut events: impl Stream<Item = Event> + Unpin) {
        while let Some(event) = events.next().await {
            self.report(&event);
        }
    }

    pub fn report(&mut self, event: &Event) {
        if let Event::Elected(term) = event {
            self.key.clone_from(&term.key);
        }
        let now = BootClock.now();
        let object = self.object(event, now);
        let line = self.line(event, now);
        for (form, output) in &self.targets {
            match form {
                Form::People => {
                    if let Some(line) = &line {
                        output.line(line.as_str());
                    }
                }
                Form::Json => output.line(object.as_str()),
            }
        }
        self.view.record(event, object, line);
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
            Event::HandOver { epoch } => {
                format!(
                    "asked to hand over: epoch {epoch} of {election} ends when its work has stopped"
                )
            }
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
            Event::Joined { key, .. } => vec![bytes_field("key", key)],
            Event::Elected(term) | Event::Extended(term) | Event::Endangered(term) => vec![
                field("epoch", i64::from(term.epoch)),
                bytes_field("key", &term.key),
                field("lease", term.lease.to_string()),
                field("remaining_ms", term.valid_until.saturating_sub(now) / 1_000_000),
            ],
            Event::HandOver { epoch } => {
                vec![field("epoch", i64::from(*epoch)), bytes_field("key", &self.key)]
            }
            Event::Demoted { epoch, reason } => {
                let mut details = vec![
                    field("epoch", i64::from(*epoch)),
                    bytes_field("key", &self.key),
                    field("reason", reason.name()),
                ];
                if let Reason::Other(detail) = reason {
                    details.push(field("detail", detail.as_str()));
                }
                details
            }
            Event::Leader(leader) => vec![field("leader", leader.as_ref().map(participant))],
            Event::Trouble(failure) => failure_fields(failure),
            Event::Withdrawn(cause) => cause.as_ref().map(failure_fields).unwrap_or_default(),
            _ => Vec::new(),
        };
        object(name(event), &self.election, &self.id, details)
    }
}

/// The leader, or another candidate, as an object.
pub fn participant(participant: &Participant) -> Value {
    Value::from_iter([
        bytes_field("key", &participant.key),
        bytes_field("value", &participant.value),
        field("epoch", i64::from(participant.epoch)),
        field("lease", participant.lease.to_string()),
    ])
}

/// One object: what all events have, and what this one has.
fn object(event: &str, election: &str, id: &str, details: Vec<Field>) -> String {
    let time = field("time", time_before(Duration::ZERO));
    let common = [field("event", event), field("election", election), field("id", id), time];
    json(&common.into_iter().chain(details).collect())
}

/// Makes the line in place of lines that were left out, because nobody read them in time.
pub fn missed(form: Form, election: &str, id: &str) -> Gap {
    let [election, id] = [election, id].map(ToOwned::to_owned);
    match form {
        Form::People => Box::new(|many| {
            format!("incumbent: lines are missing here, because they were not read in time: {many}")
        }),
        Form::Json => Box::new(move |many| missed_object(&election, &id, many)),
    }
}

/// The object in place of objects that were left out.
pub fn missed_object(election: &str, id: &str, many: u64) -> String {
    object("missed", election, id, vec![field("lines", many)])
}

/// The time of so long ago, as the time since 1970.
pub fn unix_time_before(span: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(span)
}

/// The time of so long ago, as text.
pub fn time_before(span: Duration) -> String {
    let now = SystemTime::now();
    humantime::format_rfc3339_millis(now.checked_sub(span).unwrap_or(now)).to_string()
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Joined { .. } => "joined",
        Event::Elected(_) => "elected",
        Event::Extended(_) => "extended",
        Event::Endangered(_) => "endangered",
        Event::HandOver { .. } => "hand-over",
        Event::Demoted { .. } => "demoted",
        Event::Leader(_) => "leader",
        Event::Trouble(_) => "trouble",
        Event::Withdrawn(_) => "withdrawn",
        _ => "other",
    }
}

fn failure_fields(failure: &Failure) -> Vec<Field> {
    vec![field("failure", failure.name()), field("detail", failure.to_string())]
}

fn left(valid_until: Mark, now: Mark) -> Duration {
    Duration::from_nanos(valid_until.saturating_sub(now))
}
